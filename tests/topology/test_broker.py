"""The broker against the allocator, and a second one that no scheduler had heard of."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import random_machine

from apples.scheduling import ClusterState, Easy, FirstFit, Job, Reject, Start, TopologyAwarePolicy
from apples.topology import (
    BrokerAnswer,
    BrokerRequest,
    CpuSet,
    CpusetBroker,
    Fit,
    HostCpus,
    Requirement,
    RequirementBroker,
    RequirementError,
    Satisfiability,
    broker_of,
    fit,
    parse,
    read_hwloc_xml,
    synthetic,
)


class GpuBroker(RequirementBroker):
    """A toy: hosts have numbers of GPUs, ``GPU[COUNT=n]`` asks for some."""

    def __init__(self, free, total):
        self.free, self.total = free, total

    def satisfies(self, host, request):
        wanted, free = int(request.expression.keys["COUNT"]), self.free[host]
        if wanted <= free:
            return BrokerAnswer(Satisfiability.YES, quality=(float(free - wanted),))
        verdict = Satisfiability.NOT_NOW if wanted <= self.total[host] else Satisfiability.NEVER
        return BrokerAnswer(
            verdict, f"{free} GPUs are free, COUNT asks {wanted}", free, wanted, "COUNT"
        )


GPUS = GpuBroker({"h0": 0, "h1": 1, "h2": 4}, {"h0": 0, "h1": 4, "h2": 4})
SMALL = synthetic("package:2 pu:2")


@given(st.integers(0, 2**32))
def test_yes_not_now_and_never_are_what_the_allocator_would_say(seed):
    rng = random.Random(seed)
    topology = read_hwloc_xml(random_machine(rng).xml().encode(), "m")
    free = CpuSet.of(c for c in topology.cpus if rng.random() < 0.6)
    broker = CpusetBroker({"h": HostCpus(topology, free)}.get)
    for text in ("", "MAX_RADIUS=1", "MAX_CPU_PER_NODE=2", "WHOLE_CORES=Y", "CPU_LIST=0-5"):
        count = rng.randint(1, 6)
        answer = broker.satisfies("h", BrokerRequest(parse(text), count))
        asked = {
            "": Requirement(count),
            "MAX_RADIUS=1": Requirement(count, max_radius=1),
            "MAX_CPU_PER_NODE=2": Requirement(count, max_cpus_per_node=2),
            "WHOLE_CORES=Y": Requirement(count, whole_cores=True),
            "CPU_LIST=0-5": Requirement(count, cpus=CpuSet.parse("0-5")),
        }[text]
        now, empty = fit(topology, free, asked), fit(topology, topology.cpus, asked)
        verdicts = [Satisfiability.YES, Satisfiability.NOT_NOW, Satisfiability.NEVER]
        expected = verdicts[0 if isinstance(now, Fit) else 1 if isinstance(empty, Fit) else 2]
        assert answer.verdict is expected
        assert bool(answer.reason) == (not answer)
        if answer and not asked.whole_cores:
            assert answer.quality[0] == pytest.approx(now.radius)


def test_hosts_are_ranked_by_radius_then_the_fullest_then_as_given():
    free = {"far": "0,3", "near": "0-1,3", "nearest": "2-3", "full": "1", "also": "2-3"}
    hosts = {name: HostCpus(SMALL, CpuSet.parse(text)) for name, text in free.items()}
    broker = CpusetBroker(hosts.get)
    assert broker.rank(list(hosts), BrokerRequest(parse(""), 2)) == [
        "nearest",
        "also",
        "near",
        "far",
    ]


def test_an_answer_is_remembered_until_the_version_changes():
    hosts = {"h": HostCpus(SMALL, CpuSet.parse("0"), version=1)}
    broker = CpusetBroker(hosts.get)
    request = BrokerRequest(parse(""), 2)
    assert not broker.satisfies("h", request)
    hosts["h"] = HostCpus(SMALL, SMALL.cpus, version=1)
    assert not broker.satisfies("h", request)
    hosts["h"] = HostCpus(SMALL, SMALL.cpus, version=2)
    assert broker.satisfies("h", request)


def test_unknown_host_never_satisfies_a_requirement():
    broker = CpusetBroker({}.get)
    assert broker.satisfies("x", BrokerRequest(parse(""), 1)).verdict is Satisfiability.NEVER


def test_the_name_in_front_of_the_bracket_selects_the_broker():
    brokers = {"CPUSET": CpusetBroker({}.get), "GPU": GPUS}
    assert broker_of(parse("GPU[COUNT=1]"), brokers) is GPUS
    with pytest.raises(RequirementError) as raised:
        broker_of(parse("RMS[nodes=2]"), brokers)
    assert raised.value.code == "broker-unknown"
    assert raised.value.fields == {"value": "RMS", "known": ["CPUSET", "GPU"]}


# ------------------------------------------------------------------ in a scheduling policy
def queue(*widths):
    return [Job(i, 0.0, n, 9.0, n, n) for i, n in enumerate(widths)]


def state(jobs, free):
    return ClusterState(4, free=len(free), queue=jobs, free_node_ids=free)


def test_a_policys_starts_get_the_allocators_cpus_or_wait_or_are_rejected():
    asked = {0: parse("MAX_RADIUS=1"), 1: parse("MAX_RADIUS=1"), 2: parse("CPU_LIST=0-1")}
    policy = TopologyAwarePolicy(SMALL, FirstFit(), asked)
    decisions = list(policy.decide(state(queue(2, 2, 1), [0, 2, 3])))
    assert decisions == [
        Start(0, 2, node_ids=frozenset({2, 3})),
        Start(2, 1, node_ids=frozenset({0})),
    ]
    never = TopologyAwarePolicy(SMALL, Easy(), {0: parse("MAX_RADIUS=1")})
    (rejected,) = never.decide(state(queue(3), [0, 1, 2, 3]))
    assert isinstance(rejected, Reject)
    assert "MAX_RADIUS is 1" in rejected.reason


def test_a_policy_asks_the_toy_broker_for_jobs_that_are_its():
    gpus = GpuBroker({"host": 1}, {"host": 2})
    policy = TopologyAwarePolicy(
        SMALL, FirstFit(), {i: parse(f"GPU[COUNT={i + 1}]") for i in range(3)}, {"GPU": gpus}
    )
    decisions = list(policy.decide(state(queue(1, 1, 1), [0, 1, 2, 3])))
    assert [type(d) for d in decisions] == [Reject, Start]
    assert decisions[0].reason == "1 GPUs are free, COUNT asks 3"
