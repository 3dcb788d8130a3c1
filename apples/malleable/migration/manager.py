"""The manager of one unmodified program: it is started on a host, moved to another on command, its end reported.

Run as ``python -m apples.malleable.migration.manager JOB_FILE``. It is commanded as the manager of an MPI job is
(`apples.malleable.control.command`): a command that names one other host is a migration, all others are refused.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from apples.malleable.control.command import (
    CommandSource,
    HostRows,
    JobEnded,
    ManagerStatus,
    ResizeCommand,
    ResizeDone,
    ResizeRefused,
    StateName,
)
from apples.malleable.control.job_file import HostSpec, JobFile, loads
from apples.malleable.control.server import open_control
from apples.malleable.migration.steps import (
    MigrationDone,
    MigrationLost,
    MigrationRefused,
    MigrationRequest,
    MigrationSteps,
    SupervisorAnswer,
    SupervisorRequest,
    migration,
)
from apples.malleable.migration.supervisors import ProgramSupervisors
from apples.wire.readiness import call_ready

CHUNK = 1 << 20
STANDARD_ERROR = 2


class ProgramOutput:
    """The files a program writes to, each read as far as it was copied.

    Parameters
    ----------
    copy
        Takes what is new.
    """

    def __init__(self, files: Iterable[Path], copy: Callable[[bytes], None]) -> None:
        self.read_to = dict.fromkeys(files, 0)
        self._copy = copy

    def copy(self) -> None:
        """Copy what was written since; a file that is not there yet has nothing."""
        for path in self.read_to:
            while data := self._next(path):
                self._copy(data)

    def _next(self, path: Path) -> bytes:
        try:
            with path.open("rb") as stream:
                stream.seek(self.read_to[path])
                data = stream.read(CHUNK)
        except OSError:
            return b""
        self.read_to[path] += len(data)
        return data


def to_stderr(data: bytes) -> None:
    """Write all of it to standard error."""
    while data:
        data = data[os.write(STANDARD_ERROR, data) :]


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
        One member; its `commits` is a folder that the hosts share.
    commands
        Where commands come from and notices go to.
    emit, copy
        Take an event of the application protocol, and bytes that the program wrote.
    """

    def __init__(
        self,
        job: JobFile,
        commands: CommandSource,
        emit: Callable[[str], None] = print,
        copy: Callable[[bytes], None] = to_stderr,
    ) -> None:
        self.job, self.commands, self.emit = job, commands, emit
        wanted = dict(job.task.get("program", {}))
        self.folder = Path(job.commits)
        self.checkpoint = self.folder / "checkpoint"
        files = (Path(wanted.get(name) or self.folder / name) for name in ("output", "errors"))
        self.output = ProgramOutput(files, copy)
        self.signal = signal_number(str(wanted.get("signal", SIGNAL)))
        self.signal_seconds = float(wanted.get("signal_seconds", SIGNAL_SECONDS))
        self.host = job.members[0].host
        self.selector = selectors.DefaultSelector()
        self.supervisors = ProgramSupervisors(
            job, self.selector, self._proceed, self._on_program_exit, self._on_supervisor_lost
        )
        self.state: StateName = "starting"
        self.reason = ""
        self.epoch = 0
        self.command: ResizeCommand | None = None
        self.steps: MigrationSteps | None = None
        self.begun = self.moving_since = self.last_event = time.monotonic()

    def status(self) -> ManagerStatus:
        """Return the job at this moment."""
        members = (HostRows(self.host, 0, 0, self.job.members[0].weight),)
        busy = self.command is not None
        return ManagerStatus(self.state, members, self.epoch, 0, 1, 1, busy, malleable=False)

    def run(self) -> int:
        """Run the program; 0 if it ended with 0. No process of it is left when this returns."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.folder / SHARED).touch(mode=0o600)
        self.commands.attach(self.selector, self.status)
        try:
            self._start()
            while self.state in {"starting", "running"}:
                self._tick()
        finally:
            self.supervisors.close()
            self.selector.close()
        self.output.copy()
        return self._end()

    def _tick(self) -> None:
        """Take the reports and commands that came, and do what is due."""
        due = self.commands.deadline()
        patience = TICK_SECONDS if due is None else min(TICK_SECONDS, due - time.monotonic())
        call_ready(self.selector, patience)
        self.supervisors.check()
        if due is not None and time.monotonic() >= due:
            self.commands.tick()
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
                ResizeRefused(self.command.epoch, self.reason or "the program ended")
            )
        if self.state != "failed":  # whose reason may say where the checkpoint is kept
            shutil.rmtree(self.checkpoint, ignore_errors=True)
        if self.state == "finished":
            seconds = self._seconds()
            at_last = {"host": self.host, "compute_seconds": seconds, "communicate_seconds": 0.0}
            told = {"seconds": seconds, "startup_seconds": 0.0, "hosts": [at_last]}
            self._event("result", iterations=1, **told)
            self._event("done")
        elif self.state == "failed":
            self._event("error", message=self.reason[:2000])
        self.commands.notify(JobEnded(self.state, self.reason))
        self.commands.close()
        return 0 if self.state == "finished" else 1

    # ------------------------------------------------------ the program's life

    def _start(self) -> None:
        place = self.job.place(self.host)
        output, errors = map(str, self.output.read_to)
        start = {
            "order": "start",
            "argv": list(place.program),
            "directory": self.job.directory,
            "environment": {**place.environment, "APPLES_JOB": self.job.job},
            "output": output,
            "errors": errors,
            **_placement(place),
        }
        self.supervisors.ask(SupervisorRequest(self.host, start, START_SECONDS))

    def _proceed(self, answer: SupervisorAnswer) -> None:
        """Take the answer to what was asked: of a migration's steps, or of the start."""
        if self.steps is None:
            self._started(answer)
            return
        try:
            self.supervisors.ask(self.steps.send(answer))
        except StopIteration as over:
            self._on_migrated(over.value)

    def _started(self, answer: SupervisorAnswer) -> None:
        program = Path(self.job.place(self.host).program[0]).name
        if answer["report"] != "started":
            why = "; ".join(map(str, answer["reasons"]))
            self._fail(f"{self.host}: cannot start {program}: {why}")
            return
        self.state, self.begun = "running", time.monotonic()
        self._event("ready", protocol=1, program=program, version="", ranks=1)

    def _on_program_exit(self, code: int) -> None:
        if code == 0:
            self.state = "finished"
        else:
            how = f"exit code {code}" if code > 0 else f"signal {signal.Signals(-code).name}"
            self._fail(f"the program ended with {how}")

    def _on_supervisor_lost(self, host: str) -> None:
        """Take the loss of a supervisor: its program died with it, unless it is in a checkpoint just now."""
        written = (
            self.supervisors.asked is not None
            and self.supervisors.asked.command["order"] == "restart"
        )
        if host == self.host and not written:
            self._fail(f"{host}: the program's supervisor ended or fell silent")

    def _fail(self, reason: str) -> None:
        self.state, self.reason = "failed", reason

    # ---------------------------------------------------------- a migration

    def _handle(self, command: ResizeCommand) -> None:
        wanted = [share.host for share in command.hosts]
        known = {place.host for place in self.job.hosts}
        if len(wanted) != 1:
            reason = "a program that knows nothing of hosts runs on one: it can be migrated, not resized"
            self.commands.notify(ResizeRefused(command.epoch, reason))
        elif wanted[0] not in known:
            self.commands.notify(
                ResizeRefused(command.epoch, f"{wanted[0]}: not among the job's hosts")
            )
        elif wanted[0] == self.host:
            self.epoch = command.epoch
            self.commands.notify(ResizeDone(command.epoch, self.status().members, 0.0, {}))
        else:
            self.command, self.moving_since = command, time.monotonic()
            self.steps = migration(self._request(wanted[0]))
            self.supervisors.ask(next(self.steps))

    def _request(self, target: str) -> MigrationRequest:
        here, there = self.job.place(self.host), self.job.place(target)
        shutil.rmtree(self.checkpoint, ignore_errors=True)
        return MigrationRequest(
            source=self.host,
            target=target,
            folder=str(self.checkpoint),
            token=str(self.folder / SHARED),
            place={place.host: _placement(place) for place in (here, there)},
            signal=self.signal,
            signal_seconds=self.signal_seconds,
        )

    def _on_migrated(self, outcome: MigrationDone | MigrationRefused | MigrationLost) -> None:
        """Notify the outcome of a migration, and dismiss the supervisor that has no program."""
        command, self.command, self.steps = self.command, None, None
        assert command is not None  # noqa: S101 - for the type checker: a migration had one
        if isinstance(outcome, MigrationDone):
            left, self.host, self.epoch = self.host, command.hosts[0].host, command.epoch
            self.supervisors.dismiss(left)
            seconds, phases = time.monotonic() - self.moving_since, dict(outcome.phases)
            members = self.status().members
            done = ResizeDone(command.epoch, members, seconds, phases, moved_bytes=outcome.bytes)
            self.commands.notify(done)
        else:
            self.supervisors.dismiss(command.hosts[0].host)
            self.commands.notify(ResizeRefused(command.epoch, outcome.reason))
        if isinstance(outcome, MigrationLost):
            self._fail(outcome.reason)
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
        There is no such signal, or it cannot be caught.
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
        manager = ProgramManager(job, open_control(job), lambda line: print(line, flush=True))  # noqa: T201 - data
    except (OSError, ValueError) as error:
        print(f"apples: {error}", file=sys.stderr)  # noqa: T201 - talk
        return 2
    manager.run()
    return {"finished": 0, "failed": 5}.get(manager.state, 130)


if __name__ == "__main__":
    sys.exit(main())
