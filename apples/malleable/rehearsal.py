"""Rehearses a malleable job: a job manager in this process, hosts emulated on this machine, commands from a list.

For tests and benchmarks, and for authors to resize their program without an agent.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from selectors import BaseSelector
from typing import Any

from apples.io.json_lines import LineBuffer
from apples.launch.host_spec import HostSpec
from apples.launch.host_spec_builders import local_spec
from apples.launch.hydra import RankGroup
from apples.launch.job_processes import kill_marked, marked, remove_run
from apples.launch.processes import job_name
from apples.malleable.control.command import (
    CommandSource,
    HostShare,
    JobEnded,
    JobNotice,
    ManagerStatus,
    ResizeCommand,
    ResizeDone,
)
from apples.malleable.control.job_file import JobFile, loads
from apples.malleable.job_start import describe_job
from apples.malleable.manager.job_manager import JobManager


class ScriptedControl(CommandSource):
    """Sends one map after another, each after the answer to the map before.

    Parameters
    ----------
    maps
        Successive processor maps of the job; may be a generator that reads `notices`.

    Attributes
    ----------
    notices
        All notices of the job, in order.

    Examples
    --------
    >>> control = ScriptedControl([[HostShare("a")]])
    >>> control.poll().hosts
    (HostShare(host='a', weight=1.0, cpus=(), rows=0),)
    """

    def __init__(self, maps: Iterable[Iterable[HostShare]]) -> None:
        self._maps = iter(maps)
        self._status: Callable[[], ManagerStatus] = lambda: ManagerStatus("starting")
        self._epoch = 100
        self.notices: list[JobNotice] = []

    def attach(self, selector: BaseSelector, status: Callable[[], ManagerStatus]) -> None:
        """Store `status`; register no file."""
        del selector
        self._status = status

    def poll(self) -> ResizeCommand | None:
        """Return the next command."""
        shares = next(self._maps, None)
        if shares is None:
            return None
        self._epoch = max(self._epoch, self._status().epoch) + 1
        return ResizeCommand(self._epoch, tuple(shares))

    def cancelled(self) -> bool:
        """Return False: a script does not cancel the job."""
        return False

    def notify(self, notice: JobNotice) -> None:
        """Append a notice to `notices`."""
        self.notices.append(notice)

    def close(self) -> None:
        """Do nothing."""


LONGEST = 1 << 20
"""Largest number of bytes of a line; the rest of a longer line is dropped."""
LEFT_SECONDS = 10.0
"""Time limit for the remaining processes of a run to end."""
Maps = Iterable[Iterable[HostShare]]


@dataclass
class Rehearsal:
    """The result of a rehearsal.

    Attributes
    ----------
    lines
        Lines that the ranks wrote to standard output.
    residents
        For each `ResizeDone`, the processes of the job that were still on released hosts at that moment.
    """

    ended: JobEnded
    notices: list[JobNotice]
    lines: list[str]
    residents: list[list[int]] = field(default_factory=list)

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the events of this name."""
        found = [json.loads(line) for line in self.lines if line.startswith("{")]
        return [event for event in found if event.get("event") == name]


class WatchedControl(ScriptedControl):
    """Commands from a list, with a search for processes on released hosts after each."""

    def __init__(self, maps: Maps, job: str, hosts: Sequence[str], pause: float) -> None:
        super().__init__(maps)
        self._job, self._hosts, self._pause, self._free = job, hosts, pause, 0.0
        self.residents: list[list[int]] = []

    def poll(self) -> Any:
        """Return the next command after the pause; None until then."""
        return super().poll() if time.monotonic() >= self._free else None

    def notify(self, notice: JobNotice) -> None:
        """Append a notice; after a `ResizeDone`, also the job's processes on released hosts."""
        super().notify(notice)
        self._free = time.monotonic() + self._pause
        if isinstance(notice, ResizeDone):
            left = set(self._hosts) - {member.host for member in notice.members}
            self.residents.append([p for p in marked(self._job) if _host(p) in left])


def rehearse(
    program: Sequence[str],
    slots: Mapping[str, int],
    first: Sequence[HostShare],
    maps: Maps = (),
    *,
    task: Mapping[str, Any] | None = None,
    warm: Sequence[str] = (),
    commits: Path | None = None,
    commit_seconds: float | None = 0.0,
    minimum: int = 1,
    pause: float = 0.0,
    environment: Mapping[str, str] | None = None,
    place: Callable[[HostSpec], HostSpec] = lambda spec: spec,
    watch: Callable[[JobManager], None] = lambda _: None,
) -> Rehearsal:
    """Run `program` on the map `first`, resize it to each of `maps`, and return the result.

    Parameters
    ----------
    slots
        Host -> number of its ranks, for all hosts that the job may use.
    pause
        Seconds between an answer and the next command.
    place
        Called with the specification of each host, a part of this machine; returns the specification to use.
    watch
        Called with the manager before it runs.
    """
    name = job_name()
    places = [
        place(local_spec(RankGroup(host, count, tuple(program)), warm=host in warm))
        for host, count in slots.items()
    ]
    made = describe_job(
        name, places, first, task or {}, minimum=minimum,
        commits=commits, commit_seconds=commit_seconds,
    )  # fmt: skip
    job = _with(made, environment or {})
    folder = tempfile.mkdtemp(prefix="apples-")
    pipe = Path(folder) / "output"
    os.mkfifo(pipe, 0o600)
    handle = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        control = WatchedControl(maps, name, list(slots), pause)
        manager = JobManager(job, control, Path(folder), output=handle, events=False)
        output = _listen(manager, handle)
        watch(manager)
        ended = manager.run()
        output()
    finally:
        os.close(handle)
        # Ranks die with a killed supervisor, but not immediately.
        kill_marked(name, LEFT_SECONDS)
        remove_run(folder, [])
    return Rehearsal(ended, control.notices, output.lines, control.residents)


@dataclass
class _Output:
    handle: int
    lines: list[str] = field(default_factory=list)
    buffer: LineBuffer = field(default_factory=lambda: LineBuffer(LONGEST, truncating=True))

    def __call__(self) -> None:
        """Read the available output."""
        try:
            while data := os.read(self.handle, 1 << 16):
                self.lines += [line.decode(errors="replace") for line in self.buffer.feed(data)]
        except BlockingIOError:
            return


def _listen(manager: JobManager, handle: int) -> _Output:
    output = _Output(handle)
    manager.listen(handle, output)
    return output


def _with(job: JobFile, environment: Mapping[str, str]) -> JobFile:
    raw = json.loads(job.dumps())
    for host in raw["hosts"]:
        host["environment"].update(environment)
    return loads(json.dumps(raw))


def _host(pid: int) -> str:
    """Return the host for which a process was started; empty if it has none."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    return next((v[12:].decode() for v in variables if v.startswith(b"APPLES_HOST=")), "")
