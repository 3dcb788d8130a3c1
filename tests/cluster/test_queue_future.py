"""The future of a queue: the state goes into the simulator as it is, and intervals hold as often as they say."""

from dataclasses import replace

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from apples.cluster import (
    PastJob,
    QueuedJob,
    QueueForecaster,
    QueueSnapshot,
    simulate_queue,
    smallest_changes,
    starts_now,
    with_changes,
)
from apples.errors import UsageError
from apples.scheduling import (
    Conservative,
    Easy,
    Equipartition,
    FirstComeFirstServed,
    FirstFit,
    ShortestJobFirst,
)
from apples.simulation import SimulationConfig, rigid, simulate

RIGID = (FirstComeFirstServed(), FirstFit(), ShortestJobFirst(), Easy(), Conservative())


def drawn_log(seed, jobs=60, nodes=16):
    """Return a log whose jobs take a part of their estimates."""
    rng = np.random.default_rng((181, seed))
    submit = np.cumsum(rng.exponential(60.0, jobs)).round()
    width = rng.integers(1, nodes // 2 + 1, jobs)
    requested = rng.choice([60.0, 200.0, 600.0, 1000.0], jobs)
    run = np.maximum(1.0, (requested * rng.beta(1.0, 1.5, jobs)).round())
    return rigid(submit, run, width, requested)


def past_jobs(log, result, until, now):
    """Return the jobs of a log up to one, as they are known at a time."""
    found = []
    for k in range(until):
        start, end = float(result.start[k]), float(result.end[k])
        over = end <= now
        found.append(
            PastJob(
                queued(log, k), float(log.submit[k]), start if start <= now else None,
                end if over else None, float(log.run[k] / log.requested[k]) if over else None,
                int(log.processors[k]),
            )
        )  # fmt: skip
    return tuple(found)


def queued(log, k):
    width = int(log.processors[k])
    return QueuedJob(int(log.job[k]), width, width, float(log.requested[k]))


def snapshot_at(log, result, k, nodes):
    """Return the queue of a simulated run when a job came, which is the last of it."""
    now = float(log.submit[k])
    jobs = [
        replace(queued(log, i), nodes=int(log.processors[i]), done=now - float(result.start[i]))
        for i in range(k)
        if result.start[i] <= now < result.end[i]
    ]
    jobs += [queued(log, i) for i in range(k) if result.start[i] > now]
    return QueueSnapshot(nodes, (*jobs, queued(log, k)), past_jobs(log, result, k, now), now)


@pytest.mark.parametrize("policy", RIGID, ids=lambda one: type(one).__name__)
@settings(max_examples=examples(25), deadline=None)
@given(seed=st.integers(0, 10_000))
def test_with_estimates_that_are_right_the_future_is_what_becomes_of_the_log(policy, seed):
    log = drawn_log(seed)
    log = replace(log, requested=log.run)
    result = simulate(log, policy, SimulationConfig(nodes=16))
    k = len(log) - 1
    snapshot = replace(snapshot_at(log, result, k, 16), past=())
    future = simulate_queue(snapshot, policy)
    assert future.draws == 1
    now = float(log.submit[k])
    for job, interval in future.starts.items():
        real = float(result.start[job - 1]) - now
        assert interval == pytest.approx((real, real, real), abs=0.01)
    for job, interval in future.ends.items():
        assert interval[1] == pytest.approx(float(result.end[job - 1]) - now, abs=0.01)


def test_malleable_jobs_are_shared_out_among_the_nodes():
    jobs = (
        QueuedJob(1, 1, 4, 100.0, malleable=True, nodes=4, done=50.0),
        QueuedJob(2, 1, 4, 100.0, malleable=True),
    )
    future = simulate_queue(QueueSnapshot(4, jobs), Equipartition())
    assert future.starts[2] == pytest.approx((0.0, 0.0, 0.0), abs=0.01)
    assert future.ends[1][1] == pytest.approx(100.0, abs=0.1)  # its other half, on half the nodes
    assert future.over == pytest.approx(150.0, abs=0.1)
    rigid_one = simulate_queue(QueueSnapshot(4, jobs), Easy())
    assert rigid_one.starts[2][1] == pytest.approx(50.0, abs=0.01)


def test_what_is_larger_than_the_machine_has_no_start_and_holds_nobody_up():
    jobs = (QueuedJob(1, 8, 8, 100.0), QueuedJob(2, 1, 1, 100.0))
    future = simulate_queue(QueueSnapshot(4, jobs), FirstComeFirstServed())
    assert future.starts[1] is None
    assert future.starts[2][0] == pytest.approx(0.0, abs=0.01)
    assert simulate_queue(QueueSnapshot(0, jobs), Easy()).starts == {1: None, 2: None}


def past_of(*ratios):
    job = QueuedJob(1, 1, 1, 100.0)
    return tuple(
        PastJob(replace(job, number=100 + k), 1e3 * k, 1e3 * k, 1e3 * k + 50.0, ratio, 1)
        for k, ratio in enumerate(ratios)
    )


def test_nothing_is_drawn_from_fewer_than_ten_runs_that_are_over():
    jobs = (QueuedJob(1, 4, 4, 100.0, nodes=4, done=20.0), QueuedJob(2, 4, 4, 100.0))
    few = QueueSnapshot(4, jobs, (*past_of(*[0.5] * 9), *past_of(None)))
    assert QueueForecaster(Easy()).future(few).draws == 1
    enough = replace(few, past=past_of(*[0.5] * 10))
    future = QueueForecaster(Easy()).future(enough)
    assert future.draws == 100
    low, middle, high = future.starts[2]
    assert middle == pytest.approx(30.0, abs=0.1)
    assert low < middle < high


@given(done=st.floats(0.0, 500.0), ratios=st.lists(st.floats(0.01, 3.0), min_size=10, max_size=30))
@settings(max_examples=examples(30), deadline=None)
def test_what_runs_is_not_over_before_now_however_long_it_has_run(done, ratios):
    jobs = (QueuedJob(1, 4, 4, 100.0, nodes=4, done=done), QueuedJob(2, 4, 4, 100.0))
    future = simulate_queue(QueueSnapshot(4, jobs, past_of(*ratios)), Easy(), draws=20)
    low, middle, high = future.ends[1]
    assert 0.0 <= low <= middle <= high <= max(3.0 * 100.0, 10.0 * done) + 0.01
    assert future.starts[2] == pytest.approx(future.ends[1], abs=0.01)


def test_runs_of_the_same_user_and_name_count_before_all_others():
    mine = tuple(
        replace(one, job=replace(one.job, alike="ada sweep")) for one in past_of(*[0.1] * 8)
    )
    jobs = (QueuedJob(1, 4, 4, 100.0, nodes=4, alike="ada sweep"), QueuedJob(2, 4, 4, 100.0))
    future = simulate_queue(QueueSnapshot(4, jobs, (*past_of(*[0.9] * 20), *mine)), Easy())
    assert future.ends[1][1] == pytest.approx(10.0, abs=0.1)


def test_runs_of_the_same_hosts_and_estimate_count_before_those_of_the_same_name():
    small = tuple(
        replace(one, job=replace(one.job, alike="ada sweep")) for one in past_of(*[0.9] * 30)
    )
    large = tuple(
        replace(one, job=replace(one.job, alike="ada sweep", minimum=4, maximum=4))
        for one in past_of(*[0.1] * 3)
    )
    jobs = (QueuedJob(1, 4, 4, 100.0, nodes=4, alike="ada sweep"), QueuedJob(2, 4, 4, 100.0))
    future = simulate_queue(QueueSnapshot(4, jobs, (*large, *small)), Easy())
    assert future.ends[1][1] == pytest.approx(10.0, abs=0.1)


def test_the_latest_runs_alike_count():
    def alike(one, first):
        number = one.job.number + first
        job = replace(one.job, alike="ada sweep", number=number)
        return replace(one, job=job, ended=one.ended + 1e3 * first)

    past = (
        *(alike(one, 0) for one in past_of(*[0.9] * 40)),
        *(alike(one, 100) for one in past_of(*[0.1] * 20)),
    )
    jobs = (QueuedJob(1, 1, 1, 100.0, alike="ada sweep"),)
    future = simulate_queue(QueueSnapshot(4, jobs, past), Easy())
    assert future.ends[1] == pytest.approx((10.0, 10.0, 10.0), abs=0.1)


def test_the_smallest_change_starts_the_job_and_less_of_it_does_not():
    jobs = (
        QueuedJob(1, 5, 5, 100.0, nodes=5), QueuedJob(2, 8, 8, 100.0), QueuedJob(3, 3, 3, 400.0)
    )  # fmt: skip
    snapshot, policy = QueueSnapshot(8, jobs), Easy(order="priority")
    assert not starts_now(snapshot, policy, jobs[2])
    found = smallest_changes(snapshot, policy, 3)
    assert found == {"seconds": pytest.approx(100.0, abs=1.0), "priority": 1.0}
    assert smallest_changes(snapshot, policy, 2) == {"hosts": 3}
    assert not starts_now(snapshot, policy, replace(jobs[1], minimum=4, maximum=4))
    full = replace(snapshot, jobs=(replace(jobs[0], nodes=8), jobs[1]))
    assert smallest_changes(full, policy, 2) == {}
    empty = replace(snapshot, jobs=jobs[1:2])
    assert (
        smallest_changes(empty, policy, 2) == {}
    )  # nothing need be changed: the next pass starts it


def test_more_hosts_and_smaller_jobs_are_put_into_the_queue():
    jobs = (QueuedJob(1, 4, 4, 100.0, nodes=4), QueuedJob(2, 4, 4, 100.0))
    snapshot = QueueSnapshot(4, jobs)
    more = with_changes(snapshot, {"hosts_more": 4})
    assert simulate_queue(more, Easy()).wait == pytest.approx(0.0, abs=0.01)
    small = with_changes(snapshot, {"minimum": {"2": 2}})
    assert (small.jobs[1].maximum, small.jobs[1].requested) == (2, 200.0)
    for changes, code, fields in (
        ({"hosts_less": 1}, "value-range", {"field": "hosts", "value": 3, "bound": 4}),
        ({"hosts_less": 9}, "value-range", {"field": "hosts_less", "value": 9, "bound": 3}),
        ({"hosts_less": 9, "hosts_more": 5}, "value-range", {"field": "hosts_less", "bound": 8}),
        ({"minimum": {"1": 1}}, "job-unknown", {"job": "1"}),
        ({"minimum": {"local.1": 1}}, "job-unknown", {"job": "local.1"}),
        ({"minimum": {"2": 5}}, "value-range", {"job": "2", "value": 5, "bound": 4}),
        ({"hosts_more": 10**9}, "value-range", {"field": "hosts", "bound": 100_000}),
    ):
        with pytest.raises(UsageError) as raised:
            with_changes(snapshot, changes)
        assert raised.value.code == code
        assert fields.items() <= raised.value.fields.items()


def test_eight_of_ten_starts_and_finishes_are_in_their_intervals():
    """`experiments/start_and_finish.py` has the figures of whole logs."""
    log, policy = drawn_log(3, jobs=260), Easy()
    result = simulate(log, policy, SimulationConfig(nodes=16))
    waited = [k for k in range(60, 260) if result.start[k] > log.submit[k] + 1.0]
    forecaster, inside, finished = QueueForecaster(policy), 0, 0
    for k in waited:
        future = forecaster.future(snapshot_at(log, result, k, 16), seed=k, draws=40)
        low, _, high = future.starts[int(log.job[k])]
        inside += low - 1.0 <= result.start[k] - log.submit[k] <= high + 1.0
        low, _, high = future.ends[int(log.job[k])]
        finished += low - 1.0 <= result.end[k] - log.submit[k] <= high + 1.0
    assert len(waited) > 60
    assert 0.7 <= inside / len(waited) <= 0.9
    assert 0.7 <= finished / len(waited) <= 0.9
