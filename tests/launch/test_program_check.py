import shutil
import sys
from pathlib import Path

import pytest

from apples.launch import ProblemSize, check_program

ROOT = Path(__file__).parents[2]
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
    assert "1 of 9" in checks[-3].detail
    assert len(checks) == 18


@pytest.mark.mpi
def test_the_partition_whose_result_differs_is_named():
    argv = (sys.executable, "-S", str(PROGRAMS / "sumorder.py"))
    size = ProblemSize({}, 24)
    (check,) = [one for one in check_program({"plain": argv}, size, size) if one.ok is False]
    assert check.name == "plain: the result does not depend on the partition"
    assert check.detail == "the result on 3 ranks of 12:4:8 rows differs from that on 1 rank"


@pytest.mark.mpi
def test_a_result_that_is_wrong_only_in_a_strip_of_one_row_is_found():
    argv = (sys.executable, "-S", str(PROGRAMS / "sumorder.py"))
    size = ProblemSize({"thin": 1}, 24)
    (check,) = [one for one in check_program({"plain": argv}, size, size) if one.ok is False]
    assert check.detail == "the result on 3 ranks of 15:1:8 rows differs from that on 1 rank"


def test_a_program_that_does_not_start_fails_every_check():
    checks = check_program({"plain": ("/no/such/solver",)}, ProblemSize({}, 9), ProblemSize({}, 9))
    wrong = [check for check in checks if check.ok is False]
    assert [check.name for check in wrong] == [
        "plain: runs on 3 ranks",
        "plain: runs on 1 rank",
        "plain: runs on 2 ranks of 3:6 rows",
        "plain: runs on 3 ranks of 5:1:3 rows",
        "plain: calibrates",
    ]
    assert all("/no/such/solver" in check.detail for check in wrong)
    rest = [check for check in checks if check not in wrong]
    assert [check.ok for check in rest] == [None] * 3, "nothing is ok that was not tried"
    assert all(check.detail for check in rest)


@pytest.mark.more
@pytest.mark.mpi
def test_a_program_that_is_said_to_take_rectangles_is_run_on_some():
    solver = (sys.executable, str(ROOT / "examples" / "jacobi2d" / "solver.py"))
    size = ProblemSize({"grid": 12, "iterations": 3}, 12, 12)
    checks = check_program({"numpy": solver}, size, size, of_rectangles={"numpy"})
    found = {check.name.partition(": ")[2]: check for check in checks}
    assert found["runs on rectangles"].ok
    assert found["the result does not depend on the partition"].ok
    assert "numpy on rectangles: gives a digest" in [check.name for check in checks]


@pytest.mark.more
@pytest.mark.mpi
def test_a_program_by_threads_is_run_on_one_host_by_one_thread_and_by_three():
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    solver = (sys.executable, str(ROOT / "examples" / "jacobi2d" / "solver.py"))
    size = ProblemSize({"grid": 40, "iterations": 3}, 40, 40)
    checks = check_program({"threads": solver}, size, size, by_threads={"threads"})
    assert all(check.ok for check in checks if "iterations only grow" not in check.name)
    names = [check.name.partition(": ")[2] for check in checks]
    assert {"runs on 3 threads", "runs on 1 thread", "calibrates"} <= {*names}
    assert "computes on the rows it is given" not in names


@pytest.mark.more
@pytest.mark.mpi
def test_a_program_of_whole_rows_that_is_said_to_take_rectangles_is_found_out(tmp_path):
    program = tmp_path / "rows.py"
    program.write_text(
        "from apples.program import Task\n"
        "with Task(defaults=dict(grid=9, iterations=1)) as task:\n    pass\n"
    )
    size = ProblemSize({"grid": 9, "iterations": 1}, 9, 9)
    argv = (sys.executable, str(program))
    checks = check_program({"rows": argv}, size, size, of_rectangles={"rows"})
    (check,) = [check for check in checks if check.name == "rows: runs on rectangles"]
    assert check.ok is False
    assert "rectangles = true" in check.detail
