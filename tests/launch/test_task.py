import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apples.errors import LaunchError
from apples.launch.task import calibrate_task, partition, run_task
from apples.resources import Host
from apples.schedule import Allocation, Schedule

ADA, BOB = Host("ada", slots=2, address="10.0.0.1"), Host("bob")


def test_strips_follow_one_another_in_rank_order():
    strips = partition([Allocation(ADA, 1400.0), Allocation(BOB, 600)])
    assert strips == [
        {"host": "ada", "address": "10.0.0.1", "ranks": 2, "first_row": 0, "rows": 1400},
        {"host": "bob", "address": "bob", "ranks": 1, "first_row": 1400, "rows": 600},
    ]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8))
def test_strips_cover_the_grid(rows):
    hosts = [Host(f"h{i}", slots=4) for i in range(len(rows))]
    strips = partition([Allocation(h, r) for h, r in zip(hosts, rows, strict=True)])
    ends = [s["first_row"] + s["rows"] for s in strips]
    assert [s["first_row"] for s in strips] == [0, *ends[:-1]]
    assert ends[-1] == sum(rows)
    assert all(1 <= s["ranks"] <= s["rows"] for s in strips)


@pytest.mark.parametrize("rows", [0, -3, 2.5, math.nan, math.inf])
def test_a_strip_that_is_no_rows_is_refused(rows):
    with pytest.raises(LaunchError, match="ada: a strip of"):
        partition([Allocation(ADA, 10), Allocation(ADA, rows)][1:])


def test_a_schedule_without_hosts_is_refused():
    with pytest.raises(LaunchError, match="no host"):
        partition([])


def test_the_task_says_what_the_protocol_asks(tmp_path):
    schedule = Schedule((Allocation(ADA, 7, "numba"), Allocation(BOB, 3)))
    pool = SimpleNamespace(application=SimpleNamespace(parameters={"grid": 10}))
    task = run_task(schedule, pool, output=tmp_path, save=True)
    assert task["implementations"] == {"ada": "numba"}
    assert task["output"] == str(tmp_path)
    assert set(task) == {
        *("schema", "mode", "parameters", "implementations", "partition"),
        *("output", "progress_seconds", "save"),
    }


def test_calibrating_names_one_implementation():
    task = calibrate_task("numpy", {"grid": 10}, (5,))
    assert (task["mode"], task["implementation"], task["sizes"]) == ("calibrate", "numpy", [5])
