"""Random logs under all built-in policies: failures, overruns, limits that kill, reservations, resizes.

    python tests/soak_policies.py --n 100000 --processes 2

Three claims are checked on every log. No policy raises, decides what cannot be done or leaves a job waiting for
ever. Under EASY (in order of submission), conservative backfilling and SD-Policy with the head protected no
waiting job at the head of the queue (under conservative: no job) starts later than it was first promised, unless
a host was lost or a job overran its estimate in between; where resizes take time, later by no more than that for
each. Where limits kill, no job that had its nodes to itself runs beyond its limit and the grace. Where a policy
has a kernel for the log, kernel and driver give the same starts and ends bit for bit. Prints the counts; exit code
1 where a claim fails, with the seed: `--first SEED --n 1` runs that log alone.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf

import numpy as np

from apples.scheduling import (
    AdvanceReservation,
    ClusterState,
    Conservative,
    Decision,
    Easy,
    Equipartition,
    FirstComeFirstServed,
    FirstFit,
    Job,
    Reserve,
    Resize,
    SchedulingPolicy,
    ShortestJobFirst,
    SlowdownDriven,
    Start,
    TopologyAwarePolicy,
)
from apples.simulation import (
    Checkpointing,
    EventEngine,
    NodeFailure,
    ReconfigurationCost,
    SimulationConfig,
    Workload,
    has_kernel,
    mark_malleable,
    rigid,
    simulate,
)
from apples.topology import synthetic

NEVER = float("inf")
POLICIES: tuple[SchedulingPolicy, ...] = (
    FirstComeFirstServed(),
    FirstFit(),
    ShortestJobFirst(),
    Easy(),
    Easy(depth=2),
    Easy(order="shortest"),
    Conservative(),
    Equipartition(),
    SlowdownDriven(),
    SlowdownDriven(max_slowdown=NEVER, guard=False),
    SlowdownDriven(max_slowdown=NEVER, guard=False, free_nodes=True),
    SlowdownDriven(max_slowdown="dynamic", mates=3),
    SlowdownDriven(max_slowdown=NEVER, contiguous=True),
    SlowdownDriven(max_slowdown=NEVER, nodes="0-2"),
    SlowdownDriven(max_slowdown=NEVER, guard=False, protect=False),
)
INSTANT = 1e-3
"""Seconds within which two moments are one."""


def promises(policy: SchedulingPolicy) -> bool:
    """Return whether a policy promises the head of the queue a start, in order of submission."""
    if isinstance(policy, SlowdownDriven):  # side by side or on certain nodes the head may not fit
        return policy.protect and not policy.needs_node_ids
    return isinstance(policy, Easy) and policy.order == "fcfs"


@dataclass
class Watched(SchedulingPolicy):
    """Another policy, and what it promised whom.

    Attributes
    ----------
    judged_as
        The policy whose promises are looked for, if they are another's.
    promised
        Waiting job -> start, as it was first promised and nothing has excused it since.
    late
        What was broken.
    latency
        Longest time from a resize to its confirmation, seconds. A promise counts from when nodes are free;
        whoever takes nodes that are being left begins, and ends, so much later than was decided. So a start
        may be later than promised by the latency for each resize since the promise, no more.
    resized
        Resizes decided so far.
    counted
        Waiting job -> resizes that were settled when it was promised its start.
    """

    inner: SchedulingPolicy
    judged_as: SchedulingPolicy | None = None
    looks_at = ("reservations",)
    promised: dict[int, float] = field(default_factory=dict)
    late: list[str] = field(default_factory=list)
    limits: dict[int, float] = field(default_factory=dict)
    excuses: int = 0
    latency: float = 0.0
    resized: int = 0
    counted: dict[int, int] = field(default_factory=dict)

    @property
    def needs_node_ids(self) -> bool:
        """Whether nodes are told apart."""
        return bool(getattr(self.inner, "needs_node_ids", False))

    def decide(self, cluster: ClusterState) -> Iterator[Decision]:
        """Pass the inner policy's decisions on."""
        decisions = list(self.inner.decide(cluster))
        overran = any(limit < cluster.time - INSTANT for limit in self.limits.values())
        if overran or cluster.events.lost or cluster.events.overran:
            self.excuses += 1
            self.promised.clear()
        elif cluster.events.repaired and cluster.queue:  # new promises; the head's is kept
            head = cluster.queue[0].id
            self.promised = {n: at for n, at in self.promised.items() if n == head}
        settled = self.resized - sum(one.changing for one in cluster.running.values())
        self.resized += sum(isinstance(one, Resize) for one in decisions)
        for decision in decisions:
            if isinstance(decision, Start):
                promise = self.promised.pop(decision.job, inf)
                since = self.resized - self.counted.pop(decision.job, self.resized)
                if cluster.time > promise + INSTANT + self.latency * since:
                    self.late.append(f"job {decision.job}: {promise} promised, {cluster.time}")
            elif isinstance(decision, Reserve) and getattr(self.inner, "order", "") != "priority":
                self.promised.setdefault(decision.job, decision.time)
        ends = after(cluster, decisions)
        self.limits = {number: limit for number, (limit, _) in ends.items()}
        gone = {one.job for one in decisions if not isinstance(one, Reserve)}
        waiting = [job for job in cluster.queue if job.id not in gone]
        if promises(self.judged_as or self.inner) and waiting:
            head = waiting[0]
            start = first_fit_time(cluster, ends, head)
            kept = self.promised.get(head.id, start)
            self.promised = {head.id: kept}
        self.counted = {number: self.counted.get(number, settled) for number in self.promised}
        return iter(decisions)


def after(cluster: ClusterState, decisions: list[Decision]) -> dict[int, tuple[float, int]]:
    """Return, of every job that runs after the decisions, its estimated end and the nodes it frees then."""
    ends = {}
    for number, one in cluster.running.items():
        end = one.limit
        if one.guest is not None:  # that ends later where it overran its estimate
            end = max(one.limit, cluster.running[one.guest].limit)
        ends[number] = (end, one.nodes - one.shared)
    jobs = {job.id: job for job in cluster.queue}
    for decision in decisions:
        if isinstance(decision, Resize):
            ends[decision.job] = (ends[decision.job][0], decision.nodes)
        elif isinstance(decision, Start):
            job, shared = jobs[decision.job], 0
            for mate in decision.mates:
                limit, nodes = ends[mate]
                ends[mate] = (limit + job.requested, nodes)
                shared += nodes
            share = decision.share if decision.mates else 1.0
            ends[job.id] = (cluster.time + job.requested / share, decision.nodes - shared)
    return ends


def first_fit_time(cluster: ClusterState, ends: dict[int, tuple[float, int]], job: Job) -> float:
    """Return the first estimated end, of a job or reservation, from which a job's nodes are free for it.

    The plainest way to say it.
    """
    need, advance = cluster.nodes_for(job.processors), cluster.advance

    def left(time: float) -> int:
        used = sum(n for limit, n in ends.values() if limit > time)
        return cluster.nodes - used - sum(r.nodes for r in advance if r.begin <= time < r.end)

    times = {time for time, _ in ends.values()} | {one.end for one in advance}
    begins = [one.begin for one in advance]
    return min(
        (
            time
            for time in times
            if time >= cluster.time
            if left(time) >= need
            if all(left(at) >= need for at in begins if time < at < time + job.requested)
        ),
        default=inf,
    )


@dataclass(frozen=True)
class Case:
    """One random log, its machine and a policy."""

    workload: Workload
    config: SimulationConfig
    policy: SchedulingPolicy
    overruns: bool


def drawn_case(seed: int) -> Case:
    """Return the log of a seed: full of ties, and two thirds of the time with some trouble."""
    rng = np.random.default_rng((20261122, seed))
    policy = POLICIES[seed % len(POLICIES)]
    nodes, cores = int(rng.integers(2, 9)), int(rng.choice([4, 5]))
    topology = seed % 17 == 0
    if topology:
        machine = synthetic("package:2 core:2 pu:2")
        nodes, cores = 8, 1
        policy = TopologyAwarePolicy(machine, (FirstFit(), Easy(), Conservative())[seed % 3])
    count = int(rng.integers(1, 40))
    submit = rng.integers(0, 60, count).astype(float)
    run = rng.integers(1, 20, count).astype(float)
    if rng.random() < 1 / 3:
        submit += rng.random(count)
        run *= 0.01 + rng.random(count)
    width = rng.integers(1, nodes * cores + 1, count)
    width[rng.random(count) < 0.15] = nodes * cores
    workload = rigid(submit, run, width, run + rng.choice([0.0, 0.0, 1.0, 7.0, 25.0], count))
    overruns = bool(rng.random() < 0.3)
    if overruns:
        short = rng.random(count) < 0.3
        limit = np.maximum(0.5, workload.run * rng.uniform(0.1, 1.0, count))
        workload = replace(workload, requested=np.where(short, limit, workload.requested))
    if not topology:
        part = float(rng.choice([0.0, 0.5, 0.9, 1.0]))
        workload = mark_malleable(
            workload, part, seed, minimum=0.3, maximum=2.0, most=nodes * cores
        )
    config = SimulationConfig(
        nodes,
        cores,
        ties=("instant", "event")[int(rng.random() < 0.3)],
        runtime_model=("ideal", "worst")[int(rng.random() < 0.3)],
    )
    if rng.random() < 0.2:
        config = replace(config, cost=ReconfigurationCost(0.5, 0.25, 10.0, 20.0))
    if rng.random() < 0.5:
        config = replace(config, failures=drawn_failures(rng, nodes))
    if rng.random() < 0.3:
        cancelled = workload.job[rng.random(count) < 0.2].tolist()
        times = rng.uniform(0, 100, len(cancelled)).round().tolist()
        config = replace(config, cancellations=dict(zip(cancelled, times, strict=True)))
    if rng.random() < 0.2 and not topology:
        config = replace(config, demands=drawn_demands(rng, workload, config))
    if not config.cost.is_free:
        config = replace(config, cost=drawn_cost(rng, config.cost))
        config = replace(config, release=("confirmed", "at_once")[int(rng.random() < 0.3)])
    config = with_drawn_ends(rng, config)
    workload, policy = with_drawn_priorities(rng, workload, policy)
    return Case(workload, config, policy, overruns)


def with_drawn_priorities(
    rng: np.random.Generator, workload: Workload, policy: SchedulingPolicy
) -> tuple[Workload, SchedulingPolicy]:
    """Return jobs and policy in the order of priorities in some of the cases."""
    drawn = rng.random() < 0.3
    if drawn and policy in (FirstComeFirstServed(), Easy(), Conservative()):
        policy = type(policy)(order="priority")
        priority = rng.integers(0, 4, len(workload)).astype(float)
        workload = replace(workload, attributes={"priority": priority})
    return workload, policy


def with_drawn_ends(rng: np.random.Generator, config: SimulationConfig) -> SimulationConfig:
    """Return the assumptions with limits that kill, and checkpoints, in some of the cases."""
    if rng.random() < 0.25:
        config = replace(config, limits="kill", grace=float(rng.choice([0.0, 0.0, 3.0])))
    if rng.random() < 0.6:
        saving = Checkpointing(float(rng.uniform(0.5, 8.0)), float(rng.choice([0.0, 0.3])))
        config = replace(config, checkpoint=saving)
    if rng.random() < 0.2:
        config = replace(config, advance=drawn_reservations(rng, config.nodes))
    return config


def drawn_reservations(rng: np.random.Generator, nodes: int) -> tuple[AdvanceReservation, ...]:
    """Return one to three advance reservations, which together may have the whole machine."""
    count, found, left = int(rng.integers(1, 4)), [], nodes
    for number in range(count):
        begin, some = float(rng.integers(0, 150)), int(rng.integers(1, nodes + 1))
        if some <= left:
            left -= some
            length = float(rng.integers(1, 60))
            found.append(AdvanceReservation(begin, begin + length, some, str(number)))
    return tuple(found)


def drawn_cost(rng: np.random.Generator, cost: ReconfigurationCost) -> ReconfigurationCost:
    """Return a cost with a wait for the safe point in a third of the cases, measured in another third."""
    kind = int(rng.integers(3))
    if kind == 0:
        return cost
    if kind == 1:
        return replace(cost, wait=float(rng.uniform(0.1, 5.0)))
    rows = [(8.0, 4.0), (8.0, 1.0), (4.0, 8.0), (1.0, 8.0)]
    times = rng.uniform(0.0, 4.0, (len(rows), 2)).tolist()
    return replace(cost, curve=tuple((*row, *more) for row, more in zip(rows, times, strict=True)))


def longest_latency(config: SimulationConfig) -> float:
    """Return the longest time from a resize to its confirmation; 0 where none is confirmed."""
    if not config.acknowledges:
        return 0.0
    cost, sizes = config.cost, range(1, config.nodes + 1)
    return max(
        cost.waiting_seconds(a, b) + cost.seconds(a, b) for a in sizes for b in sizes if a != b
    )


def drawn_failures(rng: np.random.Generator, nodes: int) -> tuple[NodeFailure, ...]:
    """Return failures of nodes, several at once among them, each repaired before it fails again."""
    found, free_from = [], [0.0] * nodes
    for at in np.sort(rng.integers(0, 120, int(rng.integers(1, 8)))).tolist():
        node = int(rng.integers(nodes))
        if at >= free_from[node]:
            repaired = at + float(rng.integers(1, 60))
            free_from[node] = repaired + 1
            found.append(NodeFailure(float(at), node, repaired))
    return tuple(found)


def drawn_demands(
    rng: np.random.Generator, workload: Workload, config: SimulationConfig
) -> dict[int, tuple[tuple[float, int], ...]]:
    """Return what some jobs ask for while they run."""
    return {
        number: ((0.5, int(rng.integers(1, config.processors + 1))),)
        for number in workload.job.tolist()
        if rng.random() < 0.3
    }


def check(seed: int) -> Counter[str]:
    """Run one log and check the claims.

    Raises
    ------
    AssertionError
        One does not hold; anything else that a policy or the engine raises.
    """
    case = drawn_case(seed)
    watched = Watched(case.policy, latency=longest_latency(case.config))
    driven = EventEngine(case.workload, watched, case.config).run()
    assert not watched.late, watched.late
    cancelled = np.isin(case.workload.job, list(case.config.cancellations))
    rejected = np.isin(case.workload.job, list(driven.rejected))
    killed = ~(driven.completed | cancelled | rejected)
    assert killed.sum() <= driven.killed, "a job never ended"
    alone = ~(driven.guest | driven.mate | np.isnan(driven.start))
    limits = case.workload.requested + (case.config.grace if case.config.kills else inf)
    assert (driven.end - driven.start <= limits + INSTANT)[alone].all(), "beyond its limit"
    assert (driven.start >= case.workload.submit)[driven.completed].all(), "a job started early"
    counts = Counter(
        logs=1,
        failures=len(case.config.failures),
        restarts=driven.restarts,
        overrunning=int(case.overruns),
        excuses=watched.excuses,
        resizes=int(driven.resizes.sum()),
        guests=int(driven.guest.sum()),
        evolving=len(case.config.demands),
        latencies=int(case.config.acknowledges),
        killed=driven.killed,
        saved=int(driven.work_saved > 0),
        reservations=len(driven.reservations),
        priorities=int("priority" in case.workload.attributes),
        short=sum(one.taken < one.nodes for one in driven.reservations),
    )
    if has_kernel(case.policy, case.config, case.workload):
        fast = simulate(case.workload, case.policy, case.config, engine="kernel")
        for name in ("start", "end", "resizes", "guest", "mate", "completed"):
            assert getattr(fast, name).tolist() == getattr(driven, name).tolist(), name
        counts["kernels"] += 1
    return counts


def run(seeds: range) -> tuple[Counter[str], list[str]]:
    """Check the logs of some seeds; return the counts and what failed."""
    counts: Counter[str] = Counter()
    failed = []
    for seed in seeds:
        try:
            counts += check(seed)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
            policy = drawn_case(seed).policy
            failed.append(f"seed {seed}: {policy}: {type(error).__name__}: {error}")
    return counts, failed


def main() -> int:
    """Run the logs on several processes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    words = parser.parse_args()
    bounds = [*range(words.first, words.first + words.n, 500), words.first + words.n]
    counts: Counter[str] = Counter()
    failed: list[str] = []
    with ProcessPoolExecutor(words.processes) as pool:
        parts = [range(a, b) for a, b in pairwise(bounds)]
        for found, wrong in pool.map(run, parts):
            counts += found
            failed += wrong
            for line in wrong[:20]:
                print(line, flush=True)
    print(", ".join(f"{count:,} {name}" for name, count in counts.items()))
    print(f"{len(failed)} of {words.n:,} logs failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
