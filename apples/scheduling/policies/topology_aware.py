"""Topology-aware placement: starts of another policy, on CPUs that broker and allocator choose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from apples.scheduling.jobs import Decision, Job, Reject, Start
from apples.scheduling.policy import ClusterState, SchedulingPolicy
from apples.topology import CpuSet, Fit, Requirement, Satisfiability, Topology, Unsatisfied, fit
from apples.topology.broker import (
    BrokerRequest,
    CpusetBroker,
    HostCpus,
    RequirementBroker,
    broker_of,
)
from apples.topology.requirement import CPUSET

HOST = "host"
ANYWHERE = Requirement()
CpuAllocator = Callable[[Topology, CpuSet, Requirement], Fit | Unsatisfied]


@dataclass(frozen=True)
class TopologyAwarePolicy(SchedulingPolicy):
    """Starts the jobs that another policy would start, on suitable CPUs of one host.

    The cluster is one host with a node of one core for each CPU; node i is the i-th CPU of the topology. If the
    broker answers no, the job waits; if it answers never, the policy rejects the job with the broker's reason.

    Attributes
    ----------
    topology
        The host.
    inner
        The policy that decides which jobs start; it must not use node numbers.
    requirements
        Job -> its requirement.
    brokers
        Name in front of the bracket -> broker, in addition to ``CPUSET``.
    choose
        The allocator.
    every
        Requirement of the jobs without an own requirement.

    Examples
    --------
    >>> from apples.topology import synthetic
    >>> from apples.scheduling.policies import FirstFit
    >>> policy = TopologyAwarePolicy(synthetic("package:2 core:2 pu:1"), FirstFit())
    >>> job = Job(1, 0.0, 2, 9.0, 2, 2)
    >>> state = ClusterState(4, free=3, queue=[job], free_node_ids=[1, 2, 3])
    >>> [sorted(start.node_ids) for start in policy.decide(state)]
    [[2, 3]]
    """

    topology: Topology
    inner: SchedulingPolicy
    requirements: Mapping[int, Requirement] = field(default_factory=dict)
    brokers: Mapping[str, RequirementBroker] = field(default_factory=dict)
    choose: CpuAllocator = fit
    every: Requirement = ANYWHERE

    @property
    def needs_node_ids(self) -> bool:
        """Whether the policy needs the ids of the jobs' CPUs: always."""
        return True

    @property
    def looks_at(self) -> tuple[str, ...]:
        """The attributes that the inner policy reads."""
        return self.inner.looks_at

    @property
    def usage_half_life(self) -> float | None:
        """The half-life of the inner policy."""
        return self.inner.usage_half_life

    def decide(self, cluster: ClusterState) -> Iterator[Decision]:
        """Yield the decisions of one pass."""
        free = CpuSet.of(self._cpus[place] for place in cluster.free_node_ids)
        waiting: list[Job] = []
        for job in cluster.queue:  # first, otherwise the inner policy would keep room for them
            reason = self._never(job, free)
            if reason:
                yield Reject(job.id, reason)
            else:
                waiting.append(job)
        jobs = {job.id: job for job in waiting}
        for decision in self.inner.decide(cluster._replace(queue=waiting)):
            if not isinstance(decision, Start):
                yield decision
                continue
            found = self._place(jobs[decision.job], free)
            if found is not None:
                free -= found.cpus
                node_ids = frozenset(self._places[cpu] for cpu in found.cpus)
                yield Start(decision.job, decision.nodes, node_ids=node_ids)

    def _never(self, job: Job, free: CpuSet) -> str:
        """Return the reason why a job can never run here; empty if it can."""
        request = self._request(job)
        answer = self._broker(request, free).satisfies(HOST, request)
        if answer.verdict is Satisfiability.NEVER:
            return answer.reason
        sizes = {unit.bit_count() for unit in self.topology.units}
        if request.expression.whole_cores and all(job.processors % size for size in sizes):
            return f"whole cores of {min(sizes)} CPUs and more, -n asks {job.processors}"
        return ""

    def _request(self, job: Job) -> BrokerRequest:
        return BrokerRequest(self.requirements.get(job.id, self.every), job.processors)

    def _broker(self, request: BrokerRequest, free: CpuSet) -> RequirementBroker:
        own = CpusetBroker({HOST: HostCpus(self.topology, free)}.get)
        return broker_of(request.expression, {**self.brokers, CPUSET: own})

    def _place(self, job: Job, free: CpuSet) -> Fit | None:
        """Return the placement of a job if its broker accepts it; None: it waits."""
        request = self._request(job)
        if not self._broker(request, free).satisfies(HOST, request):
            return None
        # For a requirement of another broker the allocator sees only the number of CPUs.
        found = self.choose(self.topology, free, request.requirement)
        if isinstance(found, Unsatisfied) or len(found.cpus) != job.processors:
            return None
        return found

    @cached_property
    def _cpus(self) -> list[int]:
        return list(self.topology.cpus)

    @cached_property
    def _places(self) -> dict[int, int]:
        return {cpu: place for place, cpu in enumerate(self.topology.cpus)}
