"""`apples.program`: the same lines under an agent and by hand; what is wrong is said in one line."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import apples.program
from apples.launch import hydra
from apples.program import Piece, Spikes, TaskDocument, TaskError, parameters_by_hand, read_task

SWEEPS = """
import sys
import numpy as np
from apples.program import Task

with Task(defaults={"grid": 24, "iterations": 9}) as task:
    n = task.parameters["grid"]
    u = np.zeros((len(task.strip) + 2, n))
    u[1:-1] += np.arange(task.strip.start, task.strip.stop)[:, None]
    for i in task.iterations():
        task.exchange(u)
        u[1:-1, 1:-1] = (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) / 4
        WRONG
    task.result(u[1:-1])
"""


NEW_ARRAYS = """
import weakref
import numpy as np
from apples.program import Task

with Task(defaults={"grid": 24, "iterations": 9}) as task:
    n, arrays = task.parameters["grid"], []
    for i in task.iterations():
        u = np.ones((len(task.strip) + 2, n))
        arrays.append(weakref.ref(u))
        task.exchange(u)
    alive = sum(array() is not None for array in arrays)
    assert alive <= 2, alive
    task.result(u[1:-1])
"""


def task(**more):
    found = {"schema": "apples.task/1", "mode": "run", "parameters": {"grid": 24, "iterations": 9}}
    found |= {"implementations": {}, "output": None, "save": False, "progress_seconds": 0}
    return found | {"partition": partition(("ada", 2, 17), ("bob", 1, 7))} | more


def partition(*pieces):
    first = [sum(rows for *_, rows in pieces[:k]) for k in range(len(pieces))]
    return [
        {"host": host, "address": "127.0.0.1", "ranks": ranks, "first_row": at, "rows": rows}
        for at, (host, ranks, rows) in zip(first, pieces, strict=True)
    ]


@pytest.fixture
def run(tmp_path):
    """Run a program, by hand or as an agent does: code, events, and all it said."""

    def run(text, *arguments, ranks=1, asked=None):
        program = tmp_path / "sweeps.py"
        program.write_text(text)
        given = {}
        if asked is not None:
            (tmp_path / "task.json").write_text(json.dumps(asked))
            given["APPLES_TASK"] = str(tmp_path / "task.json")
        launcher = [hydra.mpiexec(), *hydra.OPTIONS, "-n", str(ranks)] if ranks > 1 else []
        done = subprocess.run(
            [*launcher, sys.executable, str(program), *arguments],
            env=hydra.environment({**hydra.LOOPBACK, **hydra.ONE_THREAD, **given}),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        events = [json.loads(x) for x in done.stdout.splitlines() if x.startswith("{")]
        return done.returncode, events, done.stdout + done.stderr

    return run


def test_the_module_needs_nothing_but_the_standard_library():
    code = (
        "import sys, apples.program; "
        "print({'numpy', 'pydantic', 'mpi4py', 'apples.malleable'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 3])
def test_text_without_a_newline_hides_no_event(run, ranks):
    """On any rank: before the task, in the loop, and before the result's row digests."""
    says = 'print("Reading the coefficients ... ", end="", flush=True)\n'
    text = SWEEPS.replace("with Task(", says + "with Task(")
    text = text.replace("WRONG", says.strip()).replace(
        "    task.result", "    " + says + "    task.result"
    )
    pieces = partition(("ada", ranks, 24))
    code, events, said = run(text, ranks=ranks, asked=task(partition=pieces))
    assert code == 0, said
    names = [event["event"] for event in events]
    assert names[0] == "ready"
    assert "progress" in names
    assert names[-2:] == ["result", "done"]


HIDES = """
import os, sys
sys.path[:] = [p for p in sys.path if not os.path.exists(os.path.join(p, "apples", "__init__.py"))]
"""
"""Before all else in a program: apples as it is installed for development is not found any more."""


@pytest.mark.mpi
def test_a_copy_beside_the_program_serves_where_apples_is_not_installed(run, tmp_path):
    if (Path(np.__file__).parents[1] / "apples" / "__init__.py").exists():
        pytest.skip("apples is installed beside numpy: nothing hides the one and not the other")
    (tmp_path / "apples").mkdir()
    shutil.copy(apples.program.__file__, tmp_path / "apples")
    shows = SWEEPS.replace("WRONG", "") + "\nprint(sys.modules['apples.program'].__file__)"
    code, _, said = run(HIDES + shows)
    assert code == 0, said
    assert f"{tmp_path}/apples/program.py" in said.splitlines()
    code, _, said = run(HIDES + SWEEPS.replace("WRONG", "task.array('u', (24, 24))"))
    assert code == 2
    assert "[apples-missing]" in said


@pytest.mark.mpi
def test_one_result_by_hand_on_three_ranks_and_under_any_partition(run):
    program = SWEEPS.replace("WRONG", "")
    _, _, alone = run(program, "--set", "iterations=12")
    _, _, three = run(program, "--set=iterations=12", ranks=3)
    parameters = {"grid": 24, "iterations": 12}
    code, events, said = run(program, ranks=3, asked=task(parameters=parameters))
    assert code == 0, said
    said = ["ready", *["progress"] * 11, *["rows"] * 3, "result", "done"]
    assert [e["event"] for e in events] == said
    assert [(e["first_row"], e["host"], e["rank"], len(e["digests"])) for e in events[-5:-2]] == [
        (0, "ada", 0, 72), (9, "ada", 1, 64), (17, "bob", 2, 56),
    ]  # fmt: skip
    result = events[-2]
    assert [host["host"] for host in result["hosts"]] == ["ada", "bob"]
    assert result["iterations"] == 12
    for by_hand, ranks in ((alone, "1 rank"), (three, "3 ranks")):
        assert by_hand.startswith("12 iterations in ")
        assert f" on {ranks} (grid=24, iterations=12), sha256 {result['sha256'][:16]}" in by_hand


def seconds_of_iterations(count, *, spread=0.1, seed=0):
    """Return quiet iteration times, log-normal about 1 ms, and which of them are spikes: 1 in 100."""
    random = np.random.default_rng(seed)
    return 1e-3 * random.lognormal(0.0, spread, count), random.random(count) < 0.01


def clipped(seconds):
    spikes = Spikes()
    for one in seconds.tolist():
        spikes.add(one)
    return float(seconds.sum()) - spikes.excess


@pytest.mark.parametrize("spread", [0.03, 0.1, 0.3])
@pytest.mark.parametrize("seed", range(5))
def test_spikes_of_one_iteration_in_a_hundred_change_no_clipped_sum_by_5_percent(spread, seed):
    quiet, spike = seconds_of_iterations(3000, spread=spread, seed=seed)
    spiked = np.where(spike, 500 * quiet, quiet)
    assert spiked.sum() > 3 * quiet.sum()
    assert abs(clipped(spiked) / clipped(quiet) - 1) < 0.05


def test_a_change_of_speed_is_no_spike():
    quiet, _ = seconds_of_iterations(400)
    for factor in (2, 20):
        changed = np.where(np.arange(400) >= 200, factor * quiet, quiet)
        assert clipped(changed) > 0.97 * changed.sum()


def test_work_of_every_tenth_iteration_is_no_spike():
    quiet, _ = seconds_of_iterations(3000)
    changed = np.where(np.arange(3000) % 10 == 0, 20 * quiet, quiet)
    assert clipped(changed) > 0.95 * changed.sum()


STALLS = SWEEPS.replace("import sys", "import sys, time").replace(
    "WRONG", "i % 100 == 60 and time.sleep(0.2)"
)


@pytest.mark.mpi
def test_a_program_reports_its_times_without_spikes_too(run):
    parameters = {"grid": 24, "iterations": 300}
    asked = task(parameters=parameters, partition=partition(("ada", 1, 24)), progress_seconds=0.1)
    code, events, said = run(STALLS, asked=asked)
    assert code == 0, said
    result = events[-2]
    host = result["hosts"][0]
    assert host["compute_seconds"] > 0.6
    assert host["clipped_compute_seconds"] < host["compute_seconds"] - 0.4
    assert result["clipped_seconds"] < result["seconds"] - 0.4
    assert host["cpu_wait_seconds"] >= 0


@pytest.mark.mpi
def test_who_leaves_the_loop_has_done_the_iteration_and_the_result_is_kept(run, tmp_path):
    program = SWEEPS.replace(
        "WRONG", "task.residual = task.allreduce(float(i))\n        if i == 4: break"
    )
    asked = task(output=str(tmp_path / "out"), save=True, progress_seconds=10_000)
    code, events, said = run(program, ranks=3, asked=asked)
    assert code == 0, said
    result = events[-2]
    assert (result["iterations"], result["residual"]) == (5, 4.0)
    said = ["ready", "progress", *["rows"] * 3, "result", "done"]
    assert [event["event"] for event in events] == said
    (kept,) = map(Path, result["files"])
    grid = np.load(kept)
    assert grid.shape == (24, 24)
    assert [path.name for path in kept.parent.iterdir()] == ["result.npy"]


@pytest.mark.mpi
def test_iteration_in_which_loop_is_left_counts_if_its_iterator_is_kept(run):
    program = SWEEPS.replace("for i in task", "steps = task").replace(
        "iterations():", "iterations()\n    for i in steps:"
    )
    alone = task(partition=partition(("ada", 1, 24)))
    code, events, said = run(program.replace("WRONG", "if i == 4: break"), asked=alone)
    assert code == 0, said
    assert events[-2]["iterations"] == 5


@pytest.mark.more
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("wrong", "numbers", "more"),
    [
        ("if i == 3: raise ArithmeticError('row 7 is bad')", "7", {}),
        ("task.result(u)", "26 0 24", {"code": "result-shape"}),
    ],
)
def test_what_goes_wrong_is_an_event(run, wrong, numbers, more):
    alone = task(partition=partition(("ada", 1, 24)))
    code, events, _ = run(SWEEPS.replace("WRONG", wrong), asked=alone)
    assert code != 0
    message = events[-1]["message"]
    assert events[-1] == {"event": "error", "message": message, "rank": 0, **more}
    assert re.findall(r"\d+", message) == numbers.split()


@pytest.mark.more
@pytest.mark.mpi
def test_what_goes_wrong_on_one_rank_ends_all_of_them(run):
    """What that rank says may be lost by the launcher, which is told to end everything a second later."""
    wrong = "if task.rank == 1: raise ArithmeticError('row 7 is bad')"
    code, events, _ = run(SWEEPS.replace("WRONG", wrong), ranks=3, asked=task())
    assert code != 0
    assert not {"result", "done"} & {event["event"] for event in events}


@pytest.mark.more
@pytest.mark.mpi
def test_a_program_without_a_result_is_not_done(run):
    text = SWEEPS.replace("WRONG", "").replace("    task.result(u[1:-1])\n", "")
    code, events, _ = run(text, asked=task(partition=partition(("ada", 1, 24))))
    assert code != 0
    assert events[-1]["code"] == "program-result-missing"
    (line,) = [
        line for line in run(text)[2].splitlines() if line.endswith(" [program-result-missing]")
    ]
    assert line.startswith("sweeps: ")


@pytest.mark.parametrize(
    ("arguments", "code", "fields"),
    [
        (
            ["--set", "gird=5"],
            "program-parameter-unknown",
            {"field": "gird", "known": ["grid", "iterations"]},
        ),
        (["--set", "grid=x"], "parameter-type", {"field": "grid", "value": "x"}),
        (["--set=grid"], "parameter-invalid", {"value": "grid"}),
        (["-v", "--set"], "parameter-invalid", {"value": ""}),
    ],
)
def test_a_setting_that_says_nothing_known_is_refused(arguments, code, fields):
    with pytest.raises(TaskError) as refusal:
        parameters_by_hand({"grid": 24, "iterations": 9}, arguments, Path("/nowhere"))
    assert (refusal.value.code, refusal.value.fields) == (code, fields)


@pytest.mark.mpi
def test_what_is_wrong_by_hand_is_one_line(run):
    code, _, said = run(SWEEPS, "--set", "grid=0")
    assert code == 2
    (line,) = [line for line in said.splitlines() if line.endswith(" [parameter-range]")]
    assert line.startswith("sweeps: ")
    assert "'grid'" in line
    assert "Traceback" not in said


def test_a_template_beside_the_program_has_its_parameters_and_limits(tmp_path):
    (tmp_path / "template.toml").write_text(
        "[parameters.grid]\ndefault = 7\nminimum = 3\n[parameters.omega]\ndefault = 1.5\n"
    )
    assert parameters_by_hand({"grid": 5, "more": "x"}, ["-v", "--set", "omega=1"], tmp_path) == {
        "grid": 7, "more": "x", "omega": 1.0,
    }  # fmt: skip
    with pytest.raises(TaskError) as raised:
        parameters_by_hand({}, ["--set", "grid=2"], tmp_path)
    assert raised.value.code == "parameter-range"
    assert raised.value.fields == {"field": "grid", "value": 2, "bound": 3}
    (tmp_path / "template.toml").write_text("[parameters")
    with pytest.raises(TaskError) as raised:
        parameters_by_hand({}, [], tmp_path)
    assert raised.value.code == "template-invalid"
    assert raised.value.fields["file"] == str(tmp_path / "template.toml")


def test_ranks_of_a_host_share_its_rows_the_earlier_ones_the_larger_pieces():
    document = TaskDocument("run", {}, (Piece("ada", 2, 0, 5), Piece("bob", 1, 5, 2)))
    assert document.layout == [("ada", range(3)), ("ada", range(3, 5)), ("bob", range(5, 7))]
    assert read_task(json.dumps(task())).layout == [
        ("ada", range(9)), ("ada", range(9, 17)), ("bob", range(17, 24)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "code", "fields"),
    [
        ({"schema": "apples.task/2"}, "task-invalid",
         {"field": "schema", "value": "apples.task/2"}),
        ({"mode": "dream"}, "task-invalid", {"field": "mode", "value": "dream"}),
        ({"parameters": []}, "task-invalid", {"field": "parameters", "value": []}),
        ({"save": True}, "task-invalid", {"field": "save", "value": True}),
        ({"progress_seconds": -1}, "task-invalid", {"field": "progress_seconds", "value": -1}),
        ({"distances": {"ada": {"bob": 0}}}, "task-invalid",
         {"field": "distances", "value": {"ada": {"bob": 0}}}),
        ({"partitions": None}, "task-invalid", {"field": "partitions", "value": None}),
        ({"partition": []}, "task-invalid", {"field": "partition", "value": []}),
        ({"partition": {}}, "task-invalid", {"field": "partition", "value": {}}),
        ({"partition": ["ada"]}, "partition-invalid", {"index": 0}),
        ({"partition": [{"host": "ada"}]}, "partition-invalid", {"index": 0}),
        ({"partition": partition(("ada", 1, 5)) * 2}, "partition-invalid",
         {"value": 10, "bound": 5}),
        ({"partition": partition(("ada", 1, 5))[:1] + partition(("ada", 1, 6), ("bob", 1, 5))[1:]},
         "partition-invalid", {"value": 10, "bound": 11}),
        ({"partition": partition(("ada", 6, 5))}, "partition-invalid", {"index": 0}),
        ({"partition": partition(("ada", 1, True))}, "partition-invalid", {"index": 0}),
        ({"mode": "calibrate", "sizes": [0]}, "task-invalid", {"field": "sizes", "value": [0]}),
    ],
)  # fmt: skip
def test_a_task_that_does_not_say_what_it_should_is_refused(change, code, fields):
    with pytest.raises(TaskError) as raised:
        read_task(json.dumps(task() | change))
    assert (raised.value.code, raised.value.fields) == (code, fields)


def rectangles(*pieces):
    names = ("host", "ranks", "first_row", "rows", "first_column", "columns")
    return [dict(zip(names, piece, strict=True)) for piece in pieces]


@pytest.mark.parametrize(
    ("partition", "code", "fields"),
    [
        (rectangles(("ada", 1, 0, 9, 0, 9), ("bob", 1, 8, 1, 8, 1)), "partition-invalid",
         {"value": 82, "bound": 81}),
        (rectangles(("ada", 1, 0, 6, 0, 4), ("bob", 1, 5, 4, 0, 3)), "partition-invalid",
         {"value": 36, "bound": 36}),
        (rectangles(("ada", 1, 0, 9, 0, 4), ("bob", 1, 0, 8, 4, 5)), "partition-invalid",
         {"value": 76, "bound": 81}),
        (rectangles(("ada", 1, 0, 9, -1, 9)), "partition-invalid", {"index": 0}),
        (rectangles(("ada", 1, 0, 9, 0, 0)) + rectangles(("bob", 1, 0, 9, 0, 4)), "partition-invalid",
         {"value": 72, "bound": 36}),
        (rectangles(("ada", 1, 0, 9, 0, 4)) + partition(("bob", 1, 9)), "partition-invalid",
         {"value": 72, "bound": 36}),
        ([*rectangles(("ada", 1, 0, 9, 0, 4)), {"host": "bob", "columns": 1}], "partition-invalid",
         {"index": 1}),
        (rectangles(("ada", 10, 0, 9, 0, 9)), "partition-invalid", {"index": 0}),
        (rectangles(("ada", 1, 0, 9, 0, 2.5)), "partition-invalid", {"index": 0}),
    ],
)  # fmt: skip
def test_rectangles_that_do_not_cover_the_grid_once_are_refused(partition, code, fields):
    with pytest.raises(TaskError) as raised:
        read_task(json.dumps(task(partition=partition)), rectangles=True)
    assert (raised.value.code, raised.value.fields) == (code, fields)


SIDES = """
import numpy as np
from apples.program import Task

with Task(rectangles=True, defaults={"grid": 24, "iterations": 9}) as task:
    n = task.parameters["grid"]
    rows, columns = task.rectangle
    u = np.zeros((len(rows) + 2, len(columns) + 2))
    u[1:-1, 1:-1] = np.add.outer(np.array(rows) ** 2, columns)
    for i in task.iterations():
        task.exchange(u)
        u[1:-1, 1:-1] = (u[:-2, 1:-1] + 2 * u[2:, 1:-1] + 3 * u[1:-1, :-2] + 5 * u[1:-1, 2:]) / 11
        WRONG
    task.result(u[1:-1, 1:-1])
"""
# a a a a b b b    four rectangles, two of them of a host with two ranks each, and no line that
# a a a a b b b    goes through the whole grid
# c c d d b b b
# c c d d d d d
UNEVEN = [
    ("ada", 2, 0, 11, 0, 15), ("bob", 2, 0, 17, 15, 9), ("cy", 1, 11, 13, 0, 7),
    ("dan", 1, 11, 6, 7, 8), ("eve", 1, 17, 7, 7, 17),
]  # fmt: skip


@pytest.mark.mpi
def test_rectangles_come_to_the_result_of_one_process_whatever_they_are(run, tmp_path):
    program = SIDES.replace("WRONG", "")
    _, _, alone = run(program)
    _, _, strips = run(program, ranks=3)
    asked = task(partition=rectangles(*UNEVEN), output=str(tmp_path / "out"), save=True)
    code, events, said = run(program, ranks=7, asked=asked)
    assert code == 0, said
    assert "rows" not in {event["event"] for event in events}, "a row has several owners"
    result = events[-2]
    for by_hand in (alone, strips):
        assert f"sha256 {result['sha256'][:16]}" in by_hand
    grid = np.load(tmp_path / "out" / "result.npy")
    assert grid.shape == (24, 24)
    assert hashlib.sha256(grid.tobytes()).hexdigest() == result["sha256"]


@pytest.mark.more
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("program", "wrong"),
    [
        (SIDES.replace("WRONG", "task.exchange(u[1:])"), "array-shape"),
        (SIDES.replace("WRONG", "task.result(u)"), "result-shape"),
        (SIDES.replace("u = ", "task.array('u', (24, 24)); u = "), "declaration-needs-rows"),
        (SIDES.replace("rectangles=True", "columns=12, rectangles=True"), "grid-columns-differ"),
        (SIDES.replace("rectangles=True, ", ""), "rectangles-undeclared"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_program_of_rectangles_is_named(run, program, wrong):
    halves = rectangles(("ada", 1, 0, 24, 0, 12), ("bob", 1, 0, 24, 12, 12))
    code, _, said = run(program, ranks=2, asked=task(partition=halves))
    assert code != 0
    assert f'"code": "{wrong}"' in said


def test_a_task_that_is_no_json_is_refused():
    with pytest.raises(TaskError) as raised:
        read_task("{")
    assert raised.value.code == "task-not-json"
    assert raised.value.fields["reason"]


@pytest.mark.mpi
def test_a_task_for_other_ranks_or_rows_is_refused(run):
    _, events, _ = run(SWEEPS, asked=task())
    assert events[-1]["code"] == "program-ranks-differ"
    assert re.findall(r"\d+", events[-1]["message"]) == ["3", "1"]
    other = task(partition=partition(("ada", 1, 20)))
    _, events, _ = run(SWEEPS, asked=other)
    assert events[-1]["code"] == "program-rows-differ"
    assert re.findall(r"\d+", events[-1]["message"]) == ["20", "24"]


JOB = """
import json
import numpy as np
from mpi4py import MPI
from apples import malleable

job = malleable.Job()
u = job.array("u", (24, 3), halo=1)
blocks = job.blocks("b", lambda n: np.zeros(1), lambda b: {"b": b}, lambda a: a["b"], count=12)
state = job.state(iteration=0)
job.safepoint()
found = job.comm.gather([job.host, job.strip.first, len(job.strip), len(u.own), len(blocks.items())])
if job.rank == 0:
    print(json.dumps({"members": [m.host for m in job.members], "ranks": found}))
job.finish()
"""


FAR = {"ada": {"bob": 7.0}, "bob": {"ada": 7.0}}


@pytest.mark.mpi
def test_blocks_of_a_job_that_is_run_rigid_know_how_far_their_hosts_are(run):
    program = JOB.replace("len(blocks.items())", "[p.distances for p in blocks.processors]")
    asked = task(partition=partition(("ada", 2, 18), ("bob", 1, 6)), distances=FAR)
    code, found, said = run(program, ranks=3, asked=asked)
    assert code == 0, said
    assert found[0]["ranks"][2][4] == [{"bob": 7.0}, {"bob": 7.0}, {"ada": 7.0}]


@pytest.mark.more
@pytest.mark.mpi
def test_a_job_that_is_run_rigid_has_the_rows_and_hosts_of_its_task(run):
    code, found, said = run(
        JOB, ranks=3, asked=task(partition=partition(("ada", 2, 18), ("bob", 1, 6)))
    )
    assert code == 0, said
    assert found[0]["members"] == ["ada", "bob"]
    assert [rank[:4] for rank in found[0]["ranks"]] == [
        ["ada", 0, 9, 9], ["ada", 9, 9, 9], ["bob", 18, 6, 6],
    ]  # fmt: skip
    assert sum(rank[4] for rank in found[0]["ranks"]) == 12
    assert found[0]["ranks"][2][4] < 4, "fewer blocks for the host with fewer rows"
    _, found, _ = run(JOB, ranks=3)
    assert [rank[2] for rank in found[0]["ranks"]] == [8, 8, 8]


@pytest.mark.mpi
def test_a_job_that_is_handed_rectangles_ends_on_every_rank(run):
    halves = rectangles(("ada", 1, 0, 24, 0, 12), ("bob", 1, 0, 24, 12, 12))
    code, _, said = run(JOB, ranks=2, asked=task(partition=halves))
    assert code != 0
    assert "TaskError: " in said
    assert "partition[0] is a rectangle" in said


SWAPS = """
import numpy as np
from apples import malleable

job = malleable.Job()
fill = lambda value: lambda rows, block: block.fill(value)
u, v, other = (job.array(name, (12, 3), halo=1, fill=fill(k)) for k, name in enumerate("uvw"))
narrow = job.array("narrow", (12, 3))
job.safepoint()
for swaps in range(1, 4):
    u.exchange(), v.exchange()
    u.swap(v)
    u.exchange(), v.exchange()
    assert (u.local == swaps % 2).all() and (v.local == 1 - swaps % 2).all(), swaps
    assert (u.own == swaps % 2).all() and (other.local == 2).all()
try:
    u.swap(narrow)
except malleable.DeclarationError as error:
    assert "'u' and 'narrow'" in str(error)
else:
    raise AssertionError
job.finish()
"""


@pytest.mark.mpi
def test_declared_arrays_change_places_by_swap(run):
    code, _, said = run(SWAPS, ranks=2)
    assert code == 0, said


def test_no_test_here_inherits_a_task():
    assert "APPLES_TASK" not in os.environ


def test_arrays_that_are_made_anew_in_each_iteration_are_not_kept(run):
    code, events, said = run(NEW_ARRAYS, ranks=2, asked=task(partition=partition(("ada", 2, 24))))
    assert code == 0, said
    assert events[-1]["event"] == "done"
