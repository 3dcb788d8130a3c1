from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean

import pytest
from commands import command
from dask_cluster import dask_cluster, scheduler_of
from hypothesis import given
from hypothesis import strategies as st

from apples.errors import LaunchError, UsageError
from apples.simulation import Cell, Results, change_of, compare, files_of, grid, interval, run_cell
from apples.simulation import run_sweep as sweep

LOG = "lublin:jobs=60,processors=16"
MACHINE = {"processors": 16, "nodes": 4, "cores_per_node": 4}


def cells(**more):
    return grid([LOG], ["easy", "sd"], ["sd:max_slowdown=5|inf"], range(2), **MACHINE, **more)


def test_a_grid_gives_an_option_to_the_policy_it_names():
    labels = {cell.label for cell in cells()}
    assert labels == {"easy", "sd max_slowdown=5", "sd max_slowdown=inf"}
    assert len(cells()) == 6
    assert len(cells(parts=2)) == 6
    assert len({cell.key for cell in (*cells(), *cells(parts=2))}) == 12


def test_a_policy_that_resizes_nothing_runs_once_whatever_is_malleable():
    grown = cells(malleable=[0.2, 0.5, 1.0])
    labels = [cell.label for cell in grown]
    assert labels.count("easy") == 2
    assert sum(label.startswith("sd") for label in labels) == 2 * 3 * 2


def test_where_nothing_is_random_a_log_is_run_once(tmp_path):
    log = str(tmp_path / "some.swf")
    fixed = grid([log], ["easy"], [], range(5), **MACHINE)
    drawn = grid([log], ["sd"], [], range(5), malleable=[0.5], **MACHINE)
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


def row(policy, seed, wait, log="lublin:jobs=9", slices=None):
    """A row of results whose mean waits by slice are `slices`."""
    cell = asdict(Cell(log, policy, (), seed, 1))
    by_slice = {"mean_wait": [wait] if slices is None else slices}
    return {"cell": cell, "mean_wait": wait, "makespan": wait, "slices": by_slice}


def test_changes_are_paired_by_seed_and_seeds_of_a_model_are_independent():
    rows = [row("easy", 0, 10.0), row("sd", 0, 5.0), row("easy", 1, 100.0), row("sd", 1, 50.0)]
    change = compare(rows, "easy", "mean_wait")["lublin:jobs=9"]["sd"]
    assert (change.mean, change.low, change.high) == pytest.approx((-0.5, -0.5, -0.5))
    assert (change.count, change.over, change.is_sure) == (2, "seeds", True)


def test_seeds_on_one_log_are_averaged_within_its_slices():
    """Ten seeds that agree on each slice say no more than one: the slices make the interval."""
    base, other = [10.0, 10.0, 10.0, 10.0], [5.0, 20.0, 5.0, 10.0]
    few = [row("easy", 0, 10.0, "log.swf", base), row("sd", 0, 10.0, "log.swf", other)]
    many = few[:1] + [row("sd", seed, 10.0, "log.swf", other) for seed in range(10)]
    one, ten = (compare(rows, "easy", "mean_wait")["log.swf"]["sd"] for rows in (few, many))
    assert (ten.count, ten.over) == (4, "slices")
    assert (one.mean, one.low, one.high) == pytest.approx((ten.mean, ten.low, ten.high))
    assert one.mean == pytest.approx(0.5 ** (1 / 4) - 1)
    assert not ten.is_sure
    whole = compare(many, "easy", "makespan")["log.swf"]["sd"]
    assert (whole.count, whole.over) == (10, "seeds")


def test_one_run_has_no_verdict_and_a_metric_of_nothing_no_change():
    rows = [row("easy", 0, 10.0, "log.swf"), row("sd", 0, 1.0, "log.swf")]
    change = compare(rows, "easy", "mean_wait")["log.swf"]["sd"]
    assert (change.count, change.over, change.is_sure) == (1, "run", False)
    nothing = [row("easy", 0, 0.0, "log.swf"), row("sd", 0, 0.0, "log.swf")]
    assert compare(nothing, "easy", "makespan") == {}
    assert compare(nothing, "easy", "mean_wait")["log.swf"]["sd"].mean == 0


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=12))
def test_no_change_falls_below_everything(ratios):
    change = change_of(ratios, "slices")
    assert -1 <= change.low <= change.mean <= change.high or change.mean == pytest.approx(
        change.low
    )
    assert change.mean > -1


def test_slices_are_cut_out_of_one_run_and_add_up_to_it():
    cell = Cell(LOG, "easy", (), 0, 16, parts=4)
    whole, cut = run_cell(replace(cell, parts=1)), run_cell(cell)
    assert cut["mean_wait"] == whole["mean_wait"]
    assert whole["slices"]["mean_wait"] == [whole["mean_wait"]]
    assert fmean(cut["slices"]["mean_wait"]) == pytest.approx(whole["mean_wait"])
    assert len(cut["slices"]["mean_slowdown"]) == 4


def test_a_cell_runs_where_its_files_are_not(tmp_path, monkeypatch):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(here)
    Path("log.swf").write_text(
        "".join(
            f"{k} {5 * k} -1 30 4 -1 -1 4 40 -1 1 -1 -1 -1 -1 -1 -1 -1\n" for k in range(1, 30)
        )
    )
    Path("mine.py").write_text("from apples.scheduling import Easy as Mine\n")
    Path("lost.csv").write_text("time,node,repaired\n20,0,30\n")
    cell = Cell("log.swf", "mine.py:Mine", ("failures=lost.csv",), 0, 16, 4, 4)
    expected, files = run_cell(cell), files_of([cell])
    assert set(files) == {"log.swf", "mine.py", "lost.csv"}
    monkeypatch.chdir(there)
    elsewhere = run_cell(cell, files)
    assert elsewhere["cell"] == expected["cell"]
    assert elsewhere["mean_wait"] == expected["mean_wait"] > 0
    assert list(there.iterdir()) == []


def test_a_policy_that_fails_in_a_sweep_is_named_with_its_line_once(tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from apples.scheduling import Easy\n"
        "class Mine(Easy):\n"
        "    def decide(self, cluster):\n"
        "        raise KeyError(1)\n"
    )
    done = command(
        "apples", "simulate", "lublin:jobs=30,processors=16", "--processors", 16, "--policy", "easy",
        "--policy", f"{mine}:Mine", "--seeds", 2, "--workers", 1, "--grid", tmp_path / "r.jsonl"
    )  # fmt: skip
    assert done.code == 2
    assert done.err.count(f"{mine}:4: KeyError: 1") == 1


def test_a_report_on_results_that_are_not_there_or_into_no_folder_is_refused(tmp_path):
    words = ("apples", "report", tmp_path / "none.jsonl", "--out")
    done = command(*words, tmp_path / "p.html")
    assert (done.code, done.error_codes) == (2, ["file-missing"])
    assert "none.jsonl" in done.err
    done = command("apples", "report", "lublin:jobs=30", "--out", tmp_path / "no" / "p.html")
    assert (done.code, done.error_codes) == (2, ["directory-missing"])
    assert "p.html" in done.err


def test_the_interval_is_students():
    one = interval([1.0, 2.0, 3.0, 4.0])
    assert one.half == pytest.approx(3.1824463 * 1.2909944 / 2, rel=1e-6)
    assert interval([3.0]).half is None


def test_a_cell_that_cannot_be_run_is_an_error(tmp_path):
    with pytest.raises(UsageError) as raised:
        run_cell(Cell(LOG, "easy", (), 0, 16, parts=99))
    assert raised.value.code == "value-range"
    assert (raised.value.fields["option"], raised.value.fields["value"]) == ("parts", 99)
    with pytest.raises(UsageError) as raised:
        run_cell(Cell("lublin:size=3", "easy", (), 0, 16))
    assert (raised.value.code, raised.value.fields["field"]) == ("field-unknown", "size")
    assert not (tmp_path / "results.jsonl").exists()


def test_the_command_says_what_differs_and_what_does_not(tmp_path):
    words = ["apples", "simulate", LOG, "--policy", "easy", "--policy", "fcfs", "--processors", "16",
             "--seeds", "4", "--workers", "1", "--grid", str(tmp_path / "r.jsonl")]  # fmt: skip
    figures = command(*words, "--json").document
    assert figures["schema"] == "apples.sweep/2"
    assert (figures["cells"], figures["resumed"]) == (8, 0)
    fcfs = figures["table"][1]
    assert (fcfs["policy"], fcfs["runs"]) == ("fcfs", 4)
    assert fcfs["mean_wait"]["change"] > 0
    assert command(*words, "--json").document["resumed"] == 8
    text = command(*words).out
    assert "apples report" in text.splitlines()[-1]


@pytest.mark.more
@pytest.mark.slow
def test_a_dask_cluster_gives_what_one_process_gives(tmp_path, monkeypatch):
    """Slow: a cluster is started, where the extra is installed. Its worker runs in another folder."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("from apples.scheduling import Easy as Mine\n")
    alone, together = Results(tmp_path / "one"), Results(tmp_path / "two")
    grids = [*cells(), *grid([LOG], ["mine.py:Mine"], [], range(2), **MACHINE)]
    list(sweep(grids, alone))
    with dask_cluster(tmp_path, ("one",)) as address:
        list(sweep(grids, together, dask=address))
    assert {key: row["mean_wait"] for key, row in alone.rows.items()} == {
        key: row["mean_wait"] for key, row in together.rows.items()
    }


@pytest.mark.more
def test_a_dask_scheduler_that_is_stopped_in_the_middle_is_said_and_what_was_done_is_kept(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("apples.launch.dask_cluster.SILENT_SECONDS", 2.0)
    results = Results(tmp_path / "results")
    Path("mine.py").write_text(
        "import time\nfrom apples.scheduling import Easy\n"
        "class Mine(Easy):\n    def __init__(self): time.sleep(3600)\n"
    )
    asked = [*cells()[:1], *grid([LOG], ["mine.py:Mine"], [], [0], **MACHINE)]
    with dask_cluster(tmp_path, ("one",)) as address:
        coming = sweep(asked, results, dask=address)
        next(coming)
        scheduler = scheduler_of(tmp_path)
        scheduler.suspend()
        try:
            with pytest.raises(LaunchError) as raised:
                next(coming)
            assert raised.value.code == "dask-unreachable"
            assert raised.value.fields["address"] == address
        finally:
            scheduler.resume()
    assert len(Results(tmp_path / "results").rows) == 1


POLICY = """
from apples.scheduling.policies import POLICIES

mine = POLICIES["{name}"]
"""


def test_edited_policy_is_simulated_again(tmp_path):
    file, out = tmp_path / "mine.py", tmp_path / "results.jsonl"

    def waits(name):
        file.write_text(POLICY.format(name=name))
        asked = grid([LOG], [f"{file}:mine"], [], range(1), **MACHINE)
        results = Results(out)
        done = [*sweep(asked, results)]
        return len(done), [results.rows[cell.key]["mean_wait"] for cell in asked]

    simulated, easy = waits("easy")
    assert simulated == 1
    assert waits("easy") == (0, easy)
    simulated, fcfs = waits("fcfs")
    assert simulated == 1
    assert fcfs != easy
    assert waits("easy") == (0, easy)


def test_edited_log_is_simulated_again(tmp_path):
    log = tmp_path / "some.swf"
    log.write_text("1 0 0 10 4 -1 -1 4 20 -1 1 1 1 1 1 1 -1 -1\n")
    before = grid([str(log)], ["easy"], [], range(1), **MACHINE)
    log.write_text("1 0 0 30 4 -1 -1 4 40 -1 1 1 1 1 1 1 -1 -1\n")
    after = grid([str(log)], ["easy"], [], range(1), **MACHINE)
    assert before[0].key != after[0].key
    with pytest.raises(UsageError, match="changed while it was simulated"):
        run_cell(before[0])


def test_edited_module_of_policy_changes_key(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    keys = set()
    for name in ("easy", "fcfs"):
        (tmp_path / "policy_of_sweep_test.py").write_text(POLICY.format(name=name))
        (cell,) = grid([LOG], ["policy_of_sweep_test:mine"], [], range(1), **MACHINE)
        keys.add(cell.key)
    assert len(keys) == 2
