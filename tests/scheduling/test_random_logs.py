"""A sample of `tests/soak_policies.py`, which takes a hundred thousand logs, and that it can fail."""

from soak_policies import POLICIES, Watched, check, drawn_case, longest_latency, run

from apples.scheduling.policies import Easy, FirstFit
from apples.simulation.engine import EventEngine

SAMPLE = range(8 * len(POLICIES))


def test_on_random_logs_with_trouble_no_policy_fails_and_no_promise_is_broken():
    counts, failed = run(SAMPLE)
    assert failed == []
    assert min(counts[name] for name in ("restarts", "overrunning", "excuses", "guests")) > 20
    assert min(counts["kernels"], counts["latencies"]) > 10


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


def test_the_logs_of_a_seed_are_always_the_same():
    assert check(3) == check(3)
