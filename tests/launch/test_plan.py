import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apples.errors import LaunchError
from apples.launch import (
    HostProgram,
    LaunchPlan,
    SlurmActuator,
    calibrate_task,
    run_task,
    strips_of,
)
from apples.resources import Allocation, Host, HostList, Network

ADA, BOB = Host("ada", slots=2, address="10.0.0.1"), Host("bob")


def strips(*allocations):
    return strips_of(
        allocations, lambda one: HostProgram(one.host, one.implementation, ("x",), ("x",))
    )


def plan(*allocations):
    found = strips(*allocations)
    hosts = HostList(tuple(strip.host for strip in found), Network())
    return LaunchPlan("heat", {"grid": 10}, found, sum(strip.rows for strip in found), hosts)


def test_strips_follow_one_another_in_rank_order():
    task = run_task(plan(Allocation(ADA, 1400.0), Allocation(BOB, 600)))
    assert task["partition"] == [
        {"host": "ada", "address": "10.0.0.1", "ranks": 2, "first_row": 0, "rows": 1400},
        {"host": "bob", "address": "bob", "ranks": 1, "first_row": 1400, "rows": 600},
    ]


def test_under_slurm_a_host_with_a_strip_of_each_of_two_tasks_is_one_node_with_the_ranks_of_both():
    both = plan(Allocation(ADA, 14), Allocation(ADA, 6), Allocation(BOB, 14), Allocation(BOB, 6))
    files = SlurmActuator(allocation="").command(both).files
    assert files["machines"].split() == ["ada"] * 4 + ["bob"] * 2
    assert "--nodes=2 --ntasks=6" in files["job.sh"]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8))
def test_strips_cover_the_grid_and_no_rank_is_without_a_row(rows):
    hosts = [Host(f"h{i}", slots=4) for i in range(len(rows))]
    found = strips(*(Allocation(h, r) for h, r in zip(hosts, rows, strict=True)))
    ends = [s.first_row + s.rows for s in found]
    assert [s.first_row for s in found] == [0, *ends[:-1]]
    assert ends[-1] == sum(rows)
    for strip in found:
        assert 1 <= strip.ranks <= strip.rows


@pytest.mark.parametrize("rows", [0, -3, 2.5, math.nan, math.inf])
def test_a_strip_that_is_no_rows_is_refused(rows):
    with pytest.raises(LaunchError) as raised:
        strips(Allocation(ADA, rows))
    assert raised.value.code == "strip-invalid"
    assert raised.value.fields == {"host": "ada", "value": str(rows)}


def test_a_schedule_without_hosts_is_refused():
    with pytest.raises(LaunchError) as raised:
        strips()
    assert raised.value.code == "schedule-empty"


def test_the_task_says_what_the_protocol_asks(tmp_path):
    task = run_task(
        plan(Allocation(ADA, 7, "numba"), Allocation(BOB, 3)), output=tmp_path, save=True
    )
    assert task["implementations"] == {"ada": "numba"}
    assert task["output"] == str(tmp_path)
    assert set(task) == {
        *("schema", "mode", "parameters", "implementations", "partition"),
        *("output", "progress_seconds", "save"),
    }


def test_calibrating_names_one_implementation():
    task = calibrate_task("numpy", {"grid": 10}, (5,))
    assert (task["mode"], task["implementation"], task["sizes"]) == ("calibrate", "numpy", [5])
