"""The compiled kernels against plain schedulers written for this test, and against the policies as values."""

from pathlib import Path

import numpy as np
import pytest

from apples.scheduling import (
    Conservative,
    Easy,
    Equipartition,
    FirstComeFirstServed,
    FirstFit,
    ShortestJobFirst,
    SlowdownDriven,
)
from apples.simulation import (
    KERNELS,
    ReconfigurationCost,
    SimulationConfig,
    amdahl,
    clean,
    linear,
    mark_malleable,
    read_swf,
    simulate,
)

PROCESSORS = 8


def columns(workload):
    return [
        column.tolist()
        for column in (workload.submit, workload.run, workload.processors, workload.requested)
    ]


def brute_force_easy(workload, processors):
    """EASY event by event: recount everything, assume nothing."""
    submit, run, width, request = columns(workload)
    count = len(submit)
    start = [None] * count

    def used(at, ends):
        """Processors held at a time by the jobs that run now, by these ends."""
        return sum(
            width[j]
            for j in range(count)
            if start[j] is not None and start[j] + run[j] > time and start[j] + ends[j] > at
        )

    time = min(submit)
    while None in start:
        queue = [j for j in range(count) if start[j] is None and submit[j] <= time]
        while queue and used(time, run) + width[queue[0]] <= processors:
            start[queue.pop(0)] = time
        if queue:
            head, *others = queue
            ends = sorted(start[j] + request[j] for j in range(count) if start[j] is not None)
            shadow = next(
                t for t in ends if t > time and used(t, request) + width[head] <= processors
            )
            for j in others:
                if used(time, run) + width[j] > processors:
                    continue
                start[j] = time
                if used(shadow, request) + width[head] > processors:
                    start[j] = None  # it would delay the head
        ends = [start[j] + run[j] for j in range(count) if start[j] is not None]
        time = min([t for t in submit + ends if t > time], default=time)
    return start


def brute_force_conservative(workload, processors, horizon=700):  # noqa: C901 -- plain on purpose
    """Conservative backfilling on a table of seconds."""
    submit, run, width, request = ([int(v) for v in c] for c in columns(workload))
    free = np.full(horizon, processors)
    promise, running, start = {}, [], [None] * len(submit)

    def place(j, now):
        begin = now
        while free[begin : begin + request[j]].min() < width[j]:
            begin += 1
        free[begin : begin + request[j]] -= width[j]
        promise[j] = begin

    for now in range(horizon):
        early = [j for j in running if start[j] + run[j] == now and run[j] < request[j]]
        running = [j for j in running if start[j] + run[j] > now]
        for j in early:
            free[now : start[j] + request[j]] += width[j]
        if early:
            for j in sorted(promise):
                if promise[j] > now:
                    free[promise[j] : promise[j] + request[j]] += width[j]
                    place(j, now)
        for j in range(len(submit)):
            if submit[j] == now:
                place(j, now)
        for j in sorted(promise):
            if promise[j] == now:
                start[j] = now
                running.append(j)
                del promise[j]
        if None not in start:
            return start
    raise AssertionError("the horizon is too near")


def brute_force_first_fit(workload, processors):
    submit, run, width, _ = columns(workload)
    start, time = [None] * len(submit), 0
    while None in start:
        for j in range(len(submit)):
            busy = sum(
                width[k]
                for k in range(len(submit))
                if start[k] is not None and start[k] + run[k] > time
            )
            if start[j] is None and submit[j] <= time and busy + width[j] <= processors:
                start[j] = time
        time += 1
    return start


@pytest.mark.more
@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "oracle"),
    [
        (Easy(), brute_force_easy),
        (Conservative(), brute_force_conservative),
        (FirstFit(), brute_force_first_fit),
    ],
    ids=["easy", "conservative", "first_fit"],
)
def test_the_compiled_kernel_agrees_start_for_start_with_brute_force(policy, oracle, random_jobs):
    """Slow: 5,000 logs are what makes a rare tie likely to occur."""
    rng = np.random.default_rng(20261120)
    config = SimulationConfig(PROCESSORS)
    for _ in range(5000):
        workload = random_jobs(rng, PROCESSORS)
        assert simulate(workload, policy, config).start.tolist() == oracle(workload, PROCESSORS)


def test_easy_on_the_sample_log_is_that_of_brute_force():
    log = read_swf(Path(__file__).parent / "sample.swf.gz")
    workload, _ = clean(log, int(log.header_value("MaxProcs")))
    result = simulate(workload, Easy(), SimulationConfig(64))
    assert result.start.tolist() == brute_force_easy(workload, 64)
    assert (result.start > workload.submit).sum() == 19


POLICIES = [
    FirstComeFirstServed(),
    FirstFit(),
    ShortestJobFirst(),
    Easy(),
    Easy(order="shortest"),
    Easy(order="widest", depth=1),
    Easy(depth=2),
    Conservative(),
    SlowdownDriven(),
    SlowdownDriven(protect=False),
    SlowdownDriven(max_slowdown="dynamic"),
    SlowdownDriven(max_slowdown=float("inf"), guard=False),
    SlowdownDriven(max_slowdown=50, mates=1, protect=False),
    SlowdownDriven(max_slowdown=float("inf"), guard=False, mates=3),
    SlowdownDriven(max_slowdown="dynamic", mates=3, free_nodes=True, protect=False),
    SlowdownDriven(max_slowdown=float("inf"), guard=False, free_nodes=True),
    SlowdownDriven(max_slowdown=float("inf"), free_nodes=True),
    SlowdownDriven(sharing_factor=0.3, depth=3),
]


def final(changes):
    """What every job has after each instant at which it changed."""
    return {(time, job): cores for time, job, cores in changes}


def test_every_policy_that_exists_in_two_forms_is_compared_below():
    assert {type(policy) for policy in POLICIES} == set(KERNELS)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_the_compiled_kernel_is_the_policy_in_the_event_engine_bit_for_bit(policy, random_jobs):
    """Slow: each log is simulated twice under two tie rules and both run-time models."""
    pytest.importorskip("numba")
    rng = np.random.default_rng(7)
    for trial in range(300):
        nodes, cores = int(rng.integers(2, 8)), int(rng.choice([4, 5]))
        workload = random_jobs(rng, nodes * cores, 60, fractions=trial % 3 == 0)
        part = float(rng.choice([0.0, 0.5, 1.0]))
        workload = mark_malleable(
            workload, part, trial, minimum=0.3, maximum=2.0, most=nodes * cores
        )
        sharing = isinstance(policy, SlowdownDriven)
        config = SimulationConfig(
            nodes,
            cores,
            ties=("instant", "event")[trial % 2],
            runtime_model=("ideal", "worst")[trial // 2 % 2],
            speedup=linear if sharing or trial % 3 else lambda n: amdahl(n, 0.1),
            cost=ReconfigurationCost(0.5, 0.25, 10, 20)
            if trial % 5 == 0
            else ReconfigurationCost(),
            release="at_once",
        )
        fast = simulate(workload, policy, config, engine="kernel", record=True)
        events = simulate(workload, policy, config, engine="events", record=True)
        assert (fast.engine, events.engine) == ("numba", "events")
        for name in ("start", "end", "resizes", "guest", "mate"):
            assert getattr(fast, name).tolist() == getattr(events, name).tolist(), name
        assert fast.node_seconds == pytest.approx(events.node_seconds)
        assert final(fast.changes) == final(events.changes)


@pytest.mark.parametrize(
    "policy", [SlowdownDriven(max_slowdown=0.0), SlowdownDriven()], ids=["max_slowdown 0", "0 %"]
)
def test_without_mates_sd_policy_is_easy_on_whole_nodes(policy, random_jobs):
    rng = np.random.default_rng(3)
    for _ in range(300):
        workload = random_jobs(rng, 24, 30)
        if policy.max_slowdown == 0:
            workload = mark_malleable(workload, 1.0, 0)
        config = SimulationConfig(6, 4)
        assert (
            simulate(workload, policy, config).start.tolist()
            == simulate(workload, Easy(), config).start.tolist()
        )


def test_equipartition_of_jobs_that_cannot_be_resized_is_first_fit(random_jobs):
    rng = np.random.default_rng(4)
    for trial in range(300):
        workload = random_jobs(rng, PROCESSORS, 30, fractions=trial % 2 == 0)
        config = SimulationConfig(PROCESSORS)
        adaptive = simulate(workload, Equipartition(), config)
        static = simulate(workload, FirstFit(), config)
        assert adaptive.start.tolist() == static.start.tolist()
        assert adaptive.end.tolist() == static.end.tolist()
