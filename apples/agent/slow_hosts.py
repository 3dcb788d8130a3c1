"""`SlowHostDetector`: find hosts of a running application that are twice as slow as planned, with the cause.

After each report the detector compares every host's seconds of an iteration with those of the plan. A plan that
is wrong for all hosts is not a slow host, so a host is compared with the other hosts' median too. The
comparison is a scan test on the logarithm of that ratio: a host is named if the mean of its last six to ten
reports passes a bound that falls with the square root of their number, and most of them agree. One long report
adds a bounded amount, so spikes name no host. `tests/agent/test_slow_hosts.py` simulates both error rates.

The module is pure: reports come in, findings go out; it measures nothing and has no clock.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean, median, median_high, median_low
from typing import TYPE_CHECKING, Literal, cast

from apples.ui.units import duration

if TYPE_CHECKING:
    from apples.agent.documents import SlowHostEntry
    from apples.launch.events import HostTimes, Progress
    from apples.resources.schedule import Estimate
    from apples.weather.conditions import Conditions

Cause = Literal["other load", "quota", "paging", "link", "own work", "stalls", "unknown"]

MIN_FACTOR = 1.55
"""Least mean factor of the reports at which a host is named; in few runs a host twice as slow is below it."""
NOISE_BOUND = 1.45
"""Bound of the log-ratio's mean, times the square root of the reports: 3.4 standard deviations of 30 % noise on
each of two hosts. A window is tested with each report, so that fewer deviations would name quiet hosts."""
MIN_REPORTS, MAX_REPORTS = 6, 10
"""Reports of a window. A majority of six is four, and spikes never make four reports long in a quiet run."""
MAJORITY_FACTOR = 1.28
"""Factor that the lower median of a window must reach: most reports agree, however long the longest are."""
MAX_STEP = 1.2
"""Log-ratio of one report at most, either way."""
WARM_UP_REPORTS = 2
"""Reports that are skipped at the start and after a change of hosts: caches are cold, code is compiled."""
BASELINE_REPORTS = 5
"""First reports after the warm-up; their median is the usual time of a host."""
MIN_COST_SHARE = 0.05
"""A host that lengthens an iteration by a smaller share is not named: a remedy would gain nothing."""
MIN_REPORT_SECONDS = 0.005
"""Reports with less computing are merged with the next: a timer tick is a large part of them."""
FAULTS_PER_SECOND = 20.0
"""Least rate of major page faults of a host that pages: a disk takes 0.1 to 10 ms for each."""
QUOTA_ERROR = 1.1
"""Tolerance factor of a quota: quota periods do not begin with reports, so a report may exceed it."""
EXPLAINED = 0.5
"""A cause explains a slow host if it accounts for this part of the time lost."""


@dataclass(frozen=True, slots=True)
class PlannedHost:
    """The times and the CPU share that a plan expects of one host in an iteration.

    Attributes
    ----------
    compute_seconds, border_seconds
        Seconds of computing and of exchanging borders.
    cpu_share
        Forecast share of a CPU, 0 to 1.
    quota
        Share of a CPU that a quota leaves one process; None: no quota is known.
    rows
        Its rows, or the height of its rectangle.
    """

    compute_seconds: float
    border_seconds: float = 0.0
    cpu_share: float = 1.0
    quota: float | None = None
    rows: int = 0

    @property
    def share(self) -> float:
        """Expected share of a CPU of a process, by the forecast and the quota."""
        return min(self.cpu_share, self.quota or 1.0)


@dataclass(frozen=True, slots=True)
class SlowHost:
    """A host that is, or was, at least about twice as slow as planned.

    Attributes
    ----------
    host
        Its name.
    since_iteration, until_iteration
        Iterations at which it became slow and at which it was as fast as planned again; None: it still is slow.
    factor
        Measured over expected seconds of an iteration.
    cause
        ``other load``: other processes had the CPU; ``quota``: a CPU quota stopped it; ``paging``: memory came
        from a disk; ``link``: its borders took longer, its computing did not; ``own work``: it needs more
        processor time for its rows; ``stalls``: it neither computed nor waited for a CPU; ``unknown``: the program
        does not report its processor time.
    iteration_cost_seconds
        Seconds that it adds to an iteration.
    costs_seconds
        Seconds lost from `since_iteration` to `until_iteration`, or to the end of the run at this pace.
    """

    host: str
    since_iteration: int
    factor: float
    cause: Cause
    iteration_cost_seconds: float
    costs_seconds: float
    until_iteration: int | None = None

    def document(self) -> SlowHostEntry:
        """Return the finding as an entry of ``execution.slow_hosts``."""
        return cast("SlowHostEntry", asdict(self))

    @property
    def text(self) -> str:
        """One line: host, factor, cause and cost."""
        return slow_host_text(self.document())

    @property
    def reason(self) -> str:
        """Reason to leave the host: its factor and the cause."""
        return f"{self.host} is {self.factor:.1f} times as slow as planned, {CAUSES[self.cause]}"


CAUSES: Mapping[str, str] = {
    "other load": "other load has its CPU",
    "quota": "a CPU quota stops it",
    "paging": "it pages",
    "link": "its borders take longer",
    "own work": "its rows take more processor time",
    "stalls": "it stands still without waiting for a CPU",
    "unknown": "the program does not report why",
}


def slow_host_text(document: SlowHostEntry) -> str:
    """Return an entry of ``execution.slow_hosts`` as one line.

    Examples
    --------
    >>> slow_host_text({"host": "bob", "since_iteration": 120, "until_iteration": None, "factor": 2.13,
    ...                 "cause": "other load", "iteration_cost_seconds": 0.011, "costs_seconds": 4.2})
    'slow host bob: 2.1 times as slow as planned since iteration 120: other load has its CPU; costs 11.0 ms an \
iteration, 4.20 s until the end'
    """
    until = document["until_iteration"]
    when = f"since iteration {document['since_iteration']}"
    end = "until the end"
    if until is not None:
        when, end = f"in iterations {document['since_iteration']} to {until}", "in all"
    verb = "costs" if until is None else "cost"
    return (
        f"slow host {document['host']}: {document['factor']:.1f} times as slow as planned {when}: "
        f"{CAUSES[document['cause']]}; {verb} {duration(document['iteration_cost_seconds'])} an iteration, "
        f"{duration(document['costs_seconds'])} {end}"
    )


def planned_hosts(estimate: Estimate, conditions: Conditions) -> dict[str, PlannedHost]:
    """Return the planned times and CPU share of each host, from an estimate made under these conditions."""
    planned = {}
    for host_estimate, allocation in zip(
        estimate.hosts, estimate.schedule.allocations, strict=True
    ):
        ours = host_estimate.threads or allocation.ranks
        quota = conditions.quota(host_estimate.host, ours)
        planned[host_estimate.host.name] = PlannedHost(
            host_estimate.compute_seconds,
            host_estimate.communicate_seconds,
            min(1.0, conditions.share(host_estimate.host, ours)),
            quota[0] if quota else None,
            int(allocation.height),
        )
    return planned


@dataclass(frozen=True, slots=True)
class _Report:
    """Mean seconds of one host in an iteration between two reports; None: the program does not report them."""

    iteration: int
    iterations: int
    seconds: float
    compute: float
    border: float | None
    processor: float | None
    cpu_wait: float | None
    throttled: float
    faults: float

    @classmethod
    def between(cls, before: Progress, after: Progress, host: str) -> _Report:
        """Return the mean over the iterations between two progress messages that both have the host."""
        old, new = _times(before, host), _times(after, host)
        done = after.iteration - before.iteration

        def per_iteration(late: float | None, early: float | None) -> float | None:
            return None if late is None else max(0.0, late - (early or 0.0)) / done

        border = None
        if new.wait_seconds is not None:  # otherwise the border includes waits for late neighbours
            border = per_iteration(new.communicate_seconds, old.communicate_seconds)
        return cls(
            before.iteration,
            done,
            (after.steady_seconds - before.steady_seconds) / done,
            per_iteration(new.steady_compute_seconds, old.steady_compute_seconds) or 0.0,
            border,
            per_iteration(new.steady_processor_seconds, old.steady_processor_seconds),
            per_iteration(new.cpu_wait_seconds, old.cpu_wait_seconds),
            per_iteration(new.throttled_seconds or 0.0, old.throttled_seconds) or 0.0,
            per_iteration(float(new.major_faults or 0), float(old.major_faults or 0)) or 0.0,
        )


def _times(progress: Progress, host: str) -> HostTimes:
    return next(times for times in progress.hosts if times.host == host)


@dataclass
class _Track:
    """Reports and finding of one host."""

    planned: PlannedHost
    quiet: deque[_Report] = field(default_factory=lambda: deque(maxlen=BASELINE_REPORTS))
    recent: deque[tuple[_Report, float]] = field(default_factory=lambda: deque(maxlen=MAX_REPORTS))
    """Reports with the log of measured over expected seconds."""
    finding: SlowHost | None = None

    @property
    def usual_ratio(self) -> float:
        """Measured over planned computing in the quiet beginning, at most 1: then the plan is the reference."""
        if len(self.quiet) < BASELINE_REPORTS:
            return 1.0
        usual = median(report.compute for report in self.quiet) / self.planned.compute_seconds
        return min(1.0, usual)

    @property
    def usual_border(self) -> float:
        """Seconds of the border: the larger of those planned and those in the quiet beginning."""
        known = [report.border for report in self.quiet if report.border is not None]
        return max(self.planned.border_seconds, median(known) if known else 0.0)


class SlowHostDetector:
    """Names slow hosts from the reports of a running application.

    Parameters
    ----------
    planned
        The planned times of each host; other hosts are not tested.

    Attributes
    ----------
    findings
        Every slow host up to now, in the order in which they became slow.

    Examples
    --------
    >>> from apples.launch.events import HostTimes, Progress
    >>> watch = SlowHostDetector({"ada": PlannedHost(0.1), "bob": PlannedHost(0.1)})
    >>> for k in range(1, 40):
    ...     slow = max(0, k - 20)  # bob takes twice as long from iteration 20 on
    ...     times = [HostTimes("ada", 0.1 * k, 0.0), HostTimes("bob", 0.1 * (k + slow), 0.0)]
    ...     for slow_host in watch.observe(Progress(k, 100, 0.1 * (k + slow), tuple(times))):
    ...         print(slow_host.host, k, f"{slow_host.factor:.1f}", slow_host.cause)
    bob 26 2.0 unknown
    """

    def __init__(self, planned: Mapping[str, PlannedHost]) -> None:
        self._past: list[SlowHost] = []
        self._tracks: dict[str, _Track] = {}
        self._last: Progress | None = None
        self._skip = WARM_UP_REPORTS
        self.replan(planned)

    @property
    def findings(self) -> tuple[SlowHost, ...]:
        """Return every finding with its newest figures."""
        current = [track.finding for track in self._tracks.values() if track.finding is not None]
        return tuple(sorted([*self._past, *current], key=lambda finding: finding.since_iteration))

    @property
    def slow_now(self) -> tuple[SlowHost, ...]:
        """Return the hosts that are slow at this moment."""
        return tuple(slow_host for slow_host in self.findings if slow_host.until_iteration is None)

    def replan(self, planned: Mapping[str, PlannedHost]) -> None:
        """Compare with another plan from now on, after a move of the application."""
        at = self._last.iteration if self._last else 0
        for track in self._tracks.values():
            if track.finding is not None:
                self._past.append(_ended(track.finding, at))
        self._tracks = {
            host: _Track(expected)
            for host, expected in planned.items()
            if expected.compute_seconds > 0
        }
        self._last, self._skip = None, WARM_UP_REPORTS

    def rescale(self, rows: Mapping[str, int]) -> None:
        """Scale the planned times to the rows after a change; a host that the plan did not have is not tested."""
        known = {host: track.planned for host, track in self._tracks.items()}
        if all(rows.get(host) == expected.rows for host, expected in known.items()):
            return
        self.replan(
            {
                host: replace(
                    known[host],
                    compute_seconds=known[host].compute_seconds * count / known[host].rows,
                    rows=count,
                )
                for host, count in rows.items()
                if host in known and known[host].rows > 0
            }
        )

    def ended(self, iterations: int) -> tuple[SlowHost, ...]:
        """Return every finding on a run that ended after `iterations` iterations."""
        return tuple(
            finding
            if finding.until_iteration is not None
            else replace(
                finding,
                costs_seconds=finding.iteration_cost_seconds
                * max(0, iterations - finding.since_iteration),
            )
            for finding in self.findings
        )

    def observe(self, progress: Progress) -> tuple[SlowHost, ...]:
        """Add a report; return the hosts that it reveals as slow for the first time."""
        before = self._last
        if before is None or _restarted(before, progress):
            self._last = progress
            return ()
        if progress.iteration <= before.iteration:
            return ()
        if self._skip > 0:
            self._skip -= 1
            self._last = progress
            return ()
        hosts = {times.host for times in progress.hosts} & {times.host for times in before.hosts}
        reports = {
            host: _Report.between(before, progress, host) for host in self._tracks if host in hosts
        }
        longest = max(
            (report.compute * report.iterations for report in reports.values()), default=0.0
        )
        if longest < MIN_REPORT_SECONDS:
            return ()  # it is merged with the next
        self._last = progress
        return tuple(self._judge(reports, progress))

    def _judge(self, reports: Mapping[str, _Report], progress: Progress) -> Iterator[SlowHost]:
        tracks = self._tracks
        ratios = {
            host: report.compute / tracks[host].planned.compute_seconds
            for host, report in reports.items()
        }
        growths = {
            host: report.border / tracks[host].usual_border
            for host, report in reports.items()
            if report.border is not None and tracks[host].usual_border > 0
        }
        usual: dict[str, float] = {}  # capped: a host faster than expected delays no other
        for host, report in reports.items():
            track = tracks[host]
            others = [ratio for other, ratio in ratios.items() if other != host]
            compute = track.planned.compute_seconds * _usual_ratio(track, others, ratios[host])
            border = 0.0
            if report.border is not None:
                border = track.usual_border * _usual_growth(growths, host)
            taken = report.compute + (report.border or 0.0)
            usual[host] = min(compute + border, taken)
            step = math.log(max(taken, 1e-12) / max(compute + border, 1e-12))
            track.recent.append((report, step))
            if len(track.quiet) < BASELINE_REPORTS and track.finding is None:
                track.quiet.append(report)
        for host in reports:
            track = tracks[host]
            if track.finding is not None:
                self._update(track, usual, progress)
            elif (
                since := _slow_since([(report.iteration, step) for report, step in track.recent])
            ) is not None:
                track.finding = self._finding(host, since, usual, progress)
                if track.finding is not None:
                    yield track.finding

    def _finding(
        self, host: str, since: int, usual: Mapping[str, float], progress: Progress
    ) -> SlowHost | None:
        """Return the finding on a host from its reports since it became slow; None if it costs nothing."""
        track = self._tracks[host]
        own_reports = [entry for entry in track.recent if entry[0].iteration >= since]
        factor = math.exp(median(step for _, step in own_reports))
        taken = median(report.compute + (report.border or 0.0) for report, _ in own_reports)
        others = [seconds for other, seconds in usual.items() if other != host]
        cost = taken - max([taken / factor, *others])
        if cost < MIN_COST_SHARE * median(report.seconds for report, _ in own_reports):
            return None
        return SlowHost(
            host,
            since,
            factor,
            _cause(track, since, [report for report, _ in own_reports]),
            cost,
            cost * max(0, progress.iterations - since),
        )

    def _update(self, track: _Track, usual: Mapping[str, float], progress: Progress) -> None:
        """Update the figures of a slow host, or record the iteration at which it was as fast as planned again."""
        finding = track.finding
        if finding is None:
            return
        latest = [*track.recent][-MIN_REPORTS:]
        steps = [step for _, step in latest]
        if median_high(steps) < math.log(MAJORITY_FACTOR):
            self._past.append(_ended(finding, latest[0][0].iteration))
            track.finding = None
            track.recent.clear()
        elif min(steps) >= math.log(MAJORITY_FACTOR):
            new = self._finding(finding.host, finding.since_iteration, usual, progress)
            track.finding = new or finding


def _usual_ratio(track: _Track, others: Sequence[float], own: float) -> float:
    """Return the present usual ratio of measured to planned computing.

    Parameters
    ----------
    others, own
        Ratios of the other hosts, and of this one, in this report.
    """
    if others:
        return max(track.usual_ratio, median(others))
    # A single host has no others to compare with. Its processor time shows the plan's error; without processor
    # time, its time in the beginning is the usual time.
    used = [report.processor for report in track.quiet if report.processor is not None]
    if used:
        dedicated = track.planned.compute_seconds * track.planned.share
        return max(track.usual_ratio, median(used) / dedicated)
    if not track.quiet:
        return own
    return median(report.compute for report in track.quiet) / track.planned.compute_seconds


def _standstill(planned: PlannedHost, reports: Sequence[_Report]) -> Cause:
    """Return why a computing host lacks a CPU, if the kernel's counters show neither quota nor other load."""
    compute = _mean(reports, "compute")
    if _mean(reports, "faults") >= FAULTS_PER_SECOND * compute:
        return "paging"
    if all(report.cpu_wait is not None for report in reports):
        return "stalls"
    bound = QUOTA_ERROR * (planned.quota or 0.0) * compute
    return "quota" if _mean(reports, "processor") <= bound else "other load"


def _usual_growth(growths: Mapping[str, float], host: str) -> float:
    """Return the growth of the other hosts' borders over their usual time; 1 for two hosts (one border)."""
    others = [growth for other, growth in growths.items() if other != host]
    return max(1.0, median(others)) if len(others) > 1 else 1.0


def _cause(track: _Track, since: int, reports: Sequence[_Report]) -> Cause:
    """Return the cause of most of the time that a host loses.

    A host loses time in the exchange of borders, through more processor time (own work), or while it lacks a
    CPU; the kernel's counters separate these causes. The reference is the reports before `since`, or else the
    plan.
    """
    planned = track.planned
    quiet = [report for report in track.quiet if report.iteration < since]
    compute, used = _mean(reports, "compute"), max(_mean(reports, "processor"), 1e-12)
    usual = _mean(quiet, "compute") if quiet else planned.compute_seconds
    usual_used = _mean(quiet, "processor") or usual * planned.share
    idle = _mean(quiet, "cpu_wait") if quiet else max(0.0, usual - usual_used)
    longer_border = _mean(reports, "border") - track.usual_border
    if longer_border > max(0.0, compute - usual):  # a host that lacks a CPU exchanges late as well
        return _stopped(reports, quiet, longer_border, idle) or "link"
    if any(report.processor is None for report in reports):
        return "unknown"
    if used / usual_used >= (usual_used / usual) / (used / compute):
        return "own work"
    lost = (compute - used) - max(0.0, usual - usual_used)
    return _stopped(reports, quiet, lost, idle) or _standstill(planned, reports)


def _stopped(
    reports: Sequence[_Report], quiet: Sequence[_Report], lost: float, idle: float
) -> Literal["quota", "other load"] | None:
    """Return the cause of seconds lost in an iteration by the kernel's counters: a quota or other load, else None.

    Parameters
    ----------
    idle
        Usual seconds without a CPU.
    """
    if _mean(reports, "throttled") - _mean(quiet, "throttled") >= EXPLAINED * lost:
        return "quota"
    waited = _mean(reports, "cpu_wait") - idle
    return "other load" if waited >= EXPLAINED * lost else None


def _mean(reports: Sequence[_Report], name: str) -> float:
    """Return the mean of a field; 0 without values."""
    values = [getattr(report, name) or 0.0 for report in reports]
    return fmean(values) if values else 0.0


def _slow_since(steps: Sequence[tuple[int, float]]) -> int | None:
    """Return the iteration at which a host became slow, by the log-ratios of its reports; None: it is not slow."""
    steps = [(at, min(MAX_STEP, max(-MAX_STEP, step))) for at, step in steps]
    agreeing, best, since = math.log(MAJORITY_FACTOR), 0.0, None
    for count in range(MIN_REPORTS, len(steps) + 1):
        window = steps[-count:]
        mean = fmean(step for _, step in window)
        bound = max(math.log(MIN_FACTOR), NOISE_BOUND / math.sqrt(count))
        agreed = median_low(step for _, step in window) >= agreeing
        if mean >= bound and agreed and mean * math.sqrt(count) > best:
            best = mean * math.sqrt(count)
            since = next(at for at, step in window if step >= agreeing)
    return since


def _ended(finding: SlowHost, at: int) -> SlowHost:
    """Return the finding on a host that recovered at iteration `at`."""
    at = max(at, finding.since_iteration)
    cost = finding.iteration_cost_seconds * (at - finding.since_iteration)
    return replace(finding, until_iteration=at, costs_seconds=cost)


def _restarted(before: Progress, now: Progress) -> bool:
    """Return whether the hosts changed, or the times count from zero again."""
    if [times.host for times in before.hosts] != [times.host for times in now.hosts]:
        return True
    return any(
        b.compute_seconds > a.compute_seconds for b, a in zip(before.hosts, now.hosts, strict=True)
    )
