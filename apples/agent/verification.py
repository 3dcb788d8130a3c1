"""Verification: a result against that of the same program run as one process, as far as a budget allows.

The whole run is done again as one process where that is short, either in itself or beside the run. Where it is
not, a *sample* is compared: the first iterations, run once more on the partition and the hosts of the run, and as
one process. A sample still fails where the result depends on the partition, a border is exchanged wrongly or a
host computes other numbers than this one; it says nothing of what happened in the run itself after them.

If the template names a function (`expected_result`), the result of that second run is compared with it, too.
Equal digests make that a comparison with the run itself.

A run of one rank is compared with two ranks of uneven strips instead: one process against one process would not
test the partition.
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
"""A check that is predicted to take longer is announced, and tells how far it is."""
FULL_SECONDS, SHORT_RUN_SECONDS, BUDGET_SHARE = 10.0, 30.0, 0.2
"""A check by budget takes the first at most after a run of at most the second; after a longer one the whole
command takes at most this share more than the program did."""
SAMPLE_SECONDS = 5.0
"""What a sample is made for: as many iterations as that allows."""
MAX_AROUND_SECONDS, DIGEST_RATE = 2.0, 100e6
"""What the start of a short run takes at most, and its end beside the bytes a second of its result."""
LOOKED_AT_SECONDS = 1.0
"""Of a run as one process, before its rate is believed."""
LEFT_SECONDS = 1.0
"""Between two estimates of the seconds that a check still takes."""
MIN_FUNCTION_SECONDS = 2.0
"""What a function of the template may take at least: its process starts meanwhile."""
TOLD_SHARE, TOLD_SECONDS = 0.1, 60.0
"""How far a check is, is told after such a share of it or so many seconds."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The result of the run that is compared with: iterations, digests of the result and of its rows, ranks."""

    iterations: int
    sha256: str
    rows: Sequence[RowDigests] = ()
    ranks: int = 1

    def check(self, iterations: int, sha256: str) -> bool | None:
        """Whether a parallel run ended at the same iteration with the same bytes; None without digests."""
        if not self.sha256 or not sha256:
            return None
        return (iterations, sha256) == (self.iterations, self.sha256)


@dataclass(frozen=True, slots=True)
class Verification:
    """Whether a result was found right, and how that was found.

    Attributes
    ----------
    asked
        ``auto``, ``full``, ``sample`` or ``none``.
    how
        ``full``, ``sample`` or ``none``.
    verified
        Whether what was compared is equal; None where nothing was.
    iterations
        How many were compared; 0 for none.
    predicted_seconds, seconds
        What the check was predicted to take, and took.
    reason
        Why nothing was compared, or why no more than a sample; empty where nothing is to be said.
    difference
        Where the results differ, as far as the program says digests of rows.
    sampled_on
        Where the partition of a sample was run: ``hosts`` or ``this machine``; empty without one.
    ranks, reference_ranks
        Of the two results that were compared; 0 where nothing was.
    comparison
        With the function that the template names; None where there is none, or the results differ already.
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
        """Return it as the key ``verification`` of ``apples.run/1``."""
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
    """What a check has to know of the run whose result it checks.

    Attributes
    ----------
    schedule
        What was planned.
    outcome, row_digests
        What the program said.
    own_seconds, end_seconds
        The program's own time (its start, its loop, its end), and of that the end, in which its result comes in.
    other_seconds
        What the command took beside it so far.
    sampler
        Returns the actuator that starts a sample on the hosts of the run and keeps no result; None where they
        would have to be waited for, so that the partition is run on this machine.
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
        """Return the number of ranks that were planned."""
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
    """A run as one process turns out to take longer than it may; `seconds` is what an iteration takes."""

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
    """Check the result of a run in the way that was asked for, or that its budget allows.

    A check that cannot be made takes nothing from the run: the answer says why there is none.

    Parameters
    ----------
    asked
        ``auto``, ``full`` or ``sample``.
    reference
        What the sequential run gave, where that is known already.
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
    """The check of one run; what it costs is predicted from what the run itself was measured to take."""

    asked: Asked
    run: FinishedRun
    information: InformationPool
    talk: Talk
    on_left: Callable[[float], object]
    folder: Path | None = None
    """Where the reference run leaves its result; None: it keeps none."""

    def made(self) -> Verification:
        """Return the verification: in full where that was asked for or is within the budget, else by a sample."""
        began = time.monotonic()
        application, outcome = self.information.application, self.run.outcome
        import psutil  # noqa: PLC0415 - a plan, which shares this module's values, needs none

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
        """Return the result to compare with, and for a run of one rank why it is of one rank too, if it is.

        It is of one process on this machine; if the run had one rank, of two with uneven strips, where the
        program can be run so.
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
        """Compare a result that was found equal with the function of the template, within the seconds left.

        If the function fails, the result is not verified; what the two runs showed is kept.
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
        """Return what a run takes beside its iterations: as this one did, but without a queue or a busy moment."""
        size = self.information.application.strip_memory(self.information.application.rows)
        start = min(self.run.outcome.startup_seconds, MAX_AROUND_SECONDS)
        return start + min(self.run.end_seconds, MAX_AROUND_SECONDS + size / DIGEST_RATE)

    def _alone_seconds(self) -> float:
        """Return what an iteration takes one process: the work of all ranks, else by the slowest host's speed.

        The work is wall time: whatever competed with the run will compete with its check.
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
        """Compare the first iterations, run again on the partition and as one process."""
        information, outcome = self.information, self.run.outcome
        name = information.template.iterations.text.strip()
        if name not in information.application.parameters:
            return Verification(
                reason=f"{why}; no sample can be run, for the template's iterations are '{name}' and no parameter"
            )
        within = SAMPLE_SECONDS
        if self.asked == "auto":  # as much again for what takes longer than predicted
            within = min(within, self.run.budget / 2)
        each = alone + (outcome.iteration_seconds if self.run.sampler else alone)
        once = 2 * self._around
        least = 2 * information.active_set.sweeps + 1  # so that what was exchanged is used
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
    """Return the first row that is not the right one; None where there are no digests of it, or no such row."""
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
    """Run the application as one process on this machine and return what it gave.

    Parameters
    ----------
    folder
        Where it saves its result; None: it saves none.
    talk
        Is told now and then how far it is, where it is long.
    limit
        Seconds; the run is given up when it is seen to take longer.
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
    """Return the pool of the application on one host, this machine, as fast as the slowest of its hosts."""
    slowest = max(speed.seconds_per_point[-1] for speed in information.speeds.values())
    able = next((h for h in information.hosts if information.implementation(h)), None)
    platform = able.platform if able else ""
    host = Host("sequential", seconds_per_point=slowest, platform=platform)
    return information.with_hosts(HostList((host,), Network()))


def on_two_ranks(information: InformationPool) -> tuple[Schedule | None, InformationPool]:
    """Return the application on two ranks of this machine, one third and two thirds of the rows, and its pool.

    The schedule is None where a strip would have fewer rows than a rank sends at an exchange of borders.
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
    """Return the actuator of this machine, whose runs save their results in a folder if there is one."""
    from apples.launch.actuators.local import LocalActuator  # noqa: PLC0415 - a plan needs no launcher

    return LocalActuator(folder, save=folder is not None)


@contextlib.contextmanager
def _result_folder(information: InformationPool) -> Iterator[Path | None]:
    """Yield a folder for the result of the reference run if the template names a function to compare it with."""
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
    """Return what a run gave, telling how far it is; end it where it is seen to take longer than its limit."""
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
    """Raise where a run is seen to take longer than it may."""
    each = at.iteration_seconds
    if limit is not None and at.seconds > LOOKED_AT_SECONDS and each * at.iterations > limit:
        raise _TooLongError(each)
