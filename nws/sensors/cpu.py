"""The share of the CPUs that processes get: from the run queue, corrected by a short probe."""

import logging
import os
import time
from collections.abc import Callable, Collection
from pathlib import Path
from statistics import fmean

from nws.measurement import AVAILABLE_CPU, COMPETITORS, CURRENT_CPU, Measurement, SeriesName
from nws.sensor import Sensor, SensorError
from nws.sensors.cpu_probe import probe_share
from nws.sensors.cpu_share import (
    available_share,
    competitors,
    competitors_for,
    current_share,
    mean_weight,
    online_cpus,
)
from nws.sensors.linux import (
    CpuTimes,
    allowed_cpus,
    cpu_quota,
    parse_cpu_times,
)

ROOT = Path("/")
LEAST_SHARE = 0.001
"""No correction goes below this: a process that gets nothing at all has no execution time."""

_log = logging.getLogger(__name__)


class CpuSensor(Sensor):
    """Measures ``availableCpu``, ``currentCpu`` and ``competitors`` of a set of CPUs.

    On c CPUs with m runnable competitors a new process gets min(1, c / (m + 1)) of one CPU and
    one of the m gets c / max(m, c) (`nws.sensors.cpu`). m is read several times, for it changes within
    milliseconds, and the shares averaged. That the competitors are niced, in containers with
    weights of their own, or hidden from this one shows in m only roughly (their mean niceness is
    looked up every minute, and time that the hypervisor steals is taken off); so now and then a probe
    spins for a moment and gets the true share, and the difference, smoothed, is added from then
    on. The idle fraction is no estimate of any of this: a new process gets half of a CPU that
    another keeps 100 % busy.

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
    gain
        The weight of the newest probe in the smoothed correction, in (0, 1].
    readings, spacing
        How many readings of the run queue make a measurement, and the seconds between them.
    queue
        Given the CPUs, returns the number of competitors now.
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
        gain: float = 0.3,
        readings: int = 8,
        spacing: float = 0.02,
        queue: Callable[[frozenset[int]], float] | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        root: Path = ROOT,
    ) -> None:
        if readings < 1 or not 0 < gain <= 1:
            raise ValueError(f"readings {readings} must be >= 1 and gain {gain} in (0, 1]")
        self.cpus = _usable(cpus, root)
        self._series = tuple(
            SeriesName(resource, host) for resource in (AVAILABLE_CPU, CURRENT_CPU, COMPETITORS)
        )
        self._probe = probe
        self._probe_every = probe_every
        self._gain = gain
        self._readings = readings
        self._spacing = spacing
        self._queue = queue or (lambda cpus: competitors(cpus, root))
        self._clock = clock
        self._sleep = sleep
        self._root = root
        self._probed: float | None = None
        self._bias: float | None = None
        self._given_queue = queue is not None
        self._weighed: float | None = None
        self._mean_weight = 1.0
        self._times: CpuTimes | None = None

    @property
    def series(self) -> tuple[SeriesName, ...]:
        """``availableCpu``, ``currentCpu`` and ``competitors`` of the host."""
        return self._series

    @property
    def bias(self) -> float:
        """The smoothed difference of the probes and the run queue; 0 before the first probe."""
        return self._bias or 0.0

    def measure(self) -> tuple[Measurement, ...]:
        """Read the run queue, probe if it is time, and correct.

        Raises
        ------
        SensorError
            Permanent: there is no /proc as Linux has it. A probe that fails is logged and the
            correction stays as it was.
        """
        try:
            weight = self._weight()
            counts = [weight * count for count in self._count()]
            left = 1 - self._stolen()
            limit = min(1.0, cpu_quota(self._root) or 1.0)
        except (OSError, ValueError, LookupError) as error:
            raise SensorError(f"the run queue cannot be read: {error}", transient=False) from error
        shares = (left * available_share(count, len(self.cpus)) for count in counts)
        queued = fmean(min(limit, share) for share in shares)
        self._correct(queued)
        available = min(max(queued + self.bias, LEAST_SHARE), limit)
        others = self._corrected(fmean(counts), queued, available)
        current = min(limit, max(available, current_share(others, len(self.cpus))))
        now = self._clock()
        return tuple(
            Measurement(series, now, value)
            for series, value in zip(self._series, (available, current, others), strict=True)
        )

    def _count(self) -> list[float]:
        counts = [self._queue(self.cpus)]
        for _ in range(self._readings - 1):
            self._sleep(self._spacing)
            counts.append(self._queue(self.cpus))
        return counts

    def _weight(self) -> float:
        """Return what a competitor of the kernel's own count weighs, looked up now and then.

        The count of a part of the CPUs is weighed already, thread by thread.
        """
        if self._given_queue or not self.cpus >= online_cpus(self._root):
            return 1.0
        now = self._clock()
        if self._weighed is None or not 0 <= now - self._weighed < self._probe_every:
            self._weighed, self._mean_weight = now, mean_weight(self._root)
        return self._mean_weight

    def _stolen(self) -> float:
        """Return the share of the CPUs' time since the last measurement that others' guests had."""
        try:
            text = (self._root / "proc/stat").read_text()
        except OSError:
            return 0.0
        before, self._times = self._times, parse_cpu_times(text, self.cpus)
        return 0.0 if before is None else self._times.stolen_since(before)

    def _correct(self, queued: float) -> None:
        """Probe if it is time, and let the difference to `queued` into the bias."""
        now = self._clock()
        due = self._probed is None or not 0 <= now - self._probed < self._probe_every
        if self._probe is None or not due:
            return
        self._probed = now
        try:
            difference = self._probe(self.cpus) - queued
        except SensorError as error:
            _log.warning("%s is measured without a new probe: %s", self._series[0], error)
            return
        known = difference if self._bias is None else self._bias
        self._bias = known + self._gain * (difference - known)

    def _corrected(self, counted: float, queued: float, available: float) -> float:
        """Return the competitors counted, moved by what the correction of the share means."""
        cpus = len(self.cpus)
        moved = competitors_for(available, cpus) - competitors_for(queued, cpus)
        return max(0.0, counted + moved)


def _usable(cpus: Collection[int] | None, root: Path) -> frozenset[int]:
    if cpus is None:
        return frozenset(os.sched_getaffinity(0))
    wanted = frozenset(cpus)
    if not wanted:
        raise ValueError("a sensor of no CPUs measures nothing")
    try:
        usable = allowed_cpus(root) or online_cpus(root)
    except (OSError, ValueError) as error:
        raise SensorError(f"the CPUs cannot be read: {error}", transient=False) from error
    if not wanted <= usable:
        raise SensorError(
            f"CPUs {sorted(wanted - usable)} cannot be used, only {sorted(usable)}",
            transient=False,
        )
    return wanted
