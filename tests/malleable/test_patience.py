"""MPI's own blocking calls leave their CPU to others while hosts change, and only then."""

import pytest
from mpi4py import MPI

from apples.malleable import collectives

pytestmark = pytest.mark.mpi


def settings():
    """Return the library's settings, by setting them to what they are."""
    before = collectives.set_variables(collectives.THROTTLE_VARIABLES)
    collectives.set_variables(before)
    return before


def test_blocking_calls_sleep_inside_and_not_outside():
    if MPI.get_vendor()[0] != "MPICH":
        pytest.skip("another MPI library than MPICH waits as it does")
    before = settings()
    assert before.keys() == collectives.THROTTLE_VARIABLES.keys()
    assert before != collectives.THROTTLE_VARIABLES
    with collectives.throttle_mpi():
        assert settings() == collectives.THROTTLE_VARIABLES
    assert settings() == before
    with pytest.raises(ZeroDivisionError), collectives.throttle_mpi():
        raise ZeroDivisionError
    assert settings() == before
