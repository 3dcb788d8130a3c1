"""The contract of a scheduling policy: ours keep it, and each way to break it is found."""

from dataclasses import dataclass, field

import pytest
from coding import with_code

from apples.scheduling import (
    POLICIES,
    Easy,
    FirstFit,
    Resize,
    SchedulingPolicy,
    SlowdownDriven,
    Start,
    TopologyAwarePolicy,
)
from apples.simulation import PolicyCheckError, check_policy
from apples.topology import synthetic

OURS = [
    *(make() for make in POLICIES.values()),
    Easy(order="widest", depth=2),
    SlowdownDriven(max_slowdown=float("inf"), guard=False, free_nodes=True),
    SlowdownDriven(max_slowdown=float("inf"), contiguous=True),
    SlowdownDriven(max_slowdown=float("inf"), nodes="0-2"),
    SlowdownDriven(max_slowdown="dynamic", mates=3),
]


@pytest.mark.parametrize("policy", OURS, ids=repr)
def test_our_policies_keep_the_contract(policy):
    check_policy(policy)


def test_a_policy_that_places_jobs_keeps_the_contract():
    machine = synthetic("package:2 core:2 pu:2")
    check_policy(TopologyAwarePolicy(machine, FirstFit()), nodes=8, cores_per_node=1)


class Starts(SchedulingPolicy):
    """Starts what fits; the others break one rule each."""

    def decide(self, cluster):
        free = cluster.free
        for job in cluster.queue:
            nodes = cluster.nodes_for(job.processors)
            if nodes <= free:
                free -= nodes
                yield Start(job.id, nodes)


class TooMany(Starts):
    def decide(self, cluster):
        for job in cluster.queue:
            yield Start(job.id, cluster.nodes_for(job.processors))


class TooFew(Starts):
    def decide(self, cluster):
        for start in super().decide(cluster):
            yield Start(start.job, 1)


class Twice(Starts):
    def decide(self, cluster):
        for start in super().decide(cluster):
            yield start
            yield start


class Resizes(Starts):
    def decide(self, cluster):
        yield from super().decide(cluster)
        for number in cluster.running:
            yield Resize(number, 1)


class Idle(Starts):
    def decide(self, cluster):
        return (start for start in super().decide(cluster) if start.nodes < cluster.nodes)


class Writes(Starts):
    def decide(self, cluster):
        cluster.free = 999
        return super().decide(cluster)


class Shortens(Starts):
    def decide(self, cluster):
        for one in cluster.running.values():
            one.limit = cluster.time
        return super().decide(cluster)


@dataclass
class Remembers(Starts):
    seen: list = field(default_factory=list)

    def decide(self, cluster):
        self.seen.append(cluster.time)
        return iter(list(super().decide(cluster)) if len(self.seen) % 2 else [])


@dataclass
class Counts(Starts):
    times: set = field(default_factory=set)

    def decide(self, cluster):
        self.times.add(cluster.time)
        return iter(list(super().decide(cluster)) if len(self.times) % 3 else [])


class Raises(Starts):
    def decide(self, cluster):
        yield Start(cluster.queue[0].id, 1 // len(cluster.running))


class Leaves(Starts):
    def decide(self, cluster):
        raise SystemExit(0)


@pytest.mark.parametrize(
    ("broken", "cause", "fields"),
    [
        (TooMany, "decision-refused", {"value": "Start(job=5, nodes=5, mates=(), share=1.0)"}),
        (TooFew, "decision-refused", {"value": "Start(job=7, nodes=1, mates=(), share=1.0)"}),
        (Twice, "decision-refused", {"value": "Start(job=7, nodes=2, mates=(), share=1.0)"}),
        (Resizes, "decision-refused", {"value": "Resize(job=7, nodes=1)"}),
        (Idle, "job-never-started", {}),
        (Writes, "policy-failed", {"kind": "raises"}),
        (Shortens, "policy-failed", {"kind": "raises"}),
        (Remembers, "policy-check-failed", {"promise": "deterministic"}),
        (Counts, "policy-check-failed", {"promise": "memoryless"}),
        (Raises, "policy-failed", {"kind": "raises"}),
        (Leaves, "policy-failed", {"kind": "exits"}),
    ],
)
def test_a_policy_that_breaks_a_rule_is_named_with_workload_and_breach(broken, cause, fields):
    case = {"policy": broken.__name__, "cause": cause, "case": "rigid jobs", "seed": 0}
    with pytest.raises(PolicyCheckError, check=with_code("policy-check-failed", **case, **fields)):
        check_policy(broken())
