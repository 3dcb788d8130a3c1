"""The job manager: ``python -m apples.malleable.manager.job_manager JOB_FILE``, one process a job, without MPI.

Its one loop serves the agents (`control.server`), the supervisors of the nodes (`hosts`) and the clock.
Its standard output carries the program's lines; it ends with code 0 when the job finished.
"""

from __future__ import annotations

import json
import selectors
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from apples.io.connection import call_ready
from apples.malleable.control.command import (
    CommandSource,
    JobEnded,
    JobNotice,
    ResizeDone,
    RolledBack,
    say_moved,
)
from apples.malleable.control.job_file import JobFile, JobFileError, loads
from apples.malleable.control.server import open_control
from apples.malleable.manager.engine import COMPUTING, ReconfigurationEngine

TICK_SECONDS = 0.1
"""The longest time between two looks at the clock."""
CHANGING_SECONDS = 1.0
"""How often it says that the job's hosts are being changed: its program is silent meanwhile."""
SILENT_STAGES = (*COMPUTING, "over")
"""Stages in which it has nothing to say of that: the program computes, and speaks for itself."""


class JobManager:
    """Serves one job: commands from `control` go to the engine, what it notifies goes back.

    Parameters
    ----------
    folder
        Where supervisors of this machine put their files.
    emit
        Takes the events of the application protocol that are the manager's own.
    """

    def __init__(
        self,
        job: JobFile,
        control: CommandSource,
        folder: Path = Path(),
        emit: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._emit, self._emitted, self._ranks = emit, 0.0, 0
        self._resumed = job.attempt == 1  # there was nothing before
        self._selector = selectors.DefaultSelector()
        self._control = control
        self._ended: JobEnded | None = None
        self.engine = ReconfigurationEngine(job, self._selector, self._notify, folder)
        self._asked_to_end = False
        control.attach(self._selector, lambda: self.engine.status)

    def listen(self, handle: int, on_readable: Callable[[], object]) -> None:
        """Call `on_readable` whenever something can be read from `handle`."""
        self._selector.register(handle, selectors.EVENT_READ, on_readable)

    def end_at(self, number: signal.Signals) -> None:
        """Cancel the job at this signal: supervisors on other machines would outlive this process for a while."""
        signal.signal(number, lambda *_: setattr(self, "_asked_to_end", True))

    def run(self) -> JobEnded:
        """Serve until no process of the job is left."""
        while self._ended is None:
            due = self._control.deadline()
            left = TICK_SECONDS if due is None else min(TICK_SECONDS, due - time.monotonic())
            call_ready(self._selector, left)
            due = self._control.deadline()
            if due is not None and due <= time.monotonic():
                self._control.tick()
            if self._control.cancelled() or self._asked_to_end:
                self.engine.cancel()
            self.engine.tick()
            self._say_whether_changing()
            if self.engine.stage == "idle" and (command := self._control.poll()) is not None:
                self.engine.command(command)
        self._control.close()
        return self._ended

    def _say_whether_changing(self) -> None:
        """Say now and then that hosts are being changed, so that nobody takes the program for dead.

        And say, once, that a job that was started again goes on: a program says that it is ready when it begins.
        """
        now, ranks = time.monotonic(), self.engine.ranks
        changing = self.engine.stage not in SILENT_STAGES
        if (changing and now - self._emitted >= CHANGING_SECONDS) or ranks != self._ranks:
            self._emitted, self._ranks = now, ranks
            self._emit(json.dumps({"event": "changing", "ranks": ranks}))
        if not self._resumed and self.engine.state == "running":
            self._resumed = True
            at = self.engine.iteration
            self._emit(json.dumps({"event": "resumed", "ranks": ranks, "iteration": at}))

    def _notify(self, notice: JobNotice) -> None:
        if isinstance(notice, ResizeDone | RolledBack):
            say_moved(self._emit, notice, self.engine.iteration)
        self._control.notify(notice)
        if isinstance(notice, JobEnded):
            self._ended = notice


def main() -> int:
    """Run the job of the file in the first argument; return the exit code."""
    try:
        job = loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
        control = open_control(job)
    except (OSError, JobFileError) as error:
        print(f"apples: {error}", file=sys.stderr)  # noqa: T201 - talk
        return 2
    manager = JobManager(job, control, emit=lambda line: print(line, flush=True))  # noqa: T201 - data
    manager.end_at(signal.SIGTERM)
    ended = manager.run()
    if ended.state == "finished":
        return 0
    failed = ended.state == "failed"
    said = f"failed: {ended.reason}" if failed else "was cancelled"
    print(f"apples: the job {said}", file=sys.stderr)  # noqa: T201 - talk
    return 5 if failed else 130


if __name__ == "__main__":
    sys.exit(main())
