"""What is wanted of a node and what of it is left, from the kernel's own figures: one snapshot.

The slave of Dynamite's monitor (`apples.monitoring.slave`) takes snapshots of the machine it runs on, for each
host that this is or is a part of. A process with a job's mark counts for that job, every other for nobody's.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

from apples.errors import UsageError
from apples.monitoring.decider import available_cpu
from apples.supervision.job_processes import MARK
from nws import FreeMemorySensor, RunQueueReader, SensorError

SCHEMA: Final = "apples.node-load/1"
MOST_BYTES: Final = 1 << 20
"""Of a snapshot that is read."""
MOST_JOBS, MOST_HOSTS, MOST_PROCESSES = 1000, 1000, 100_000
LONGEST_NAME: Final = 300
NOBODY: Final = ""
"""Whose a process is that bears no job's mark."""
ATTRIBUTES: Final = ("memory", "swap", "disk", "network")
CLOCK_TICKS: Final = os.sysconf("SC_CLK_TCK")
PAGE: Final = os.sysconf("SC_PAGE_SIZE")
MEGABIT: Final = 125_000
"""Bytes a second."""


@dataclass(frozen=True, slots=True)
class ProcessCapacity:
    """What the processes of a job have and have used on a host.

    Attributes
    ----------
    processes
        How many.
    cpu_seconds
        Processor time that those there now have used.
    memory
        Bytes that are resident, shared ones counted for each process.
    """

    processes: int
    cpu_seconds: float
    memory: int


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """A host at one moment.

    Attributes
    ----------
    host
        Its name.
    time
        Seconds since the epoch, by its own clock.
    cpus
        Processors of it.
    wanting
        Processes that want one, by the job they belong to; `NOBODY`: to none.
    parts
        What is free of ``memory``, ``swap``, ``disk`` and ``network``, each as a part of the whole; what cannot be
        measured is left out.
    jobs
        Job -> what its processes have.
    """

    host: str
    time: float
    cpus: int
    wanting: Mapping[str, float]
    parts: Mapping[str, float]
    jobs: Mapping[str, ProcessCapacity] = field(default_factory=dict)

    @property
    def available(self) -> dict[str, float]:
        """c_ij by attribute, that of the processors among them."""
        return {"cpu": available_cpu(sum(self.wanting.values()), self.cpus), **self.parts}

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        jobs = {
            name: [one.processes, one.cpu_seconds, one.memory] for name, one in self.jobs.items()
        }
        return {
            "host": self.host, "time": self.time, "cpus": self.cpus, "wanting": dict(self.wanting),
            "parts": dict(self.parts), "jobs": jobs,
        }  # fmt: skip


def line_of(snapshots: Collection[NodeSnapshot]) -> str:
    """Return snapshots as a line."""
    found = {"schema": SCHEMA, "hosts": [one.document() for one in snapshots]}
    return json.dumps(found, separators=(",", ":"), allow_nan=False) + "\n"


def read_line(line: str | bytes) -> list[NodeSnapshot]:
    """Return the snapshots of a line that another machine wrote.

    Raises
    ------
    UsageError
        It is none; says what is wrong.

    Examples
    --------
    >>> one = NodeSnapshot("ada", 9.0, 2, {"": 1.0}, {"memory": 0.5})
    >>> read_line(line_of([one])) == [one]
    True
    """
    if len(line) > MOST_BYTES:
        raise UsageError(f"a snapshot of {len(line)} bytes: at most {MOST_BYTES}")
    try:
        found = json.loads(line)
        if not isinstance(found, dict) or found.get("schema") != SCHEMA:
            raise UsageError(f"a snapshot has the schema {SCHEMA}")
        hosts = found["hosts"]
        if not isinstance(hosts, list) or len(hosts) > MOST_HOSTS:
            raise UsageError(f"a snapshot has at most {MOST_HOSTS} hosts")
        return [_snapshot(one) for one in hosts]
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        raise UsageError(f"no snapshot: {type(error).__name__}") from None


def _snapshot(found: Mapping[str, Any]) -> NodeSnapshot:
    wanting = {
        _name(job): _number(value, MOST_PROCESSES) for job, value in _few(found["wanting"]).items()
    }
    parts = {
        name: _number(value, 1.0)
        for name, value in _few(found["parts"]).items()
        if name in ATTRIBUTES
    }
    jobs = {
        _name(job): ProcessCapacity(
            int(_number(count, MOST_PROCESSES)), _number(seconds, 1e15), int(_number(memory, 1e18))
        )
        for job, (count, seconds, memory) in _few(found["jobs"]).items()
    }
    cpus = int(_number(found["cpus"], MOST_PROCESSES))
    if cpus < 1:
        raise ValueError(cpus)
    at = _number(found["time"], 1e15)
    return NodeSnapshot(_name(found["host"]), at, cpus, wanting, parts, jobs)


def _few(found: Any) -> dict[str, Any]:
    if not isinstance(found, dict) or len(found) > MOST_JOBS + 1:
        raise TypeError("not a few")
    return found


def _name(text: object) -> str:
    if not isinstance(text, str) or len(text) > LONGEST_NAME or not text.isprintable():
        raise ValueError("no name")
    return text


def _number(value: object, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise ValueError("no such number")
    return float(value)


class NodeSampler:
    """Takes snapshots of this machine.

    Parameters
    ----------
    hosts
        Name -> the processors of this machine that it stands for; none: all that this process may use.
    root
        The root of the tree in which /proc and /sys are read.
    disk
        A place on the file system that counts.
    clock
        Seconds since the epoch.
    """

    def __init__(
        self,
        hosts: Mapping[str, Collection[int]],
        root: Path = Path("/"),
        disk: Path = Path("/"),
        clock: Callable[[], float] = time.time,
    ) -> None:
        usable = os.sched_getaffinity(0)
        self._hosts = {host: frozenset(cpus or usable) for host, cpus in hosts.items()}
        self._root, self._disk, self._clock = root, disk, clock
        self._reader = RunQueueReader(root, groups=False)
        self._memory = FreeMemorySensor("memory", root=root)
        self._marks: dict[int, str] = {}
        self._traffic: dict[str, tuple[float, int]] = {}
        self._seen: dict[str, dict[str, float]] = {host: {} for host in hosts}
        self._glances = 0

    def glance(self) -> None:
        """Look who wants a processor now; the next snapshot has the mean of all glances since the last.

        Raises
        ------
        OSError, ValueError
            /proc is not there, or not as proc(5) says.
        """
        threads = self._reader.look().threads
        self._glances += 1
        for host, cpus in self._hosts.items():
            wanting = self._seen[host]
            for number, thread in threads.items():
                allowed = thread.allowed or cpus
                part = len(allowed & cpus) / len(allowed)
                if part:
                    job = self._mark_of(number)
                    wanting[job] = wanting.get(job, 0.0) + part

    def snapshot(self) -> list[NodeSnapshot]:
        """Return each host as it is now.

        Raises
        ------
        OSError, ValueError
            /proc is not there, or not as proc(5) says.
        """
        now = self._clock()
        self._look_for_marks()
        if not self._glances:
            self.glance()
        jobs, parts = self._jobs(), dict(self._parts(now))
        found = []
        for host, cpus in self._hosts.items():
            seen = islice(self._seen[host].items(), MOST_JOBS)
            wanting = {job: number / self._glances for job, number in seen}
            found.append(NodeSnapshot(host, now, len(cpus), wanting, parts, jobs))
            self._seen[host] = {}
        self._glances = 0
        return found

    # ---------------------------------------------------------------------------- whose a process is
    def _look_for_marks(self) -> None:
        """Read what processes bear that were not there the last time."""
        with os.scandir(self._root / "proc") as entries:
            here = [int(one.name) for one in entries if one.name.isdigit()][:MOST_PROCESSES]
        known = self._marks
        self._marks = {pid: known[pid] if pid in known else self._read_mark(pid) for pid in here}

    def _mark_of(self, thread: int) -> str:
        """Return the job of a thread: a process's first has its number, the others are looked up."""
        if thread not in self._marks:
            self._marks[thread] = self._read_mark(thread)
        return self._marks[thread]

    def _read_mark(self, pid: int) -> str:
        begin = f"{MARK}=".encode()
        for name in ("environ", "cmdline"):
            for word in self._read(f"proc/{pid}/{name}").split(b"\0"):
                if word.startswith(begin):
                    job = word[len(begin) :].decode(errors="replace")
                    return job if len(job) <= LONGEST_NAME and job.isprintable() else NOBODY
        return NOBODY

    def _jobs(self) -> dict[str, ProcessCapacity]:
        found: dict[str, ProcessCapacity] = {}
        for pid, job in self._marks.items():
            if job:
                fields = self._read(f"proc/{pid}/stat").rpartition(b")")[2].split()
                if len(fields) > 21:  # not gone
                    seconds = (int(fields[11]) + int(fields[12])) / CLOCK_TICKS
                    one = found.get(job, ProcessCapacity(0, 0.0, 0))
                    found[job] = ProcessCapacity(
                        one.processes + 1,
                        one.cpu_seconds + seconds,
                        one.memory + int(fields[21]) * PAGE,
                    )
        return dict(islice(found.items(), MOST_JOBS))

    # ----------------------------------------------------------------------------- what is left
    def _parts(self, now: float) -> Iterator[tuple[str, float]]:
        """Yield what is free of the machine, as parts; what cannot be read is left out."""
        meminfo = dict(_amounts(self._read("proc/meminfo").decode(errors="replace")))
        with suppress(SensorError, LookupError):
            free = self._memory.measure()[0].value
            yield "memory", min(1.0, free / meminfo["MemTotal"])
        if meminfo.get("SwapTotal"):
            yield "swap", min(1.0, meminfo.get("SwapFree", 0) / meminfo["SwapTotal"])
        with suppress(OSError, ZeroDivisionError):
            there = os.statvfs(self._disk)
            yield "disk", min(1.0, there.f_bavail / there.f_blocks)
        free_parts = list(self._network(now))
        if free_parts:
            yield "network", min(free_parts)

    def _network(self, now: float) -> Iterator[float]:
        """Yield of each interface whose speed is known what was free of it since the last look."""
        for line in self._read("proc/net/dev").decode(errors="replace").splitlines()[2:]:
            name, _, rest = line.partition(":")
            numbers, name = rest.split(), name.strip()
            with suppress(ValueError, IndexError):
                speed = int(self._read(f"sys/class/net/{name}/speed")) * MEGABIT
                sent = max(int(numbers[0]), int(numbers[8]))
                before, self._traffic[name] = self._traffic.get(name), (now, sent)
                if speed > 0 and before is not None and now > before[0]:
                    used = (sent - before[1]) / (now - before[0]) / speed
                    yield min(1.0, max(0.0, 1 - used))

    def _read(self, path: str) -> bytes:
        try:
            return (self._root / path).read_bytes()
        except OSError:
            return b""


def _amounts(meminfo: str) -> Iterator[tuple[str, int]]:
    for line in meminfo.splitlines():
        name, _, rest = line.partition(":")
        if rest.split()[:1] and rest.split()[0].isdigit():
            yield name, int(rest.split()[0]) * 1024
