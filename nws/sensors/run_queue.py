"""The threads that want to run on this machine, with their groups of the scheduler: bounded reads of /proc."""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Final

from nws.sensors.cgroups import CgroupMount, parse_groups, parse_mounts, parse_quota
from nws.sensors.fair_share import (
    MIN_WEIGHT,
    NICE_0_WEIGHT,
    Runnable,
    SchedulingGroup,
    weight_of_niceness,
)
from nws.sensors.linux import (
    ROOT,
    RUNNABLE,
    ThreadState,
    parse_allowed_cpus,
    parse_running,
    parse_state,
    parse_thread,
)

MAX_FILES: Final = 800
"""Files that one sample opens: about 15 ms. The next sample begins at the first unread process."""
MAX_THREADS: Final = 400
"""Maximum number of threads of one process that a sample reads."""
MAX_CGROUP_DEPTH: Final = 32
"""Levels of control groups that are distinguished."""
NEW_SESSION: Final = "a new session"
"""The group of a process with a session, and so an autogroup, of its own."""
USUAL_PERIOD: Final = "100000"
AUTOGROUP = re.compile(r"/autogroup-(\d+) nice (-?\d+)")
HIDEPID = re.compile(r"\bhidepid=(?!0\b|off\b)(\w+)")


@dataclass(frozen=True)
class RunQueueSample:
    """The threads that wanted to run at one moment.

    Attributes
    ----------
    threads
        The other threads that want to run, by their number.
    running
        The kernel's count of threads that want to run, without the reading thread.
    complete
        Whether all visible processes were read, or as many threads were found as the kernel counts.
    unread
        Number of threads with unreadable groups; each is assumed to be in a group of its own.
    """

    threads: dict[int, Runnable] = field(default_factory=dict)
    running: int = 0
    complete: bool = True
    unread: int = 0

    @property
    def unseen(self) -> int:
        """Number of threads in the kernel's count that were not found."""
        return max(0, self.running - len(self.threads))


class RunQueueReader:
    """Samples the threads that want to run; a sample opens a bounded number of files.

    Most processes sleep, and the kernel counts the threads that do not. A sample first reads the processes that
    ran lately, then new processes, and ends when it has found all running threads. It also ends at its limit of
    files. Then the next sample continues with the sleeping processes, for which half of the files are reserved.
    A process that ends while it is read does not count.

    Parameters
    ----------
    root
        The root of the tree in which /proc and /sys are read.
    own
        The process to leave out; None: this process.
    most_files
        Files that one sample may open.
    groups
        Whether to read the groups of the scheduler: a third of the cost of a sample.
    """

    def __init__(
        self,
        root: Path = ROOT,
        own: int | None = None,
        most_files: int = MAX_FILES,
        *,
        groups: bool = True,
        read: Callable[[str], str] | None = None,
    ) -> None:
        self._read = read or read_file
        self._wants_groups = groups
        self._root = str(root).rstrip("/")
        self._own = os.getpid() if own is None else own
        self._most = most_files
        self._left = most_files
        self._next = 0
        self._lately: dict[int, None] = {}
        self._known: set[int] = set()
        self._levels: dict[tuple[str, ...], SchedulingGroup | None] = {}
        self._cpu_mount = _cpu_mount(self._text("/proc/self/mountinfo"))

    # ------------------------------------------------------------------ our own place
    def own_class(self) -> Runnable:
        """Return a process as a launcher would start it from here: in a session of its own.

        A process inherits its control group, and all processes of ours share the group's weight. The root group
        has no weight; there each session is a group of its own if the kernel makes autogroups.
        """
        groups = self._control_groups(self._text("/proc/self/cgroup"))
        if groups:
            return Runnable(frozenset(), groups=groups)
        if self._makes_autogroups():
            return Runnable(frozenset(), groups=(SchedulingGroup(NEW_SESSION),))
        own = self._text("/proc/self/stat")
        return Runnable(frozenset(), weight_of_niceness(parse_thread(own).nice if own else 0))

    def hides_processes(self) -> str:
        """Return the option of /proc that hides the processes of other users; empty without one."""
        for line in self._text("/proc/self/mountinfo").splitlines():
            if " - proc " in line and (found := HIDEPID.search(line.partition(" - ")[2])):
                return found[0]
        return ""

    # ------------------------------------------------------------------------ a look
    def look(self) -> RunQueueSample:
        """Return the threads that want to run now.

        Raises
        ------
        OSError, ValueError
            /proc is missing, or not as in proc(5).
        """
        running = max(0, parse_running(self._read(f"{self._root}/proc/loadavg")) - 1)
        self._left = self._most
        self._levels.clear()
        autogroups = self._makes_autogroups()
        found: dict[int, Runnable] = {}
        lately: dict[int, None] = {}
        unread = 0
        complete = True
        for pid in self._in_turn():
            if len(found) >= running:
                break
            if self._left <= 0:
                complete = False
                if pid in self._known:
                    self._next = pid
                break
            self._known.add(pid)
            try:
                threads = list(self._threads(pid))
            except (FileNotFoundError, ProcessLookupError, PermissionError, ValueError):
                continue  # it ended while it was read, or may not be read
            if threads:
                lately[pid] = None
                groups, known = (
                    ((), True) if not self._wants_groups else self._groups_of(pid, autogroups)
                )
                unread += 0 if known else len(threads)
                for tid, kernel, one in threads:
                    found[tid] = one if kernel else replace(one, groups=groups)
        self._lately = {**lately, **dict(islice(self._lately.items(), self._most // 4))}
        return RunQueueSample(found, running, complete, unread)

    def _in_turn(self) -> Iterator[int]:
        """Yield the processes that ran lately, new processes, then all from the end of the last sample."""
        with os.scandir(f"{self._root}/proc") as entries:
            pids = sorted([int(one.name) for one in entries if one.name.isdigit()])
        here = set(pids)
        self._lately = {pid: None for pid in self._lately if pid in here}
        self._known = (self._known & here) or here  # in the first sample no process is new
        new = [pid for pid in pids if pid not in self._known]
        first = bisect_left(pids, self._next)
        asked = self._lately.keys() | {*new, self._own}
        rest = [pid for pid in (*pids[first:], *pids[:first]) if pid not in asked]
        yield from self._lately
        waiting, least = iter([pid for pid in new if pid != self._own]), self._left // 2
        while self._left > least and (pid := next(waiting, None)) is not None:
            yield pid
        yield from rest
        yield from waiting

    def _threads(self, pid: int) -> Iterator[tuple[int, bool, Runnable]]:
        """Yield each running thread: number, whether it is a kernel thread, and the thread without groups."""
        folder = f"{self._root}/proc/{pid}/task"
        first = self._opened(f"{folder}/{pid}/stat")
        state, count = parse_state(first)
        if count == 1 and state != RUNNABLE:
            return
        texts = self._all_threads(folder) if count > 1 else iter([(pid, first)])
        for tid, text in texts:
            if parse_state(text)[0] == RUNNABLE:
                one = parse_thread(text)
                allowed = parse_allowed_cpus(self._opened(f"{folder}/{tid}/status"))
                # Kernel threads run for moments, at a niceness of -20 (weight 87 times). With this weight
                # a single sample of one would change a minute of readings, so they get weight 1.
                weight = NICE_0_WEIGHT if one.kernel else _weight(one)
                yield tid, one.kernel, Runnable(allowed, weight, cpu=one.cpu)

    def _all_threads(self, folder: str) -> Iterator[tuple[int, str]]:
        with os.scandir(folder) as tasks:
            for task in islice(tasks, MAX_THREADS):
                if self._left <= 0:
                    return
                try:
                    yield int(task.name), self._opened(f"{folder}/{task.name}/stat")
                except (FileNotFoundError, ProcessLookupError):
                    continue

    # -------------------------------------------------------------------------- groups
    def _groups_of(self, pid: int, autogroups: bool) -> tuple[tuple[SchedulingGroup, ...], bool]:
        """Return the groups of a process, and whether they could be read."""
        folder = f"{self._root}/proc/{pid}"
        try:
            groups = self._control_groups(self._opened(f"{folder}/cgroup"))
            if groups or not autogroups:
                return groups, True
            found = AUTOGROUP.match(self._opened(f"{folder}/autogroup"))
        except (OSError, ValueError):
            return (SchedulingGroup(f"process {pid}"),), False
        if found is None or found[1] == "0":  # the group of processes without a session
            return (), True
        return (SchedulingGroup(found[0].split()[0], weight_of_niceness(int(found[2]))),), True

    def _control_groups(self, cgroup: str) -> tuple[SchedulingGroup, ...]:
        """Return the control groups with a weight that a text of /proc/PID/cgroup names, from the root on.

        Groups below the last group with the controller share its weight.
        """
        mount = self._cpu_mount
        if mount is None or not cgroup:
            return ()
        names = mount.path_of(parse_groups(cgroup)).parts[:MAX_CGROUP_DEPTH]
        groups: list[SchedulingGroup] = []
        for depth in range(len(names) + 1):
            group = self._level(mount, names[:depth])
            if group is None and depth:
                break
            if group is not None:
                groups.append(group)
        return tuple(groups)

    def _level(self, mount: CgroupMount, names: tuple[str, ...]) -> SchedulingGroup | None:
        """Return one control group; None if it has no weight of its own, as the root group."""
        if names not in self._levels:
            folder = "/".join((f"{self._root}{mount.point}", *names))
            self._left -= 3
            self._levels[names] = _group(folder, "/" + "/".join(names), mount.version, self._read)
        return self._levels[names]

    def _makes_autogroups(self) -> bool:
        return self._text("/proc/sys/kernel/sched_autogroup_enabled").strip() == "1"

    def _opened(self, path: str) -> str:
        self._left -= 1
        return self._read(path)

    def _text(self, path: str) -> str:
        """Return the text of a file; empty if it cannot be read."""
        try:
            return Path(self._root + path).read_text(errors="replace")
        except OSError:
            return ""


def averaged(looks: Sequence[RunQueueSample], cpus: frozenset[int], most: int) -> list[Runnable]:
    """Return the threads of some samples, each active for the fraction of the samples in which it ran.

    Threads that the kernel counts and no sample has are assumed to be free to move, each in a group of its
    own, as most threads are. Of more than `most` threads the most frequent are returned.
    """
    seen: dict[int, Runnable] = {}
    times: dict[int, int] = {}
    for look in looks:
        for tid, thread in look.threads.items():
            seen[tid] = thread
            times[tid] = times.get(tid, 0) + 1
    often = sorted(seen, key=lambda tid: -times[tid])[:most]
    threads = [replace(seen[tid], active=times[tid] / len(looks)) for tid in often]
    unseen = min(look.unseen for look in looks)
    hidden = (
        Runnable(cpus, groups=(SchedulingGroup(f"unseen {number}"),))
        for number in range(min(unseen, most - len(threads)))
    )
    return [*threads, *hidden]


def _weight(thread: ThreadState) -> float:
    return MIN_WEIGHT if thread.idle else weight_of_niceness(thread.nice)


def _cpu_mount(mountinfo: str) -> CgroupMount | None:
    """Return the hierarchy with the cpu controller: of version 1 if it is mounted, else of version 2."""
    mounts = parse_mounts(mountinfo)
    first = next((one for one in mounts if one.version == 1 and "cpu" in one.controllers), None)
    return first or next((one for one in mounts if one.version == 2), None)


def _group(
    folder: str, name: str, version: int, read: Callable[[str], str]
) -> SchedulingGroup | None:
    """Return a control group from its files; None if it lacks the cpu controller."""
    try:
        if version == 2:
            weight = float(read(f"{folder}/cpu.weight")) * NICE_0_WEIGHT / 100
            quota, _, period = _or_nothing(read, f"{folder}/cpu.max").partition(" ")
        elif name == "/" and Path(folder, "release_agent").exists():
            return None  # the root group: its files exist and mean nothing
        else:
            weight = float(read(f"{folder}/cpu.shares"))
            quota = _or_nothing(read, f"{folder}/cpu.cfs_quota_us")
            period = _or_nothing(read, f"{folder}/cpu.cfs_period_us")
        limit = parse_quota(quota.strip(), period.strip() or USUAL_PERIOD)
    except (OSError, ValueError):
        return None
    if limit is None:
        return SchedulingGroup(name, max(weight, MIN_WEIGHT))
    seconds = float(period.strip() or USUAL_PERIOD) / 1e6
    return SchedulingGroup(name, max(weight, MIN_WEIGHT), limit, seconds)


def _or_nothing(read: Callable[[str], str], path: str) -> str:
    try:
        return read(path)
    except OSError:
        return ""


def read_file(path: str) -> str:
    """Return a file of one thread or group; by plain system calls, since a sample opens a thousand files.

    One read returns all of it (`single_open` of the kernel's seq_file).
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 1 << 16).decode(errors="replace")
    finally:
        os.close(descriptor)
