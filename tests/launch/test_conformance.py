import sys
from pathlib import Path

import pytest

from apples.launch.conformance import ProblemSize, check_program

PROGRAMS = Path(__file__).with_name("programs")


@pytest.mark.mpi
def test_a_program_that_keeps_the_protocol_fails_only_where_it_is_lax():
    argv = (sys.executable, "-m", "mpi4py", str(PROGRAMS / "ring.py"))
    size = ProblemSize({"iterations": 3}, 9)
    checks = check_program({"plain": argv}, size, size)
    assert [check.name for check in checks if not check.ok] == [
        "plain: computes on the rows it is given",  # it says 0.01 s for either host
        "plain: refuses a task of an unknown mode",
    ]
    assert "a host with 1 of 9 rows computes 1 times as long" in checks[-3].detail
    assert len(checks) == 16


def test_a_program_that_does_not_start_fails_every_check():
    checks = check_program({"plain": ("/no/such/solver",)}, ProblemSize({}, 9), ProblemSize({}, 9))
    wrong = [check for check in checks if check.ok is False]
    assert [check.name for check in wrong] == [
        "plain: runs on 3 ranks",
        "plain: runs on 1 rank",
        "plain: calibrates",
    ]
    assert all("No such file" in check.detail for check in wrong)
    rest = [check for check in checks if check not in wrong]
    assert [check.ok for check in rest] == [None] * 3, "nothing is ok that was not tried"
    assert all(check.detail.startswith("not checked: ") for check in rest)
