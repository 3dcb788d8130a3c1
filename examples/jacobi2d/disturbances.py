"""What disturbs a rank: timing spikes, and what the kernel counts of it. As `apples.program` measures them."""

import resource
import statistics
from pathlib import Path

# An iteration that takes so many times a usual long one is a timing spike. The usual long one is a running
# quantile: it stays the same where 3 of 100 iterations are longer. The first is the median of some.
SPIKE_FACTOR = 1.5
USUAL_RISE = 1.5
USUAL_FALL = USUAL_RISE ** (-0.03 / 0.97)
FIRST_ITERATIONS = 7
TICK_SECONDS = 1e-6

# Seconds that a unit of the counter is, of cgroups version 2 and 1.
QUOTA_UNITS = {b"throttled_usec": 1e-6, b"throttled_time": 1e-9}


class Spikes:
    """Seconds of computing beyond `SPIKE_FACTOR` times a usual long iteration.

    Who waits for a CPU, or is stopped by a quota, is slow and has no timing spike: `unexplained` is without that.
    """

    def __init__(self) -> None:
        self.excess = self.processor_excess = self.unexplained = 0.0
        self._usual = 0.0
        self._first: list[tuple[float, float]] = []
        self._explained = 0.0, 0.0

    def add(self, seconds: float, processor: float) -> None:
        """Take in an iteration, with the processor time in it."""
        usual = self._usual
        if not usual:
            self._first.append((seconds, processor))
            if len(self._first) == FIRST_ITERATIONS:
                self._usual = max(TICK_SECONDS, statistics.median(s for s, _ in self._first))
                for one in self._first:
                    self._clip(*one)
        elif seconds > usual:
            self._clip(seconds, processor)
            self._usual = usual * USUAL_RISE
        else:
            self._usual = max(TICK_SECONDS, usual * USUAL_FALL)

    def _clip(self, seconds: float, processor: float) -> None:
        limit = SPIKE_FACTOR * self._usual
        if seconds > limit:
            self.excess += seconds - limit
            self.processor_excess += max(0.0, processor - limit)

    def explain(self, stopped: float) -> None:
        """Compare the spikes with the seconds without a CPU so far, by the kernel's account."""
        excess, before = self._explained
        self.unexplained += max(0.0, self.excess - excess - (stopped - before))
        self._explained = self.excess, stopped


class KernelCounters:
    """Seconds ready without a CPU (-1: not counted), seconds throttled, and major page faults of this process."""

    def __init__(self) -> None:
        self._quota = next((path for path in quota_files() if content(path)), "")
        self._begin = self._read()

    def since_begin(self) -> tuple[float, float, float]:
        """Return them since the process began to count."""
        now, begin = self._read(), self._begin
        wait = now[0] - begin[0] if now[0] >= 0 else -1.0
        return wait, now[1] - begin[1], now[2] - begin[2]

    def _read(self) -> tuple[float, float, float]:
        counted = content("/proc/self/schedstat").split()
        wait = 1e-9 * int(counted[1]) if len(counted) > 1 else -1.0
        throttled = 0.0
        for line in content(self._quota).splitlines():
            name, _, value = line.partition(b" ")
            if name in QUOTA_UNITS:
                throttled = QUOTA_UNITS[name] * int(value)
        return wait, throttled, float(resource.getrusage(resource.RUSAGE_SELF).ru_majflt)


def content(path: str) -> bytes:
    """Return what a small file of the kernel's contains now; nothing where this kernel has no such file."""
    try:
        with Path(path).open("rb", buffering=0) as file:
            return file.read(4096)
    except OSError:
        return b""


def quota_files() -> list[str]:
    """Return where the counters of this process's CPU quota may be, in the order of preference."""
    found = []
    for line in content("/proc/self/cgroup").decode(errors="replace").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers or "cpu" in controllers.split(","):
            found.append(f"/sys/fs/cgroup/{controllers}{path}/cpu.stat")
    return found
