import json
import subprocess
import sys
import time

import pytest
from commands import command

from apples.errors import UsageError
from apples.simulation.sweep import Cell, Results, compare, grid, interval, run_cell, sweep

LOG = "lublin:jobs=60,processors=16"
MACHINE = {"processors": 16, "nodes": 4, "cores_per_node": 4}


def cells(**more):
    return grid([LOG], ["easy", "sd"], ["sd:max_slowdown=5|inf"], range(2), **MACHINE, **more)


def test_a_grid_gives_an_option_to_the_policy_it_names():
    labels = {cell.label for cell in cells()}
    assert labels == {"easy", "sd max_slowdown=5", "sd max_slowdown=inf"}
    assert len(cells()) == 6
    assert len(cells(parts=2)) == 12


def test_where_nothing_is_random_a_log_is_run_once(tmp_path):
    log = str(tmp_path / "some.swf")
    fixed = grid([log], ["easy"], [], range(5), **MACHINE)
    drawn = grid([log], ["easy"], [], range(5), malleable=[0.5], **MACHINE)
    assert (len(fixed), len(drawn)) == (1, 5)


def test_a_sweep_goes_on_where_it_ended(tmp_path):
    path = tmp_path / "results.jsonl"
    half = [row["key"] for _, row in zip(range(3), sweep(cells(), Results(path)), strict=False)]
    with path.open("a") as file:
        file.write('{"key": "cut o')  # a crash in the middle of a line
    again = Results(path)
    assert again.skipped == 1
    rest = [row["key"] for row in sweep(cells(), again)]
    assert len(set(half + rest)) == 6
    assert not set(half) & set(rest)
    assert len(Results(path).rows) == 6
    assert list(sweep(cells(), Results(path))) == []


@pytest.mark.slow
def test_processes_give_what_one_process_gives(tmp_path):
    """Slow: two interpreters are started."""
    results = [Results(tmp_path / name) for name in ("one", "two")]
    for result, workers in zip(results, (1, 2), strict=True):
        list(sweep(cells(), result, workers))
    alone, together = (
        {key: row["mean_wait"] for key, row in result.rows.items()} for result in results
    )
    assert alone == together


def test_changes_are_paired_by_case():
    def row(policy, seed, wait):
        cell = {"log": "l", "policy": policy, "options": [], "seed": seed, "processors": 1}
        return {"cell": cell, "mean_wait": wait}

    rows = [row("easy", 0, 10.0), row("sd", 0, 5.0), row("easy", 1, 100.0), row("sd", 1, 50.0)]
    change = compare(rows, "easy", "mean_wait")["l"]["sd"]
    assert (change.mean, change.half, change.count) == (-0.5, 0.0, 2)


def test_the_interval_is_students():
    one = interval([1.0, 2.0, 3.0, 4.0])
    assert one.half == pytest.approx(3.1824463 * 1.2909944 / 2, rel=1e-6)
    assert interval([3.0]).half is None


def test_a_cell_that_cannot_be_run_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="do not make 99 slices"):
        run_cell(Cell(LOG, "easy", (), 0, 16, parts=99))
    with pytest.raises(UsageError, match="lublin has jobs"):
        run_cell(Cell("lublin:size=3", "easy", (), 0, 16))
    assert not (tmp_path / "results.jsonl").exists()


def test_the_command_says_what_differs_and_what_does_not(tmp_path):
    words = ["apples", "sweep", LOG, "--policy", "easy", "--policy", "fcfs", "--processors", "16",
             "--seeds", "4", "--workers", "1", "--out", str(tmp_path / "r.jsonl")]  # fmt: skip
    figures = command(*words, "--json").document
    assert figures["schema"] == "apples.sweep/1"
    assert (figures["cells"], figures["resumed"]) == (8, 0)
    fcfs = figures["table"][1]
    assert (fcfs["policy"], fcfs["runs"]) == ("fcfs", 4)
    assert fcfs["mean_wait"]["change"] > 0
    assert command(*words, "--json").document["resumed"] == 8
    text = command(*words).out
    assert "apples report" in text.splitlines()[-1]


@pytest.fixture
def dask_cluster(tmp_path):
    """A scheduler and a worker as processes; the address of the scheduler."""
    pytest.importorskip("distributed", reason="the extra [dask] is not installed")
    file = tmp_path / "scheduler.json"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    words = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)]
    scheduler = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_scheduler", *words], **quiet
    )
    deadline = time.monotonic() + 60
    while not file.exists() or not file.read_text():
        assert scheduler.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    words = ["--scheduler-file", str(file), "--no-dashboard", "--nthreads", "1",
             "--local-directory", str(tmp_path)]  # fmt: skip
    worker = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_worker", *words], **quiet
    )
    yield json.loads(file.read_text())["address"]
    for process in (worker, scheduler):
        process.terminate()
        process.wait(30)


@pytest.mark.more
@pytest.mark.slow
def test_a_dask_cluster_gives_what_one_process_gives(tmp_path, dask_cluster):
    """Slow: a cluster is started, where the extra is installed."""
    alone, together = Results(tmp_path / "one"), Results(tmp_path / "two")
    list(sweep(cells(), alone))
    list(sweep(cells(), together, dask=dask_cluster))
    assert {key: row["mean_wait"] for key, row in alone.rows.items()} == {
        key: row["mean_wait"] for key, row in together.rows.items()
    }
