"""The scheduler's side of the process that foretells its queue: threads that answer clients ask it, not for long.

The process is started by the first question, for it loads what a scheduler does without; it ends with the
scheduler, and after some time without questions.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

from apples.cluster.queue_snapshot import QueueSnapshot
from apples.errors import Failure

Document = dict[str, Any]

PATIENCE: Final = 2.0
"""For an answer, seconds; one that comes later is kept for the next who asks."""
BUSY: Final = 0.1
"""For the answer to an earlier question: who asks while the planner loads does not wait for that."""
IDLE: Final = 600.0
STUCK: Final = 120.0
"""After so long without the answer to a question the process is ended."""
MOST_ANSWER: Final = 8 << 20


class PlannerClient:
    """Asks the process of a planner.

    Parameters
    ----------
    command
        Starts it.

    Attributes
    ----------
    late
        The last answer that came too late for who had asked, and the snapshot that it is about.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = tuple(command)
        self._lock = threading.Lock()
        self._process: _Process | None = None
        self.late: tuple[QueueSnapshot, Document] | None = None
        self._about: QueueSnapshot | None = None
        self._asked = self._answered = 0
        self._since = self._used = 0.0

    def ask(
        self, what: str, snapshot: QueueSnapshot, seconds: float = PATIENCE, **more: Any
    ) -> Document | None:
        """Return the answer to a question; None: there is none yet.

        Raises
        ------
        ApplesError
            What the planner refuses, as it says.
        """
        deadline = time.monotonic() + seconds
        if not self._lock.acquire(timeout=seconds):
            return None
        try:
            if not self._rid_of_the_last(min(deadline, time.monotonic() + BUSY)):
                return None
            self._asked += 1
            self._about = snapshot
            question = {
                "question": self._asked,
                "ask": what,
                "snapshot": snapshot.document(),
                "seconds": seconds / 2.0,
                **more,
            }
            return self._answer(question, deadline)
        except OSError:
            self._end()
            return None
        finally:
            self._used = time.monotonic()
            self._lock.release()

    def rest(self) -> None:
        """End the process if nobody has asked for some time."""
        if time.monotonic() > self._used + IDLE and self._lock.acquire(blocking=False):
            try:
                self._end()
            finally:
                self._lock.release()

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _rid_of_the_last(self, deadline: float) -> bool:
        """Read the answers that came too late for who had asked; whether there is none to come."""
        while self._process is not None and self._answered < self._asked:
            if time.monotonic() > self._since + STUCK:
                self._end()
            elif (answer := self._next(self._process, deadline)) is not None:
                if self._about is not None and "failure" not in answer:
                    self.late = self._about, answer
            elif self._process is not None:
                return False
        return True

    def _answer(self, question: Document, deadline: float) -> Document | None:
        if self._process is None:
            self._process = _Process(self._command)
        self._since = time.monotonic()
        self._process.say(json.dumps(question).encode() + b"\n")
        answer = self._next(self._process, deadline)
        if answer is not None and "failure" in answer:
            raise Failure.of_document(answer["failure"]).error()
        return answer

    def _next(self, process: _Process, deadline: float) -> Document | None:
        """Return the next answer, None: there is none by then, or no process any more."""
        try:
            line = process.line(deadline)
        except EOFError:
            self._end()
            return None
        if line is None:
            return None
        answer: Document = json.loads(line)
        self._answered = int(answer["question"])
        return answer

    def _end(self) -> None:
        if self._process is not None:
            self._process.end()
        self._process, self._answered = None, self._asked


class _Process:
    """A process that answers lines with lines."""

    def __init__(self, command: Sequence[str]) -> None:
        self._source, source = os.pipe()
        sink, self._sink = os.pipe()
        try:
            self._process = subprocess.Popen(
                command, stdin=sink, stdout=source, start_new_session=True
            )
        except OSError:
            os.close(self._source)
            os.close(self._sink)
            raise
        finally:
            os.close(source)
            os.close(sink)
        os.set_blocking(self._sink, False)
        self._read = b""
        self._unsaid = memoryview(b"")

    def say(self, line: bytes) -> None:
        """Have a line be said while answers are waited for; the last one was said whole."""
        self._unsaid = memoryview(line)

    def line(self, deadline: float) -> bytes | None:
        """Return the next line, None: there is none by then; `EOFError`: there will be none."""
        while b"\n" not in self._read:
            left = max(0.0, deadline - time.monotonic())
            sinks = [self._sink] if self._unsaid else []
            sources, sinks, _ = select.select([self._source], sinks, [], left)
            if not sources and not sinks:
                return None
            if sinks:
                self._unsaid = self._unsaid[os.write(self._sink, self._unsaid[: 1 << 16]) :]
            if sources:
                data = os.read(self._source, 1 << 16)
                if not data or len(self._read) > MOST_ANSWER:
                    raise EOFError
                self._read += data
        line, _, self._read = self._read.partition(b"\n")
        return line

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._source)
        os.close(self._sink)


def planner_command(policy: str, options: dict[str, str]) -> list[str]:
    """Return the command of the planner of a policy."""
    words = [f"{key}={value}" for key, value in options.items()]
    return [sys.executable, "-m", "apples.cluster.queue_planner", policy, *words]
