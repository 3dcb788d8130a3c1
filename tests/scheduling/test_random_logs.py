"""A sample of `tests/soak_policies.py`, which takes a hundred thousand logs, and that it can fail."""

from dataclasses import replace

import pytest
from soak_policies import POLICIES, Watched, check, drawn_case, longest_latency, run

from apples.scheduling import Easy, Equipartition, FirstFit
from apples.simulation import (
    EventEngine,
    ReconfigurationCost,
    SimulationConfig,
    lublin_workload,
    mark_malleable,
    simulate,
)

SAMPLE = range(8 * len(POLICIES))


@pytest.mark.more
def test_on_random_logs_with_trouble_no_policy_fails_and_no_promise_is_broken():
    counts, failed = run(SAMPLE)
    assert failed == []
    assert min(counts[name] for name in ("restarts", "overrunning", "excuses", "guests")) > 20
    some = ("kernels", "latencies", "killed", "saved", "reservations")
    assert min(counts[name] for name in some) > 5


def test_a_policy_that_breaks_its_promises_is_found():
    """First-fit makes none: under EASY's promises, it is late."""
    late = []
    for seed in range(200):
        case = drawn_case(seed)
        if type(case.policy) is Easy and case.policy.order == "fcfs":
            watched = Watched(FirstFit(), judged_as=Easy())
            EventEngine(case.workload, watched, case.config).run()
            late += watched.late
    assert late


def test_a_promise_slips_by_the_time_of_a_resize_where_a_job_waits_for_nodes_to_be_left():
    case = drawn_case(311149)
    for latency in (0.0, longest_latency(case.config)):
        watched = Watched(case.policy, latency=latency)
        EventEngine(case.workload, watched, case.config).run()
        assert bool(watched.late) is (latency == 0.0)


def test_logs_that_failed_once_do_not_fail_again():
    """A job asks for nodes while a change of its nodes is under way; a reservation begins as all jobs are due."""
    assert run((3008887, 515887, 516922, 517765, 523300))[1] == []


def test_the_logs_of_a_seed_are_always_the_same():
    assert check(3) == check(3)


def test_measured_times_of_resizes_are_taken_where_nodes_are_free_at_once_too():
    workload = mark_malleable(lublin_workload(50, 64, 1), 1.0, 0)
    cost = ReconfigurationCost(curve=((8.0, 4.0, 0.0, 5.0), (4.0, 8.0, 0.0, 5.0)))
    config = SimulationConfig(64, cost=cost, release="at_once")
    driven = EventEngine(workload, Equipartition(), config).run()
    assert simulate(workload, Equipartition(), config).start.tolist() == driven.start.tolist()
    free = replace(config, cost=ReconfigurationCost())
    assert simulate(workload, Equipartition(), free).end.tolist() != driven.end.tolist()
