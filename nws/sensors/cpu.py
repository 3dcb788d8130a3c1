"""The share of the CPUs that processes get: from the scheduler's groups, corrected by a short probe."""

import logging
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from nws.errors import InputError
from nws.measurement import (
    AVAILABLE_CPU,
    COMPETITORS,
    CPU_QUOTA,
    CROWDING,
    CURRENT_CPU,
    QUOTA_PERIOD,
    SPARE_CPUS,
    Measurement,
    SeriesName,
)
from nws.sensor import Sensor, SensorError
from nws.sensors.cgroups import allowed_cpus
from nws.sensors.cpu_probe import probe_share
from nws.sensors.cpu_share import competitors_for, current_share
from nws.sensors.fair_share import Runnable, SchedulingGroup, fair_shares, loads_of
from nws.sensors.linux import CpuTimes, online_cpus, parse_cpu_times
from nws.sensors.run_queue import NEW_SESSION, RunQueueReader, RunQueueSample, averaged

ROOT = Path("/")
MIN_SHARE = 0.001
"""Lower bound of a corrected share: a process with a share of 0 has no execution time."""
PROBE_ERROR = 0.025
"""Error of a probe of .1 s, which covers a few of the scheduler's slices."""
MIN_TICKS = 50
"""Clock ticks of CPU time needed to measure stolen time: one tick of 50 is 2 % already."""
MAX_THREADS = 2000
"""Threads that a measurement divides the CPUs among: the heaviest of them."""
OTHER_LOAD = 0.2
"""A probe is valid until the run queue's share differs by this fraction from the share when it was made."""
BETWEEN_LOADS = 5.0
"""Minimum interval of probes when the load changes, so that an oscillating load is not probed at each change."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProbeCorrection:
    """The difference between the probes and the run queue.

    Attributes
    ----------
    bias
        The smoothed difference of the probes and the run queue, added to the share of a CPU.
    time
        Time of the last probe, in seconds since the epoch.
    share
        The run queue's share at the time of the last probe; None: unknown, so the bias holds under any load.
    """

    bias: float
    time: float
    share: float | None = None


class CpuSensor(Sensor):
    """Measures the share that one process gets of some CPUs, and that several get: the series of `RESOURCES`.

    The share of a new process follows from the kernel's fair scheduler: it divides the CPUs among the threads
    that want to run, by the weights of their groups (`nws.sensors.fair_share`). The run queue changes within
    milliseconds, so it is read several times and averaged. The groups do not show everything, for example two
    threads on one core, or hidden processes. So a probe spins for a moment from time to time and measures the
    true share; the smoothed difference is added to later measurements. The difference is valid for one load: when
    competitors come or leave, the sensor drops it and probes at once. Time that the hypervisor steals is
    subtracted. A launcher would start a process in a session of its own and in the control group of this
    process; so is the probe. The idle fraction is not used: on a CPU that is 100 % busy a new process gets half.

    Source: Wolski, Spring, Hayes 1999, "Predicting the CPU availability of time-shared Unix
    systems on the computational grid". Its hybrid sensor makes a probe of 1.5 s a minute; this one of .1 s.

    Parameters
    ----------
    host
        The name of the host.
    cpus
        The CPUs; None for all that this process may use.
    probe
        Called with the CPUs, returns the measured share of one CPU; None: no probes.
    probe_every
        Seconds from one probe to the next. The first measurement probes.
    probes
        Number of probes of the first correction, and of the first after a change of load; their median counts. A
        probe that agrees with the run queue ends them.
    gain
        The weight of the newest probe in the smoothed correction, in (0, 1].
    readings, spacing
        Number of samples of the run queue in a measurement, and the seconds between them.
    look
        Returns a sample of the run queue; None: of this machine.
    shares_samples_of
        A sensor of other CPUs of this machine that measures right before this one: its samples are used.
    correction
        Of an earlier sensor of the same CPUs: its probe counts as the first of this sensor.
    clock, sleep
        Return the seconds since the epoch; wait some seconds.
    root
        The root of the tree in which /proc and /sys are read.

    Raises
    ------
    SensorError
        Permanent: a CPU is off, or the cpuset does not allow it.
    ValueError
        `cpus` is empty.
    """

    def __init__(
        self,
        host: str,
        cpus: Collection[int] | None = None,
        *,
        probe: Callable[[frozenset[int]], float] | None = probe_share,
        probe_every: float = 60.0,
        probes: int = 1,
        gain: float = 0.3,
        readings: int = 8,
        spacing: float = 0.02,
        look: Callable[[], RunQueueSample] | None = None,
        shares_samples_of: "CpuSensor | None" = None,
        correction: ProbeCorrection | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        root: Path = ROOT,
    ) -> None:
        self.cpus = _usable(cpus, root)
        self._series = tuple(SeriesName(resource, host) for resource in RESOURCES)
        self._probe = probe
        self._probe_every = self._probe_after = probe_every
        self._probes = probes
        self._gain = gain
        self._readings = readings
        self._spacing = spacing
        self._reader = RunQueueReader(root)
        self._look = look or self._reader.look
        self._shares_samples_of = shares_samples_of
        self._samples: Sequence[RunQueueSample] = ()
        self._clock = clock
        self._sleep = sleep
        self._root = root
        self._probed = correction.time if correction else None
        self._bias = correction.bias if correction else None
        self._probed_share = correction.share if correction else None
        self._times: CpuTimes | None = None
        self._last_stolen = 0.0
        self.remarks: tuple[str, ...] = ()

    @property
    def series(self) -> tuple[SeriesName, ...]:
        """The series of `RESOURCES` of the host."""
        return self._series

    @property
    def bias(self) -> float:
        """The smoothed difference of the probes and the run queue; 0 before the first probe."""
        return self._bias or 0.0

    @property
    def correction(self) -> ProbeCorrection | None:
        """The bias with the time of its last probe; None before the first."""
        if self._bias is None or self._probed is None:
            return None
        return ProbeCorrection(self._bias, self._probed, self._probed_share)

    def measure(self) -> tuple[Measurement, ...]:
        """Sample the run queue, probe if a probe is due, and correct the shares.

        After it `remarks` lists the unreadable parts, a line each.

        Raises
        ------
        SensorError
            Permanent: /proc is missing or not as on Linux. A failed probe is logged and the
            correction stays as it was.
        """
        self._samples = ()
        try:
            online = online_cpus(self._root) | self.cpus
            self._samples = looks = self._sample()
            ours = self._reader.own_class()
            left = 1 - self._stolen()
        except (OSError, ValueError, LookupError) as error:
            raise SensorError(
                f"the run queue cannot be read: {error}",
                transient=False,
                code="system-unreadable",
                reason=str(error),
            ) from error
        self.remarks = tuple(self._remarks(looks))
        threads = averaged(looks, online, MAX_THREADS)
        division = CpuDivision.of(threads, ours, self.cpus, online)
        limit = min(1.0, division.quota)
        queued = min(limit, max(left * division.share, MIN_SHARE))
        at_once = _share_at_once(threads, replace(ours, allowed=self.cpus), online)
        self._correct(queued, min(limit, left * at_once))
        available = min(max(queued + self.bias, MIN_SHARE), limit)
        others = self._corrected(division.competitors, queued, available)
        current = min(limit, max(available, current_share(others, len(self.cpus))))
        values = (
            *(available, current, others),
            *(division.contention_slope, division.spare, division.quota, division.period),
        )
        now = self._clock()
        return tuple(
            Measurement(series, now, value)
            for series, value in zip(self._series, values, strict=True)
        )

    def _sample(self) -> Sequence[RunQueueSample]:
        if self._shares_samples_of is not None:
            if not self._shares_samples_of._samples:
                raise LookupError("the sensor that shares its samples failed")
            return self._shares_samples_of._samples
        looks = [self._look()]
        for _ in range(self._readings - 1):
            self._sleep(self._spacing)
            looks.append(self._look())
        return looks

    def _remarks(self, looks: Sequence[RunQueueSample]) -> Iterator[str]:
        """Yield the unreadable parts of the run queue, which only the probe measures."""
        by = "only the probe counts them" if self._probe else "nothing counts them"
        unseen = min(look.unseen for look in looks)
        if unseen:
            why = self._reader.hides_processes() or "hidden from this one, or too many to look at"
            yield f"{unseen} of the processes that want to run are not seen ({why}): {by}"
        unread = min(look.unread for look in looks)
        if unread:
            yield f"the scheduling groups of {unread} processes cannot be read: {by}"

    def _stolen(self) -> float:
        """Return the share of the CPUs' time that other guests had since an earlier measurement.

        That measurement is at least `MIN_TICKS` old; until then the previous share is returned.
        """
        try:
            text = (self._root / "proc/stat").read_text()
        except OSError:
            return 0.0
        times, before = parse_cpu_times(text, self.cpus), self._times
        if before is None or not 0 <= times.total - before.total < MIN_TICKS:
            self._last_stolen = 0.0 if before is None else times.stolen_since(before)
            self._times = times
        return self._last_stolen

    def _correct(self, queued: float, at_once: float) -> None:
        """Probe if a probe is due, and add the difference that the model does not explain to the bias.

        A probe ends before the kernel has moved other threads away from it. So the model explains each share
        between `at_once`, before they move, and `queued`, after they have moved.
        """
        if self._probe is None:
            return
        now = self._clock()
        if self._probed_share is not None and _is_other_load(self._probed_share, queued):
            self._bias = self._probed_share = None
            self._probe_after = min(self._probe_every, BETWEEN_LOADS)
        if self._probed is not None and 0 <= now - self._probed < self._probe_after:
            return
        self._probed, self._probe_after = now, self._probe_every
        differences: list[float] = []
        for _ in range(self._probes if self._bias is None else 1):
            try:
                share = self._probe(self.cpus)
            except SensorError as error:
                _log.warning("%s is measured without a new probe: %s", self._series[0], error)
                break
            explained = min(max(share, min(queued, at_once)), max(queued, at_once))
            found = share - explained
            differences.append(found if abs(found) >= PROBE_ERROR else 0.0)
            if differences == [0.0]:
                break
        if differences:
            difference = median(differences)
            known = difference if self._bias is None else self._bias
            self._bias = known + self._gain * (difference - known)
            self._probed_share = queued

    def _corrected(self, counted: float, queued: float, available: float) -> float:
        """Return the counted competitors, corrected as the share was."""
        cpus = len(self.cpus)
        moved = competitors_for(available, cpus) - competitors_for(queued, cpus)
        return max(0.0, counted + moved)


RESOURCES = (
    *(AVAILABLE_CPU, CURRENT_CPU, COMPETITORS),
    *(CROWDING, SPARE_CPUS, CPU_QUOTA, QUOTA_PERIOD),
)
NO_GROWTH = 1e-6
# The number of idle CPUs is the wrong place: the weight of one group is shared from the second
# rank on, however many CPUs are idle. Two such places improved the forecast by 0.1 % at most.
PARTLY = 2 / 3
"""Fraction of the other CPUs at which the division is computed once more, to find its kink."""


@dataclass(frozen=True, slots=True)
class CpuDivision:
    """The division of some CPUs among the threads that want them and new processes of ours.

    Attributes
    ----------
    share
        Share of a CPU that one new process gets.
    competitors
        Number of equal processes that take as much as the others do, if one of ours runs on each CPU
        (`nws.available_share`).
    contention_slope
        Growth of `competitors` with each further process of ours on other CPUs of the machine, beyond `spare`:
        they share the weight of one group, or competitors are moved away from them.
    spare
        Number of other CPUs that processes of ours may take before that growth: competitors that may move
        come here only when no other CPU is idle. 0 without other CPUs.
    quota
        CPU seconds per second that all of ours may use together.
    period
        Seconds in which the tightest quota is given out anew; 0 without a quota.
    """

    share: float
    competitors: float
    contention_slope: float
    spare: float
    quota: float
    period: float

    @classmethod
    def of(
        cls,
        threads: Collection[Runnable],
        ours: Runnable,
        cpus: frozenset[int],
        online: frozenset[int],
    ) -> "CpuDivision":
        """Return the division of `cpus` when processes like `ours` are started on them.

        Parameters
        ----------
        threads
            The other threads that want to run.
        online
            The CPUs of the machine.
        """
        quota, period = _quota_left(threads, ours, online)
        above = {group.name for group in ours.groups}
        others = [_without_quotas(thread, above) for thread in threads]
        ours = _without_quotas(ours, above)

        def division(places: Collection[frozenset[int]], busy: float = 0.0) -> list[float]:
            others_of_ours = elsewhere if busy else []
            new = [
                replace(
                    _of_its_own(ours, k), allowed=where, active=busy if k >= len(places) else 1.0
                )
                for k, where in enumerate([*places, *others_of_ours])
            ]
            return fair_shares([*others, *new], online)[len(others) :][: len(places)]

        count = len(cpus)
        here = [frozenset({cpu}) for cpu in cpus]
        apart = [frozenset({cpu}) for cpu in online - cpus]
        elsewhere = apart or here
        share = division([cpus])[0]
        alone = share if count == 1 else sum(division(here)) / count
        # The inverse of available_share(competitors, count, count); below, with `busy` more elsewhere.
        competitors = count / alone - count

        def growth(busy: float) -> float:
            crowd = sum(division(here, busy)) / count
            return count / crowd - count - (0 if apart else count) - competitors

        slope, spare = _slope_and_kink(growth, len(elsewhere), bool(apart))
        return cls(share, competitors, slope, spare, quota, period)


def _slope_and_kink(
    growth: Callable[[float], float], places: int, may_turn: bool
) -> tuple[float, float]:
    """Return the slope of the growth with the number of busy places, and the number below which it is 0.

    The line meets the growth with all places busy, and with the fraction `PARTLY` of them.
    """
    most = max(0.0, growth(1.0))
    if not may_turn:
        return most / places, 0.0
    if most <= NO_GROWTH:
        return 0.0, float(places)
    reached = min(PARTLY, max(0.0, growth(PARTLY) / most))
    spare = places * (PARTLY - reached) / (1.0 - reached)
    return most / (places - spare), spare


def _share_at_once(threads: Sequence[Runnable], ours: Runnable, online: frozenset[int]) -> float:
    """Return the share of a new process before the kernel has moved other threads away from it.

    It shares the CPU with the threads there now, and with the heaviest thread that may come: the kernel
    notices the new process only when that thread has come.
    """
    unmoved = [thread.where_it_was() for thread in threads]
    loads = loads_of(threads)
    may_come = [
        i for i, one in enumerate(threads) if len(one.allowed) > 1 and one.allowed & ours.allowed
    ]
    if may_come:
        heaviest = max(may_come, key=lambda i: loads[i])
        there = threads[heaviest].allowed & ours.allowed
        unmoved[heaviest] = replace(threads[heaviest], allowed=there)
    return fair_shares([*unmoved, ours], online)[-1]


def _is_other_load(before: float, now: float) -> bool:
    """Return whether the run queue's share changed by more than `OTHER_LOAD`: competitors came or left.

    Examples
    --------
    >>> _is_other_load(1.0, 0.5), _is_other_load(0.33, 0.5), _is_other_load(1.0, 0.9)
    (True, True, False)
    """
    return abs(now - before) > OTHER_LOAD * max(now, before)


def _of_its_own(ours: Runnable, number: int) -> Runnable:
    """Return one of several processes of ours; if each has a session of its own, in another group."""
    if len(ours.groups) == 1 and ours.groups[0].name == NEW_SESSION:
        return replace(ours, groups=(SchedulingGroup(f"{NEW_SESSION} {number}"),))
    return ours


def _without_quotas(thread: Runnable, names: Collection[str]) -> Runnable:
    if not any(group.quota is not None and group.name in names for group in thread.groups):
        return thread
    free = (
        replace(group, quota=None) if group.name in names else group for group in thread.groups
    )
    return replace(thread, groups=tuple(free))


def _quota_left(
    threads: Collection[Runnable], ours: Runnable, online: frozenset[int]
) -> tuple[float, float]:
    """Return the CPU time that the quotas above us leave to ours, one on each CPU, and the quota's period."""
    left, period = float(len(online)), 0.0
    limits = [group for group in ours.groups if group.quota is not None]
    if not limits:
        return left, period
    others = list(threads)
    shares = fair_shares(
        [*others, *(replace(ours, allowed=frozenset({cpu})) for cpu in online)], online
    )
    for limit in limits:
        used = sum(
            share
            for thread, share in zip(others, shares, strict=False)
            if any(group.name == limit.name for group in thread.groups)
        )
        given = max(MIN_SHARE, (limit.quota or 0.0) - used)
        if given < left:
            left, period = given, limit.period
    return left, period


def _usable(cpus: Collection[int] | None, root: Path) -> frozenset[int]:
    if cpus is None:
        return frozenset(os.sched_getaffinity(0))
    wanted = frozenset(cpus)
    if not wanted:
        raise InputError("cpus: must name at least one CPU", code="value-range", field="cpus")
    try:
        usable = allowed_cpus(root) or online_cpus(root)
    except (OSError, ValueError) as error:
        raise SensorError(
            f"the CPUs cannot be read: {error}",
            transient=False,
            code="system-unreadable",
            reason=str(error),
        ) from error
    if not wanted <= usable:
        raise SensorError(
            f"CPUs {sorted(wanted - usable)} cannot be used, only {sorted(usable)}",
            transient=False,
            code="cpu-not-allowed",
            value=sorted(wanted - usable),
            known=sorted(usable),
        )
    return wanted
