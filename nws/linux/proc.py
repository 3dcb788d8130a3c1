"""The formats of /proc, parsed. Source: proc(5)."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

KERNEL_THREAD: Final = 0x00200000
"""PF_KTHREAD of the kernel's sched.h."""


@dataclass(frozen=True, slots=True)
class ThreadState:
    """What ``/proc/PID/task/TID/stat`` says of a thread, as far as we want to know it."""

    state: str
    nice: int
    kernel: bool = False

    @property
    def is_runnable(self) -> bool:
        """Whether it runs or waits for a CPU."""
        return self.state == "R"


def parse_running(loadavg: str) -> int:
    """Return how many threads are runnable, this one included: field 4 of /proc/loadavg.

    Examples
    --------
    >>> parse_running("0.20 0.18 0.12 3/804 11206")
    3
    """
    return int(loadavg.split()[3].partition("/")[0])


def parse_thread(stat: str) -> ThreadState:
    """Return state (field 3), niceness (field 19) and whether it is the kernel's (flag in field 9).

    The name before them may hold anything.

    Examples
    --------
    >>> parse_thread("7 (a ) R) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 39 19 1 0")
    ThreadState(state='S', nice=19, kernel=False)
    """
    fields = stat.rpartition(")")[2].split()
    kernel = bool(int(fields[6]) & KERNEL_THREAD)
    return ThreadState(state=fields[0], nice=int(fields[16]), kernel=kernel)


def parse_cpu_list(text: str) -> frozenset[int]:
    """Return the CPUs of a list in the kernel's notation.

    Examples
    --------
    >>> sorted(parse_cpu_list("0-2,8"))
    [0, 1, 2, 8]
    """
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first:
            cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def parse_allowed_cpus(status: str) -> frozenset[int]:
    """Return the CPUs that a thread may run on: Cpus_allowed_list of its status."""
    return parse_cpu_list(_line(status, "Cpus_allowed_list:"))


def parse_available_memory(meminfo: str) -> int:
    r"""Return MemAvailable in bytes: what can be had without swapping, caches given back.

    Examples
    --------
    >>> parse_available_memory("MemTotal: 2048 kB\nMemAvailable:    1024 kB\n")
    1048576
    """
    return int(_line(meminfo, "MemAvailable:").split()[0]) * 1024


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """What the CPUs did so far, in ticks: all together, and what the hypervisor took away."""

    total: int
    stolen: int

    def stolen_since(self, earlier: "CpuTimes") -> float:
        """Return the share of the time that was stolen since `earlier`, 0..1.

        Counters of a virtual machine jump and even go back (node_exporter #742): then nothing is
        known and 0 is told.
        """
        total, stolen = self.total - earlier.total, self.stolen - earlier.stolen
        return stolen / total if 0 < stolen <= total else 0.0


def parse_cpu_times(stat: str, cpus: Collection[int]) -> CpuTimes:
    r"""Return the times of some CPUs in /proc/stat: guest times are part of user's already.

    Examples
    --------
    >>> parse_cpu_times("cpu 9\ncpu0 1 1 1 5 0 0 0 2 0 0\ncpu1 8 0 0 0 0 0 0 0\n", {0})
    CpuTimes(total=10, stolen=2)
    """
    total = stolen = 0
    for line in stat.splitlines():
        name, _, rest = line.partition(" ")
        if name[:3] == "cpu" and name[3:].isdigit() and int(name[3:]) in cpus:
            ticks = [int(field) for field in rest.split()[:8]]
            total += sum(ticks)
            stolen += ticks[7] if len(ticks) > 7 else 0
    return CpuTimes(total, stolen)


def _line(text: str, label: str) -> str:
    for line in text.splitlines():
        if line.startswith(label):
            return line[len(label) :]
    raise ValueError(f"there is no line {label!r}")
