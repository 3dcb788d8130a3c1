"""The formats of /proc, parsed. Source: proc(5)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ThreadState:
    """What ``/proc/PID/task/TID/stat`` says of a thread, as far as we want to know it."""

    state: str
    nice: int

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
    """Return state (field 3) and niceness (field 19); the name before may hold anything.

    Examples
    --------
    >>> parse_thread("7 (a ) R) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 39 19 1 0")
    ThreadState(state='S', nice=19)
    """
    fields = stat.rpartition(")")[2].split()
    return ThreadState(state=fields[0], nice=int(fields[16]))


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


def _line(text: str, label: str) -> str:
    for line in text.splitlines():
        if line.startswith(label):
            return line[len(label) :]
    raise ValueError(f"there is no line {label!r}")
