"""The Linux kernel's figures of CPUs, threads and memory: files of /proc, parsed. Source: proc(5)."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nws.errors import InputError

KERNEL_THREAD: Final = 0x00200000
"""PF_KTHREAD of the kernel's sched.h."""
SCHED_IDLE: Final = 5
RUNNABLE: Final = "R"
ROOT: Final = Path("/")
MAX_CPUS: Final = 2**13
"""CPU and memory node numbers are below this, the largest number for which Linux can be built."""
_CPU_RANGE: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class ThreadState:
    """The fields of ``/proc/PID/task/TID/stat`` that the sensors use."""

    state: str
    nice: int
    kernel: bool = False
    threads: int = 1
    idle: bool = False
    cpu: int | None = None


def parse_running(loadavg: str) -> int:
    """Return how many threads are runnable, this one included: field 4 of /proc/loadavg.

    Examples
    --------
    >>> parse_running("0.20 0.18 0.12 3/804 11206")
    3
    """
    return int(loadavg.split()[3].partition("/")[0])


def parse_thread(stat: str) -> ThreadState:
    """Return the state of a thread from a line of stat.

    It has the state (field 3), the niceness (19), whether it is a kernel thread (a flag in 9), the threads of
    its process (20), whether its policy is SCHED_IDLE (41) and its last CPU (39). The name before these
    fields may contain any characters.

    Examples
    --------
    >>> parse_thread("7 (a ) R) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 39 19 2 0")
    ThreadState(state='S', nice=19, kernel=False, threads=2, idle=False, cpu=None)

    Raises
    ------
    ValueError
        It is no such line.
    """
    fields = stat.rpartition(")")[2].split()
    if len(fields) < 18:
        raise ValueError("no line of /proc/PID/stat")
    kernel = bool(int(fields[6]) & KERNEL_THREAD)
    idle = len(fields) > 38 and int(fields[38]) == SCHED_IDLE
    cpu = int(fields[36]) if len(fields) > 36 else None
    return ThreadState(fields[0], int(fields[16]), kernel, int(fields[17]), idle, cpu)


def parse_cpu_ranges(text: str) -> list[tuple[int, int]]:
    """Return the first and last number of each range in a list of CPUs or memory nodes.

    White space and an empty list are allowed. All lists of `nws` and `apples` are parsed here.

    Raises
    ------
    InputError
        Permanent: the text is not such a list (with the offset of the wrong range), or a number is
        not below `MAX_CPUS`.

    Examples
    --------
    >>> parse_cpu_ranges("0-2,8")
    [(0, 2), (8, 8)]
    """
    ranges, offset = [], 0
    for word in text.split(",") if text.strip() else ():
        match = _CPU_RANGE.fullmatch(word.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            shown = word.strip()[:40]
            raise InputError(
                f"CPU list: '{shown}' at position {offset} is not of the form 3 or 0-3",
                code="cpu-list-invalid",
                value=shown,
                offset=offset,
            )
        if last >= MAX_CPUS:
            raise InputError(
                f"CPU list: {last} is not below {MAX_CPUS}",
                code="value-range",
                field="cpu",
                value=last,
                bound=MAX_CPUS - 1,
            )
        ranges.append((first, last))
        offset += len(word) + 1
    return ranges


def parse_cpu_list(text: str) -> frozenset[int]:
    """Return the CPUs of a list in the kernel's notation (`parse_cpu_ranges`).

    Examples
    --------
    >>> sorted(parse_cpu_list("0-2,8"))
    [0, 1, 2, 8]
    """
    ranges = parse_cpu_ranges(text)
    return frozenset(cpu for first, last in ranges for cpu in range(first, last + 1))


def parse_state(stat: str) -> tuple[str, int]:
    """Return the state of a thread and how many threads its process has: a part of `parse_thread`, in less time.

    Examples
    --------
    >>> parse_state("7 (a ) R) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 39 19 2 0")
    ('S', 2)

    Raises
    ------
    ValueError
        It is no line of /proc/PID/stat.
    """
    fields = stat.rpartition(")")[2].split(None, 18)
    if len(fields) < 18:
        raise ValueError("no line of /proc/PID/stat")
    return fields[0], int(fields[17])


def online_cpus(root: Path = ROOT) -> frozenset[int]:
    """Return the CPUs of this machine that are on."""
    return parse_cpu_list((root / "sys/devices/system/cpu/online").read_text())


def parse_allowed_cpus(status: str) -> frozenset[int]:
    """Return the CPUs that a thread may run on: Cpus_allowed_list of its status."""
    return parse_cpu_list(_line(status, "Cpus_allowed_list:"))


def parse_available_memory(meminfo: str) -> int:
    r"""Return MemAvailable in bytes: the memory available without swapping, caches included.

    Examples
    --------
    >>> parse_available_memory("MemTotal: 2048 kB\nMemAvailable:    1024 kB\n")
    1048576
    """
    return int(_line(meminfo, "MemAvailable:").split()[0]) * 1024


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Ticks of the CPUs so far: in total, and stolen by the hypervisor."""

    total: int
    stolen: int

    def stolen_since(self, earlier: "CpuTimes") -> float:
        """Return the share of the time that was stolen since `earlier`, 0..1.

        Counters of a virtual machine jump and even go back (node_exporter #742); then it is 0.
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
    _, found, rest = f"\n{text}".partition(f"\n{label}")
    if not found:
        raise InputError(f"the line {label!r} is missing", code="line-missing", value=label)
    return rest.partition("\n")[0]
