"""`DaemonConnection`: requests to the topology daemons of another host through a host agent (`daemon_agent`).

One login, or one step of a Slurm allocation, serves all requests to a host. It begins with the first request, and
again with the first after its end. The scheduler does not share it with jobs, because their login may end at any
time.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any, Final

from apples.io.json_lines import LineError, encode
from apples.launch.hostd import HostReports
from apples.launch.remote import bootstrap
from apples.launch.remote.ask import CHUNK, MAX_BYTES, printable
from apples.launch.remote.connection import LARGEST_PIPE

SERVE: Final = "apples.cluster.daemon_agent:serve"
START_SECONDS: Final = 12.0
"""Additional time for the first answer of a connection: the login, and a busy host."""
END_SECONDS: Final = 2.0


class DaemonSilence(ConnectionError):  # noqa: N818 - a reason, not a failure of the host
    """No daemon answers at a socket of a host that can be reached. Often transient.

    Attributes
    ----------
    absent
        Whether no daemon listens there.
    """

    def __init__(self, reason: str, *, absent: bool) -> None:
        super().__init__(reason)
        self.absent = absent


class _EndedError(ConnectionError):
    """The connection ended before the answer came."""


class _Agent:
    """The local process that leads to the host agent, with the requests that wait for it."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        assert self.process.stdin is not None  # noqa: S101 - for the type checker: all three are pipes
        with contextlib.suppress(
            OSError
        ):  # the user's limit of pipe memory: a write may then wait for ssh
            fcntl.fcntl(self.process.stdin.fileno(), fcntl.F_SETPIPE_SZ, LARGEST_PIPE)
        self.waiting: dict[int, Future[dict[str, Any]]] = {}
        self.answered = False
        self.errors = bytearray()
        self.lock, self.writing = threading.Lock(), threading.Lock()
        self.ended = False
        self.problem = ""
        self.error_reader = threading.Thread(target=self._read_errors, daemon=True)
        self.error_reader.start()
        threading.Thread(target=self._read, daemon=True).start()

    def write(self, data: bytes) -> None:
        """Send data to the host agent; if it is gone, the reader notices it."""
        assert self.process.stdin is not None  # noqa: S101 - as above
        with self.writing, contextlib.suppress(OSError, ValueError):
            self.process.stdin.write(data)
            self.process.stdin.flush()

    def begin(self, number: int) -> Future[dict[str, Any]]:
        """Return the future report of a request."""
        future: Future[dict[str, Any]] = Future()
        with self.lock:
            if self.ended:
                future.set_exception(_EndedError(self.reason()))
            else:
                self.waiting[number] = future
        return future

    def reason(self) -> str:
        """Return the reason that the connection ended: invalid output, or the last line of its errors."""
        if self.problem:
            return self.problem
        lines = [
            line for line in self.errors.decode(errors="replace").splitlines() if line.strip()
        ]
        return printable(lines[-1]) if lines else "the connection to its host agent ended"

    def _read(self) -> None:
        assert self.process.stdout is not None  # noqa: S101 - as above
        reports = HostReports()
        with self.process.stdout as stdout:
            try:
                while data := os.read(stdout.fileno(), CHUNK):
                    for report in reports.feed(data):
                        self._take(report)
            except LineError as error:
                self.problem = f"it sent an invalid host agent report: {error}"
        self.close()
        self.error_reader.join(END_SECONDS)
        with self.lock:
            self.ended, waiting = True, [*self.waiting.values()]
            self.waiting.clear()
        for future in waiting:
            with contextlib.suppress(InvalidStateError):
                future.set_exception(_EndedError(self.reason()))

    def _take(self, report: dict[str, Any]) -> None:
        self.answered = True
        number = report.get("number")
        with self.lock:
            future = self.waiting.pop(number, None) if isinstance(number, int) else None
        if future is not None:
            with contextlib.suppress(InvalidStateError):
                future.set_result(report)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None  # noqa: S101 - as above
        with self.process.stderr as stderr:
            while data := os.read(stderr.fileno(), CHUNK):
                self.errors += data[: max(0, MAX_BYTES - len(self.errors))]

    def hang_up(self) -> None:
        """Close the input of the host agent, which ends it."""
        assert self.process.stdin is not None  # noqa: S101 - as above
        with contextlib.suppress(OSError):
            self.process.stdin.close()

    def close(self, seconds: float = END_SECONDS) -> None:
        """Close the input, wait for the end of the process, then kill it."""
        self.hang_up()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class DaemonConnection:
    """Asks the topology daemons of one other host. Any thread may ask.

    Parameters
    ----------
    host
        Its name, for messages.
    command
        Returns the argument list that starts the host's interpreter with `bootstrap.words`; called at each start,
        because the way to a host may change.
    """

    def __init__(self, host: str, command: Callable[[], Sequence[str]]) -> None:
        self.host, self._command = host, command
        self._lock = threading.Lock()
        self._agent: _Agent | None = None
        self._number = 0

    def ask(self, socket: str, request: dict[str, Any], seconds: float) -> dict[str, Any] | None:
        """Return the answer of the daemon at a socket of the host; None: no answer came in time.

        Raises
        ------
        DaemonSilence
            No daemon answers there.
        ConnectionError
            The host cannot be reached. Often transient.
        """
        agent, number = self._running()
        begun = agent.answered
        try:
            return self._answer(agent, number, socket, request, seconds)
        except _EndedError:
            if not begun:
                raise
        # A working connection has ended: repeat the request, which a daemon carries out at most once.
        return self._answer(*self._running(), socket, request, seconds)

    def _answer(
        self, agent: _Agent, number: int, socket: str, request: dict[str, Any], seconds: float
    ) -> dict[str, Any] | None:
        future = agent.begin(number)
        order = {"order": "ask", "number": number, "socket": socket, "request": request}
        begun = agent.answered
        agent.write(encode({**order, "seconds": seconds}))
        try:
            report = future.result(seconds + (END_SECONDS if begun else START_SECONDS))
        except TimeoutError:
            self._drop(agent)
            raise ConnectionError("its host agent does not answer") from None
        if report["report"] == "silent":
            raise DaemonSilence(
                printable(str(report.get("reason"))), absent=report.get("absent") is True
            )
        answer = report.get("answer")
        return answer if isinstance(answer, dict) else None

    def close(self) -> None:
        """End the host agent."""
        self.close_all([self])

    @staticmethod
    def close_all(connections: Iterable[DaemonConnection]) -> None:
        """End the host agents of connections, within the time limit of one."""
        agents = [agent for connection in connections if (agent := connection._detach())]
        for agent in agents:
            agent.hang_up()
        deadline = time.monotonic() + END_SECONDS
        for agent in agents:
            agent.close(max(0.0, deadline - time.monotonic()))

    def _detach(self) -> _Agent | None:
        with self._lock:
            agent, self._agent = self._agent, None
        return agent

    def _running(self) -> tuple[_Agent, int]:
        """Return the connection, started if none is open, and the number of the next request."""
        with self._lock:
            self._number += 1
            if self._agent is None or self._agent.ended:
                try:
                    self._agent = _Agent(self._command())
                except OSError as error:
                    raise ConnectionError(f"ssh: {error.strerror}") from None
                self._agent.write(bootstrap.parcel(SERVE, {}))
            return self._agent, self._number

    def _drop(self, agent: _Agent) -> None:
        with self._lock:
            if self._agent is agent:
                self._agent = None
        agent.close()
