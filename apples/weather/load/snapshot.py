"""One snapshot of a node: the demand on it and its free part, from figures of the kernel.

The slave of Dynamite's monitor (`apples.weather.load.reporter`) takes snapshots of its own machine, for each host
on that machine. A process with a job's mark counts for that job, any other process for no job (`NOBODY`).
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from io import FileIO
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from apples.errors import UsageError
from apples.launch.job_processes import MARK, RANK_VARIABLES
from apples.scheduling.decider import available_cpu
from nws import FreeMemorySensor, RunQueueReader, SensorError, parse_allowed_cpus

SCHEMA: Final = "apples.node-load/1"
MAX_BYTES: Final = 1 << 20
"""Maximum size of a snapshot line that is read."""
MAX_JOBS, MAX_HOSTS, MAX_PROCESSES = 1000, 1000, 100_000
# Above about 200 processes, a process that wakes from a long sleep appears some samples later. Opening the
# files of all processes would cost a slave more than 1 % of a CPU.
MAX_FILES: Final = 200
"""Files that one sample opens. Above it, a sample reads recent and new processes, and the others in turn."""
MAX_NAME: Final = 300
NOBODY: Final = ""
"""Job name of a process that belongs to no job."""
ATTRIBUTES: Final = ("memory", "swap", "disk", "network")
CLOCK_TICKS: Final = os.sysconf("SC_CLK_TCK")
PAGE: Final = os.sysconf("SC_PAGE_SIZE")
MEGABIT: Final = 125_000
"""Bytes a second."""
JOB_VARIABLE: Final = MARK.encode()
_RANK: Final = re.compile(rb"[0-9]{1,5}")
_TOLD: Final = re.compile(
    rb"(?<![^\0])(" + b"|".join((JOB_VARIABLE, *RANK_VARIABLES)) + rb")=([^\0]*)"
)
"""The variables of job and rank in an environment or command line of zero-terminated words."""
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class ProcessCapacity:
    """Number, processor time and memory of a job's processes on a host.

    Attributes
    ----------
    processes
        Number of processes.
    cpu_seconds
        Processor time that the current processes have used.
    memory
        Resident bytes; a shared page counts for each process.
    """

    processes: int
    cpu_seconds: float
    memory: int

    def with_another(self, other: ProcessCapacity) -> ProcessCapacity:
        """Return the sum of both."""
        return ProcessCapacity(
            self.processes + other.processes,
            self.cpu_seconds + other.cpu_seconds,
            self.memory + other.memory,
        )


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """A host at one moment.

    Attributes
    ----------
    host
        Name of the host.
    time
        Seconds since the epoch, by the host's clock.
    cpus
        Number of processors of the host.
    wanting
        Job -> number of its processes that want a processor; `NOBODY`: processes of no job.
    parts
        Free part of ``memory``, ``swap``, ``disk`` and ``network``, from 0 to 1; a resource that cannot be
        measured is left out.
    jobs
        Job -> use of its processes that may run on the host's processors.
    ranks
        Job and rank -> use of the rank's processes, if the launcher set the rank in their environment.
    errors
        For a mean of several snapshots, the standard error of each entry of `wanting`; empty for one snapshot.
    """

    host: str
    time: float
    cpus: int
    wanting: Mapping[str, float]
    parts: Mapping[str, float]
    jobs: Mapping[str, ProcessCapacity] = field(default_factory=dict)
    ranks: Mapping[tuple[str, int], ProcessCapacity] = field(default_factory=dict)
    errors: Mapping[str, float] = field(default_factory=dict)

    def others(self, mine: Collection[str]) -> tuple[float, float]:
        """Return the number of processes outside these jobs that want a processor, and its standard error."""
        wanting = sum(value for job, value in self.wanting.items() if job not in mine)
        squares = sum(error**2 for job, error in self.errors.items() if job not in mine)
        return wanting, math.sqrt(squares)

    @property
    def available(self) -> dict[str, float]:
        """The free parts c_ij by attribute, that of the processors included."""
        return {"cpu": available_cpu(sum(self.wanting.values()), self.cpus), **self.parts}

    def document(self) -> dict[str, Any]:
        """Return the snapshot as a JSON object."""
        return {
            "host": self.host, "time": self.time, "cpus": self.cpus, "wanting": dict(self.wanting),
            "parts": dict(self.parts), "jobs": {job: astuple(one) for job, one in self.jobs.items()},
            "ranks": [[*rank, *astuple(one)] for rank, one in self.ranks.items()],
        }  # fmt: skip


def line_of(snapshots: Collection[NodeSnapshot]) -> str:
    """Return snapshots as one line of JSON."""
    found = {"schema": SCHEMA, "hosts": [one.document() for one in snapshots]}
    return json.dumps(found, separators=(",", ":"), allow_nan=False) + "\n"


def read_line(line: str | bytes) -> list[NodeSnapshot]:
    """Return the snapshots of a line that another machine wrote.

    Raises
    ------
    UsageError
        The line is not a list of snapshots; the message names the fault.

    Examples
    --------
    >>> one = NodeSnapshot("ada", 9.0, 2, {"": 1.0}, {"memory": 0.5})
    >>> read_line(line_of([one])) == [one]
    True
    """
    if len(line) > MAX_BYTES:
        raise UsageError(
            f"a snapshot of {len(line)} bytes: at most {MAX_BYTES}",
            code="message-too-long",
            value=len(line),
            bound=MAX_BYTES,
        )
    try:
        found = json.loads(line)
        if not isinstance(found, dict) or found.get("schema") != SCHEMA:
            raise UsageError(
                f"a snapshot has the schema {SCHEMA}", code="schema-unknown", known=[SCHEMA]
            )
        hosts = found["hosts"]
        if not isinstance(hosts, list) or len(hosts) > MAX_HOSTS:
            raise UsageError(
                f"a snapshot has at most {MAX_HOSTS} hosts",
                code="too-many-hosts",
                bound=MAX_HOSTS,
            )
        return [_snapshot(one) for one in hosts]
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        raise UsageError(
            f"not a snapshot of the load: {type(error).__name__}",
            code="snapshot-invalid",
            kind=type(error).__name__,
        ) from None


def _snapshot(found: Mapping[str, Any]) -> NodeSnapshot:
    wanting = {
        _name(job): _number(value, MAX_PROCESSES) for job, value in _few(found["wanting"]).items()
    }
    parts = {
        name: _number(value, 1.0)
        for name, value in _few(found["parts"]).items()
        if name in ATTRIBUTES
    }
    jobs = {_name(job): _capacity(*one) for job, one in _few(found["jobs"]).items()}
    said = found.get("ranks", [])  # a slave of an older version sends no ranks
    if not isinstance(said, list) or len(said) > MAX_JOBS:
        raise TypeError("not a few")
    ranks = {
        (_name(job), int(_number(rank, MAX_PROCESSES))): _capacity(*one)
        for job, rank, *one in said
    }
    cpus = int(_number(found["cpus"], MAX_PROCESSES))
    if cpus < 1:
        raise ValueError(cpus)
    at = _number(found["time"], 1e15)
    return NodeSnapshot(_name(found["host"]), at, cpus, wanting, parts, jobs, ranks)


def _capacity(processes: object, seconds: object, memory: object) -> ProcessCapacity:
    return ProcessCapacity(
        int(_number(processes, MAX_PROCESSES)),
        _number(seconds, 1e15),
        int(_number(memory, 1e18)),
    )


def _few(found: Any) -> dict[str, Any]:
    if not isinstance(found, dict) or len(found) > MAX_JOBS + 1:
        raise TypeError("not a few")
    return found


def _name(text: object) -> str:
    if not isinstance(text, str) or len(text) > MAX_NAME or not text.isprintable():
        raise ValueError("no name")
    return text


def _number(value: object, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise ValueError("no such number")
    return float(value)


class _Belonging(NamedTuple):
    """The job of a process by its mark, and the rank that its launcher gave it."""

    job: str
    rank: int | None

    @property
    def settled(self) -> bool:
        """Whether it is final: a process of a job without a rank may still become a rank."""
        return not self.job or self.rank is not None


class _Used(NamedTuple):
    """The use of one process of a job, and the processors that it may run on."""

    of: _Belonging
    allowed: frozenset[int]
    capacity: ProcessCapacity


class NodeSampler:
    """Takes snapshots of this machine.

    Parameters
    ----------
    hosts
        Host -> its processors of this machine; an empty list: all that this process may use.
    root
        The root of the tree in which /proc and /sys are read.
    disk
        A path on the file system to measure.
    clock
        Seconds since the epoch.
    read
        Reads a file below /proc; `nws.read_file` by default.
    """

    def __init__(
        self,
        hosts: Mapping[str, Collection[int]],
        root: Path = Path("/"),
        disk: Path = Path("/"),
        clock: Callable[[], float] = time.time,
        read: Callable[[str], str] | None = None,
    ) -> None:
        usable = os.sched_getaffinity(0)
        self._hosts = {host: frozenset(cpus or usable) for host, cpus in hosts.items()}
        self._root, self._disk, self._clock = root, disk, clock
        self._reader = RunQueueReader(root, most_files=MAX_FILES, groups=False, read=read)
        every = frozenset(range(os.cpu_count() or 1))
        self._whole = all(cpus >= every for cpus in self._hosts.values())
        self._memory = FreeMemorySensor("memory", root=root)
        self._marks: dict[int, _Belonging] = {}
        self._traffic: dict[str, tuple[float, int]] = {}
        self._seen: dict[str, dict[str, float]] = {host: {} for host in hosts}
        self._glances = 0

    def glance(self) -> None:
        """Sample the processes that want a processor; the next snapshot has the mean of its samples.

        Raises
        ------
        OSError, ValueError
            /proc is missing, or has a format other than that of proc(5).
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
        """Return the current snapshot of each host.

        Raises
        ------
        OSError, ValueError
            /proc is missing, or has a format other than that of proc(5).
        """
        now = self._clock()
        self._look_for_marks()
        if not self._glances:
            self.glance()
        used, parts = self._used(), dict(self._parts(now))
        found = []
        for host, cpus in self._hosts.items():
            seen = islice(self._seen[host].items(), MAX_JOBS)
            wanting = {job: number / self._glances for job, number in seen}
            here = [one for one in used if one.allowed & cpus]
            jobs = _summed((one.of.job, one.capacity) for one in here)
            ranks = _summed(
                ((one.of.job, one.of.rank), one.capacity)
                for one in here
                if one.of.rank is not None
            )
            found.append(NodeSnapshot(host, now, len(cpus), wanting, parts, jobs, ranks))
            self._seen[host] = {}
        self._glances = 0
        return found

    # ---------------------------------------------------------------------------- jobs of processes
    def _look_for_marks(self) -> None:
        """Read the marks of processes that are new since the last snapshot."""
        with os.scandir(self._root / "proc") as entries:
            here = [int(one.name) for one in entries if one.name.isdigit()][:MAX_PROCESSES]
        known = self._marks
        self._marks = {
            pid: known[pid] if pid in known and known[pid].settled else self._read_mark(pid)
            for pid in here
        }

    def _mark_of(self, thread: int) -> str:
        """Return the job of a thread; the first thread of a process has the number of the process."""
        if thread not in self._marks:
            self._marks[thread] = self._read_mark(thread)
        return self._marks[thread].job

    def _read_mark(self, pid: int) -> _Belonging:
        job, rank = NOBODY, None
        for name in ("environ", "cmdline"):
            for variable, value in _TOLD.findall(self._read(f"proc/{pid}/{name}")):
                if variable == JOB_VARIABLE and not job:
                    said = value.decode(errors="replace")
                    job = said if len(said) <= MAX_NAME and said.isprintable() else NOBODY
                elif variable != JOB_VARIABLE and rank is None and _RANK.fullmatch(value):
                    rank = int(value)
            if job:
                break
        return _Belonging(job, rank if job else None)

    def _used(self) -> list[_Used]:
        """Return the use of each process of a job, and the processors that it may run on."""
        found = []
        for pid, of in self._marks.items():
            if of.job:
                fields = self._read(f"proc/{pid}/stat").rpartition(b")")[2].split()
                if len(fields) > 21:  # not gone
                    seconds = (int(fields[11]) + int(fields[12])) / CLOCK_TICKS
                    capacity = ProcessCapacity(1, seconds, int(fields[21]) * PAGE)
                    with suppress(ValueError):  # gone meanwhile
                        found.append(_Used(of, self._allowed_to(pid), capacity))
        return found

    def _allowed_to(self, pid: int) -> frozenset[int]:
        """Return the processors that a process may use; all of them if each host is the whole machine."""
        if self._whole:
            return frozenset().union(*self._hosts.values())
        return parse_allowed_cpus(self._read(f"proc/{pid}/status").decode(errors="replace"))

    # ----------------------------------------------------------------------------- free parts
    def _parts(self, now: float) -> Iterator[tuple[str, float]]:
        """Yield the free part of each resource of the machine; an unreadable resource is left out."""
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
        """Yield the free part of each interface with a known speed, since the previous snapshot."""
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
            with FileIO(f"{self._root}/{path}") as file:
                return file.readall()
        except OSError:
            return b""


def _summed(parts: Iterable[tuple[Key, ProcessCapacity]]) -> dict[Key, ProcessCapacity]:
    """Return the sum of the use by key, of at most as many keys as a snapshot may have."""
    found: dict[Key, ProcessCapacity] = {}
    for key, one in parts:
        if key in found or len(found) < MAX_JOBS:
            found[key] = found.get(key, ProcessCapacity(0, 0.0, 0)).with_another(one)
    return found


def _amounts(meminfo: str) -> Iterator[tuple[str, int]]:
    for line in meminfo.splitlines():
        name, _, rest = line.partition(":")
        if rest.split()[:1] and rest.split()[0].isdigit():
            yield name, int(rest.split()[0]) * 1024
