"""A result compared with a function that the template names, which knows nothing of the program."""

import numpy as np
import pytest
from commands import command, files

import hat
from apples.agent import compare_result, load_information
from apples.errors import ApplesError, DeadlineError, UsageError, VerificationError

PROGRAM = """
from apples.program import Task

def hot_top(rows, block):
    if rows.start == {first}:
        block[0] = 1.0

with Task(defaults={{"grid": 12, "iterations": 20}}) as task:
    n = task.parameters["grid"]
    old = task.array("old", (n, n), halo=1, fill=hot_top)
    new = task.array("new", (n, n), halo=1, fill=hot_top)
    for _ in task.iterations():
        task.exchange(old)
        u, v = old.local, new.local
        v[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
        old.swap(new)
    task.result(old)
"""
REFERENCE = """
import numpy as np

def solve(parameters):
    n = int(parameters["grid"])
    u = np.zeros((n + 2, n + 2))
    u[0, 1:-1] = 1.0
    u = u[:, 1:-1].copy()
    for _ in range(int(parameters["iterations"])):
        v = u.copy()
        v[1:-1, 1:-1] = (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) / 4
        u = v
    return u[1:-1]

def wait(parameters):
    while True:
        pass

def fail(parameters):
    return 1 / 0

def square(parameters):
    return np.zeros((3, 3))
"""
TEMPLATE = """
name = "hot"
program = ["{{python}}", "hot.py"]
malleable = true
[parameters]
grid = {{default = 12}}
iterations = {{default = 20}}
[expected_result]
function = "reference.py:{function}"
tolerance = {tolerance}
"""
HOSTS = "".join(
    f'[[host]]\nname = "{name}"\nseconds_per_point = 1e-8\nfree_memory = "1 GB"\n'
    for name in ("ada", "bob")
)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the program, whose `fill` writes the boundary into a strip that begins at a row, on two hosts."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def run(*words, first=-1, function="solve", tolerance=1e-12):
        (tmp_path / "hot.py").write_text(PROGRAM.format(first=first))
        (tmp_path / "reference.py").write_text(REFERENCE)
        template = TEMPLATE.format(function=function, tolerance=tolerance)
        options = files(tmp_path, hosts=HOSTS, template=template)
        return command(
            "apples", "run", *options, "--weather", "static", "--blueprint", "blocked", *words
        )

    return run


@pytest.mark.mpi
def test_result_within_the_tolerance_of_the_function_is_verified(run):
    done = run("--verify", "full", "--json")
    assert done.code == 0, done.err
    document = done.document
    assert document["verified"] is True
    checked = document["verification"]["expected_result"]
    assert (checked["function"], checked["differs_at"]) == ("reference.py:solve", None)
    assert checked["largest_difference"] <= checked["tolerance"] == 1e-12


@pytest.mark.mpi
def test_fill_that_is_wrong_in_the_halo_is_found_by_the_function_alone(run):
    """The runs on two ranks and on one have the same bits: both lack the boundary."""
    done = run("--verify", "full", "--json", first=0)
    assert done.code == 6
    document = done.document
    verification = document["verification"]
    assert (document["verified"], verification["differs_at"]) == (False, None)
    assert verification["compared"]["partition_tested"] is True
    cell = verification["expected_result"]["differs_at"]
    assert (cell["index"], float(cell["value"])) == ([0, 1], 0.0)
    failure = done.failure
    assert failure["code"] == "result-differs"
    assert failure["fields"] == {"function": "reference.py:solve", **cell}
    for part in (cell["value"], cell["expected"], "[0, 1]", "reference.py:solve"):
        assert part in failure["message"]


@pytest.mark.mpi
def test_function_that_fails_leaves_a_result_unverified(run):
    done = run("--verify", "full", "--json", function="fail")
    assert (done.code, done.failure["code"]) == (6, "result-unverified")
    assert "ZeroDivisionError" in done.failure["message"]
    assert "reference.py:" in done.failure["message"]
    verification = done.document["verification"]
    assert verification["compared"]["partition_tested"] is True
    assert "equal" in verification["reason"]


def reference(name, tolerance=0.0):
    return hat.ExpectedResult(function=f"reference.py:{name}", tolerance=tolerance)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "reference.py").write_text(REFERENCE)
    return tmp_path


def compare(name, folder, result, tolerance=0.0, seconds=None):
    np.save(folder / "result.npy", result)
    parameters = {"grid": 5, "iterations": 3}
    return compare_result(reference(name, tolerance), folder, parameters, folder, seconds)


def test_first_cell_beyond_the_tolerance_is_found_in_the_order_of_the_indices(folder):
    result = np.zeros((3, 3))
    result[1, 2], result[2, 0] = 1e-3, -2.0
    assert compare("square", folder, result, 3.0).differs_at is None
    near = compare("square", folder, result, 0.1)
    assert near.differs_at == {"index": [2, 0], "value": "-2.0", "expected": "0.0"}
    assert near.largest_difference == 2.0
    assert compare("square", folder, result).differs_at["index"] == [1, 2]
    result[0, 1] = np.nan
    beyond = compare("square", folder, result, 3.0)
    assert (beyond.largest_difference, beyond.differs_at["value"]) == (None, "nan")


def test_function_beyond_its_time_limit_is_ended(folder):
    with pytest.raises(DeadlineError) as late:
        compare("wait", folder, np.zeros((3, 3)), seconds=0.5)
    assert late.value.code == "expected-result-timeout"


@pytest.mark.parametrize(
    ("name", "code"), [("none", "user-code-missing"), ("fail", "user-code-failed")]
)
def test_error_of_the_function_has_its_file(folder, name, code):
    with pytest.raises(ApplesError) as failed:
        compare(name, folder, np.zeros((3, 3)))
    assert failed.value.code == code
    assert "reference.py" in str(failed.value.fields["file"])


def test_results_of_different_shapes_are_not_compared(folder):
    with pytest.raises(VerificationError) as failed:
        compare("square", folder, np.zeros((4, 3)))
    assert "(3, 3)" in str(failed.value)
    assert "(4, 3)" in str(failed.value)


def test_template_whose_function_has_no_file_is_refused(tmp_path):
    (tmp_path / "heat.py").touch()
    template = TEMPLATE.format(function="solve", tolerance=0.0)
    files(tmp_path, hosts=HOSTS, template=template)
    with pytest.raises(UsageError) as missing:
        load_information(*(tmp_path / f"{name}.toml" for name in ("hosts", "template", "user")))
    assert (missing.value.code, missing.value.fields["field"]) == (
        "file-missing",
        "expected_result.function",
    )
