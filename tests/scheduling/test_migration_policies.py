"""Policies that move jobs by the load of nodes: what they never do, and the two rules."""

from dataclasses import replace

import pytest
from coding import in_order
from hypothesis import given
from hypothesis import strategies as st

from apples.errors import UsageError
from apples.scheduling import (
    ClusterState,
    Easy,
    Job,
    JobKind,
    Migrate,
    NodeLoad,
    PaybackMigration,
    RunningJob,
    Start,
    ThresholdMigration,
    Wake,
    from_json,
    to_json,
)

BOTH = [ThresholdMigration(), PaybackMigration()]
NOW = 1000.0


def malleable(number, nodes):
    return Job(number, 0.0, nodes, 1e4, 1, nodes, JobKind.MALLEABLE)


def running(number, *nodes, start=0.0, **more):
    job = malleable(number, len(nodes))
    return RunningJob(job, start, len(nodes), 1e4, node_ids=frozenset(nodes), **more)


def state(loads, *jobs, queue=()):
    taken = {node for job in jobs for node in job.node_ids}
    free = [node for node in range(len(loads)) if node not in taken]
    return ClusterState(
        len(loads), time=NOW, free=len(free), free_node_ids=tuple(free), queue=tuple(queue), loads=tuple(loads),
        running={job.job.id: job for job in jobs},
    )  # fmt: skip


def loads_of(*others, **more):
    return [NodeLoad(f"h{n}", others=float(load), **more) for n, load in enumerate(others)]


def moves(policy, cluster):
    return [one for one in policy.decide(cluster) if isinstance(one, Migrate)]


@st.composite
def clusters(draw):
    nodes = draw(st.integers(1, 8))
    numbers = st.sampled_from([0.0, 0.2, 0.5, 1.0, 3.0])
    loads = [
        NodeLoad(
            f"h{n}", draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.sampled_from([1, 2.0])),
            draw(numbers), draw(st.booleans()), draw(st.sampled_from("ab")), (("memory", 0.5),),
        )
        for n in range(nodes)
    ]  # fmt: skip
    left, jobs = list(range(nodes)), []
    while left and draw(st.booleans()):
        count = draw(st.integers(1, len(left)))
        more = {"changing": draw(st.sampled_from([False, False, True]))}
        start = draw(st.sampled_from([0.0, NOW - 5]))
        jobs.append(running(len(jobs) + 1, *left[:count], start=start, **more))
        left = left[count:]
    queue = [
        malleable(100 + n, draw(st.integers(1, nodes))) for n in range(draw(st.integers(0, 2)))
    ]
    return state(loads, *jobs, queue=queue)


@pytest.mark.parametrize("policy", BOTH, ids=["decider", "migrate"])
@given(clusters())
def test_a_job_gets_as_many_nodes_as_it_had_all_of_them_its_own_or_free_and_of_no_owner(
    policy, cluster
):
    free, started = set(cluster.free_node_ids), 0
    for decision in policy.decide(cluster):
        if isinstance(decision, Migrate):
            job = cluster.running[decision.job]
            assert not job.changing
            come = decision.nodes - job.node_ids
            assert len(decision.nodes) == job.nodes
            assert come
            assert come <= free
            assert not any(cluster.loads[node].owner_back for node in come)
            free -= come
            gone = job.node_ids
            if not any(cluster.loads[node].owner_back for node in job.node_ids):
                assert NOW - job.start >= policy.hold
            if isinstance(policy, PaybackMigration):
                assert any(cluster.loads[node].others for node in gone)
            assert decision.reason
        elif isinstance(decision, Start):
            started += decision.nodes
    assert started <= sum(not cluster.loads[node].owner_back for node in free)


@given(clusters())
def test_without_loads_and_with_none_of_others_both_decide_as_easy(cluster):
    calm = cluster._replace(loads=tuple(one._replace(others=0.0) for one in cluster.loads))
    easy = list(Easy().decide(cluster))
    for policy in BOTH:
        assert list(policy.decide(cluster._replace(loads=()))) == easy
    assert list(PaybackMigration().decide(calm)) == easy


@given(clusters())
def test_a_state_with_loads_is_read_back_as_it_was(cluster):
    assert from_json(to_json(cluster)) == cluster


def test_a_host_whose_owner_is_back_is_left_even_by_a_job_that_has_just_come():
    loads = loads_of(0.4, 0.0, 0.2, owner_first=True)
    new = running(1, 0, start=NOW - 1)
    for policy in BOTH:
        moved, = moves(policy, state(loads, new))  # fmt: skip
        assert moved.nodes == {1}
    told, = moves(PaybackMigration(), state(loads, new))  # fmt: skip
    assert in_order(told.reason, "owner", "h0", "0.40", "0.3")
    assert moves(PaybackMigration(), state(loads_of(0.4, 0.0), new)) == []


def test_nobody_is_started_where_the_owner_is_and_who_needs_that_host_waits():
    loads = loads_of(2.0, 0.0, owner_first=True)
    for policy in BOTH:
        waiting = [malleable(1, 2), malleable(2, 1)]
        found = list(policy.decide(state(loads, queue=waiting)))
        assert found == [Start(2, 1)]


def test_a_job_that_was_moved_stays_and_is_looked_at_again_when_it_may_move():
    loads = loads_of(1.0, 0.0)
    held = running(1, 0, moved=NOW - 5)
    for policy in BOTH:
        assert list(policy.decide(state(loads, held))) == [Wake(NOW + 15)]
        assert moves(policy, state(loads, held._replace(moved=NOW - 20)))


def test_a_move_that_is_not_paid_back_before_the_job_ends_is_not_made():
    loads = loads_of(1.0, 0.0)
    job = running(1, 0)
    assert moves(PaybackMigration(), state(loads, job))
    assert moves(PaybackMigration(), state(loads, job._replace(limit=NOW + 6))) == []
    assert moves(PaybackMigration(base_seconds=40.0), state(loads, job)) == []


def test_the_slowest_host_decides_so_one_of_two_loaded_hosts_is_not_left_alone():
    loads = loads_of(1.0, 1.0, 0.0, 0.0)
    job = running(1, 0, 1)
    moved, = moves(PaybackMigration(), state(loads, job))  # fmt: skip
    assert moved.nodes == {2, 3}
    assert "from 2 s to 1 s with 2 moves" in moved.reason
    assert moves(PaybackMigration(), state(loads_of(1.0, 1.0, 0.0, 1.0), job)) == []


def test_the_paper_s_rule_looks_at_whatever_has_a_priority():
    full = NodeLoad("h0", parts=(("memory", 0.1),))
    free = NodeLoad("h1", parts=(("memory", 0.9),))
    cluster = state([full, free], running(1, 0))
    assert moves(ThresholdMigration(), cluster) == []
    moved, = moves(ThresholdMigration(cpu=0.0, memory=1.0), cluster)  # fmt: skip
    assert in_order(moved.reason, "0.90", "h0", "0.60", "0.90", "h1", "0.40")


def test_jobs_that_cannot_be_moved_stay():
    loads = loads_of(3.0, 0.0, owner_first=True)
    job = running(1, 0)
    fixed = replace(job.job, kind=JobKind.RIGID)
    for policy in BOTH:
        assert moves(policy, state(loads, job._replace(job=fixed))) == []
        assert moves(policy, state(loads, job._replace(changing=True))) == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: ThresholdMigration(threshold=1.5),
        lambda: ThresholdMigration(cpu=0.0),
        lambda: ThresholdMigration(hold=-1.0),
        lambda: PaybackMigration(horizon=-1.0),
        lambda: PaybackMigration(shorter=float("nan")),
    ],
)
def test_options_that_mean_nothing_are_refused(make):
    with pytest.raises(UsageError):
        make()


def test_what_a_job_is_known_to_send_and_to_take_stands_in_the_reason():
    loads = [load._replace(site=site) for load, site in zip(loads_of(0, 2, 0), "aab", strict=True)]
    told = {"messages": ((0, 1, 300.0), (1, 0, 200.0)), "iteration_seconds": 0.03}
    (moved,) = moves(PaybackMigration(), state(loads, running(1, 0, 1, **told)))
    assert "; an iteration from 0.03 s to 0.01 s with 1 move: " in moved.reason
    sent = "its nodes send each other 500 bytes an iteration, between sites 0 before and 500 after"
    assert moved.reason.endswith(f"; {sent}")
    (moved,) = moves(ThresholdMigration(), state(loads, running(1, 0, 1, **told)))
    assert moved.reason.endswith(f"; {sent}")
    (moved,) = moves(PaybackMigration(), state(loads, running(1, 0, 1)))
    assert "bytes" not in moved.reason


def test_a_loaded_node_that_has_little_to_do_is_not_worth_a_move():
    loads, work = loads_of(0, 1, 0), ((0, 10.0), (1, 4.0))
    assert moves(PaybackMigration(), state(loads, running(1, 0, 1, work=work))) == []
    assert moves(PaybackMigration(), state(loads, running(1, 0, 1, work=((0, 10.0), (1, 9.0)))))
    assert moves(PaybackMigration(), state(loads, running(1, 0, 1)))


def test_a_load_that_may_have_been_a_moment_moves_nobody_but_for_an_owner():
    moment, steady = loads_of(0.2, 0), loads_of(0.2, 0)
    moment[0] = moment[0]._replace(error=0.12)
    steady[0] = steady[0]._replace(error=0.02)
    assert moves(PaybackMigration(), state(moment, running(1, 0))) == []
    (moved,) = moves(PaybackMigration(), state(steady, running(1, 0)))
    assert in_order(moved.reason, "0.20", "h0", "0.00", "h1")
    assert moves(PaybackMigration(standard_errors=0), state(moment, running(1, 0)))
    moment[0] = moment[0]._replace(others=0.4, error=0.3, owner_first=True)
    assert moves(PaybackMigration(), state(moment, running(1, 0)))
    doubtful = loads_of(0.5, 0.2)
    doubtful[1] = doubtful[1]._replace(error=0.15)
    assert moves(PaybackMigration(), state(doubtful, running(1, 0))) == []
