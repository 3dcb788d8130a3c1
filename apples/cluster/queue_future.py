"""Prediction of a queue: the starts of its waiting jobs, and the effects of another policy or machine.

The simulator gets the present queue of a live scheduler: the running jobs with their remaining work, and the
waiting jobs in their order. Run times are drawn from the ratios of run time to estimate of similar past jobs.
Later arrivals are drawn from past arrivals. Intervals come from many such draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, floor, inf
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apples.cluster.queue_snapshot import (
    MAX_PAST,
    NOT_SUBMITTED,
    PastJob,
    QueuedJob,
    QueueSnapshot,
)
from apples.scheduling.jobs import Job, JobKind, Start
from apples.scheduling.ledger import ClusterLedger
from apples.scheduling.passes import decisions_of
from apples.scheduling.policy import SchedulingPolicy
from apples.simulation.config import SimulationConfig
from apples.simulation.run import simulate
from apples.simulation.workload import Workload, instants

MIN_PAST = 10
"""Least number of ended runs from which run times are drawn."""
ALIKE = ((3, 20), (4, 20), (8, 40))
"""Fewest similar runs to draw from, and the number of the latest that count, by similarity: the same user, name,
estimate and hosts; the same user, name and estimate; the same user and name."""
MIN_LONGER = 3
MIN_DRAWS = 20
# Draws are independent, but real queues are alike for days: drawn intervals of 80 % held 55 to 75
# % of the starts. So past errors correct them (normalised conformal prediction).
DRAWS = 100
LEVELS = (0.1, 0.9)
"""Quantiles of the starts at the two ends of an interval."""
NEAR_SECONDS, NEAR = 60.0, 0.1
"""Times that differ by at most this, in seconds or relative, count as equal in the search for the likeliest."""
SCORE_DRAWS = 40
MAX_SCORES = 80
PRIOR_SCORES = (-1.5, -1.0, -1.0, -0.5, 0.0, 0.0, 0.5, 1.0, 1.0, 1.5)
"""Scores before predictions were scored; they assume that the draws are about right."""
WAITED_SECONDS = 1.0
"""A job that starts sooner after its submission did not wait."""
NOW = 1e-3
"""Present time in the simulation, in seconds: running jobs arrive at 0, waiting jobs now."""
SHORTEST = 1e-3
MAX_TO_COME = 400
STEPS = 10
"""Of a search for the longest estimate with which a job would start now."""

Numbers = NDArray[np.float64]
Interval = tuple[float, float, float]


@dataclass(frozen=True)
class QueueFuture:
    """The summary of many draws of a queue's future.

    Attributes
    ----------
    starts
        Waiting job -> its start in seconds from now: (low, likeliest, high). None: it needs more nodes than are
        in service.
    ends
        Job -> its end, in the same form; jobs that need more nodes than are in service are absent.
    wait, response
        Mean seconds from now to the start of the waiting jobs, and to the end of all jobs.
    over
        Mean seconds until all jobs are over.
    draws
        Number of draws. 1: run times are not known, and each job takes its estimate.
    """

    starts: Mapping[int, Interval | None]
    ends: Mapping[int, Interval]
    wait: float
    response: float
    over: float
    draws: int
    seconds: float = field(compare=False, default=0.0)


@dataclass(frozen=True, slots=True)
class _Prediction:
    """The predicted start and end of a job at its submission, in seconds from then."""

    time: float
    start: Interval
    end: Interval


class QueueForecaster:
    """Predicts the future of queues under one policy, and corrects its intervals by its past errors.

    The error of a past prediction is measured in units of its interval's halves; the quantiles of the last errors
    are the ends of the next intervals (normalised conformal prediction). So the intervals keep about their stated
    coverage even if the drawn run times are wrong or correlated. The prediction for a past job without one is
    computed from the state of the queue at its submission.
    """

    def __init__(self, policy: SchedulingPolicy) -> None:
        self.policy = policy
        self._predictions: dict[int, _Prediction] = {}
        self._starts: dict[int, float] = {}
        self._ends: dict[int, float] = {}

    def future(
        self,
        snapshot: QueueSnapshot,
        *,
        seed: int = 0,
        draws: int = DRAWS,
        seconds: float = inf,
        recompute: int = MAX_SCORES,
    ) -> QueueFuture:
        """Return the future of a queue; learning takes at most about as long again.

        Parameters
        ----------
        recompute
            Number of past jobs without a prediction for which it is computed now, the latest first.
        """
        began = perf_counter()
        found = simulate_queue(snapshot, self.policy, seed=seed, draws=draws, seconds=seconds)
        if found.draws < MIN_DRAWS:
            return found
        self._learn(snapshot, seed, began + 2.0 * seconds, recompute)
        self._remember(snapshot, found)
        starts = {
            job: None if interval is None else _corrected(interval, self._starts)
            for job, interval in found.starts.items()
        }
        ends = dict(found.ends)
        for job, start in starts.items():
            if start is not None:
                first, middle, last = _corrected(ends[job], self._ends)
                ends[job] = max(first, start[0]), max(middle, start[1]), max(last, start[2])
        return replace(found, starts=starts, ends=ends, seconds=perf_counter() - began)

    def _remember(self, snapshot: QueueSnapshot, found: QueueFuture) -> None:
        """Keep the first prediction of each job, as long as the job is in the snapshot."""
        known = {past.job.number for past in snapshot.past} | {job.number for job in snapshot.jobs}
        kept = {job: one for job, one in self._predictions.items() if job in known}
        for job, start in found.starts.items():
            if start is not None and job not in kept and job != NOT_SUBMITTED:
                kept[job] = _Prediction(snapshot.time, start, found.ends[job])
        self._predictions = kept

    def _learn(self, snapshot: QueueSnapshot, seed: int, until: float, recompute: int) -> None:
        """Score the predictions of the last jobs that waited and started, and of the last that are over."""
        past = snapshot.past
        waited = [
            k for k, one in enumerate(past)
            if one.started is not None and one.started > one.submitted + WAITED_SECONDS
        ]  # fmt: skip
        for k in reversed(waited[-MAX_SCORES:]):
            number = past[k].job.number
            if number in self._starts or number in self._predictions:
                continue
            if recompute <= 0 or perf_counter() > until:
                break
            recompute -= 1
            prediction = _as_predicted(past, k, snapshot.nodes, self.policy, seed)
            if prediction is not None:
                self._predictions[number] = prediction
        for k in waited[-MAX_SCORES:]:
            self._score(self._starts, past[k], past[k].started, "start")
        over = [one for one in past if one.ratio is not None]
        for one in over[-MAX_SCORES:]:
            self._score(self._ends, one, one.ended, "end")
        for scores in (self._starts, self._ends):
            while len(scores) > MAX_SCORES:
                del scores[min(scores)]

    def _score(self, scores: dict[int, float], past: PastJob, true: float | None, of: str) -> None:
        """Keep the error of a prediction, in units of the upper half if it was too early, else of the lower."""
        prediction = self._predictions.get(past.job.number)
        if prediction is None or true is None or past.job.number in scores:
            return
        low, middle, high = prediction.start if of == "start" else prediction.end
        off = true - prediction.time - middle
        scores[past.job.number] = off / (_half(high, middle) if off > 0 else _half(low, middle))


def _as_predicted(
    past: Sequence[PastJob], k: int, nodes: int, policy: SchedulingPolicy, seed: int
) -> _Prediction | None:
    """Return the prediction of a job from the state at its submission; None: too little was known then."""
    one = past[k]
    found = simulate_queue(
        _as_it_was(past, k, nodes), policy, seed=seed + one.job.number, draws=SCORE_DRAWS
    )
    start = found.starts.get(one.job.number)
    if found.draws < MIN_DRAWS or start is None:
        return None
    return _Prediction(one.submitted, start, found.ends[one.job.number])


def _as_it_was(past: Sequence[PastJob], k: int, nodes: int) -> QueueSnapshot:
    """Return the queue at the submission of a job, as known then; on the nodes that are there now."""
    now = past[k].submitted
    running, waiting, known = [], [], []
    free = nodes
    for one in past[: k + 1]:
        if one.started is None or one.started > now or one is past[k]:
            if one.ended is None or one.ended > now:  # else it was cancelled before
                waiting.append(one.job)
            known.append(replace(one, started=None, ended=None, ratio=None))
        elif one.ended is not None and one.ended <= now:
            known.append(one)
        else:
            known.append(replace(one, ended=None, ratio=None))
            has = min(one.nodes or one.job.maximum, one.job.maximum, free)
            if has > 0:
                free -= has
                done = (now - one.started) * has / one.job.maximum
                running.append(replace(one.job, nodes=has, done=done))
    return QueueSnapshot(nodes, (*running, *waiting), tuple(known[:-1]), now)


def _half(end: float, middle: float) -> float:
    return max(abs(end - middle), 1.0 + 0.05 * middle)


def _corrected(interval: Interval, errors: Mapping[int, float]) -> Interval:
    """Return an interval with corrected ends; a shift of the middle would miss the most frequent run time."""
    first, middle, last = interval
    scores = sorted([*PRIOR_SCORES, *errors.values()])
    low, high = (
        middle + score * _half(last if score > 0 else first, middle)
        for score in (_quantile(scores, part) for part in LEVELS)
    )
    return max(0.0, min(low, middle)), middle, max(high, middle)


def _quantile(scores: Sequence[float], part: float) -> float:
    """Return a quantile of the scores, rounded outward: of few scores the first or the last."""
    count = len(scores)
    rank = ceil((count + 1) * part) if part > 0.5 else floor((count + 1) * part)
    return scores[min(max(rank, 1), count) - 1]


def simulate_queue(
    snapshot: QueueSnapshot,
    policy: SchedulingPolicy,
    *,
    seed: int = 0,
    draws: int = DRAWS,
    seconds: float = inf,
) -> QueueFuture:
    """Return the uncorrected future of a queue under a policy.

    Parameters
    ----------
    draws
        Number of draws; after `MIN_DRAWS` of them, `seconds` ends the simulation earlier.
    """
    began = perf_counter()
    fitting = [job for job in snapshot.jobs if job.nodes or _least(job, policy) <= snapshot.nodes]
    count = len(fitting)
    past = [one for one in snapshot.past if _least(one.job, policy) <= snapshot.nodes]
    known = sum(one.ratio is not None for one in past) >= MIN_PAST
    rng = np.random.default_rng(seed)
    latest = past[-MAX_PAST:]
    if known:
        times = _RunTimes(past)
        runs = _runs_drawn(fitting, times, rng, draws)
        to_come = _to_come(latest, times, rng, draws, min(MAX_TO_COME, 20 + 2 * count))
    else:
        runs = np.array([[max(job.requested, job.done) for job in fitting]])
        to_come = [_nothing_comes()]
    columns = _columns([*fitting, *(one.job for one in latest)], snapshot.nodes, policy)
    config = SimulationConfig(nodes=max(1, snapshot.nodes), release="at_once")
    submit = np.array([0.0 if job.nodes else NOW for job in fitting])
    found: list[tuple[Numbers, Numbers]] = []
    for row, (which, later, submitted) in zip(runs if count else (), to_come, strict=False):
        if len(found) >= MIN_DRAWS and perf_counter() - began > seconds:
            break
        workload = _workload(
            columns, np.concatenate((np.arange(count), count + which)),
            np.concatenate((row, later)), np.concatenate((submit, submitted)),
        )  # fmt: skip
        result = simulate(workload, policy, config)
        found.append((result.start[:count] - NOW, result.end[:count] - NOW))
    return _summed(snapshot, fitting, found, perf_counter() - began)


def _least(job: QueuedJob, policy: SchedulingPolicy) -> int:
    """Return the fewest nodes on which a policy starts a job."""
    return job.minimum if job.malleable and policy.uses_malleable else job.maximum


def _summed(
    snapshot: QueueSnapshot,
    jobs: Sequence[QueuedJob],
    found: Sequence[tuple[Numbers, Numbers]],
    seconds: float,
) -> QueueFuture:
    starts: dict[int, Interval | None] = {
        job.number: None for job in snapshot.jobs if not job.nodes
    }
    if not found:
        return QueueFuture(starts, {}, 0.0, 0.0, 0.0, 0, seconds)
    begun, ended = (np.maximum(np.array(one), 0.0) for one in zip(*found, strict=True))
    begin, end = _intervals(begun), _intervals(ended)
    waits = np.array([not job.nodes for job in jobs])
    starts |= {job.number: begin[k] for k, job in enumerate(jobs) if not job.nodes}
    return QueueFuture(
        starts,
        {job.number: end[k] for k, job in enumerate(jobs)},
        float(begun[:, waits].mean()) if waits.any() else 0.0,
        float(ended.mean()),
        float(ended.max(axis=1).mean()),
        len(found),
        seconds,
    )


def _intervals(drawn: Numbers) -> list[Interval]:
    """Return each column's interval and likeliest time: the median of the largest group of draws near each other.

    Runs of a program often take one of a few times; the median of all draws can lie between these.
    """
    ordered = np.sort(drawn, axis=0)
    first, last = np.quantile(ordered, LEVELS, axis=0)
    found = []
    for k, column in enumerate(ordered.T):
        near = np.maximum(column + 2.0 * NEAR_SECONDS, column * (1.0 + NEAR) / (1.0 - NEAR))
        ends = np.searchsorted(column, near, side="right")
        most = int(np.argmax(ends - np.arange(len(column))))
        middle = float(np.median(column[most : ends[most]]))
        found.append((min(float(first[k]), middle), middle, max(float(last[k]), middle)))
    return found


# ------------------------------------------------------------------------------- run times
class _RunTimes:
    """The ratios of run time to estimate of the latest runs, sorted, in groups of decreasing similarity."""

    def __init__(self, past: Sequence[PastJob]) -> None:
        over = [(one.ended or 0.0, k) for k, one in enumerate(past) if one.ratio is not None]
        found: dict[tuple[Any, ...], list[float]] = {}
        every = []
        for _, k in sorted(over):
            ratio = past[k].ratio or 0.0
            every.append(ratio)
            for key in _keys(past[k].job):
                found.setdefault(key, []).append(ratio)
        self.every = np.sort(every)
        self._alike = [
            {
                key: np.sort(ratios[-most:])
                for key, ratios in found.items()
                if len(ratios) >= fewest
            }
            for fewest, most in ALIKE
        ]

    def of(self, job: QueuedJob) -> Iterator[Numbers]:
        """Yield the ratios to draw a job's from, the most similar runs first."""
        for key, alike in zip(_keys(job), self._alike, strict=True):
            if key in alike:
                yield alike[key]
        yield self.every


def _keys(job: QueuedJob) -> tuple[tuple[Any, ...], ...]:
    """Return the keys of similar runs, one for each row of `ALIKE`."""
    return (job.alike, job.requested, job.maximum), (job.alike, job.requested), (job.alike,)


def _runs_drawn(
    jobs: Sequence[QueuedJob], times: _RunTimes, rng: np.random.Generator, draws: int
) -> Numbers:
    """Return run times on `maximum` nodes in seconds, a row a draw: none shorter than the work done already."""
    columns = []
    for job in jobs:
        if job.measured:
            columns.append(np.full(draws, job.requested))
            continue
        for ratios in times.of(job):
            shorter = int(np.searchsorted(ratios, job.done / job.requested, side="right"))
            if len(ratios) - shorter >= MIN_LONGER:
                columns.append(job.requested * ratios[rng.integers(shorter, len(ratios), draws)])
                break
        else:  # longer than nearly all before: at least twice `done` in half of the draws, at most ten times
            columns.append(job.done / np.maximum(rng.random(draws), 0.1))
    return np.array(columns).reshape(len(jobs), draws).T


Coming = tuple[NDArray[np.intp], Numbers, Numbers]
"""Later arrivals: index of the past job that each resembles, run time, and time of arrival."""


def _to_come(
    past: Sequence[PastJob],
    times: _RunTimes,
    rng: np.random.Generator,
    draws: int,
    count: int,
) -> list[Coming]:
    """Return `count` later arrivals for each draw, drawn from past arrivals and the gaps between them."""
    took = np.array([
        one.job.requested * (rng.choice(times.every) if one.ratio is None else one.ratio) for one in past
    ])  # fmt: skip
    came = np.array([one.submitted for one in past])
    gaps = np.maximum(np.diff(came, prepend=came[:1]), 0.0)
    found = []
    for _ in range(draws):
        which = rng.integers(0, len(past), count)
        found.append((which, took[which], NOW + np.cumsum(gaps[which])))
    return found


def _nothing_comes() -> Coming:
    return np.zeros(0, dtype=np.intp), np.zeros(0), np.zeros(0)


# -------------------------------------------------------------------------------- workload
def _columns(
    jobs: Sequence[QueuedJob], nodes: int, policy: SchedulingPolicy
) -> Mapping[str, NDArray[Any]]:
    """Return the attributes of jobs for a workload, by name; `done` is their work until now."""
    flexible = np.array([job.malleable and policy.uses_malleable for job in jobs], dtype=bool)
    most = np.array([job.maximum for job in jobs], dtype=np.int64)
    has = np.array([job.nodes for job in jobs], dtype=np.int64)
    width = np.where(flexible, np.minimum(most, nodes), np.where(has > 0, has, most))
    users = {name: k for k, name in enumerate(sorted({job.user for job in jobs}), 1)}
    return {
        "processors": width,
        "minimum": np.minimum(width, np.where(flexible, [job.minimum for job in jobs], width)),
        "malleable": flexible,
        "slower": most / width,
        "done": np.array([job.done for job in jobs]),
        "requested": np.array([job.requested for job in jobs]),
        "priority": np.array([job.priority for job in jobs]),
        "user": np.array([users[job.user] for job in jobs], dtype=float),
    }


def _workload(
    columns: Mapping[str, NDArray[Any]],
    which: NDArray[np.intp],
    runs: Numbers,
    submit: Numbers,
) -> Workload:
    """Return jobs with these run times on their `maximum` nodes, assuming a linear speed-up.

    A job that is drawn to take longer than its estimate gets the drawn time as its estimate, because the simulator
    has no overruns.
    """
    one = {name: column[which] for name, column in columns.items()}
    begun = np.where(submit == 0.0, NOW, 0.0)
    left = np.maximum((runs - one["done"]) * one["slower"], SHORTEST)
    asked = np.maximum((one["requested"] - one["done"]) * one["slower"], left)
    return Workload(
        job=np.arange(1, len(which) + 1),
        submit=instants(submit),
        run=instants(left + begun),
        processors=one["processors"],
        requested=instants(asked + begun),
        minimum=one["minimum"],
        maximum=one["processors"],
        malleable=one["malleable"],
        attributes={"priority": one["priority"], "user": one["user"]},
    )


# ------------------------------------------------------------------------------ changes
def starts_now(snapshot: QueueSnapshot, policy: SchedulingPolicy, changed: QueuedJob) -> bool:
    """Return whether a policy would start a job now if it were as in `changed`."""
    ledger = ClusterLedger(
        snapshot.nodes, track_node_ids=True, usage_half_life=policy.usage_half_life
    )
    taken, runs = 0, []
    for job in snapshot.jobs:
        if job.nodes:
            left = max(SHORTEST, (job.requested - job.done) * job.maximum / job.nodes)
            nodes = frozenset(range(taken, taken + job.nodes))
            runs.append((_as_job(job, job.nodes, left, policy), 0.0, nodes))
            taken += job.nodes
    ledger.add_running(runs)
    for job in snapshot.jobs:
        if not job.nodes:
            now = changed if job.number == changed.number else job
            ledger.submit(_as_job(now, now.maximum, now.requested, policy))
    return any(
        isinstance(decision, Start) and decision.job == changed.number
        for decision in decisions_of(policy, ledger.snapshot(0.0))
    )


def _as_job(job: QueuedJob, nodes: int, requested: float, policy: SchedulingPolicy) -> Job:
    if job.malleable and policy.uses_malleable:
        return Job(
            job.number, 0.0, job.maximum, requested, job.minimum, job.maximum, JobKind.MALLEABLE,
            user=job.user, priority=job.priority, exclusive=True,
        )  # fmt: skip
    return Job(
        job.number, 0.0, nodes, requested, nodes, nodes, user=job.user, priority=job.priority,
        exclusive=True,
    )  # fmt: skip


def smallest_changes(
    snapshot: QueueSnapshot, policy: SchedulingPolicy, number: int
) -> dict[str, float]:
    """Return the smallest changes of a waiting job that each would start it now.

    Returns
    -------
    ``hosts`` (fewer: its maximum, or its minimum if the policy chooses its size), ``seconds`` (a shorter estimate)
    and ``priority``, each only if it would start the job; empty if the job starts unchanged at the next pass.
    """
    job = next(one for one in snapshot.jobs if one.number == number)
    if starts_now(snapshot, policy, job):
        return {}
    found: dict[str, float] = {}
    sized = job.malleable and policy.uses_malleable

    def on(hosts: int) -> QueuedJob:
        if sized:
            return replace(job, minimum=hosts)
        longer = job.requested * job.maximum / hosts
        return replace(job, minimum=hosts, maximum=hosts, requested=longer)

    few, many = 0, job.minimum if sized else job.maximum
    while many - few > 1:  # the job starts on `few` hosts (0: none found yet), not on `many`
        hosts = (few + many) // 2
        few, many = (hosts, many) if starts_now(snapshot, policy, on(hosts)) else (few, hosts)
    if few:
        found["hosts"] = few
    short, long = 0.0, job.requested
    for _ in range(STEPS):
        seconds = (short + long) / 2.0
        starts = starts_now(snapshot, policy, replace(job, requested=max(seconds, SHORTEST)))
        short, long = (seconds, long) if starts else (short, seconds)
    if short:
        found["seconds"] = short
    if "priority" in policy.looks_at:
        first = 1.0 + max((one.priority for one in snapshot.jobs if not one.nodes), default=0.0)
        if starts_now(snapshot, policy, replace(job, priority=first)):
            found["priority"] = first
    return found
