"""Partitions by the user's wish: what the plan says of them, and runs that come to the same result however cut."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from commands import command
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import ROOMY, TEMPLATE, pool

import hat
from apples import Coordinator, Host, Schedule, UsageError
from apples.agent import (
    InformationPool,
    Limits,
    PerformanceEstimator,
    decide,
    equal_strips,
    explained_text,
    launch_plan,
    partition_cost,
)
from apples.launch import run_task
from apples.malleable import Decomposition, HostShare, ResizeDone, rehearse
from blueprints import minimum_execution_time

FIELD = '''
from pathlib import Path
import numpy as np
from apples.program import Task

def bounds(number):
    """First row and last of a partition, as large as its share."""
    ends = np.rint(np.cumsum([0.0, *field.shares]) * task.parameters["rows"]).astype(int)
    return range(ends[number], ends[number + 1])

def make(number):
    return np.linspace(0.1, 0.9, 50) + 0.001 * np.array(bounds(number))[:, None]

with Task(rows="rows", columns=50, defaults={"rows": 60, "iterations": 40}) as task:
    field = task.blocks(
        "field", make, lambda part: {"u": part}, lambda arrays: arrays["u"],
        decomposition="tight", strategy="refine",
    )
    for iteration in task.iterations():
        for number, part in field.items():
            with field.timed(number):
                part *= 1.9 * (1.0 - part)
        if iteration == 20:
            own = task.comm.gather(sorted(number for number, _ in field.items()))
            if task.rank == 0:
                with Path("seen").open("a") as seen:
                    print(own, file=seen)
    task.result(field)
'''
SAYS = """
name = "field"
program = ["{python}", "field.py"]
malleable = true
partitions = true
[parameters.rows]
default = 60
[parameters.iterations]
default = 40
[structure]
kind = "regular_grid"
rows = "rows"
columns = "50"
iterations = "iterations"
[[data]]
name = "u"
elements = "rows*50"
"""
HOSTS = "".join(f'[[host]]\nname = "{name}"\nseconds_per_point = 1e-8\n' for name in "abc")


def wished(partitions, speeds, template=None):
    listed = [
        Host(f"h{i}", seconds_per_point=speed, free_memory=ROOMY) for i, speed in enumerate(speeds)
    ]
    information = pool(listed, user=f'[preferences]\npartitions = "{partitions}"\n')
    taking = (template or TEMPLATE).model_copy(update={"partitions": template is None})
    return InformationPool(
        taking, information.application, information.specifications, information.conditions
    )


def cut(partitions, speeds):
    information = wished(partitions, speeds)
    schedule = equal_strips(tuple(information.hosts), information)
    return partition_cost(schedule, information)


def test_the_plan_says_how_many_partitions_there_are_and_what_they_cost():
    assert (cut("tight", [1, 1, 1])["partitions"], cut("tight", [1, 1, 1])["computing"]) == (
        3,
        1.0,
    )
    assert (
        cut("redundant:4", [1, 1, 1])["partitions"],
        cut("redundant", [1, 1])["partitions"],
    ) == (
        12,
        8,
    )
    sparse = cut("sparse:1", [1, 1, 1])
    assert (sparse["partitions"], sparse["decomposition"]) == (2, "sparse:1")
    assert sparse["computing"] == pytest.approx(1.5, rel=0.01)


def estimated(partitions, speeds):
    information = wished(partitions, speeds)
    schedule = equal_strips(tuple(information.hosts), information)
    estimator = PerformanceEstimator()
    return estimator.promised(estimator.estimate(schedule, information), information)


def test_the_prediction_is_of_the_ranks_that_have_a_partition():
    tight, sparse = estimated("tight", [1, 1, 1]), estimated("sparse:1", [1, 1, 1])
    assert [one.compute_seconds > 0 for one in sparse.hosts] == [True, True, False]
    assert [one.communicate_seconds > 0 for one in sparse.hosts] == [True, True, False]
    pairs = list(zip(tight.hosts, sparse.hosts, strict=True))
    for before, now in pairs[:2]:
        assert now.compute_seconds == pytest.approx(1.5 * before.compute_seconds, rel=0.01)
    assert sparse.borders == (("h0", "h1"),)
    ratio = sparse.iteration_seconds / tight.iteration_seconds
    assert ratio == pytest.approx(1.5, rel=0.02)
    assert sparse.interval[0] <= sparse.execution_seconds <= sparse.interval[1]
    assert sparse.basis.mean_seconds == pytest.approx(ratio * tight.basis.mean_seconds, rel=0.01)


def test_one_partition_a_rank_or_very_many_are_predicted_as_rows_are():
    plain = estimated("tight", [1, 2, 3]).iteration_seconds
    assert estimated("redundant:4000", [1, 2, 3]).iteration_seconds == plain
    assert estimated("redundant:2", [1, 2, 3]).iteration_seconds >= plain


@settings(max_examples=examples(40))
@given(st.integers(1, 6), st.integers(1, 40))
def test_more_partitions_cost_less_than_the_largest_of_them(ranks, factor):
    cost = cut(f"redundant:{factor}", [1] * ranks)
    assert cost["partitions"] == ranks * factor
    assert 1.0 <= cost["computing"] <= 1 + 2 / factor


@given(st.sampled_from(["tight", "redundant:3", "redundant:99999", "sparse:1"]))
def test_a_decomposition_is_written_as_it_is_read(text):
    assert str(Decomposition.read(text)) == text


@pytest.mark.parametrize(
    "text", ["", "loose", "sparse:0", "redundant:-1", "redundant:100000", "tight:2", "sparse: 1"]
)
def test_a_wish_that_is_none_is_refused_with_its_field(text):
    with pytest.raises(hat.DocumentError) as raised:
        hat.parse(f'[preferences]\npartitions = "{text}"\n', hat.UserSpecifications)
    assert raised.value.fields["field"] == "preferences.partitions"


def test_a_template_that_does_not_say_that_it_takes_the_wish_is_refused():
    information = wished("tight", [1, 1], TEMPLATE)
    with pytest.raises(UsageError) as raised:
        partition_cost(equal_strips(tuple(information.hosts), information), information)
    assert raised.value.code == "partitions-unsupported"
    assert raised.value.fields["value"] == "tight"


def test_ranks_of_which_none_would_have_a_partition_are_no_plan_and_a_reference_run_has_one():
    for count, refused in ((1, True), (2, True), (3, False)):
        information = wished("sparse:2", [1] * count)
        schedule = equal_strips(tuple(information.hosts), information)
        reason = Limits(information).refuse(schedule)
        assert (reason.filter if reason else None) == ("partitions" if refused else None)
        told = run_task(launch_plan(schedule, information))["partitions"]
        assert told == ("tight" if refused else "sparse:2")


def with_user(partitions, user, speeds):
    """The pool of `wished` under more of the user's specifications."""
    information = wished(partitions, speeds)
    text = f'[preferences]\npartitions = "{partitions}"\n{user}'
    return replace(information, specifications=hat.parse(text, hat.UserSpecifications))


def test_deadline_and_cost_count_the_partitions():
    seconds = estimated("sparse:1", [1, 1, 1]).execution_seconds
    plain = estimated("tight", [1, 1, 1]).execution_seconds
    assert plain < 0.8 * seconds
    for limit, kind in (("deadline", "deadline"), ("maximum_cost", "cost")):
        user = "[constraints]\n" + f"{limit} = {(plain + seconds) / 2}\n"
        for partitions, refused in (("tight", None), ("sparse:1", kind)):
            information = with_user(partitions, user, [1, 1, 1])
            schedule = equal_strips(tuple(information.hosts), information)
            if kind == "cost":
                hosts = tuple(replace(host, cost_per_second=1 / 3) for host in schedule.resources)
                taken = zip(schedule.allocations, hosts, strict=True)
                schedule = Schedule(tuple(replace(a, host=host) for a, host in taken))
            reason = Limits(information).refuse(schedule)
            assert (reason.filter if reason else None) == refused, limit


def test_a_plan_with_an_idle_rank_is_explained():
    coordinator = Coordinator(wished("sparse:1", [1, 1, 1]))
    result = decide("mine", minimum_execution_time, coordinator, explain=True)
    document = result.document()
    working = [strip for strip in document["chosen"]["strips"] if strip["compute_seconds"]]
    assert len(document["rests_on"]["links"]) == len(working) - 1
    assert "partitions" in explained_text(document, "apples run")


def test_a_host_left_out_is_explained_under_partitions_too():
    information = with_user("sparse:1", "[constraints]\nmaximum_hosts = 3\n", [1, 1, 1, 1])
    (reason,) = decide("mine", minimum_execution_time, Coordinator(information)).document()[
        "left_out"
    ]
    with_it, without = reason["figures"]
    assert with_it / without == pytest.approx(
        (1 / 3) / (1 / 2), rel=0.01
    )  # one of its ranks is idle
    assert "the user asks for at most 3" in reason["reason"]


# ------------------------------------------------------------------ real runs
@pytest.fixture
def field(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", os.environ.get("XDG_CACHE_HOME", str(tmp_path / "cache")))
    (tmp_path / "field.py").write_text(FIELD)
    (tmp_path / "template.toml").write_text(SAYS)
    (tmp_path / "hosts.toml").write_text(HOSTS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(wish):
    Path("user.toml").write_text(f'[preferences]\npartitions = "{wish}"\n' if wish else "")
    Path("seen").unlink(missing_ok=True)
    words = ["--weather", "static", "--blueprint", "blocked", "--verify", "full", "--json"]
    done = command("apples", "run", *words)
    assert done.code == 0, done.err
    return done.document, Path("seen").read_text().splitlines()[0]


@pytest.mark.more
@pytest.mark.mpi
def test_a_run_is_cut_as_the_user_wants_and_its_result_is_verified_and_the_same(field):
    del field
    own, seen = run("")
    assert "partitions" not in own["plan"]
    assert seen == "[[0], [1], [2]]"
    for wish, count, owners in (
        ("redundant:2", 6, "[[0, 1], [2, 3], [4, 5]]"),
        ("sparse:1", 2, "[[0], [1], []]"),
    ):
        found, seen = run(wish)
        assert found["verified"] is True
        assert found["result_sha256"] == own["result_sha256"]
        assert found["plan"]["partitions"]["partitions"] == count
        assert seen == owners
    compared = command("apples", "report", own["record"], found["record"], "--json").document
    assert compared["differ"]["partitions"] == [None, "sparse:1"]
    shown = command("apples", "plan", "--weather", "static", "--blueprint", "blocked")
    assert "2 partitions on 3 ranks (sparse:1)" in shown.out


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.more
def test_when_hosts_change_partitions_move_whole_and_the_result_is_the_same(field):
    program = (sys.executable, str(field / "field.py"))
    slots, begin = dict.fromkeys("abc", 1), [HostShare("a"), HostShare("b")]
    strip = {"host": "a", "address": "127.0.0.1", "ranks": 1, "first_row": 0, "rows": 60}

    def run_of(wish, iterations):
        asked = {
            "schema": "apples.task/1", "mode": "run", "implementations": {}, "output": None, "save": False,
            "parameters": {"rows": 60, "iterations": iterations}, "partitions": wish, "partition": [strip],
        }  # fmt: skip
        maps = [[HostShare(host) for host in hosts] for hosts in ("bc", "abc")]
        done = rehearse(program, slots, begin, maps, task=asked)
        assert done.ended.state == "finished", done.ended
        changes = sum(isinstance(notice, ResizeDone) for notice in done.notices)
        return changes, done.events("result")[-1]["sha256"]

    for iterations in (20_000, 100_000, 500_000):  # longer where it ended before its hosts changed
        tight, redundant = (run_of(wish, iterations) for wish in ("tight", "redundant:3"))
        assert tight[1] == redundant[1]
        if tight[0] == redundant[0] == 2:
            break
    assert tight[0] == redundant[0] == 2
