"""What every `SchedulingPolicy` must do, as checks that run: on ours in the tests, on your own in yours.

`check_policy` simulates a policy on small generated workloads and watches every pass. It finds what a
simulation of one log may not: a policy that remembers, that changes the state it is shown, that starts
more than fits, or that leaves a job waiting for ever.

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
"""Generated workloads of each kind."""

MAX_JOBS = 24


class PolicyCheckError(UsageError):
    """A policy breaks the contract of `SchedulingPolicy`; the fields name case, seed and promise. Permanent."""

    code = "policy-check-failed"


class CheckedPolicy(SchedulingPolicy):
    """Another policy, watched: its decisions are passed on if it keeps the contract.

    Parameters
    ----------
    inner
        The policy under check. A copy of it as it is now is asked beside it in every pass.

    Attributes
    ----------
    passes
        How often it was asked.
    """

    def __init__(self, inner: SchedulingPolicy) -> None:
        self.inner = inner
        self.passes = 0
        self._pristine = deepcopy(inner)

    @property
    def needs_node_ids(self) -> bool:
        """Whether the inner policy must know which nodes jobs have."""
        return bool(getattr(self.inner, "needs_node_ids", False))

    def decide(self, cluster: ClusterState) -> Iterator[Decision]:
        """Yield the inner policy's decisions.

        Raises
        ------
        PolicyCheckError
            They cannot be had twice, or the state is another one now.
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

    What is checked, in every pass: no decision takes more nodes than are free; a job that starts was
    waiting, and gets as many nodes as it can run on; a job that is resized runs, and can be; the same
    state gives the same decisions, also from a new copy of the policy; the state is left alone. At the
    end every job has run, was rejected or is held, and none before it was submitted.

    Parameters
    ----------
    nodes, cores_per_node
        The machine of the workloads: small, so that jobs are in each other's way.

    Raises
    ------
    PolicyCheckError
        The first breach: the workload, the time, and what the policy did. Permanent.
    """
    name = type(policy).__name__
    watched = type(name, (CheckedPolicy,), {})  # so that messages name the policy
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
    """Simulate; the ledger refuses what breaks a limit, the engine a job that waits for ever."""
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
    """Return rigid jobs full of ties: equal submissions and ends, exact requests, whole machines."""
    count = int(random.integers(1, MAX_JOBS + 1))
    submit = random.integers(0, 40, count).astype(np.float64)
    run = random.integers(1, 20, count).astype(np.float64)
    slack = random.choice([0.0, 0.0, 1.0, 7.0, 25.0], count)
    width = random.integers(1, config.processors + 1, count)
    width[random.random(count) < 0.2] = config.processors
    return rigid(submit, run, width, run + slack), config


def _at_once(random: Generator, config: SimulationConfig) -> tuple[Workload, SimulationConfig]:
    """Return rigid jobs that are all there from the beginning."""
    workload, config = _rigid(random, config)
    return replace(workload, submit=np.zeros(len(workload))), config


def _one_by_one(random: Generator, config: SimulationConfig) -> tuple[Workload, SimulationConfig]:
    """Return the same with a pass after every event, not one for all events of an instant."""
    workload, config = _rigid(random, config)
    return workload, replace(config, ties="event")


def _malleable(random: Generator, config: SimulationConfig) -> tuple[Workload, SimulationConfig]:
    """Return jobs most of which can shrink to a third and grow to twice what they asked for."""
    workload, config = _rigid(random, config)
    seed = int(random.integers(1 << 30))
    return (
        mark_malleable(workload, 0.8, seed, minimum=0.3, maximum=2.0, most=config.processors),
        replace(config, cost=COSTS["stall"]),
    )


def _evolving(random: Generator, config: SimulationConfig) -> tuple[Workload, SimulationConfig]:
    """Return jobs of which a third asks for other processors halfway."""
    workload, config = _rigid(random, config)
    demands = {
        number: ((0.5, int(random.integers(1, config.processors + 1))),)
        for number in workload.job.tolist()
        if random.random() < 1 / 3
    }
    return workload, replace(config, demands=demands)


def _failing(random: Generator, config: SimulationConfig) -> tuple[Workload, SimulationConfig]:
    """Return rigid jobs on nodes that fail one after the other; a job that is hit begins anew."""
    workload, config = _rigid(random, config)
    begins = np.cumsum(random.integers(5, 40, 6))
    failures = [
        NodeFailure(float(at), int(random.integers(config.nodes)), float(at) + 4.5)
        for at in begins
    ]
    return workload, replace(config, failures=tuple(failures))


#: The kinds of workloads, by the name that a breach is reported with.
KINDS: Mapping[str, Callable[[Generator, SimulationConfig], tuple[Workload, SimulationConfig]]] = {
    "rigid jobs": _rigid,
    "rigid jobs at once": _at_once,
    "rigid jobs, a pass after every event": _one_by_one,
    "malleable jobs": _malleable,
    "evolving jobs": _evolving,
    "jobs on nodes that fail": _failing,
}
