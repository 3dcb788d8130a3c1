import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from apples.agent import launch_plan
from apples.errors import ApplicationError, LaunchError
from apples.launch import LocalActuator, Outcome, Progress, hydra, quota, writable
from apples.resources import Allocation, Schedule


def test_a_run_ends_with_what_was_measured(case):
    talk = []
    run = LocalActuator(talk=talk.append).actuate(case().plan)
    (progress,) = run.monitor()
    assert isinstance(progress, Progress)
    assert [times.host for times in progress.hosts] == ["ada", "bob"]
    outcome = run.outcome()
    assert isinstance(outcome, Outcome)
    assert (outcome.iterations, outcome.seconds, outcome.sha256) == (2, 0.3, "0f" * 32)
    assert outcome.startup_seconds != 0.01  # the launcher measures it; the program reports 0.01
    assert run.outcome() is outcome
    assert list(run.monitor()) == []
    assert talk == list(map("warning: {}".format, run.warnings))


def test_every_rank_runs_where_its_host_is(case, tmp_path):
    one = case()
    LocalActuator(tmp_path / "out", save=True).actuate(one.plan).outcome()
    first, second, third = one.records()
    assert first["cpus"] == second["cpus"] == [0]
    assert third["cpus"] == sorted(os.sched_getaffinity(0))
    assert {record["directory"] for record in one.records()} == {str(Path.cwd())}
    assert first["environment"]["OMP_NUM_THREADS"] == "1"
    assert first["environment"]["UCX_NET_DEVICES"] == "lo"
    assert first["task"]["output"] == str(tmp_path / "out")
    assert first["task"]["partition"][1] == {
        "host": "bob",
        "address": "bob",
        "ranks": 1,
        "first_row": 20,
        "rows": 10,
    }


@pytest.fixture
def our_cpus():
    """The CPUs of this process, put back at the end."""
    before = os.sched_getaffinity(0)
    yield before
    os.sched_setaffinity(0, before)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU: nothing to choose")
def test_every_rank_has_a_cpu_of_its_own_where_there_are_enough(case):
    one = case()
    ada, _ = one.information.hosts
    alone = Schedule((Allocation(replace(ada, cpus=()), 30, "default"),))
    LocalActuator().actuate(launch_plan(alone, one.information)).outcome()
    first, second = one.records()
    assert len(first["cpus"]) == len(second["cpus"]) == 1
    assert first["cpus"] != second["cpus"]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU: nothing to keep off")
def test_inside_an_outer_allocation_only_its_cpus_are_used(case, our_cpus):
    one = case()
    given = max(our_cpus)
    os.sched_setaffinity(0, {given})
    ada, bob = one.information.hosts
    rest = Schedule(
        (Allocation(replace(ada, cpus=()), 20, "default"), Allocation(bob, 10, "default"))
    )
    LocalActuator().actuate(launch_plan(rest, one.information)).outcome()
    assert [record["cpus"] for record in one.records()] == [[given]] * 3
    with pytest.raises(LaunchError) as raised:
        LocalActuator().actuate(one.plan)
    assert raised.value.code == "cpus-not-ours"
    assert raised.value.fields == {"host": "ada", "value": [0], "known": [given]}


@pytest.mark.more
@pytest.mark.skipif(writable() is not None, reason=f"no CPU quotas: {writable()}")
def test_a_host_described_as_slower_gets_a_quota_and_leaves_no_group(case):
    one = case()
    run = LocalActuator().actuate(one.plan)
    run.outcome()
    first, _, third = one.records()
    assert run.warnings == ()
    assert "/apples-" not in first["cgroups"]
    (group,) = [
        line.partition("/apples-")[2] for line in third["cgroups"].split() if "-bob" in line
    ]
    controller = quota.find()
    assert not (controller.root / f"apples-{group}").exists()


def test_where_there_are_no_quotas_the_run_goes_on_and_says_so(case, monkeypatch):
    monkeypatch.setattr(quota, "find", lambda: "read-only")
    talk, one = [], case()
    run = LocalActuator(talk=talk.append).actuate(one.plan)
    assert run.outcome().iterations == 2
    (warning,) = run.warnings
    assert warning.startswith("bob: no CPU quota (cgroups are not writable: read-only)")
    assert talk == [f"warning: {warning}"]


def test_the_command_started_by_hand_gives_the_same_job(case, tmp_path):
    one = case()
    LocalActuator().actuate(one.plan).outcome()
    launched = one.records()
    order = LocalActuator().command(one.plan)
    hand = tmp_path / "hand"
    hand.mkdir()
    for name, text in order.files.items():
        (hand / name).write_text(text)
    told = subprocess.run(
        order.argv,
        cwd=hand,
        env=hydra.environment(order.environment),
        capture_output=True,
        check=True,
        timeout=120,
    )
    assert b'{"event": "done"}' in told.stdout.splitlines()
    for by_hand, by_actuator in zip(one.records(), launched, strict=True):
        for same in ("arguments", "cpus", "directory", "task"):
            assert by_hand[same] == by_actuator[same]


def test_the_command_starts_and_writes_nothing(case, tmp_path):
    one = case()
    before = sorted(tmp_path.rglob("*"))
    LocalActuator(tmp_path / "out").command(one.plan)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_failure_stays_a_failure(case):
    one = case(how="no done")
    run = LocalActuator().actuate(one.plan)
    for _ in range(2):
        with pytest.raises(ApplicationError) as raised:
            run.outcome()
        assert raised.value.code == "program-failed"
        assert raised.value.fields["reason"] == "program-ended"


def test_done_without_a_result_is_no_outcome(case):
    one = case(how="no result")
    with pytest.raises(ApplicationError) as raised:
        LocalActuator().actuate(one.plan).outcome()
    assert raised.value.code == "result-missing"


def test_a_cancelled_run_has_no_outcome(case):
    one = case(how="silent")
    with LocalActuator().actuate(one.plan) as run:
        run.cancel()
        with pytest.raises(ApplicationError) as raised:
            run.outcome()
        assert raised.value.code == "run-cancelled"


def test_a_program_may_be_silent_for_longer_than_it_is_slow(case):
    silence = case(grid="100000").plan.silence_seconds
    assert silence >= 60.0
    assert silence >= 100_000**2 * 8 / 20e6
