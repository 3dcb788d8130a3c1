"""Executable checks of the contract of `SchedulingPolicy`; users can run them on their own policies.

`check_policy` simulates a policy on small generated workloads and checks every pass. It finds errors that a
simulation of one log may miss: a policy that keeps state between passes, changes the cluster state, starts more
jobs than fit, or leaves a job waiting for ever.

Examples
--------
>>> from apples.scheduling.policies import Easy
>>> check_policy(Easy())

>>> from apples.scheduling.jobs import Start
>>> class Greedy(SchedulingPolicy):
...     def decide(self, cluster):
...         for job in cluster.queue:
...             yield Start(job.id, cluster.nodes_for(job.processors))
>>> check_policy(Greedy())
Traceback (most recent call last):
apples.simulation.policy_checks.PolicyCheckError: policy Greedy: rigid jobs, seed 0: at ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace

import numpy as np
from numpy.random import Generator

from apples.errors import UsageError
from apples.scheduling.jobs import Decision
from apples.scheduling.passes import decisions_of
from apples.scheduling.policy import ClusterState, SchedulingPolicy
from apples.simulation.config import COSTS, NodeFailure, SimulationConfig
from apples.simulation.engine import EventEngine
from apples.simulation.workload import Workload, mark_malleable, rigid

SEEDS = 6
"""Number of generated workloads of each kind."""

MAX_JOBS = 24


class PolicyCheckError(UsageError):
    """A policy breaks the contract of `SchedulingPolicy`; the fields have case, seed and rule. Permanent."""

    code = "policy-check-failed"


class CheckedPolicy(SchedulingPolicy):
    """A wrapper that checks another policy and yields its decisions if it keeps the contract.

    Parameters
    ----------
    inner
        The checked policy. In every pass a fresh copy of its initial state must make the same decisions.

    Attributes
    ----------
    passes
        Number of passes.
    """

    def __init__(self, inner: SchedulingPolicy) -> None:
        self.inner = inner
        self.passes = 0
        self._pristine = deepcopy(inner)

    @property
    def needs_node_ids(self) -> bool:
        """Whether the inner policy needs the ids of the jobs' nodes."""
        return bool(getattr(self.inner, "needs_node_ids", False))

    def decide(self, cluster: ClusterState) -> Iterator[Decision]:
        """Yield the inner policy's decisions.

        Raises
        ------
        PolicyCheckError
            The policy makes other decisions for the same state, or changed the state.
        """
        self.passes += 1
        shown = deepcopy(cluster)
        decisions = decisions_of(self.inner, cluster)
        if cluster != shown:
            raise PolicyCheckError(
                f"at {shown.time!r} s: it changed the state that it was shown: from {shown} to {cluster}",
                promise="read-only",
                time=float(shown.time),
            )
        for asked, promise, why in (
            (self.inner, "deterministic", "asked twice about one state it decides differently"),
            (
                deepcopy(self._pristine),
                "memoryless",
                "it remembers earlier passes: a new one decides differently",
            ),
        ):
            again = decisions_of(asked, deepcopy(shown))
            if again != decisions:
                raise PolicyCheckError(
                    f"at {shown.time!r} s: {why}: {decisions} and {again}",
                    promise=promise,
                    time=float(shown.time),
                )
        yield from decisions


def check_policy(policy: SchedulingPolicy, nodes: int = 5, cores_per_node: int = 4) -> None:
    """Check a policy on generated workloads; return if it keeps the contract on all of them.

    In every pass: no decision takes more nodes than are free; a job that starts was waiting, and gets a number of
    nodes that it can run on; a resized job runs and can be resized; the same state gives the same decisions, also
    from a new copy of the policy; the policy does not change the state. At the end every job has run, was rejected
    or is held, and none started before its submission.

    Parameters
    ----------
    nodes, cores_per_node
        The machine of the workloads; small, so that jobs compete for nodes.

    Raises
    ------
    PolicyCheckError
        The first breach, with the workload, the time and the policy's error. Permanent.
    """
    name = type(policy).__name__
    watched = type(name, (CheckedPolicy,), {})  # messages have the policy's name
    for kind, make in KINDS.items():
        for seed in range(SEEDS):
            config = SimulationConfig(nodes, cores_per_node)
            workload, config = make(np.random.default_rng(seed), config)
            checked = watched(deepcopy(policy))
            try:
                _check_run(checked, workload, config)
            except UsageError as error:
                fields = {**error.fields, "policy": name, "case": kind, "seed": seed}
                raise PolicyCheckError(
                    f"policy {name}: {kind}, seed {seed}: {error}", cause=error.code, **fields
                ) from error


def _check_run(checked: CheckedPolicy, workload: Workload, config: SimulationConfig) -> None:
    """Simulate; the ledger refuses a decision that breaks a limit, the engine a policy with endless waits."""
    result = EventEngine(workload, checked, config).run()
    for k, number in enumerate(workload.job.tolist()):
        if number in result.rejected or number in result.held:
            continue
        if not result.completed[k]:
            raise PolicyCheckError(
                f"job {number} never ended and was neither rejected nor held",
                promise="ends-each-job",
                job=number,
            )
        if result.start[k] < workload.submit[k]:
            raise PolicyCheckError(
                f"job {number} started before it was submitted",
                promise="starts-after-submission",
                job=number,
            )


def _rigid(random: Generator, config: SimulationConfig) -> tuple[Workload, SimulationConfig]:
    """Return rigid jobs with many ties: equal submissions and ends, exact requests, jobs of the whole machine."""
    count = int(random.integers(1, MAX_JOBS + 1))
    submit = random.integers(0, 40, count).astype(np.float64)
    run = random.integers(1, 20, count).astype(np.float64)
    slack = random.choice([0.0, 0.0, 1.0, 7.0, 25.0], count)
    width = random.integers(1, config.processors + 1, count)
    width[random.random(count) < 0.2] = config.processors
    return rigid(submit, run, width, run + slack), config


def _at_once(random: Generator, config: SimulationConfig) -> tuple[Workload, SimulationConfig]:
    """Return rigid jobs that are all submitted at time 0."""
    workload, config = _rigid(random, config)
    return replace(workload, submit=np.zeros(len(workload))), config


def _one_by_one(random: Generator, config: SimulationConfig) -> tuple[Workload, SimulationConfig]:
    """Return rigid jobs with a pass after every event, not one pass for all events of an instant."""
    workload, config = _rigid(random, config)
    return workload, replace(config, ties="event")


def _malleable(random: Generator, config: SimulationConfig) -> tuple[Workload, SimulationConfig]:
    """Return jobs; most can shrink to a third and grow to twice their requested processors."""
    workload, config = _rigid(random, config)
    seed = int(random.integers(1 << 30))
    return (
        mark_malleable(workload, 0.8, seed, minimum=0.3, maximum=2.0, most=config.processors),
        replace(config, cost=COSTS["stall"]),
    )


def _evolving(random: Generator, config: SimulationConfig) -> tuple[Workload, SimulationConfig]:
    """Return jobs; a third of them asks for other processors at half of their work."""
    workload, config = _rigid(random, config)
    demands = {
        number: ((0.5, int(random.integers(1, config.processors + 1))),)
        for number in workload.job.tolist()
        if random.random() < 1 / 3
    }
    return workload, replace(config, demands=demands)


def _failing(random: Generator, config: SimulationConfig) -> tuple[Workload, SimulationConfig]:
    """Return rigid jobs on nodes that fail one after the other; a job on a failed node starts again."""
    workload, config = _rigid(random, config)
    begins = np.cumsum(random.integers(5, 40, 6))
    failures = [
        NodeFailure(float(at), int(random.integers(config.nodes)), float(at) + 4.5)
        for at in begins
    ]
    return workload, replace(config, failures=tuple(failures))


#: The kinds of workloads by their names in reports of a breach.
KINDS: Mapping[str, Callable[[Generator, SimulationConfig], tuple[Workload, SimulationConfig]]] = {
    "rigid jobs": _rigid,
    "rigid jobs at once": _at_once,
    "rigid jobs, a pass after every event": _one_by_one,
    "malleable jobs": _malleable,
    "evolving jobs": _evolving,
    "jobs on nodes that fail": _failing,
}
