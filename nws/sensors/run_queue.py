"""Who wants to run on this machine now, and in which groups of the scheduler: /proc, read within bounds."""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Final

from nws.sensors.fair_share import (
    LEAST_WEIGHT,
    NICE_0_WEIGHT,
    Runnable,
    SchedulingGroup,
    weight_of_niceness,
)
from nws.sensors.linux import (
    ROOT,
    RUNNABLE,
    Mount,
    ThreadState,
    parse_allowed_cpus,
    parse_groups,
    parse_mounts,
    parse_quota,
    parse_running,
    parse_state,
    parse_thread,
)

MOST_FILES: Final = 800
"""Files that one look opens: about 15 ms. What it did not come to is where the next begins."""
MOST_THREADS: Final = 400
"""Threads of one process that a look asks for their state."""
DEEPEST: Final = 32
"""Levels of control groups that are told apart."""
NEW_SESSION: Final = "a new session"
"""The group of a process that has a session, and so an autogroup, of its own."""
USUAL_PERIOD: Final = "100000"
AUTOGROUP = re.compile(r"/autogroup-(\d+) nice (-?\d+)")
HIDEPID = re.compile(r"\bhidepid=(?!0\b|off\b)(\w+)")


@dataclass(frozen=True)
class RunQueueLook:
    """What one look at the machine found.

    Attributes
    ----------
    threads
        The threads of others that want to run, by their number.
    running
        How many want to run by the kernel's own count, the looking one not counted.
    complete
        Whether all that can be seen was looked at, or as many were found as the kernel counts.
    unread
        Threads whose groups cannot be read; they are taken to be in groups of their own.
    """

    threads: dict[int, Runnable] = field(default_factory=dict)
    running: int = 0
    complete: bool = True
    unread: int = 0

    @property
    def unseen(self) -> int:
        """How many want to run by the kernel's count that were not found."""
        return max(0, self.running - len(self.threads))


class RunQueueReader:
    """Looks at the threads that want to run, a bounded number of files a look.

    Most of a machine sleeps, and the kernel tells how many do not: processes that were found running
    before are looked at first, then those that are new, and the look ends where all are found. Where it may open
    no more files it ends too, and the next one goes on from there among those that sleep, to which half of the
    files are left however many are new. A process that vanishes while it is read does not want to run any more.

    Parameters
    ----------
    root
        The root of the tree in which /proc and /sys are read.
    own
        The process that is not looked at; None: this one.
    most_files
        Files one look may open.
    groups
        Whether it is wanted in which groups of the scheduler they are: a third of what a look costs.
    """

    def __init__(
        self,
        root: Path = ROOT,
        own: int | None = None,
        most_files: int = MOST_FILES,
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

        Control groups are inherited: in one, all processes of ours share its weight. In the root of them
        each session is a group where the kernel makes autogroups, and the root has no weight to share.
        """
        groups = self._control_groups(self._text("/proc/self/cgroup"))
        if groups:
            return Runnable(frozenset(), groups=groups)
        if self._makes_autogroups():
            return Runnable(frozenset(), groups=(SchedulingGroup(NEW_SESSION),))
        own = self._text("/proc/self/stat")
        return Runnable(frozenset(), weight_of_niceness(parse_thread(own).nice if own else 0))

    def hides_processes(self) -> str:
        """Return the option of /proc that hides others' processes; nothing where there is none."""
        for line in self._text("/proc/self/mountinfo").splitlines():
            if " - proc " in line and (found := HIDEPID.search(line.partition(" - ")[2])):
                return found[0]
        return ""

    # ------------------------------------------------------------------------ a look
    def look(self) -> RunQueueLook:
        """Return who wants to run now.

        Raises
        ------
        OSError, ValueError
            /proc is not there, or not as proc(5) says.
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
                continue  # it ended while it was read, or is nobody's business
            if threads:
                lately[pid] = None
                groups, known = (
                    ((), True) if not self._wants_groups else self._groups_of(pid, autogroups)
                )
                unread += 0 if known else len(threads)
                for tid, kernel, one in threads:
                    found[tid] = one if kernel else replace(one, groups=groups)
        self._lately = {**lately, **dict(islice(self._lately.items(), self._most // 4))}
        return RunQueueLook(found, running, complete, unread)

    def _in_turn(self) -> Iterator[int]:
        """Yield the processes: those that ran lately, new ones, then all from where the last look ended."""
        with os.scandir(f"{self._root}/proc") as entries:
            pids = sorted([int(one.name) for one in entries if one.name.isdigit()])
        here = set(pids)
        self._lately = {pid: None for pid in self._lately if pid in here}
        self._known = (self._known & here) or here  # at the first look nobody is newer than others
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
        """Yield number, whether it is the kernel's, and what it is without groups, of each that wants to run."""
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
                # The kernel's own run for moments, and at a niceness of -20 (weight 87 times): they
                # count as one, or a single glance at one would bend a minute of readings.
                weight = NICE_0_WEIGHT if one.kernel else _weight(one)
                yield tid, one.kernel, Runnable(allowed, weight, cpu=one.cpu)

    def _all_threads(self, folder: str) -> Iterator[tuple[int, str]]:
        with os.scandir(folder) as tasks:
            for task in islice(tasks, MOST_THREADS):
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
        if (
            found is None or found[1] == "0"
        ):  # the group of what was started before there were sessions
            return (), True
        return (SchedulingGroup(found[0].split()[0], weight_of_niceness(int(found[2]))),), True

    def _control_groups(self, cgroup: str) -> tuple[SchedulingGroup, ...]:
        """Return the control groups with a weight that a text of /proc/PID/cgroup names, from the root on.

        Where the controller ends on the way down, what is below shares the last group that has it.
        """
        mount = self._cpu_mount
        if mount is None or not cgroup:
            return ()
        path = parse_groups(cgroup).get("cpu" if mount.version == 1 else "", mount.group)
        inside = path.relative_to(mount.group) if path.is_relative_to(mount.group) else path
        names = [part for part in inside.parts if part != "/"][:DEEPEST]
        groups: list[SchedulingGroup] = []
        for depth in range(len(names) + 1):
            group = self._level(mount, tuple(names[:depth]))
            if group is None and depth:
                break
            if group is not None:
                groups.append(group)
        return tuple(groups)

    def _level(self, mount: Mount, names: tuple[str, ...]) -> SchedulingGroup | None:
        """Return one control group; None where it has no weight of its own (the root of all has none)."""
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
        """Return the text of a file, nothing where it cannot be read."""
        try:
            return Path(self._root + path).read_text(errors="replace")
        except OSError:
            return ""


def averaged(looks: Sequence[RunQueueLook], cpus: frozenset[int], most: int) -> list[Runnable]:
    """Return who wanted to run in some looks, each active for the part of them in which it did.

    Threads that the kernel counts and that no look found are taken to be free to move and in groups of their
    own, like most. Of more than `most` threads those that were seen most often are returned.
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
    return LEAST_WEIGHT if thread.idle else weight_of_niceness(thread.nice)


def _cpu_mount(mountinfo: str) -> Mount | None:
    """Return the hierarchy that has the cpu controller: version 1's if that is mounted, else version 2's."""
    mounts = parse_mounts(mountinfo)
    first = next((one for one in mounts if one.version == 1 and "cpu" in one.controllers), None)
    return first or next((one for one in mounts if one.version == 2), None)


def _group(
    folder: str, name: str, version: int, read: Callable[[str], str]
) -> SchedulingGroup | None:
    """Return what the files of a control group say; None where the cpu controller is not in it."""
    try:
        if version == 2:
            weight = float(read(f"{folder}/cpu.weight")) * NICE_0_WEIGHT / 100
            quota, _, period = _or_nothing(read, f"{folder}/cpu.max").partition(" ")
        elif name == "/" and Path(folder, "release_agent").exists():
            return None  # the root of all: its files are there and mean nothing
        else:
            weight = float(read(f"{folder}/cpu.shares"))
            quota = _or_nothing(read, f"{folder}/cpu.cfs_quota_us")
            period = _or_nothing(read, f"{folder}/cpu.cfs_period_us")
        limit = parse_quota(quota.strip(), period.strip() or USUAL_PERIOD)
    except (OSError, ValueError):
        return None
    if limit is None:
        return SchedulingGroup(name, max(weight, LEAST_WEIGHT))
    seconds = float(period.strip() or USUAL_PERIOD) / 1e6
    return SchedulingGroup(name, max(weight, LEAST_WEIGHT), limit, seconds)


def _or_nothing(read: Callable[[str], str], path: str) -> str:
    try:
        return read(path)
    except OSError:
        return ""


def read_file(path: str) -> str:
    """Return a file of one thread or group; by plain system calls, since a look opens a thousand files.

    It comes in one piece (`single_open` of the kernel's seq_file), whose end need not be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 1 << 16).decode(errors="replace")
    finally:
        os.close(descriptor)
