"""The master of the load monitor: receives the snapshots of all slaves and averages the latest of each host."""

from __future__ import annotations

import math
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from statistics import stdev
from typing import Final

from apples.errors import ApplesError, UsageError
from apples.weather.load.snapshot import MAX_BYTES, NodeSnapshot, read_line

# Five snapshots: a daemon process that one sample in ten catches makes a load of 0.1. Without the
# standard error of `errors`, this would suffice to move a job.
WINDOW: Final = 5
"""l: number of snapshots in a mean."""
AGAIN_SECONDS: Final = 10.0
"""Delay before a slave that ended is restarted."""
END_SECONDS: Final = 2.0


class RecentMean:
    """The mean of the latest l values of several quantities, by recursion: M_t = M_(t-1) + (x_t - x_(t-l)) / l.

    A quantity that a value lacks counts as 0 there. Of fewer than l values, it is the mean of all.

    Parameters
    ----------
    window
        The number l.

    Examples
    --------
    >>> mean = RecentMean(2)
    >>> mean.add({"a": 1.0}), mean.add({"a": 3.0, "b": 1.0}), mean.add({"b": 1.0})
    ({'a': 1.0}, {'a': 2.0, 'b': 0.5}, {'a': 1.5, 'b': 1.0})
    """

    def __init__(self, window: int) -> None:
        self._window = window
        self._latest: deque[Mapping[str, float]] = deque()
        self._means: dict[str, float] = {}

    @property
    def count(self) -> int:
        """Number of values in the mean."""
        return len(self._latest)

    def add(self, values: Mapping[str, float]) -> dict[str, float]:
        """Add the next value; return the means."""
        full = len(self._latest) == self._window
        gone = self._latest.popleft() if full else {}
        self._latest.append(values)
        size = len(self._latest)
        there = dict.fromkeys(name for each in self._latest for name in each)
        means = {}
        for name in there:
            before, value = self._means.get(name, 0.0), values.get(name, 0.0)
            last = gone.get(name, 0.0) if full else before
            means[name] = max(0.0, before + (value - last) / size)
        self._means = means
        return dict(means)

    def errors(self) -> dict[str, float]:
        """Return the standard error of each mean, as if the values were independent; empty below two values."""
        size = len(self._latest)
        if size < 2:
            return {}
        return {
            name: stdev([one.get(name, 0.0) for one in self._latest]) / math.sqrt(size)
            for name in self._means
        }


class LoadMonitor:
    """Keeps a slave running on each machine, and passes on its snapshots.

    Parameters
    ----------
    slaves
        Machine -> the command line of its slave (`apples.weather.load.remote`).
    hear
        Called from any thread with each new snapshot of a host, its figures the means of the latest.
    window
        Number of snapshots in a mean.
    least
        Minimum number of snapshots of a host before `hear` is called for it.
    problem
        Called from any thread with a machine and the fault of its slave, when the fault changes; empty: no fault.
    each
        Called from any thread with each single snapshot; None: not called.
    again_seconds
        Delay before a slave that ended is restarted.
    end_seconds
        Time limit for slaves to end after SIGTERM; then they are killed.
    """

    def __init__(
        self,
        slaves: Mapping[str, Sequence[str]],
        hear: Callable[[NodeSnapshot], None],
        window: int = WINDOW,
        least: int = WINDOW,
        problem: Callable[[str, str], None] = lambda machine, text: None,  # noqa: ARG005 - no receiver
        each: Callable[[NodeSnapshot], None] | None = None,
        *,
        again_seconds: float = AGAIN_SECONDS,
        end_seconds: float = END_SECONDS,
    ) -> None:
        self._each, self._again_seconds, self._end_seconds = each, again_seconds, end_seconds
        self._hear, self._window, self._least, self._tell = hear, window, least, problem
        self._problems: dict[str, str] = {}
        self._lock = threading.Lock()
        self._slaves: dict[str, _Slave] = {}
        self._left: list[_Slave] = []
        """Slaves of machines that left; some may still run."""
        self._ended = False
        for machine, argv in slaves.items():
            self.join(machine, lambda argv=argv: argv)  # type: ignore[misc]

    def __enter__(self) -> LoadMonitor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def join(self, machine: str, command: Callable[[], Sequence[str]]) -> None:
        """Start a slave on one more machine, unless it has one.

        Parameters
        ----------
        command
            Returns its command line; called at each start and restart.
        """
        with self._lock:
            if self._ended or machine in self._slaves:
                return
            slave = self._slaves[machine] = _Slave(machine, command)
            slave.thread = threading.Thread(
                target=self._keep, args=(slave,), name="load", daemon=True
            )
            slave.thread.start()

    def leave(self, machine: str) -> None:
        """End the slave on a machine, if it has one; its problems are no longer reported."""
        with self._lock:
            slave = self._slaves.pop(machine, None)
            if slave is not None:
                slave.end()
                self._left = [one for one in (*self._left, slave) if one.runs()]
                self._problems.pop(machine, None)  # reported again if the machine comes back

    def close(self) -> None:
        """End all slaves, also those of machines that left; kill a slave that does not end in time."""
        with self._lock:
            self._ended = True
            slaves = [*self._slaves.values(), *self._left]
            for slave in slaves:
                slave.end()
        due = time.monotonic() + self._end_seconds
        for slave in slaves:
            if slave.thread is not None:
                slave.thread.join(max(0.0, due - time.monotonic()))
                if slave.runs() and slave.process is not None:
                    slave.process.kill()
                    slave.thread.join(self._end_seconds)

    def _problem(self, machine: str, text: str) -> None:
        if self._problems.get(machine, "") != text:
            self._problems[machine] = text
            self._tell(machine, text)

    def _keep(self, slave: _Slave) -> None:
        while not slave.ending.is_set():
            try:
                text = self._follow(slave, slave.command())
            except ApplesError as error:
                text = str(error)
            except Exception as error:  # noqa: BLE001 - from `command`, which is called again
                text = f"{type(error).__name__}: {error}"
            if not slave.ending.is_set():
                self._problem(slave.machine, text)
                slave.ending.wait(self._again_seconds)

    def _follow(self, slave: _Slave, argv: Sequence[str]) -> str:
        """Read the snapshots of a slave until it ends; return the reason for its end."""
        means: dict[str, _HostMeans] = {}
        try:
            with self._lock:
                if slave.ending.is_set():
                    return ""
                process = subprocess.Popen(
                    argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )  # fmt: skip
                slave.process = process
        except OSError as error:
            return f"{argv[0]}: {error.strerror}"
        assert process.stdin is not None  # noqa: S101 - for the type checker: both are pipes
        assert process.stdout is not None  # noqa: S101
        try:
            while (line := process.stdout.readline(MAX_BYTES + 1)).endswith(b"\n"):
                if slave.ending.is_set():
                    break
                for snapshot in read_line(line):
                    self._take_in(
                        snapshot, means.setdefault(snapshot.host, _HostMeans(self._window))
                    )
                self._problem(slave.machine, "")
        except (UsageError, OSError, ValueError) as error:
            return str(error)
        else:
            return "its slave ended"
        finally:
            process.kill()
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):
                    pipe.close()
            process.wait()

    def _take_in(self, snapshot: NodeSnapshot, mean: _HostMeans) -> None:
        if self._each is not None:
            self._each(snapshot)
        told = mean.add(snapshot)
        if mean.count >= self._least:
            self._hear(told)


@dataclass
class _Slave:
    """The slave of a machine, with its process and the thread that restarts it."""

    machine: str
    command: Callable[[], Sequence[str]]
    ending: threading.Event = field(default_factory=threading.Event)
    process: subprocess.Popen[bytes] | None = None
    thread: threading.Thread | None = None

    def runs(self) -> bool:
        """Return whether its thread still runs."""
        return self.thread is not None and self.thread.is_alive()

    def end(self) -> None:
        """Prevent a restart, and end the process."""
        self.ending.set()
        if self.process is not None:
            self.process.terminate()


class _HostMeans:
    """The means of the latest snapshots of a host."""

    def __init__(self, window: int) -> None:
        self._wanting, self._parts = RecentMean(window), RecentMean(window)

    @property
    def count(self) -> int:
        return self._wanting.count

    def add(self, one: NodeSnapshot) -> NodeSnapshot:
        wanting, parts = self._wanting.add(one.wanting), self._parts.add(one.parts)
        held = {name: min(1.0, parts[name]) for name in one.parts}
        return replace(one, wanting=wanting, parts=held, errors=self._wanting.errors())
