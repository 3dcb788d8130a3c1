"""What is wanted of a node and what of it is left, from the kernel's own figures: one snapshot.

The slave of Dynamite's monitor (`apples.weather.load.reporter`) takes snapshots of the machine it runs on, for
each host that this is or is a part of. A process with a job's mark counts for that job, every other for nobody's.
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
"""Of a snapshot that is read."""
MAX_JOBS, MAX_HOSTS, MAX_PROCESSES = 1000, 1000, 100_000
# Beyond about 200 processes, one that slept long and begins to run appears some glances later; all
# files would cost a slave more than 1 % of a CPU.
MAX_FILES: Final = 200
"""That one glance opens: of more processes it sees those that ran lately or are new, and of others in turn."""
MAX_NAME: Final = 300
NOBODY: Final = ""
"""Whose a process is that bears no job's mark."""
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
"""What a process was told of job and rank, in a text of words that end with a zero byte."""
Key = TypeVar("Key", bound=Hashable)


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

    def with_another(self, other: ProcessCapacity) -> ProcessCapacity:
        """Return what both have together."""
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
        Job -> what its processes have that may use the host's processors.
    ranks
        Of those what each rank has, by job and rank, where the launcher said which one a process is or belongs to.
    errors
        Of means of snapshots: the standard error of each of `wanting`; empty: of one snapshot nobody knows it.
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
        """Return how many processes of none of these jobs want a processor, and the standard error of that."""
        wanting = sum(value for job, value in self.wanting.items() if job not in mine)
        squares = sum(error**2 for job, error in self.errors.items() if job not in mine)
        return wanting, math.sqrt(squares)

    @property
    def available(self) -> dict[str, float]:
        """c_ij by attribute, that of the processors among them."""
        return {"cpu": available_cpu(sum(self.wanting.values()), self.cpus), **self.parts}

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "host": self.host, "time": self.time, "cpus": self.cpus, "wanting": dict(self.wanting),
            "parts": dict(self.parts), "jobs": {job: astuple(one) for job, one in self.jobs.items()},
            "ranks": [[*rank, *astuple(one)] for rank, one in self.ranks.items()],
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
    said = found.get("ranks", [])  # a slave of an older version says none
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
    """Whose a process is: the job of its mark, and the rank that its launcher told it to be."""

    job: str
    rank: int | None

    @property
    def settled(self) -> bool:
        """Whether nothing more can become of it: of a job's process that is no rank yet one can."""
        return not self.job or self.rank is not None


class _Used(NamedTuple):
    """What a process of a job has, and the processors that it may use."""

    of: _Belonging
    allowed: frozenset[int]
    capacity: ProcessCapacity


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

    # ---------------------------------------------------------------------------- whose a process is
    def _look_for_marks(self) -> None:
        """Read what processes bear that were not there the last time."""
        with os.scandir(self._root / "proc") as entries:
            here = [int(one.name) for one in entries if one.name.isdigit()][:MAX_PROCESSES]
        known = self._marks
        self._marks = {
            pid: known[pid] if pid in known and known[pid].settled else self._read_mark(pid)
            for pid in here
        }

    def _mark_of(self, thread: int) -> str:
        """Return the job of a thread: a process's first has its number, the others are looked up."""
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
        """Return what each process of a job has, and which processors it may use."""
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
        """Return the processors that a process may use; not asked where each host is the whole machine."""
        if self._whole:
            return frozenset().union(*self._hosts.values())
        return parse_allowed_cpus(self._read(f"proc/{pid}/status").decode(errors="replace"))

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
            with FileIO(f"{self._root}/{path}") as file:
                return file.readall()
        except OSError:
            return b""


def _summed(parts: Iterable[tuple[Key, ProcessCapacity]]) -> dict[Key, ProcessCapacity]:
    """Return the sums of what processes have, of as many keys as a snapshot may have."""
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
