import sys
from pathlib import Path

import pytest

from apples.launch.conformance import check_program

PROGRAMS = Path(__file__).with_name("programs")


@pytest.mark.mpi
def test_a_program_that_keeps_the_protocol_fails_only_where_it_is_lax():
    argv = (sys.executable, "-m", "mpi4py", str(PROGRAMS / "ring.py"))
    checks = check_program({"plain": argv}, {"iterations": 3}, 9)
    assert [check.name for check in checks if not check.ok] == [
        "plain: refuses a task of an unknown mode"
    ]
    assert len(checks) == 15


def test_a_program_that_does_not_start_fails_every_check():
    checks = check_program({"plain": ("/no/such/solver",)}, {}, 9)
    wrong = [check for check in checks if not check.ok]
    assert [check.name for check in wrong] == [
        "plain: runs on 3 ranks",
        "plain: runs on 1 rank",
        "plain: calibrates",
    ]
    assert all("No such file" in check.detail for check in wrong)
