"""Placement of simulated jobs on a machine with a known topology: allocators, and slowdown by distance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random

from apples.errors import UsageError
from apples.scheduling.policies.topology_aware import CpuAllocator, TopologyAwarePolicy
from apples.scheduling.policy import RunningJob, SchedulingPolicy
from apples.simulation.config import SimulationConfig
from apples.topology import (
    CpuSet,
    Fit,
    Placement,
    Requirement,
    Topology,
    Unsatisfied,
    fit,
    load_topology,
)
from apples.topology.allocator import refusal
from apples.topology.language import parse
from apples.topology.sources.synthetic import origin


def with_placement(
    words: Mapping[str, str],
    policy: SchedulingPolicy,
    config: SimulationConfig,
    seed: int,
    sensitivity: float,
) -> tuple[SchedulingPolicy, SimulationConfig]:
    """Return policy and configuration after the options `topology`, `placement` and `requirement`.

    Raises
    ------
    UsageError
        The machine has another size, the policy resizes jobs, or the placement is unknown. Permanent.
    """
    if "topology" not in words:
        for name in ("placement", "requirement", "sensitivity"):
            if name in words:
                raise UsageError(
                    f"option {name}: needs option topology",
                    code="option-missing",
                    option="topology",
                    field=name,
                )
        return policy, config
    machine = machine_of(words["topology"])
    if config.cores_per_node != 1 or config.nodes != len(machine.cpus):
        raise UsageError(
            f"option topology: the machine has {len(machine.cpus)} CPUs, given out one by one: "
            f"--processors {len(machine.cpus)}",
            code="machine-size-differs",
            option="topology",
            value=config.nodes,
            bound=len(machine.cpus),
        )
    if policy.uses_malleable:
        raise UsageError(
            "option topology: jobs that are resized are not placed yet",
            code="policy-unsuitable",
            policy=type(policy).__name__,
            option="topology",
        )
    name = words.get("placement", "best")
    if name not in ALLOCATORS:
        raise UsageError(
            f"option placement={name}: not one of {', '.join(ALLOCATORS)}",
            code="value-unknown",
            option="placement",
            value=name,
            known=[*ALLOCATORS],
        )
    if not sensitivity >= 0:
        raise UsageError(
            f"option sensitivity={sensitivity}: must be 0 or more",
            code="value-range",
            option="sensitivity",
            value=sensitivity,
            bound=0,
        )
    every = parse(words.get("requirement", ""))
    slowdown = DistanceSlowdown(machine, sensitivity) if sensitivity else None
    chosen = TopologyAwarePolicy(machine, policy, choose=ALLOCATORS[name](seed), every=every)
    return chosen, replace(config, slowdown=slowdown)


def machine_of(text: str) -> Topology:
    """Return the machine of a file, a synthetic string, or ``origin:CPUS``."""
    name, colon, count = text.partition(":")
    if name == "origin" and colon and count.isdigit():
        return origin(int(count[:9]))
    return load_topology(text)


def random_fit(seed: int) -> CpuAllocator:
    """Return an allocator that takes random free CPUs, as for unbound processes."""

    def choose(topology: Topology, free: CpuSet, requirement: Requirement) -> Fit | Unsatisfied:
        refused = refusal(topology, free.mask, requirement)
        if refused is not None:
            return refused
        random = Random(hash((seed, free.mask, requirement.count)))  # noqa: S311 - likewise
        cpus = CpuSet.of(random.sample(list(free), requirement.count))
        radius, centre = topology.hops.centre(cpus.mask)
        return Fit(cpus, radius, centre, topology.hops.total(cpus.mask), topology.memory_of(cpus))

    return choose


def first_fit(topology: Topology, free: CpuSet, requirement: Requirement) -> Fit | Unsatisfied:
    """Return the lowest suitable free CPUs."""
    return fit(topology, free, replace(requirement, placement=Placement.FIRST))


def spread_fit(topology: Topology, free: CpuSet, requirement: Requirement) -> Fit | Unsatisfied:
    """Return free CPUs in as many parts of the machine as possible."""
    return fit(topology, free, replace(requirement, placement=Placement.SPREAD))


ALLOCATORS: Mapping[str, Callable[[int], CpuAllocator]] = {
    "best": lambda _: fit,
    "first": lambda _: first_fit,
    "spread": lambda _: spread_fit,
    "random": random_fit,
}
"""Name -> function that makes the allocator from a seed."""


class DistanceSlowdown:
    """Factor of a job's run time: 1 + sensitivity x its mean hops over those of all CPUs.

    Attributes
    ----------
    most
        Maximum of the factor.
    """

    def __init__(self, machine: Topology, sensitivity: float) -> None:
        self._machine, self._cpus = machine, list(machine.cpus)
        everywhere = mean_hops(machine, machine.cpus)
        self._factor = sensitivity / everywhere if everywhere else 0.0
        self.most = 1.0 + self._factor * machine.hops.balls[-1].radius

    def __call__(self, running: RunningJob) -> float:
        """Return the factor for the CPUs of a job."""
        held = CpuSet.of(self._cpus[place] for place in running.node_ids)
        return 1.0 + self._factor * mean_hops(self._machine, held)


def mean_hops(machine: Topology, cpus: CpuSet) -> float:
    """Return the mean hops over all pairs of the CPUs."""
    pairs = len(cpus) * (len(cpus) - 1) // 2
    return machine.hops.total(cpus.mask) / pairs if pairs else 0.0
