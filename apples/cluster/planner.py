"""The client of the planner, the process that predicts the queue of a scheduler.

The first question starts the process, because it loads modules that the scheduler itself avoids. It ends with the
scheduler, after ten minutes without a question, and if a question takes longer than two minutes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from multiprocessing.connection import Connection, Pipe
from typing import Any, Final

from apples.cluster.queue_snapshot import QueueSnapshot
from apples.errors import Failure

Document = dict[str, Any]

ANSWER_SECONDS: Final = 2.0
"""Time limit of an answer; the client keeps a later answer for the next question."""
BUSY_SECONDS: Final = 0.1
"""A question waits for this time for the late answer to the previous question."""
IDLE_SECONDS: Final = 600.0
STUCK_SECONDS: Final = 120.0
MAX_ANSWER_BYTES: Final = 8 << 20


class PlannerClient:
    """Asks the process of a planner, one question after the other; any thread may ask.

    Parameters
    ----------
    command
        Starts the process; the descriptor of its end of the connection is appended.

    Attributes
    ----------
    late
        The last answer that came after the time limit, with its snapshot.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = tuple(command)
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(1, "planner")
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._asking: Future[Document] | None = None
        self._since = 0.0
        self._closed = False
        self.late: tuple[QueueSnapshot, Document] | None = None

    def ask(
        self, what: str, snapshot: QueueSnapshot, seconds: float = ANSWER_SECONDS, **more: Any
    ) -> Document | None:
        """Return the answer to a question; None: the planner has not answered in time, or is busy or gone.

        Raises
        ------
        ApplesError
            The planner rejects the question.
        """
        deadline = time.monotonic() + seconds
        if not self._lock.acquire(timeout=seconds):
            return None
        try:
            if self._is_busy():
                return None
            question = {
                "ask": what, "snapshot": snapshot.document(), "seconds": seconds / 2.0, **more,
            }  # fmt: skip
            self._since = time.monotonic()
            self._asking = self._pool.submit(self._exchange, question)
            if wait([self._asking], max(0.0, deadline - time.monotonic())).not_done:
                self._asking.add_done_callback(partial(self._keep, snapshot))
                return None
            return self._asking.result()
        except (OSError, EOFError, ValueError):
            return None
        finally:
            self._lock.release()

    def rest(self) -> None:
        """End the process if it is stuck at a question, or had none for some time; returns at once."""
        if self._asking is not None and not self._asking.done():
            self._end_if_stuck()
            return
        idle = self._process is not None and time.monotonic() > self._since + IDLE_SECONDS
        if idle and self._lock.acquire(blocking=False):
            try:
                self._pool.submit(self._end)
            finally:
                self._lock.release()

    def close(self) -> None:
        """End the process."""
        self._closed = True
        if (process := self._process) is not None:  # the pool's thread may set it to None
            process.kill()
        self._pool.shutdown(cancel_futures=True)
        self._end()

    def _is_busy(self) -> bool:
        """Return whether the planner still works on the previous question; end it if it is stuck."""
        if self._asking is None or not wait([self._asking], BUSY_SECONDS).not_done:
            return False
        self._end_if_stuck()
        return True

    def _end_if_stuck(self) -> None:
        process = self._process  # the pool's thread may set it to None
        if process is not None and time.monotonic() > self._since + STUCK_SECONDS:
            process.kill()

    def _keep(self, snapshot: QueueSnapshot, asking: Future[Document]) -> None:
        if not asking.cancelled() and asking.exception() is None:
            self.late = snapshot, asking.result()

    # ------------------------------------------------------------------ in the pool's thread
    def _exchange(self, question: Document) -> Document:
        try:
            connection = self._connection or self._start()
            connection.send_bytes(json.dumps(question).encode())
            answer: Document = json.loads(connection.recv_bytes(MAX_ANSWER_BYTES))
        except (OSError, EOFError, ValueError):
            self._end()
            raise
        if "failure" in answer:
            raise Failure.of_document(answer["failure"]).error()
        return answer

    def _start(self) -> Connection:
        self._connection, theirs = Pipe()
        with theirs:
            descriptor = theirs.fileno()
            self._process = subprocess.Popen(
                [*self._command, str(descriptor)], stdin=subprocess.DEVNULL, pass_fds=(descriptor,),
                start_new_session=True,
            )  # fmt: skip
        if self._closed:
            raise EOFError
        return self._connection

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._connection is not None:
            self._connection.close()
        self._process = self._connection = None


def planner_command(policy: str, options: dict[str, str]) -> list[str]:
    """Return the command of the planner of a policy."""
    words = [f"{key}={value}" for key, value in options.items()]
    return [sys.executable, "-P", "-m", "apples.cluster.queue_planner", policy, *words]
