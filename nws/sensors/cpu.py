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
from nws.sensors.cpu_probe import probe_share
from nws.sensors.cpu_share import competitors_for, current_share
from nws.sensors.fair_share import Runnable, SchedulingGroup, fair_shares, loads_of
from nws.sensors.linux import CpuTimes, allowed_cpus, online_cpus, parse_cpu_times
from nws.sensors.run_queue import NEW_SESSION, RunQueueLook, RunQueueReader, averaged

ROOT = Path("/")
LEAST_SHARE = 0.001
"""No correction goes below this: a process that gets nothing at all has no execution time."""
PROBE_ERROR = 0.025
"""A probe of a tenth of a second is no more exact: a few of the scheduler's slices."""
LEAST_TICKS = 50
"""CPU time of fewer clock ticks does not tell what was stolen: one tick of 50 is 2 % already."""
MOST_THREADS = 2000
"""Threads that a measurement divides the CPUs among: the heaviest of them."""
OTHER_LOAD = 0.2
"""A probe holds until the run queue's share differs by this part from the share at the time of the probe."""
BETWEEN_LOADS = 5.0
"""Seconds between two probes at least where the load changes: a load that flaps is not probed at each change."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProbeCorrection:
    """What probes found that the run queue does not tell of.

    Attributes
    ----------
    bias
        The smoothed difference of the probes and the run queue, added to the share of a CPU.
    time
        When the last probe was, seconds since the epoch.
    share
        The run queue's share at the time of the last probe; None: not known, so the bias holds under any load.
    """

    bias: float
    time: float
    share: float | None = None


class CpuSensor(Sensor):
    """Measures what a process gets of some CPUs, and what several get: the series of `RESOURCES`.

    A new process gets what the kernel's fair scheduler will give it among the threads that want to run,
    each with the weight of its groups (`nws.sensors.fair_share`). Who they are is read several times, for
    it changes within milliseconds, and averaged. What the groups cannot tell (two threads on one core,
    processes that are hidden from this one) a probe does: now and then it spins for a moment and gets the
    true share, and the difference, smoothed, is added from then on. It holds for one load: when
    competitors come or leave, it is forgotten, and the sensor probes at once. Time that the hypervisor steals is
    taken off. The probe is started as launchers start the processes of a program, in a session of its own
    and in the control group that this process is in. The idle fraction is no estimate of any of this: a new
    process gets half of a CPU that another keeps 100 % busy.

    Sources: Wolski, Spring, Hayes 1999, "Predicting the CPU availability of time-shared Unix
    systems on the computational grid", whose hybrid sensor takes a 1.5 s probe a minute; ours
    takes 0.1 s.

    Parameters
    ----------
    host
        The name of the host these CPUs stand for.
    cpus
        The CPUs; None for all that this process may use.
    probe
        Given the CPUs, returns the share of one of them that it got; None never to probe.
    probe_every
        Seconds from one probe to the next. The first measurement probes.
    probes
        How many probes make the first correction, and the first of another load, by their median; a probe that
        agrees with the run queue is enough.
    gain
        The weight of the newest probe in the smoothed correction, in (0, 1].
    readings, spacing
        How many looks at the run queues make a measurement, and the seconds between them.
    look
        Returns who wants to run now; None: the machine's own.
    beside
        A sensor of other CPUs of this machine that measures right before this one: its looks are taken.
    correction
        Of a sensor of the same CPUs before this one: its probe counts as this one's first.
    clock, sleep
        Seconds since the epoch, and how to let some pass.
    root
        The root of the tree in which /proc and /sys are read.

    Raises
    ------
    SensorError
        Permanent: `cpus` holds one that is off or that the cpuset does not allow.
    ValueError
        No CPUs, no readings, or a gain out of range.
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
        look: Callable[[], RunQueueLook] | None = None,
        beside: "CpuSensor | None" = None,
        correction: ProbeCorrection | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        root: Path = ROOT,
    ) -> None:
        if readings < 1 or not 0 < gain <= 1:
            raise InputError(
                f"readings must be at least 1 (is {readings}), gain in (0, 1] (is {gain})",
                code="value-range",
                field="readings" if readings < 1 else "gain",
            )
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
        self._beside = beside
        self._looks: Sequence[RunQueueLook] = ()
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
        """Look at who wants to run, probe if it is time, and correct.

        `remarks` then says what could not be read, a line each.

        Raises
        ------
        SensorError
            Permanent: there is no /proc as Linux has it. A probe that fails is logged and the
            correction stays as it was.
        """
        self._looks = ()
        try:
            online = online_cpus(self._root) | self.cpus
            self._looks = looks = self._look_around()
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
        threads = averaged(looks, online, MOST_THREADS)
        division = CpuDivision.of(threads, ours, self.cpus, online)
        limit = min(1.0, division.quota)
        queued = min(limit, max(left * division.share, LEAST_SHARE))
        at_once = _share_at_once(threads, replace(ours, allowed=self.cpus), online)
        self._correct(queued, min(limit, left * at_once))
        available = min(max(queued + self.bias, LEAST_SHARE), limit)
        others = self._corrected(division.competitors, queued, available)
        current = min(limit, max(available, current_share(others, len(self.cpus))))
        values = (
            *(available, current, others),
            *(division.crowding, division.spare, division.quota, division.period),
        )
        now = self._clock()
        return tuple(
            Measurement(series, now, value)
            for series, value in zip(self._series, values, strict=True)
        )

    def _look_around(self) -> Sequence[RunQueueLook]:
        if self._beside is not None:
            if not self._beside._looks:
                raise LookupError("the sensor beside this one could not")
            return self._beside._looks
        looks = [self._look()]
        for _ in range(self._readings - 1):
            self._sleep(self._spacing)
            looks.append(self._look())
        return looks

    def _remarks(self, looks: Sequence[RunQueueLook]) -> Iterator[str]:
        """Yield what the model could not know and is left to the probe."""
        by = "only the probe tells" if self._probe else "and there is no probe"
        unseen = min(look.unseen for look in looks)
        if unseen:
            why = self._reader.hides_processes() or "hidden from this one, or too many to look at"
            yield f"{unseen} of the processes that want to run are not seen ({why}): {by} what they take"
        unread = min(look.unread for look in looks)
        if unread:
            yield f"the scheduling groups of {unread} processes cannot be read: {by} what they take"

    def _stolen(self) -> float:
        """Return the share of the CPUs' time since an earlier measurement that others' guests had.

        That is the last measurement `LEAST_TICKS` ago or more: until then the share of before stands.
        """
        try:
            text = (self._root / "proc/stat").read_text()
        except OSError:
            return 0.0
        times, before = parse_cpu_times(text, self.cpus), self._times
        if before is None or not 0 <= times.total - before.total < LEAST_TICKS:
            self._last_stolen = 0.0 if before is None else times.stolen_since(before)
            self._times = times
        return self._last_stolen

    def _correct(self, queued: float, at_once: float) -> None:
        """Probe if it is time, and let what the model does not explain into the bias.

        A probe is over before the kernel has moved others away from it: it gets something between
        `at_once`, beside those that are there or may come, and `queued`, when they have moved.
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
        """Return the competitors counted, moved by what the correction of the share means."""
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
"""The part of the CPUs elsewhere at which the division is looked at once more, to find where it turns."""


@dataclass(frozen=True, slots=True)
class CpuDivision:
    """How some CPUs would be divided among the threads that want them and new processes of ours.

    Attributes
    ----------
    share
        What one new process gets of a CPU.
    competitors
        How many processes like it the others are worth to a set of ours, one a CPU (`nws.available_share`).
    crowding
        By how much that grows with each further process of ours elsewhere on the machine, beyond `spare`:
        because they share one group's weight, or because competitors are moved away from them.
    spare
        How many CPUs elsewhere processes of ours may take before that grows: competitors that may move
        come here only when no other CPU is idle. 0 where there are no CPUs elsewhere.
    quota
        How many CPUs' worth of time all of ours may use together.
    period
        Seconds in which the tightest quota is given out anew; 0 where there is none.
    """

    share: float
    competitors: float
    crowding: float
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
        """Return how `cpus` are divided when processes like `ours` are started on them.

        Parameters
        ----------
        threads
            Who else wants to run.
        online
            The CPUs of the machine.
        """
        quota, period = _quota_left(threads, ours, online)
        above = {group.name for group in ours.groups}
        others = [_without_quotas(thread, above) for thread in threads]
        ours = _without_quotas(ours, above)

        def division(places: Collection[frozenset[int]], busy: float = 0.0) -> list[float]:
            beside = elsewhere if busy else []
            new = [
                replace(
                    _of_its_own(ours, k), allowed=where, active=busy if k >= len(places) else 1.0
                )
                for k, where in enumerate([*places, *beside])
            ]
            return fair_shares([*others, *new], online)[len(others) :][: len(places)]

        count = len(cpus)
        here = [frozenset({cpu}) for cpu in cpus]
        apart = [frozenset({cpu}) for cpu in online - cpus]
        elsewhere = apart or here
        share = division([cpus])[0]
        alone = share if count == 1 else sum(division(here)) / count
        # The inverse of available_share(competitors, count, count), and with so many more beside them.
        competitors = count / alone - count

        def growth(busy: float) -> float:
            crowd = sum(division(here, busy)) / count
            return count / crowd - count - (0 if apart else count) - competitors

        crowding, spare = _turning(growth, len(elsewhere), bool(apart))
        return cls(share, competitors, crowding, spare, quota, period)


def _turning(growth: Callable[[float], float], places: int, may_turn: bool) -> tuple[float, float]:
    """Return the slope of the growth with the number of busy places, and up to how many there is none.

    That is the line through the growth with all busy that turns where the one with `PARTLY` busy asks for.
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
    """Return what a new process gets before the kernel has moved anybody away from it.

    That is beside those that are there now, and the heaviest of those that may come: the kernel sees
    that the new process is there only when that one has come.
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
    """Whether the run queue's share changed so much that competitors have come or left.

    Examples
    --------
    >>> _is_other_load(1.0, 0.5), _is_other_load(0.33, 0.5), _is_other_load(1.0, 0.9)
    (True, True, False)
    """
    return abs(now - before) > OTHER_LOAD * max(now, before)


def _of_its_own(ours: Runnable, number: int) -> Runnable:
    """Return one of several processes of ours: where each has a session of its own, in another group."""
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
    """Return what the quotas above us leave to all of ours, when each CPU has one of them, and the period."""
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
        given = max(LEAST_SHARE, (limit.quota or 0.0) - used)
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
