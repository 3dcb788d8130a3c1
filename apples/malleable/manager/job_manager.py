"""The job manager: ``python -m apples.malleable.manager.job_manager JOB_FILE``, one process a job, without MPI.

A single loop serves the agents (`control.server`), the node supervisors (`hosts`) and timeouts. Standard output
has the program's lines. The exit code is 0 if the job finished.
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
from apples.io.output_pipe import OutputPipe
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
"""Longest time between two checks of timeouts."""
CHANGING_SECONDS = 1.0
"""Interval of ``changing`` events during a change of hosts, in which the program itself reports nothing."""
PAUSE_BYTES = 1 << 20
"""Unwritten output above which the supervisors on other machines stop forwarding."""
SILENT_STAGES = (*COMPUTING, "over")
"""Stages without ``changing`` events: the program computes and reports its progress itself."""


class JobManager:
    """Serves one job: passes commands from `control` to the engine, and the engine's notices back.

    Parameters
    ----------
    folder
        Folder for the files of supervisors on this machine.
    output, errors
        Open files for the output of ranks on other machines.
    events
        Whether the manager writes its own events of the application protocol to `output`.

    Raises
    ------
    OSError
        `output` or `errors` cannot be opened a second time. Permanent.
    """

    def __init__(
        self,
        job: JobFile,
        control: CommandSource,
        folder: Path = Path(),
        output: int = 1,
        errors: int = 2,
        *,
        events: bool = True,
    ) -> None:
        self._events, self._emitted, self._ranks = events, 0.0, 0
        self._resumed = job.attempt == 1  # the first start emits no ``resumed``
        self._selector = selectors.DefaultSelector()
        self._output = OutputPipe(output, self._selector)
        self._errors = OutputPipe(errors, self._selector)
        self._control = control
        self._ended: JobEnded | None = None
        self.engine = ReconfigurationEngine(
            job, self._selector, self._notify, folder, self._on_output
        )
        self._asked_to_end = False
        control.attach(self._selector, lambda: self.engine.status)

    def listen(self, handle: int, on_readable: Callable[[], object]) -> None:
        """Call `on_readable` whenever `handle` is readable."""
        self._selector.register(handle, selectors.EVENT_READ, on_readable)

    def end_at(self, number: signal.Signals) -> None:
        """Cancel the job at this signal: otherwise supervisors on other machines outlive this process."""
        signal.signal(number, lambda *_: setattr(self, "_asked_to_end", True))

    def run(self) -> JobEnded:
        """Serve until all processes of the job have ended."""
        while self._ended is None:
            call_ready(self._selector, TICK_SECONDS)
            if self._control.cancelled() or self._asked_to_end:
                self.engine.cancel()
            self.engine.tick()
            waiting = max(self._output.waiting, self._errors.waiting)
            self.engine.groups.pause_output(waiting > PAUSE_BYTES)
            self._say_whether_changing()
            if self.engine.stage == "idle" and (command := self._control.poll()) is not None:
                self.engine.command(command)
        self._control.close()
        self._output.close()
        self._errors.close()
        return self._ended

    def _on_output(self, event: str, lines: list[bytes]) -> None:
        pipe = self._output if event == "output" else self._errors
        pipe.write(b"".join(line + b"\n" for line in lines))

    def _emit(self, event: str) -> None:
        if self._events:
            self._output.write(event.encode() + b"\n")

    def _say_whether_changing(self) -> None:
        """Emit ``changing`` during a change of hosts, so that the agent does not count the program as dead.

        After a restart of the job, emit ``resumed`` once; at the first start the program emits ``ready`` itself.
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
        manager = JobManager(job, open_control(job))
    except (OSError, JobFileError) as error:
        print(f"apples: {error}", file=sys.stderr)  # noqa: T201 - talk
        return 2
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
