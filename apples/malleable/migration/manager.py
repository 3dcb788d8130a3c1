"""The manager of one unmodified program: starts it on its hosts, moves it on command, reports its end.

Run as ``python -m apples.malleable.migration.manager JOB_FILE``. It takes the same commands as the manager of an
MPI job (`apples.malleable.control.command`). A command that replaces one host by another is a migration; all other
commands are refused. A program on several hosts is an MPI program with one rank on each (`ranks`).
"""

from __future__ import annotations

import json
import selectors
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from apples.io.connection import call_ready
from apples.io.output_pipe import OutputPipe
from apples.launch.host_spec import HostSpec
from apples.launch.rank_ends import signal_name
from apples.malleable.control.command import (
    CommandSource,
    HostRows,
    JobEnded,
    ManagerStatus,
    ResizeCommand,
    ResizeDone,
    ResizeRefused,
    StateName,
    say_moved,
)
from apples.malleable.control.job_file import JobFile, loads
from apples.malleable.control.server import open_control
from apples.malleable.migration.hosts import ProgramSupervisors
from apples.malleable.migration.ranks import RANKS_FOLDER, AwaitedRanks, RankFolder
from apples.malleable.migration.steps import (
    READY_SECONDS,
    STOPPED_SECONDS,
    MigrationDone,
    MigrationLost,
    MigrationRefused,
    MigrationRequest,
    MigrationSteps,
    RanksRequest,
    SupervisorAnswer,
    SupervisorRequest,
    migration,
)

CHUNK = 1 << 20
PAUSE_BYTES = 4 << 20
"""Unwritten output above which the program's output is not copied."""


class ProgramOutput:
    """The output files of a program, each with the position up to which it was copied.

    Parameters
    ----------
    copy
        Called with new bytes.
    full
        Returns whether copying must stop for now.
    """

    def __init__(
        self, files: Iterable[Path], copy: Callable[[bytes], None], full: Callable[[], bool]
    ) -> None:
        self.read_to = dict.fromkeys(files, 0)
        self._copy, self._full = copy, full

    def copy(self) -> bool:
        """Copy all new bytes; return whether all of them could be copied."""
        for path in self.read_to:
            while not self._full() and (data := self._next(path)):
                self._copy(data)
        return not self._full()

    def _next(self, path: Path) -> bytes:
        try:
            with path.open("rb") as stream:
                stream.seek(self.read_to[path])
                data = stream.read(CHUNK)
        except OSError:
            return b""
        self.read_to[path] += len(data)
        return data


TICK_SECONDS = 0.1
PROGRESS_SECONDS = 1.0
START_SECONDS = 20.0
SIGNAL, SIGNAL_SECONDS = "USR1", 1.0
SHARED = "shared"


class ProgramManager:
    """Runs one program until it ends.

    Parameters
    ----------
    job
        The job, with a member for each rank; its `commits` is a folder that the hosts share.
    commands
        Source of commands, which also receives the notices.
    selector
        The selector of the loop; the data of a key is a callback without arguments.
    emit, copy
        Called with an event of the application protocol, and with bytes that the program wrote.
    full
        Returns whether `copy` cannot take more bytes now.
    """

    def __init__(
        self,
        job: JobFile,
        commands: CommandSource,
        selector: selectors.BaseSelector,
        emit: Callable[[str], None],
        copy: Callable[[bytes], None],
        full: Callable[[], bool] = lambda: False,
    ) -> None:
        self.job, self.commands, self.emit = job, commands, emit
        wanted = dict(job.task.get("program", {}))
        self.folder = Path(job.commits)
        self.checkpoint = self.folder / "checkpoint"
        files = (Path(wanted.get(name) or self.folder / name) for name in ("output", "errors"))
        self.output = ProgramOutput(files, copy, full)
        self.signal = signal_number(str(wanted.get("signal", SIGNAL)))
        self.signal_seconds = float(wanted.get("signal_seconds", SIGNAL_SECONDS))
        self.ready_seconds = float(wanted.get("ready_seconds", READY_SECONDS))
        self.stopped_seconds = float(wanted.get("stopped_seconds", STOPPED_SECONDS))
        self.hosts = [share.host for share in job.members]
        self._finished: set[str] = set()
        self._addresses = dict(wanted.get("addresses", {}))
        self.ranks = (
            RankFolder(self.folder / RANKS_FOLDER, len(self.hosts)) if self._addresses else None
        )
        self._awaited: AwaitedRanks | None = None
        self._moving = ("", "")
        self.selector = selector
        self.supervisors = ProgramSupervisors(
            job, self.selector, self._proceed, self._on_program_exit, self._on_supervisor_lost
        )
        self.state: StateName = "starting"
        self.reason = self.code = ""
        self.epoch = 0
        self.command: ResizeCommand | None = None
        self.steps: MigrationSteps | None = None
        self.begun = self.moving_since = self.last_event = time.monotonic()

    def status(self) -> ManagerStatus:
        """Return the present status of the job."""
        members = tuple(HostRows(host, 0, 0) for host in self.hosts)
        busy, ranks = self.command is not None, len(self.hosts)
        return ManagerStatus(
            self.state, members, self.epoch, 0, ranks, ranks, busy, malleable=False
        )

    def run(self) -> int:
        """Run the program; return 0 if it ended with 0. All its processes have ended when this returns."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.folder / SHARED).touch(mode=0o600)
        self.commands.attach(self.selector, self.status)
        try:
            self._start()
            while self.state in {"starting", "running"}:
                self._tick()
        finally:
            self.supervisors.close()
        while not self.output.copy():
            call_ready(self.selector, TICK_SECONDS)
        return self._end()

    def _tick(self) -> None:
        """Handle received reports and commands, and check timeouts."""
        call_ready(self.selector, TICK_SECONDS)
        self.supervisors.check()
        if self._awaited is not None and (answer := self._awaited.answer()) is not None:
            self._awaited = None
            self._proceed(answer)
        if self.commands.cancelled():
            self.state = "cancelled"
        elif self.state == "running" and self.command is None:
            command = self.commands.poll()
            if command is not None:
                self._handle(command)
        self.output.copy()
        if self.state == "running" and time.monotonic() - self.last_event >= PROGRESS_SECONDS:
            self._event("progress", iteration=0, iterations=1, seconds=self._seconds(), hosts=[])

    def _end(self) -> int:
        if self.command is not None:
            self.commands.notify(
                ResizeRefused(
                    self.command.epoch, self.reason or "the program ended", code="job-ended"
                )
            )
        if (
            self.state != "failed"
        ):  # after a failure the checkpoint stays; the reason may contain its path
            shutil.rmtree(self.checkpoint, ignore_errors=True)
        if self.state == "finished":
            seconds = self._seconds()
            times = {"compute_seconds": seconds, "communicate_seconds": 0.0}
            at_last = [{"host": host, **times} for host in self.hosts]
            told = {"seconds": seconds, "startup_seconds": 0.0, "hosts": at_last}
            self._event("result", iterations=1, **told)
            self._event("done")
        elif self.state == "failed":
            self._event("error", message=self.reason[:2000], code=self.code)
        self.commands.notify(JobEnded(self.state, self.reason, self.code))
        self.commands.close()
        return 0 if self.state == "finished" else 1

    # ------------------------------------------------------ the program's life

    def _start(self) -> None:
        """Start the first rank; each answer starts the next rank."""
        self._starting = 0
        if self.ranks is not None:
            try:
                self.ranks.open([self._addresses[host] for host in self.hosts])
            except OSError as error:
                self._fail(f"{error.filename}: {error.strerror}", code="system-error")
                return
        self._start_rank()

    def _start_rank(self) -> None:
        host = self.hosts[self._starting]
        place = self.job.place(host)
        own = {} if self.ranks is None else self.ranks.environment(self._starting)
        output, errors = map(str, self.output.read_to)
        start = {
            "order": "start",
            "argv": list(place.program),
            "directory": self.job.directory,
            "environment": {**place.environment, **own, "APPLES_JOB": self.job.job},
            "output": output,
            "errors": errors,
            **_placement(place),
        }
        self.supervisors.ask(SupervisorRequest(host, start, START_SECONDS))

    def _proceed(self, answer: SupervisorAnswer) -> None:
        """Handle the answer to a request of a migration's steps, or of the start."""
        if self.steps is None:
            self._started(answer)
            return
        try:
            self._request(self.steps.send(answer))
        except StopIteration as over:
            self._on_migrated(over.value)

    def _request(self, request: SupervisorRequest | RanksRequest) -> None:
        """Send a request to a supervisor, or to all ranks through their files."""
        if isinstance(request, SupervisorRequest):
            self.supervisors.ask(request)
            return
        assert self.ranks is not None  # noqa: S101 - for the type checker: only ranks are asked so
        answer: dict[str, Any] = {"report": request.word}
        try:
            self._ask_ranks(self.ranks, request)
        except OSError as error:
            answer = {"report": "failed", "reasons": [f"{error.filename}: {error.strerror}"]}
        if self._awaited is None:
            self._proceed(answer)

    def _ask_ranks(self, ranks: RankFolder, request: RanksRequest) -> None:
        if request.word == "withdraw":
            ranks.withdraw()
        elif request.word in {"ready", "stop"}:
            ranks.order(request.word)
            self._awaited = AwaitedRanks(ranks, request.word, request.seconds)
        else:
            if request.word == "moved":
                self._arrived()
            else:
                shutil.rmtree(
                    self.checkpoint, ignore_errors=True
                )  # frees space if the disk is full
            ranks.go([self._addresses[host] for host in self.hosts])
            if request.word != "release":
                self._awaited = AwaitedRanks(ranks, "go", request.seconds)

    def _started(self, answer: SupervisorAnswer) -> None:
        host = self.hosts[self._starting]
        program = Path(self.job.place(host).program[0]).name
        if answer["report"] != "started":
            why = "; ".join(map(str, answer["reasons"]))
            self._fail(f"{host}: cannot start {program}: {why}", code="program-not-started")
            return
        self._starting += 1
        if self._starting < len(self.hosts):
            self._start_rank()
            return
        self.state, self.begun = "running", time.monotonic()
        self._event("ready", protocol=1, program=program, version="", ranks=len(self.hosts))

    def _on_program_exit(self, host: str, code: int) -> None:
        if code == 0:
            self._finished.add(host)
            if self._finished >= set(self.hosts):
                self.state = "finished"
        elif (
            self.state != "failed"
        ):  # only the first end counts: it causes the ends of the other ranks
            how = f"exit code {code}" if code > 0 else f"signal {signal_name(-code)}"
            which = (
                "the program" if self.ranks is None else f"rank {self.hosts.index(host)} on {host}"
            )
            self._fail(f"{which} ended with {how}", code="program-failed")

    def _on_supervisor_lost(self, host: str, why: str) -> None:
        """Handle the loss of a supervisor: its program died with it, unless it is in a checkpoint now."""
        written = (
            self.supervisors.request is not None
            and self.supervisors.request.command["order"] == "restart"
            and host == self._moving[0]
        )
        if host in self.hosts and host not in self._finished and not written:
            self._fail(f"{host}: {why}", code="supervisor-ended")

    def _fail(self, reason: str, *, code: str) -> None:
        self.state, self.reason, self.code = "failed", reason, code

    # ---------------------------------------------------------- a migration

    def _handle(self, command: ResizeCommand) -> None:
        wanted = [share.host for share in command.hosts]
        known = {place.host for place in self.job.hosts}
        left = [host for host in self.hosts if host not in wanted]
        new = [host for host in wanted if host not in self.hosts]
        strange = [host for host in new if host not in known]
        if len(wanted) != len(self.hosts):
            many = "one" if len(self.hosts) == 1 else str(len(self.hosts))
            reason = f"a program that knows nothing of hosts runs on {many}: it can be migrated, not resized"
            self.commands.notify(ResizeRefused(command.epoch, reason, code="run-not-resizable"))
        elif strange:
            reason = f"{strange[0]}: not among the job's hosts"
            self.commands.notify(ResizeRefused(command.epoch, reason, code="host-unknown"))
        elif len(left) > 1:
            reason = f"{', '.join(left)}: an unmodified program leaves one host at a time"
            self.commands.notify(ResizeRefused(command.epoch, reason, code="too-many-moves"))
        elif not left:
            self.epoch = command.epoch
            self.commands.notify(ResizeDone(command.epoch, self.status().members, 0.0, {}))
        else:
            self.command, self.moving_since = command, time.monotonic()
            self._moving = (left[0], new[0])
            self.steps = migration(self._migration(*self._moving))
            self._request(next(self.steps))

    def _migration(self, source: str, target: str) -> MigrationRequest:
        here, there = self.job.place(source), self.job.place(target)
        shutil.rmtree(self.checkpoint, ignore_errors=True)
        return MigrationRequest(
            source=source,
            target=target,
            folder=str(self.checkpoint),
            token=str(self.folder / SHARED),
            place={place.host: _placement(place) for place in (here, there)},
            signal=self.signal,
            signal_seconds=self.signal_seconds,
            ready_seconds=self.ready_seconds,
            stopped_seconds=self.stopped_seconds,
            rank=None if self.ranks is None else self.hosts.index(source),
        )

    def _arrived(self) -> None:
        """Record the target as the host of the moved rank, after its restart there."""
        source, target = self._moving
        self.hosts = [target if host == source else host for host in self.hosts]

    def _on_migrated(self, outcome: MigrationDone | MigrationRefused | MigrationLost) -> None:
        """Notify the outcome of a migration, and dismiss the supervisor without a program."""
        command, self.command, self.steps = self.command, None, None
        assert command is not None  # noqa: S101 - for the type checker: a migration had one
        if isinstance(outcome, MigrationDone):
            self._arrived()
            self.epoch = command.epoch
            self.supervisors.dismiss(self._moving[0])
            seconds, phases = time.monotonic() - self.moving_since, dict(outcome.phases)
            members = self.status().members
            done = ResizeDone(command.epoch, members, seconds, phases, moved_bytes=outcome.bytes)
            say_moved(self.emit, done, 0)
            self.commands.notify(done)
        else:
            self.supervisors.dismiss(self._moving[1])
            self.commands.notify(ResizeRefused(command.epoch, outcome.reason, outcome.code))
        if isinstance(outcome, MigrationLost):
            self._fail(outcome.reason, code=outcome.code)
        else:
            shutil.rmtree(self.checkpoint, ignore_errors=True)

    # -------------------------------------------------------------- its words

    def _seconds(self) -> float:
        return time.monotonic() - self.begun

    def _event(self, event: str, **fields: Any) -> None:
        self.last_event = time.monotonic()
        self.emit(json.dumps({"event": event, **fields}))


def signal_number(name: str) -> int:
    """Return the number of a signal such as ``USR1``; 0 for ``none``.

    Raises
    ------
    ValueError
        The signal does not exist, or cannot be caught.
    """
    if name == "none":
        return 0
    names = {one.name.removeprefix("SIG"): int(one) for one in signal.Signals}
    if name not in names or name in {"KILL", "STOP"}:
        raise ValueError(f"signal '{name}': must be none or a name such as USR1, TERM or WINCH")
    return names[name]


def _placement(place: HostSpec) -> dict[str, Any]:
    return {"cpus": list(place.cpus), "cgroup": place.cgroup}


def main() -> int:
    """Run the job of the file in the first argument."""
    try:
        job = loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
        selector = selectors.DefaultSelector()
        output, errors = OutputPipe(1, selector), OutputPipe(2, selector)
        manager = ProgramManager(
            job,
            open_control(job),
            selector,
            emit=lambda event: output.write(event.encode() + b"\n"),
            copy=errors.write,
            full=lambda: errors.waiting > PAUSE_BYTES,
        )
    except (OSError, ValueError) as error:
        print(f"apples: {error}", file=sys.stderr)  # noqa: T201 - talk
        return 2
    manager.run()
    output.close()
    errors.close()
    return {"finished": 0, "failed": 5}.get(manager.state, 130)


if __name__ == "__main__":
    sys.exit(main())
