"""Limits that kill, and runs that go on from their last checkpoint."""

import json
from dataclasses import replace

import numpy as np
import pytest
from commands import command
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from apples.errors import UsageError
from apples.scheduling import (
    OVERDUE_SECONDS,
    POLICIES,
    Easy,
    Equipartition,
    Requeue,
    SchedulingPolicy,
    SlowdownDriven,
    Start,
)
from apples.simulation import (
    KERNELS,
    Checkpointing,
    Log,
    NodeFailure,
    ReconfigurationCost,
    SimulationConfig,
    has_kernel,
    mark_malleable,
    rigid,
    simulate,
    write_swf,
)
from apples.simulation import prepare_simulation as prepare

RIGID = [name for name, policy in POLICIES.items() if not policy.uses_malleable]


def jobs(*rows):
    """Jobs of (submit, processors, run, limit), numbered from 1; limits may lie under the run time."""
    submit, width, run, limit = (np.array(column) for column in zip(*rows, strict=True))
    workload = rigid(submit.astype(float), run.astype(float), width, run.astype(float))
    return replace(workload, requested=limit[np.argsort(submit, kind="stable")].astype(float))


KILL = SimulationConfig(4, limits="kill")


def test_a_job_is_ended_at_its_limit_and_did_not_complete():
    result = simulate(jobs((0, 4, 100, 30), (0, 4, 10, 10)), Easy(), KILL)
    assert result.start.tolist() == [0, 30]
    assert result.end.tolist() == [30, 40]
    assert result.completed.tolist() == [False, True]
    assert result.killed == 1


def test_without_the_option_it_overruns():
    result = simulate(jobs((0, 4, 100, 30), (0, 4, 10, 10)), Easy(), SimulationConfig(4))
    assert result.end.tolist() == [100, 110]
    assert (result.killed, result.completed.all()) == (0, True)


def test_a_job_that_ends_within_the_grace_completes_and_one_that_does_not_is_killed_after_it():
    config = replace(KILL, grace=5.0)
    result = simulate(jobs((0, 4, 34, 30), (0, 4, 36, 30), (0, 4, 9, 9)), Easy(), config)
    assert result.end.tolist() == [34, 69, 78]
    assert result.completed.tolist() == [True, False, True]


def test_a_policy_sees_the_end_of_the_grace_as_the_estimated_end_of_an_overrunning_job():
    seen = []

    class Looking(SchedulingPolicy):
        def decide(self, cluster):
            seen.extend((cluster.time, one.limit) for one in cluster.running.values())
            for job in cluster.queue:
                if job.processors <= cluster.free:
                    yield Start(job.id, job.processors)

    config = SimulationConfig(4, limits="kill", grace=50.0)
    simulate(jobs((0, 2, 100, 30), (10, 1, 1, 1), (40, 1, 1, 1)), Looking(), config)
    assert (11.0, 30.0) in seen
    assert (40.0, 80.0) in seen


def test_a_job_that_was_shrunk_reaches_its_limit_by_the_clock():
    """Of two jobs that share the machine each takes twice as long as it asked for: wall time counts."""
    two = mark_malleable(jobs((0, 4, 40, 40), (0, 4, 40, 40)), 1.0, 0, minimum=0.5, most=4)
    result = simulate(two, Equipartition(), KILL)
    assert result.end.tolist() == [40, 40]
    assert result.killed == 2
    assert simulate(two, Equipartition(), SimulationConfig(4)).end.tolist() == [80, 80]


def test_the_limit_of_a_mate_moves_by_its_guests_request():
    long, short = (0, 4, 100, 100), (0, 4, 10, 10)
    two = mark_malleable(jobs(long, short), 1.0, 0, minimum=0.5, most=4)
    config = SimulationConfig(2, 2, limits="kill")
    result = simulate(two, SlowdownDriven(), config)
    assert result.guest.tolist() == [False, True]
    assert result.end.tolist() == [110, 20]
    assert result.completed.all()


@pytest.mark.parametrize("name", RIGID)
def test_kernels_kill_as_the_event_engine_does(name, random_jobs):
    for seed in range(12):
        rng = np.random.default_rng((7, seed))
        drawn = random_jobs(rng, 9, 30, fractions=bool(seed % 2))
        short = rng.random(len(drawn)) < 0.4
        limit = np.maximum(0.5, drawn.run * rng.uniform(0.1, 1.2, len(drawn)))
        drawn = replace(drawn, requested=np.where(short, limit, drawn.requested))
        config = SimulationConfig(9, limits="kill")
        assert has_kernel(POLICIES[name](), config, drawn) is (POLICIES[name] in KERNELS)
        fast = simulate(drawn, POLICIES[name](), config, engine="kernel")
        driven = simulate(drawn, POLICIES[name](), config, engine="events")
        for field in ("start", "end", "completed"):
            assert getattr(fast, field).tolist() == getattr(driven, field).tolist(), field
        assert fast.killed == driven.killed == (drawn.run > drawn.requested).sum()


@st.composite
def overrunning(draw):
    """Up to 12 jobs on 20 processors whose limits lie on both sides of their run times."""
    count = draw(st.integers(1, 12))

    def column(low, high):
        return np.array(draw(st.lists(st.integers(low, high), min_size=count, max_size=count)))

    rows = zip(column(0, 40), column(1, 20), column(1, 30), column(1, 30), strict=True)
    return mark_malleable(jobs(*rows), 0.5, draw(st.integers(0, 9)), minimum=0.25, most=20)


@settings(max_examples=examples(60), deadline=None)
@given(
    overrunning(), st.sampled_from(sorted(POLICIES)), st.sampled_from([0.0, 4.0]), st.booleans()
)
def test_no_job_runs_beyond_its_limit_and_its_grace(workload, name, grace, costly):
    cost = ReconfigurationCost(1.0, 0.5) if costly else ReconfigurationCost()
    config = SimulationConfig(5, 4, limits="kill", grace=grace, cost=cost)
    result = simulate(workload, POLICIES[name](), config)
    assert (result.start >= workload.submit).all()
    assert result.killed == (~result.completed).sum()
    alone = ~(result.guest | result.mate)
    used = (result.end - result.start)[alone]
    assert (used <= workload.requested[alone] + grace + OVERDUE_SECONDS).all()
    untouched = alone & (result.resizes == 0)
    fits = (workload.run <= workload.requested + grace) & untouched
    if name != "equipartition":  # that may start a job on fewer processors
        assert result.completed[fits].all()


# --------------------------------------------------------------------------------- checkpoints


def lost(*times, repair=1.0):
    return tuple(NodeFailure(float(time), 0, time + repair) for time in times)


def test_a_lost_run_goes_on_from_its_last_checkpoint():
    config = SimulationConfig(4, failures=lost(75), checkpoint=Checkpointing(20.0))
    result = simulate(jobs((0, 4, 100, 100)), Easy(), config)
    assert result.end.tolist() == [76 + 40]
    assert (result.restarts, result.work_lost, result.work_saved) == (1, 4 * 15.0, 4 * 60.0)


def test_without_checkpoints_all_of_it_is_lost():
    result = simulate(jobs((0, 4, 100, 100)), Easy(), SimulationConfig(4, failures=lost(75)))
    assert result.end.tolist() == [176]
    assert (result.work_lost, result.work_saved) == (300.0, 0.0)


def test_each_checkpoint_takes_its_time_but_for_one_at_the_end():
    config = SimulationConfig(4, checkpoint=Checkpointing(20.0, cost=3.0))
    assert simulate(jobs((0, 4, 100, 200)), Easy(), config).end.tolist() == [112]
    assert simulate(jobs((0, 4, 101, 200)), Easy(), config).end.tolist() == [116]
    assert simulate(jobs((0, 4, 19, 200)), Easy(), config).end.tolist() == [19]


def test_a_checkpoint_counts_when_it_is_written():
    for time, left in ((22, 112), (23, 89), (24, 89)):
        config = SimulationConfig(
            4, failures=lost(time, repair=0.5), checkpoint=Checkpointing(20.0, cost=3.0)
        )
        assert simulate(jobs((0, 4, 100, 200)), Easy(), config).end.tolist() == [time + 0.5 + left]


def test_a_second_loss_goes_back_to_the_latest_checkpoint_of_both_runs():
    config = SimulationConfig(4, failures=lost(50, 75), checkpoint=Checkpointing(20.0))
    result = simulate(jobs((0, 4, 100, 100)), Easy(), config)
    assert result.end.tolist() == [76 + 40]  # 40 s in the first run, 24 and so 20 in the second
    assert (result.work_lost, result.work_saved) == (4 * (10 + 4), 4 * 60.0)


def test_a_requeued_run_goes_on_from_its_checkpoint_too():
    class Impatient(SchedulingPolicy):
        def decide(self, cluster):
            for job in cluster.queue:
                yield Start(job.id, job.processors)
            if cluster.events.submitted == (2,):
                yield Requeue(1)

    config = SimulationConfig(4, checkpoint=Checkpointing(20.0))
    result = simulate(jobs((0, 3, 100, 100), (50, 1, 1, 1)), Impatient(), config)
    assert result.restarts == 1
    assert result.end[0] == 51 + 60


@settings(max_examples=examples(60), deadline=None)
@given(
    overrunning(),
    st.sampled_from(RIGID),
    st.lists(st.tuples(st.integers(0, 90), st.integers(0, 19)), max_size=6, unique=True),
    st.sampled_from([None, (3.0, 0.0), (5.0, 1.0), (0.7, 0.1)]),
)
def test_what_was_occupied_is_the_work_of_all_jobs_and_what_was_lost(workload, name, at, saving):
    failures = tuple(NodeFailure(float(t), node, t + 5.0) for t, node in sorted(at))
    checkpoint = None if saving is None else Checkpointing(*saving)
    config = SimulationConfig(20, failures=failures, checkpoint=checkpoint)
    result = simulate(workload, POLICIES[name](), config)
    assert result.completed.all()
    work = workload.run if checkpoint is None else map(checkpoint.with_checkpoints, workload.run)
    whole = sum(a * b for a, b in zip(workload.processors.tolist(), work, strict=True))
    assert result.node_seconds == pytest.approx(whole + result.work_lost)
    if not failures:
        assert (result.restarts, result.work_lost, result.work_saved) == (0, 0, 0)


def test_checkpoints_that_cost_nothing_change_nothing_where_nothing_is_lost(random_jobs):
    drawn = random_jobs(np.random.default_rng(3), 9, 30)
    for name, policy in POLICIES.items():
        if name != "sd":
            plain = simulate(drawn, policy(), SimulationConfig(9), engine="events")
            saving = SimulationConfig(9, checkpoint=Checkpointing(2.0))
            assert simulate(drawn, policy(), saving).end.tolist() == plain.end.tolist()


# ------------------------------------------------------------------------------------- words


@pytest.fixture
def site(tmp_path):
    path = tmp_path / "site.swf"
    columns = {
        "job": [1, 2, 3], "submit": [0, 0, 0], "run": [100, 10, 20], "allocated": [4, 4, 4],
        "requested_processors": [4, 4, 4], "requested_time": [30, 20, -1], "status": [1, 1, 1],
    }  # fmt: skip
    table = {name: np.array(column, dtype=float) for name, column in columns.items()}
    write_swf(path, Log(table, np.arange(1, 4)))
    return path


def test_requests_are_raised_to_the_run_time_only_where_no_limit_kills(site):
    words = ["apples", "simulate", str(site), "--policy", "easy", "--processors", "4", "--json"]
    raised = json.loads(command(*words).out)
    assert (raised["requests_raised"], raised["killed"], raised["makespan"]) == (2, 0, 130)
    killing = json.loads(command(*words, "--option", "limits=kill").out)
    assert (killing["requests_raised"], killing["killed"], killing["makespan"]) == (1, 1, 60)
    assert killing["completed"] == 2


def test_work_lost_and_saved_is_said(site, tmp_path):
    failures = tmp_path / "failures.csv"
    failures.write_text("50,0,60\n")
    words = ["apples", "simulate", str(site), "--policy", "easy", "--processors", "4"]
    more = ["--option", f"failures={failures}", "--option", "checkpoint=20,cost=1"]
    figures = command(*words, *more, "--json").document
    assert (figures["restarts"], figures["work_lost"], figures["work_saved"]) == (1, 32, 168)
    said = command(*words, *more).out
    assert {"32", "168"} <= set(said.split())


@pytest.mark.parametrize(
    ("words", "code", "option", "value"),
    [
        (["limits=never"], "value-unknown", "limits", "never"),
        (["grace=5"], "option-not-applicable", "grace", 5),
        (["limits=kill", "grace=-1"], "value-range", "grace", -1),
        (["checkpoint=soon"], "value-invalid", "checkpoint", "soon"),
        (["checkpoint=60,cost=nan"], "value-invalid", "checkpoint", "60,cost=nan"),
        (["checkpoint=0"], "value-range", "checkpoint", [0, 0]),
    ],
)
def test_a_wrong_word_is_named(words, code, option, value, site):
    with pytest.raises(UsageError) as raised:
        prepare(
            str(site), "easy", words, processors=4, nodes=None, cores=None, malleable=None, seed=0
        )
    assert raised.value.code == code
    assert (raised.value.fields["option"], raised.value.fields["value"]) == (option, value)


@pytest.mark.parametrize("word", ["minimum=1.0", "maximum=2", "cost=stall", "shrink_seconds=3"])
def test_option_of_resizes_is_rejected_for_policy_that_resizes_no_job(word):
    machine = {"processors": None, "nodes": 4, "cores": 4, "malleable": 1.0, "seed": 0}
    log = "lublin:jobs=60,processors=16"
    with pytest.raises(UsageError, match=f"option {word}: does not apply to --policy sd"):
        prepare(log, "sd", [word], **machine)
    assert prepare(log, "equipartition", [word], **machine).run().completed.all()
