"""Check whether a simulation explains the recorded waits of a site's log, before conclusions are drawn from it.

A log records the waits of its jobs under the site's scheduler. Each base policy runs over the whole log. The
policy with the waits nearest to the log's in the first half is chosen, and judged on the second half, which had no
part in the choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, expm1, log
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from apples.errors import UsageError
from apples.scheduling.passes import PolicyFailure
from apples.scheduling.policy import SchedulingPolicy
from apples.simulation.config import SimulationConfig
from apples.simulation.documents import WaitGroup
from apples.simulation.run import simulate
from apples.simulation.sources import read_log
from apples.simulation.swf import NEEDED, Log
from apples.simulation.workload import Workload

SMALL = 60.0
"""Seconds added to both waits before their comparison, so that 1 s and 10 s differ little."""
EXPLAINED = 1.25
"""Maximum factor at which the waits count as explained."""
DAY = 86400.0
FEWEST = 20
"""Minimum number of jobs in a group; a breakdown omits smaller groups."""
MIN_COMPARED = 100
"""Minimum number of jobs with a known wait in each half: with fewer, single jobs decide the verdict."""


def log_ratio(group: WaitGroup) -> float:
    """Return the logarithm of the simulated over the logged wait, `SMALL` added to both."""
    return log((group["simulated_wait"] + SMALL) / (group["logged_wait"] + SMALL))


@dataclass(frozen=True)
class WaitFit:
    """The waits under a policy against those of the log, on a part of it.

    Attributes
    ----------
    overall
        All jobs as one group.
    breakdowns
        "day", "size", and "partition" if the log has several -> groups.
    """

    overall: WaitGroup
    breakdowns: Mapping[str, tuple[WaitGroup, ...]]

    def factor(self, breakdown: str) -> float:
        """Return the factor of a breakdown: the exponential of the mean absolute log ratio, weighted by jobs."""
        groups = self.breakdowns[breakdown]
        jobs = sum(group["jobs"] for group in groups)
        off = sum(group["jobs"] * abs(log_ratio(group)) for group in groups)
        return exp(off / jobs) if jobs else 1.0

    @property
    def worst(self) -> tuple[str, float]:
        """The breakdown with the largest factor, and the factor; "overall" counts as a breakdown."""
        factors = {"overall": exp(abs(log_ratio(self.overall)))}
        factors |= {name: self.factor(name) for name in self.breakdowns}
        return max(factors.items(), key=lambda item: item[1])


@dataclass(frozen=True)
class WaitExplanation:
    """The comparison of base policies with a site's waits.

    Attributes
    ----------
    policy
        The policy chosen on the first half.
    first, second
        Policy -> its fit on the first and on the second half.
    jobs, unknown
        Compared jobs; jobs without a recorded wait, or that did not complete.
    not_tried
        Base policies that would take long on a log of this size.
    failures
        Kinds of failure of the user's policy: the first failure of each, and the number of failed passes.
    """

    policy: str
    first: Mapping[str, WaitFit]
    second: Mapping[str, WaitFit]
    jobs: int
    unknown: int
    not_tried: tuple[str, ...] = ()
    failures: tuple[tuple[PolicyFailure, int], ...] = ()

    @property
    def factor(self) -> float:
        """Factor of the chosen policy on the second half, in its worst breakdown."""
        return self.second[self.policy].worst[1]

    @property
    def is_explained(self) -> bool:
        """Whether a simulation of another policy on this log permits conclusions."""
        return self.factor <= EXPLAINED

    def __str__(self) -> str:
        """Return the verdict in a sentence."""
        breakdown, factor = self.second[self.policy].worst
        where = "over all jobs" if breakdown == "overall" else f"by {breakdown}"
        if self.is_explained:
            return (
                f"the model explains the site's waits within {expm1(log(factor)):.0%} ({where}): "
                f"{self.policy}, chosen on the first half of the log, judged on the second"
            )
        return (
            f"the model does not explain the site's waits: {self.policy}, the nearest on the first half "
            f"of the log, is off by {factor:.3g} x on the second ({where}): do not conclude"
        )


def waits_of_log(path: Path) -> tuple[Log, NDArray[np.float64]]:
    """Return a log with its partitions, and the wait of each record in seconds; NaN if unknown.

    Raises
    ------
    UsageError
        The log has no waits, or each of them is zero. Permanent.
    """
    read = read_log(path, (*NEEDED, "wait", "partition"))
    waits = read.columns["wait"]
    waits = np.where(waits >= 0, waits, np.nan)
    if np.isnan(waits).all():
        raise UsageError(
            f"{path}: has no wait times of its jobs: there is nothing to compare with",
            code="waits-missing",
            file=path,
        )
    if not np.nan_to_num(waits).any():
        raise UsageError(
            f"{path}: every known wait is 0 s: the jobs never queued, or their waits were not recorded; "
            "such a log can confirm no policy",
            code="waits-missing",
            file=path,
        )
    return read, waits


def explain(
    policies: Mapping[str, SchedulingPolicy],
    workload: Workload,
    config: SimulationConfig,
    read: Log,
    waits: NDArray[np.float64],
) -> WaitExplanation:
    """Return the policy that explains the waits of a log best, with its fit.

    Parameters
    ----------
    policies
        Name -> base policy.
    workload
        The jobs of `read` after cleaning.
    waits
        Seconds by record of `read`, NaN where unknown.

    Raises
    ------
    UsageError
        One half of the log has too few known waits. Permanent.
    """
    order = np.argsort(read.columns["job"], kind="stable")
    # Of several records with one number, cleaning keeps the first; the search finds the first, too.
    at = order[np.searchsorted(read.columns["job"], workload.job, sorter=order)]
    logged = waits[at]
    partition = read.columns.get("partition", np.full(len(read), -1.0))[at]
    names = read.names.get("partition", ())
    first_half = np.arange(len(workload)) < len(workload) // 2
    fits: tuple[dict[str, WaitFit], dict[str, WaitFit]] = ({}, {})
    failures: list[tuple[PolicyFailure, int]] = []
    compared = 0
    for name, policy in policies.items():
        result = simulate(workload, policy, config)
        failures += result.failures
        known = result.completed & np.isfinite(logged)
        simulated = result.start - workload.submit
        compared = int(known.sum())
        for half, made in zip((first_half, ~first_half), fits, strict=True):
            chosen = np.flatnonzero(known & half)
            if len(chosen) < MIN_COMPARED:
                raise UsageError(
                    f"{read.source}: {len(chosen)} waits to compare with in one half of its jobs: too few "
                    f"for a verdict, which needs {MIN_COMPARED} in each",
                    code="waits-too-few",
                    file=read.source,
                    value=len(chosen),
                    bound=MIN_COMPARED,
                )
            made[name] = WaitFit(
                _group("all", chosen, logged, simulated),
                dict(_breakdowns(workload, partition, names, chosen, logged, simulated)),
            )
    best = min(policies, key=lambda name: fits[0][name].worst[1])
    return WaitExplanation(
        best, *fits, compared, len(workload) - compared, failures=tuple(failures)
    )


def _breakdowns(
    workload: Workload,
    partition: NDArray[np.float64],
    names: Sequence[str],
    chosen: NDArray[np.intp],
    logged: NDArray[np.float64],
    simulated: NDArray[np.float64],
) -> Iterator[tuple[str, tuple[WaitGroup, ...]]]:
    day = ((workload.submit - workload.submit[0]) // DAY).astype(np.int64)
    size = np.floor(np.log2(workload.processors)).astype(np.int64)
    keys: dict[str, tuple[NDArray[np.int64], Callable[[int], str]]] = {
        "day": (day, lambda k: str(k + 1)),
        "size": (size, lambda k: f"{1 << k}" if k == 0 else f"{1 << k}-{(2 << k) - 1}"),
    }
    if len(np.unique(partition[chosen])) > 1:
        codes = partition.astype(np.int64)
        keys["partition"] = (codes, lambda k: names[k - 1] if 0 < k <= len(names) else str(k))
    for name, (key, word) in keys.items():
        groups = []
        for value in np.unique(key[chosen]).tolist():
            mine = chosen[key[chosen] == value]
            if len(mine) >= FEWEST:
                groups.append(_group(word(value), mine, logged, simulated))
        if groups:
            yield name, tuple(groups)


def _group(
    name: str,
    chosen: NDArray[np.intp],
    logged: NDArray[np.float64],
    simulated: NDArray[np.float64],
) -> WaitGroup:
    return {
        "name": name,
        "jobs": len(chosen),
        "logged_wait": float(logged[chosen].mean()),
        "simulated_wait": float(simulated[chosen].mean()),
    }
