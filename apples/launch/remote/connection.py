"""One login to a host for a whole run: for the check, the measurement and the supervision of the host.

The connection stays open, and the program at its other end changes. The first program is the probe of the host
(`apples.launch.remote.probe`), which then waits for a command. ``sense`` makes it a sensor process until it gets
the order to leave. ``next`` makes it wait for the next program of `apples.launch.remote.bootstrap`. The end of its
input ends it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import Any

from apples.errors import LaunchError
from apples.launch.host_spec import SSH_FAILED
from apples.launch.job_processes import MARK, mark
from apples.launch.remote import bootstrap, sharing, ssh
from apples.launch.remote.ask import CHUNK, MAX_AT_ONCE, MAX_BYTES, RemoteAnswer, printable
from apples.launch.remote.probe import SCHEMA
from apples.resources import Host, HostList
from nws import SensorDialogue, SensorReply

END_SECONDS = 2.0
LARGEST_PIPE = 1 << 20
"""The kernel's default limit of a pipe's size: a program for the host fits, so that writing it does not block."""
LEAVE_SECONDS = 5.0
READ_SECONDS = 1.0
"""Time limit for Python to start and find its input empty if the login has read standard input to its end."""


class HostConnection:
    """One ssh process and its connection to a host, from construction to `close`. One question at a time.

    Parameters
    ----------
    host
        Name of the host, for messages.
    argv
        The ssh command line; it runs `bootstrap.START` on the host.
    environment
        Environment of the command; default: that of this process.

    Raises
    ------
    LaunchError
        The command cannot be started.
    """

    def __init__(
        self, host: str, argv: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        self.host = host
        self.senses = False
        self._dialogue = SensorDialogue()
        self._lock = Lock()
        self._talk = b""
        self.begun = time.time()
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # so that its helper processes can be killed with it
                env=environment,
            )
        except OSError as error:
            raise LaunchError(
                f"{host}: {argv[0]}: {error.strerror}",
                code="tool-missing",
                host=host,
                file=argv[0],
            ) from None
        assert self._process.stdin is not None  # noqa: S101 - for the type checker: all three are pipes
        assert self._process.stdout is not None  # noqa: S101
        assert self._process.stderr is not None  # noqa: S101
        self._input, self.output = self._process.stdin, self._process.stdout
        self.errors = self._process.stderr
        for pipe in (self.output, self.errors):
            os.set_blocking(pipe.fileno(), False)
        with contextlib.suppress(OSError):  # above the user's quota: writing then waits for ssh
            fcntl.fcntl(self._input.fileno(), fcntl.F_SETPIPE_SZ, LARGEST_PIPE)
        self._replies: dict[int, SensorReply] = {}
        self._waits = True  # the other end waits for a program

    @property
    def alive(self) -> bool:
        """Whether the connection can still be used."""
        return not self._input.closed and self._process.poll() is None

    def write(self, data: bytes) -> None:
        """Write to the program at the other end. If it is gone, a reader notices the end of its output."""
        left = memoryview(data)
        with contextlib.suppress(OSError, ValueError):
            while left:
                left = left[os.write(self._input.fileno(), left) :]

    def look(self, parcel: bytes, deadline: float, more: float) -> RemoteAnswer:
        """Run the probe and return its answer, at the latest at `deadline` (by `time.monotonic`).

        If the host has begun to answer by then, its deadline is extended by `more` seconds.
        """
        self._waits = False
        self.write(parcel)
        heard, ended, at = bytearray(), False, time.time()
        found = False
        while not (found or ended) and (left := deadline - time.monotonic()) > 0:
            data = self._some(left)
            if data is None:
                continue
            at, ended = time.time(), not data
            if data and more:
                deadline, more = deadline + more, 0.0
            heard += data[: max(0, MAX_BYTES - len(heard))]
            found = _answered(heard)
        if not (found or ended or heard):
            ended = self._reads_in_place_of_python()
        code = 0 if found else self._ended() if ended else None
        return RemoteAnswer(bytes(heard), self._talk, code, at)

    def _reads_in_place_of_python(self) -> bool:
        """Whether the other end ends once its input is closed: its login then consumed the input for Python."""
        self.hang_up()
        deadline = time.monotonic() + READ_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            data = self._some(left)
            if data is not None and not data:
                return True
        return False

    def begin_sensing(self, seconds: float) -> None:
        """Turn the program at the other end into a sensor process, and wait for its greeting.

        Raises
        ------
        LaunchError
            The greeting did not arrive in time, or was invalid.
        """
        with self._lock:
            if not self.senses:
                self._waits = False
                self.write(b"sense\n")
                self._reply(0, time.monotonic() + seconds)
                self.senses = True

    def ask(self, do: str, within: float, /, **what: Any) -> tuple[SensorReply, float]:
        """Ask the sensor process; return its reply, and the seconds by which the host's clock is ahead of ours.

        Raises
        ------
        LaunchError
            No valid reply arrived in the time `within`, in seconds, or the connection is gone.
        """
        with self._lock:
            number, line = self._dialogue.ask(do, **what)
            deadline = time.monotonic() + within
            self.write(line)
            reply = self._reply(number, deadline)
            return reply, reply.now - time.time()

    def await_program(self) -> None:
        """Make the other end wait for its next program. A fresh interpreter replaces the probe or sensor process.

        Raises
        ------
        LaunchError
            The host does not answer.
        """
        if self._waits:
            return
        if self.senses:  # after its answer, the sensor process reads no more input
            self.ask("leave", LEAVE_SECONDS)
            self.senses = False
        self.write(b"next\n")
        self._waits = True

    def _reply(self, number: int, deadline: float) -> SensorReply:
        while number not in self._replies:
            left = deadline - time.monotonic()
            if left <= 0:
                raise LaunchError(
                    f"{self.host}: its sensor process does not answer",
                    code="host-unreachable",
                    host=self.host,
                )
            data = self._some(left)
            if data is None:
                continue
            if not data:
                self._ended()
                raise LaunchError(
                    f"{self.host}: {self._last_words()}", code="host-unreachable", host=self.host
                )
            try:
                self._replies |= {reply.id: reply for reply in self._dialogue.feed(data)}
            except ValueError as error:
                raise LaunchError(
                    f"{self.host}: no sensor process: {error}",
                    code="sensor-answer-invalid",
                    host=self.host,
                ) from None
        return self._replies.pop(number)

    def _some(self, seconds: float) -> bytes | None:
        """Return output of the host, empty at its end; None if only standard error or nothing arrived in time."""
        waiting = select.poll()  # select() cannot take the descriptors of many hosts
        waiting.register(self.output, select.POLLIN)
        waiting.register(self.errors, select.POLLIN)
        ready = {pipe for pipe, _ in waiting.poll(1000 * seconds)}
        if self.output.fileno() in ready:
            return os.read(self.output.fileno(), CHUNK)
        if self.errors.fileno() in ready and not self._hear_talk():
            waiting.unregister(self.errors)
            return os.read(self.output.fileno(), CHUNK) if waiting.poll(1000 * seconds) else None
        return None

    def _hear_talk(self) -> bool:
        """Read and keep standard error of ssh and the host; return False at its end."""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self.errors.fileno(), CHUNK)
            self._talk += data[: max(0, MAX_BYTES - len(self._talk))]
            return bool(data)
        return True

    def _ended(self) -> int | None:
        """Read the rest of standard error after the output ended; return the exit code, None if ssh still runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        while select.select([self.errors], [], [], 0)[0] and self._hear_talk():
            pass
        return self._process.poll()

    def _last_words(self) -> str:
        lines = [line for line in self._talk.decode(errors="replace").splitlines() if line.strip()]
        return printable(lines[-1]) if lines else "its sensor process ended"

    def hang_up(self) -> None:
        """Close the input, so that the program at the other end ends by itself."""
        with contextlib.suppress(OSError):
            self._input.close()

    def close(self, seconds: float = END_SECONDS) -> None:
        """End the connection: close its input, and kill ssh if it does not end within `seconds`."""
        self.hang_up()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self.output, self.errors):
            pipe.close()


class HostConnections:
    """The connections of one command to the hosts of a list, opened at the same time. A context manager.

    Attributes
    ----------
    job
        Name of the run that is started through the connections; every unshared connection has its job tag.

    Parameters
    ----------
    shares
        Whether hosts are checked over logins that this user's jobs share (`sharing`).
    """

    def __init__(self, job: str = "", *, shares: bool = False) -> None:
        self.job, self._shares = job, shares
        self._by_name: dict[str, HostConnection] = {}
        self._logins: dict[str, Callable[[], HostConnection]] = {}
        self._failed: dict[str, str] = {}

    def open(self, hosts: Sequence[Host], listed: HostList) -> None:
        """Start a login to every host without a connection; do not wait for the logins.

        Raises
        ------
        UsageError
            A field of a host is unsafe for ssh (`ssh.Reach`). Permanent.
        """
        self._logins |= {host.name: partial(self.login, host, listed) for host in hosts}
        reaches = {host.name: ssh.reach(host, listed) for host in hosts}
        for name, reach in reaches.items():
            if name in self._by_name and self._by_name[name].alive:
                continue
            shared = sharing.socket_name(reach) if self._shares else ""
            try:
                self._by_name[name] = (
                    self._shared(name, reach, shared) if shared else self._logins[name]()
                )
            except LaunchError as error:
                self._failed[name] = str(error)

    def login(self, host: Host, listed: HostList) -> HostConnection:
        """Return a new, unshared connection to a host; the caller must close it.

        Raises
        ------
        LaunchError
            ssh cannot be started.
        """
        return log_in(ssh.reach(host, listed), self.job)

    @staticmethod
    def _shared(name: str, reach: ssh.Reach, socket: str) -> HostConnection:
        argv = ssh.command(reach, bootstrap.words(site=True), socket)
        return HostConnection(name, argv, sharing.markless(os.environ))

    def get(self, name: str) -> HostConnection | None:
        """Return the connection to a host; None if it has no usable connection."""
        found = self._by_name.get(name)
        return found if found is not None and found.alive else None

    def look(
        self, parcels: Mapping[str, bytes], seconds: float, more: float
    ) -> dict[str, tuple[RemoteAnswer, float]]:
        """Probe the hosts within `seconds` (busy hosts longer); return the answer and time of each."""
        if not parcels:
            return {}
        deadline = time.monotonic() + seconds

        def one(name: str) -> tuple[RemoteAnswer, float]:
            connection = self._by_name.get(name)
            if connection is None:
                return RemoteAnswer(b"", self._failed[name].encode(), 127, time.time()), 0.0
            answer = connection.look(parcels[name], deadline, more)
            if answer.code == SSH_FAILED and self._shares:  # the shared login may be the cause
                connection.close(0.0)
                connection = self._by_name[name] = self._logins[name]()
                answer = connection.look(parcels[name], deadline, more)
            if answer.code != 0:
                connection.close(0.0)  # it has used up its time
            return answer, answer.at - connection.begun if answer.code == 0 else seconds

        with ThreadPoolExecutor(min(MAX_AT_ONCE, len(parcels))) as pool:
            return dict(zip(parcels, pool.map(one, parcels), strict=True))

    def take(self, name: str) -> HostConnection | None:
        """Remove and return the connection to a host; the caller must close it. None without a connection."""
        found = None if self._shares else self.get(name)
        if found is not None:
            del self._by_name[name]
        return found

    def close(self) -> None:
        """End all remaining connections at the same time."""
        close_all(list(self._by_name.values()))
        self._by_name.clear()

    def __enter__(self) -> HostConnections:
        """Return this object."""
        return self

    def __exit__(self, *_: object) -> None:
        """End all connections."""
        self.close()


def log_in(reach: ssh.Reach, job: str = "") -> HostConnection:
    """Return a new connection to a host, with the job tag of `job` unless that is empty.

    Raises
    ------
    LaunchError
        ssh cannot be started.
    """
    words = [*bootstrap.words(site=True), *([mark(job)] if job else [])]
    environment = {**os.environ, MARK: job} if job else None
    return HostConnection(reach.name, ssh.command(reach, words), environment)


def close_all(connections: Sequence[HostConnection]) -> None:
    """End connections at the same time, all within the time limit for one."""
    for one in connections:
        one.hang_up()
    deadline = time.monotonic() + END_SECONDS
    for one in connections:
        one.close(max(0.0, deadline - time.monotonic()))


def _answered(heard: bytes | bytearray) -> bool:
    """Whether the complete answer of the probe has arrived; a login may print other text before it."""
    whole = bytes(heard).rpartition(b"\n")[0]
    return any(
        line.startswith(b'{"schema"') and SCHEMA.encode() in line for line in whole.splitlines()
    )
