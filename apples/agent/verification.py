"""Verification: compare a result with that of the same program as one process, within a budget.

If one process repeats the whole run in a short time, or in a small part of the run's time, the check compares
the whole result. Otherwise it compares a *sample*: the first iterations, run again on the partition and the
hosts of the run, and as one process. A sample detects a result that depends on the partition, a wrong exchange
of borders, and a host that computes other numbers than this machine. It does not cover later iterations of the
run itself.

If the template names a function (`expected_result`), the check also compares the second run's result with that
function. With equal digests, this covers the run itself.

A run of one rank is compared with a run of two ranks with uneven strips, because two runs of one process would
not test the partition.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from apples.agent import expected_result
from apples.agent.information import InformationPool
from apples.agent.launching import launch_plan
from apples.errors import ApplesError, VerificationError
from apples.io.log import discard
from apples.launch.actuator import Actuator, Execution
from apples.launch.events import Outcome, Progress, RowDigests, Talk, unheard
from apples.resources import Host, HostList, Network
from apples.resources.schedule import Allocation, Schedule
from apples.ui.units import amount, duration

if TYPE_CHECKING:
    from apples.agent.documents import Asked, DifferingRow, How, VerificationInfo

ANNOUNCED_SECONDS = 5.0
"""A check with a longer predicted time is announced and reports its progress."""
FULL_SECONDS, SHORT_RUN_SECONDS, BUDGET_SHARE = 10.0, 30.0, 0.2
"""Budget of a check: ``FULL_SECONDS`` after a run of at most ``SHORT_RUN_SECONDS``.

After a longer run, the whole command exceeds the program's time by at most ``BUDGET_SHARE``.
"""
SAMPLE_SECONDS = 5.0
"""Time of a sample; it has as many iterations as fit."""
MAX_AROUND_SECONDS, DIGEST_RATE = 2.0, 100e6
"""Largest assumed start of a run; also of its end, plus its result at ``DIGEST_RATE`` bytes per second."""
LOOKED_AT_SECONDS = 1.0
"""Seconds of a run as one process before its rate is taken as reliable."""
LEFT_SECONDS = 1.0
"""Seconds between two estimates of the remaining time of a check."""
MIN_FUNCTION_SECONDS = 2.0
"""Least time limit of a template's function: it includes the start of its process."""
TOLD_SHARE, TOLD_SECONDS = 0.1, 60.0
"""A check reports progress after this share of its iterations, or after this time."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The result of a reference run: iterations, digests of the result and of its rows, ranks."""

    iterations: int
    sha256: str
    rows: Sequence[RowDigests] = ()
    ranks: int = 1

    def check(self, iterations: int, sha256: str) -> bool | None:
        """Return whether a parallel run ended at the same iteration with the same bytes; None without digests."""
        if not self.sha256 or not sha256:
            return None
        return (iterations, sha256) == (self.iterations, self.sha256)


@dataclass(frozen=True, slots=True)
class Verification:
    """Outcome of the check of a result.

    Attributes
    ----------
    asked
        ``auto``, ``full``, ``sample`` or ``none``.
    how
        ``full``, ``sample`` or ``none``.
    verified
        Whether the compared results are equal; None if nothing was compared.
    iterations
        Number of compared iterations; 0: nothing was compared.
    predicted_seconds, seconds
        Predicted and measured duration of the check.
    reason
        Why nothing, or only a sample, was compared; else empty.
    difference
        First differing row, if the program reports digests of rows.
    sampled_on
        Place of the sample's partition: ``hosts`` or ``this machine``; empty without a sample.
    ranks, reference_ranks
        Ranks of the two compared results; 0 if nothing was compared.
    comparison
        Comparison with the template's function; None without a function, or if the two results differ.
    """

    asked: Asked = "none"
    how: How = "none"
    verified: bool | None = None
    iterations: int = 0
    predicted_seconds: float | None = None
    seconds: float = 0.0
    reason: str = ""
    difference: DifferingRow | None = None
    sampled_on: str = ""
    ranks: int = 0
    reference_ranks: int = 0
    comparison: expected_result.ResultComparison | None = None

    @property
    def partition_tested(self) -> bool:
        """Return whether the results of two different partitions were compared."""
        return self.ranks != self.reference_ranks

    def document(self) -> VerificationInfo:
        """Return the verification as the key ``verification`` of ``apples.run/1``."""
        return {
            "asked": self.asked,
            "how": self.how,
            "iterations": self.iterations,
            "predicted_seconds": self.predicted_seconds,
            "seconds": self.seconds,
            "reason": self.reason,
            "sampled_on": self.sampled_on,
            "compared": {
                "ranks": self.ranks,
                "reference_ranks": self.reference_ranks,
                "partition_tested": self.partition_tested,
            }
            if self.ranks
            else None,
            "differs_at": self.difference,
            "expected_result": self.comparison.document() if self.comparison else None,
        }


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """The facts about a finished run that its check needs.

    Attributes
    ----------
    schedule
        Schedule of the plan.
    outcome, row_digests
        Results that the program reported.
    own_seconds, end_seconds
        The program's own time (start, loop and end), and the part of its end, in which the result is
        transferred.
    other_seconds
        Time of the command so far outside the program.
    sampler
        Returns the actuator that starts a sample on the hosts of the run and keeps no result. None if the
        command would have to wait for the hosts; then the partition runs on this machine.
    """

    schedule: Schedule
    outcome: Outcome
    row_digests: Sequence[RowDigests]
    own_seconds: float
    end_seconds: float = 0.0
    other_seconds: float = 0.0
    sampler: Callable[[], Actuator] | None = None

    @property
    def ranks(self) -> int:
        """Return the number of planned ranks."""
        return sum(1 if one.threads else one.ranks for one in self.schedule.allocations)

    @property
    def budget(self) -> float:
        """Return the seconds that a check may take by default (``auto``)."""
        if self.own_seconds <= SHORT_RUN_SECONDS:
            return FULL_SECONDS
        return max(0.0, BUDGET_SHARE * self.own_seconds - self.other_seconds)

    @property
    def limit(self) -> str:
        """Return the budget's rule in words."""
        if self.own_seconds <= SHORT_RUN_SECONDS:
            return f"more than {duration(FULL_SECONDS)}"
        return f"more than is left of the {BUDGET_SHARE:.0%} of the run that checking may take"


class _TooLongError(Exception):
    """A run as one process will exceed its time limit; `seconds` is its measured iteration time."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds


def verify(
    asked: Asked,
    run: FinishedRun,
    information: InformationPool,
    reference: Reference | None = None,
    talk: Talk = unheard,
    on_left: Callable[[float], object] = discard,
) -> Verification:
    """Check the result of a run as requested, or as far as its budget allows.

    A check that fails does not make the run fail: the answer gives the reason.

    Parameters
    ----------
    asked
        ``auto``, ``full`` or ``sample``.
    reference
        Result of the sequential run, if it is already known.
    on_left
        Called with the estimated seconds left when the check begins, and each second while it runs.
    """
    began = time.monotonic()
    found = Verification(asked, reason="the program's result has no sha256")
    if run.outcome.sha256:
        try:
            if reference is not None and information.template.expected_result is None:
                found = _compared("full", run.outcome, run.row_digests, reference, run.ranks)
            else:
                with _result_folder(information) as folder:
                    found = _Check(asked, run, information, talk, on_left, folder).made()
        except (ApplesError, OSError) as error:
            found = Verification(reason=f"the check failed: {error}")
    if found.verified is None:
        talk(f"warning: not verified: {found.reason}")
    return replace(found, asked=asked, seconds=time.monotonic() - began)


@dataclass(frozen=True, slots=True)
class _Check:
    """The check of one run; its cost is predicted from the measured times of the run."""

    asked: Asked
    run: FinishedRun
    information: InformationPool
    talk: Talk
    on_left: Callable[[float], object]
    folder: Path | None = None
    """Folder for the result of the reference run; None: the result is not kept."""

    def made(self) -> Verification:
        """Return the verification: of the whole run if requested or within the budget, else of a sample."""
        began = time.monotonic()
        application, outcome = self.information.application, self.run.outcome
        import psutil  # noqa: PLC0415 - a plan loads this module and needs no psutil

        needed = application.strip_memory(application.rows)
        free = psutil.virtual_memory().available
        if needed > free:
            return Verification(
                reason=f"one process would need {amount(needed)}, {amount(free)} are free here"
            )
        alone = self._alone_seconds()
        predicted = self._around + outcome.iterations * alone
        if self.asked == "sample":
            return self._sample(alone, "a sample was asked for")
        if self.asked == "full" or predicted <= self.run.budget:
            limit = None if self.asked == "full" else self.run.budget
            self._announce(f"the whole run again {self._as_what} here", predicted)
            try:
                reference, why = self._reference(self.information, limit)
            except _TooLongError as slow:
                alone = slow.seconds
                predicted = outcome.iterations * alone
                spent = self.run.other_seconds + time.monotonic() - began
                return replace(self, run=replace(self.run, other_seconds=spent))._instead(
                    alone, predicted
                )
            found = _compared("full", outcome, self.run.row_digests, reference, self.run.ranks)
            found = replace(found, predicted_seconds=predicted, reason=why or found.reason)
            left = None if limit is None else limit - (time.monotonic() - began)
            return self._by_function(found, self.information, left)
        return self._instead(alone, predicted)

    def _instead(self, alone: float, predicted: float) -> Verification:
        why = f"the whole run as one process would take about {duration(predicted)}, {self.run.limit}"
        return self._sample(alone, why)

    @property
    def _as_what(self) -> str:
        return "as one process" if self.run.ranks > 1 else "as two ranks"

    def _reference(
        self, information: InformationPool, limit: float | None
    ) -> tuple[Reference, str]:
        """Return the result of the reference run, and the reason if run and reference both have one rank.

        The reference is one process on this machine. If the run had one rank, it is two ranks with uneven
        strips, unless the program cannot run on two.
        """
        why = ""
        if self.run.ranks == 1:
            schedule, pool = on_two_ranks(information)
            if schedule is None:
                why = f"{information.application.rows} rows are too few for two ranks"
            else:
                try:
                    execution = _here(self.folder).actuate(launch_plan(schedule, pool))
                    found = _told(execution, self.talk, limit, self.on_left)
                    return replace(found, ranks=2), ""
                except ApplesError as error:
                    why = f"two ranks failed: {error}"
        return sequential(information, self.talk, limit, self.on_left, self.folder), why

    def _by_function(
        self, found: Verification, information: InformationPool, left: float | None
    ) -> Verification:
        """Compare a result equal to the reference with the template's function, within the seconds left.

        If the function fails, the result is not verified; the answer keeps the comparison of the two runs.
        """
        wanted = information.template.expected_result
        if wanted is None or self.folder is None or not found.verified:
            return found
        self.talk(f"verifying: comparing with {wanted.function}")
        try:
            comparison = expected_result.compare_result(
                wanted,
                information.folder,
                information.application.parameters,
                self.folder,
                None if left is None else max(left, MIN_FUNCTION_SECONDS),
            )
        except ApplesError as error:
            why = f"the results of both runs are equal; the comparison with {wanted.function} failed: {error}"
            return replace(found, verified=None, reason=why)
        return replace(found, verified=comparison.differs_at is None, comparison=comparison)

    @property
    def _around(self) -> float:
        """Return start plus end of a run in seconds: as in this run, capped to exclude queues and load peaks."""
        size = self.information.application.strip_memory(self.information.application.rows)
        start = min(self.run.outcome.startup_seconds, MAX_AROUND_SECONDS)
        return start + min(self.run.end_seconds, MAX_AROUND_SECONDS + size / DIGEST_RATE)

    def _alone_seconds(self) -> float:
        """Return the iteration seconds of one process: the work of all ranks, or else by the slowest host's speed.

        The work is wall time, because load that competed with the run will compete with its check.
        """
        ranks = {one.host.name: one.threads or one.ranks for one in self.run.schedule.allocations}
        work = sum(
            one.compute_seconds * (ranks.get(one.host) or self.information.hosts[one.host].slots)
            for one in self.run.outcome.hosts
        )
        if work > 0:
            return work / max(1, self.run.outcome.iterations)
        alone = of_one(self.information)
        return alone.model.iteration_seconds(_all_rows(alone))

    def _sample(self, alone: float, why: str) -> Verification:
        """Compare the first iterations, run again both on the partition and as one process."""
        information, outcome = self.information, self.run.outcome
        name = information.template.iterations.text.strip()
        if name not in information.application.parameters:
            return Verification(
                reason=f"{why}; no sample can be run, for the template's iterations are '{name}' and no parameter"
            )
        within = SAMPLE_SECONDS
        if self.asked == "auto":  # half of the budget is a reserve
            within = min(within, self.run.budget / 2)
        each = alone + (outcome.iteration_seconds if self.run.sampler else alone)
        once = 2 * self._around
        least = 2 * information.active_set.sweeps + 1  # so that exchanged borders are used
        allowed = information.template.parameters[name].minimum
        least = max(least, math.ceil(allowed) if allowed else 0)
        count = min(outcome.iterations, max(least, int((within - once) / each)))
        predicted = once + count * each
        if self.asked == "auto" and predicted > self.run.budget:
            return Verification(
                predicted_seconds=predicted,
                reason=f"{why}; a sample of {count} iterations about {duration(predicted)}, {self.run.limit}",
            )
        short = information.with_application(
            information.template.bind({**information.application.parameters, name: count})
        )
        self._announce(
            f"the first {count} iterations, again on these strips and {self._as_what}", predicted
        )
        began = time.monotonic()
        actuator = self.run.sampler() if self.run.sampler else _here()
        actuator.talk = unheard
        execution = actuator.actuate(launch_plan(self.run.schedule, short))
        again = _told(execution, self.talk)
        left = None
        if self.asked == "auto":
            left = max(self.run.budget, predicted) - (time.monotonic() - began)
        try:
            reference, one_rank = self._reference(short, left)
        except _TooLongError as slow:
            return Verification(
                predicted_seconds=predicted,
                reason=f"{why}; a sample too: an iteration takes one process {duration(slow.seconds)}",
            )
        found = _compared("sample", again, again.rows, reference, self.run.ranks)
        found = replace(
            found,
            predicted_seconds=predicted,
            reason=f"{why}; {one_rank}" if one_rank else why,
            sampled_on="hosts" if self.run.sampler else "this machine",
        )
        if left is not None:
            left = max(self.run.budget, predicted) - (time.monotonic() - began)
        return self._by_function(found, short, left)

    def _announce(self, what: str, seconds: float) -> None:
        self.on_left(seconds)
        if seconds > ANNOUNCED_SECONDS:
            self.talk(f"verifying: {what}, about {duration(seconds)}")


def _compared(
    how: How,
    result: Outcome | Reference,
    rows: Sequence[RowDigests],
    reference: Reference,
    ranks: int,
) -> Verification:
    """Return the verification of a result of some ranks against a reference."""
    verified = reference.check(result.iterations, result.sha256)
    if verified is None:
        reason = "the program's result has no sha256"
        return Verification(how=how, iterations=result.iterations, reason=reason)
    alike = "the result to compare with is of 1 rank too" if ranks == reference.ranks else ""
    difference = None if verified else _first_difference(rows, reference.rows)
    return Verification(
        how=how,
        verified=verified,
        iterations=result.iterations,
        reason=alike,
        difference=difference,
        ranks=ranks,
        reference_ranks=reference.ranks,
    )


def _first_difference(
    found: Sequence[RowDigests], right: Sequence[RowDigests]
) -> DifferingRow | None:
    """Return the first row that differs from the reference; None without digests or without a difference."""
    rows = {row: digest for part in right for row, digest in part.by_row().items()}
    different: Iterator[DifferingRow] = (
        {"row": row, "host": part.host, "rank": part.rank}
        for part in found
        for row, digest in part.by_row().items()
        if row in rows and rows[row] != digest
    )
    return min(different, key=lambda differing: differing["row"], default=None)


def sequential(
    information: InformationPool,
    talk: Talk = unheard,
    limit: float | None = None,
    on_left: Callable[[float], object] = discard,
    folder: Path | None = None,
) -> Reference:
    """Run the application as one process on this machine and return its result.

    Parameters
    ----------
    folder
        Folder in which it saves its result; None: it does not save it.
    talk
        Receives progress lines of a long run.
    limit
        Time limit in seconds; the run is stopped as soon as its rate shows that it will exceed the limit.
    on_left
        Called each second with the estimated seconds left.

    Raises
    ------
    VerificationError
        The sequential run measured nothing.
    """
    alone = of_one(information)
    execution = _here(folder).actuate(launch_plan(_all_rows(alone), alone))
    return _told(execution, talk, limit, on_left)


def of_one(information: InformationPool) -> InformationPool:
    """Return the pool of the application on one host: this machine, with the speed of the slowest host."""
    slowest = max(speed.seconds_per_point[-1] for speed in information.speeds.values())
    able = next((h for h in information.hosts if information.implementation(h)), None)
    platform = able.platform if able else ""
    host = Host("sequential", seconds_per_point=slowest, platform=platform)
    return information.with_hosts(HostList((host,), Network()))


def on_two_ranks(information: InformationPool) -> tuple[Schedule | None, InformationPool]:
    """Return a schedule of two ranks on this machine, with one third and two thirds of the rows, and its pool.

    The schedule is None if a strip would have fewer rows than a rank sends in an exchange of borders.
    """
    alone = of_one(information)
    (host,) = alone.hosts
    pair = (replace(host, name="first"), replace(host, name="second"))
    pool = information.with_hosts(HostList(pair, Network()))
    rows, implementation = pool.application.rows, alone.implementation(host)
    few = rows // 3
    if few < max(1, pool.active_set.sweeps):
        return None, pool
    strips = zip(pair, (few, rows - few), strict=True)
    return Schedule(tuple(Allocation(one, own, implementation) for one, own in strips)), pool


def _here(folder: Path | None = None) -> Actuator:
    """Return the actuator of this machine; its runs save their results in `folder`, if given."""
    from apples.launch.actuators.local import LocalActuator  # noqa: PLC0415 - a plan needs no launcher

    return LocalActuator(folder, save=folder is not None)


@contextlib.contextmanager
def _result_folder(information: InformationPool) -> Iterator[Path | None]:
    """Yield a folder for the result of the reference run if the template names a function; else None."""
    if information.template.expected_result is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="apples-verify-") as folder:
        yield Path(folder)


def _all_rows(alone: InformationPool) -> Schedule:
    (host,) = alone.hosts
    return Schedule((Allocation(host, alone.application.rows, alone.implementation(host)),))


def _told(
    execution: Execution,
    talk: Talk,
    limit: float | None = None,
    on_left: Callable[[float], object] = discard,
) -> Reference:
    """Return the result of a run and report its progress; stop the run if it will exceed its time limit."""
    try:
        told, share = time.monotonic(), 0.0
        estimated = told
        for at in execution.monitor():
            _check_limit(at, limit)
            now, done = time.monotonic(), at.iteration / max(1, at.iterations)
            left = at.iteration_seconds * (at.iterations - at.iteration)
            if now - estimated >= LEFT_SECONDS:
                on_left(left)
                estimated = now
            felt = now - told >= ANNOUNCED_SECONDS
            if felt and (done - share >= TOLD_SHARE or now - told >= TOLD_SECONDS):
                talk(f"verifying: {done:.0%}, about {duration(left)} left")
                told, share = now, done
        outcome = execution.outcome()
    except BaseException:
        execution.cancel()
        raise
    if outcome is None:
        raise VerificationError("the sequential run measured nothing", code="result-unverified")
    return Reference(outcome.iterations, outcome.sha256, tuple(execution.row_digests))


def _check_limit(at: Progress, limit: float | None) -> None:
    """Raise if the rate of a run shows that it will exceed its time limit."""
    each = at.iteration_seconds
    if limit is not None and at.seconds > LOOKED_AT_SECONDS and each * at.iterations > limit:
        raise _TooLongError(each)
