"""The processes of one run, below a supervisor on each host: start them, read their lines, end them.

Every wait has a deadline. The lines of the program are returned as they arrive and are not stored.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from apples.errors import LaunchError, coded, system_code
from apples.io.json_lines import LineBuffer, encode
from apples.io.naming import naming
from apples.launch import host_agent, job_processes, ssh
from apples.launch.channels import HostChannel, RemoteHosts
from apples.launch.host_agent import MAX_OWN_ERRORS, OWN_ERRORS
from apples.launch.hostd import LINE_LIMIT
from apples.launch.hydra import LAUNCH_FILE, LaunchCommand, environment
from apples.launch.remote import bootstrap
from apples.launch.remote.ask import RemoteQuestion, ask
from apples.launch.remote.connection import HostConnection, close_all

Source = str
"""The source of a line: ``output``, ``launcher`` (output of the launcher; a job manager passes on the program's
output), ``error``, ``error-N`` (standard error of rank N), or ``report`` of a supervisor. An entry of the source
``messages`` is not a line but the message counts of a rank on another machine, in binary form."""
GRACE_SECONDS = 1.0
"""Time from SIGTERM to SIGKILL."""
LINGER_SECONDS = 1.0
"""Time limit for the cleanup on other machines, from the end of the cleanup on this machine."""
LAUNCHER = "launcher"
"""The source of lines that the launcher or the manager of a malleable job printed."""
STOP_SECONDS = 4.0
"""Time limit for the supervisor's cleanup. After it, this process kills the supervisor and cleans up itself."""
CHUNK = 1 << 16
MAX_WAIT_SECONDS = 86400.0
"""Limit of one wait: ``poll`` accepts at most 24 days. A caller checks its own deadline and waits again."""
SWEEP = "apples.launch.job_processes:sweep"
SWEEP_SECONDS, SWEEP_KILL_SECONDS = 6.0, 2.0
"""Time limits of `sweep_hosts` for all hosts together, and of the kills on one host."""


def job_name() -> str:
    """Return a new random name for a run; it identifies the run's processes and cgroups."""
    return secrets.token_hex(8)


class Processes:
    """All processes of one command. A context manager: leaving it ends the run.

    Parameters
    ----------
    command
        The command; its files are written into a new directory of the run.
    job
        Name of the run; every process has it in its environment.
    cgroups
        Directories to remove when the run is over.
    prepare
        Called when the supervisor is ready and before the command starts; creates the cgroups.
    connections
        An open connection to each other host, in the order of the launch file. Each waits for a program. The run
        closes them.
    grace
        Seconds from the request to end until the command is killed.
    ranks
        Number of ranks with a separate pipe for standard error.

    Attributes
    ----------
    uncertain_hosts
        After `stop`: hosts on which the cleanup could not be verified.

    Raises
    ------
    LaunchError
        The supervisor cannot be started. Often transient (no memory, too many processes).
    """

    def __init__(
        self,
        command: LaunchCommand,
        job: str,
        *,
        cgroups: Sequence[Path] = (),
        prepare: Callable[[], None] = lambda: None,
        grace: float = GRACE_SECONDS,
        connections: Sequence[HostConnection] = (),
        ranks: int = 0,
    ) -> None:
        self.job, self._grace = job, grace
        self.uncertain_hosts: list[str] = []
        self._command = command
        self._connections = connections
        self._channel = HostChannel()
        self._hosts: RemoteHosts | None = None
        # Number -> host of each proxy that mpiexec has not requested yet.
        self._proxies = dict(enumerate(ssh.proxy_hosts(command)))
        self._cgroups = [str(path) for path in cgroups]
        self._directory = tempfile.mkdtemp(prefix="apples-")
        self._selector = selectors.EpollSelector()
        self._pipes: list[IO[bytes]] = []
        try:
            for name, text in command.files.items():
                with naming(Path(self._directory) / name):
                    (Path(self._directory) / name).write_text(text, encoding="utf-8")
            self._open_fifo("output", "output")
            self._open_fifo("errors", "error")
            for rank in range(min(ranks, MAX_OWN_ERRORS)):
                self._open_fifo(f"{OWN_ERRORS}{rank}", f"error-{rank}")
            if connections:
                self._hosts = RemoteHosts(command, connections)
                for connection, channel in zip(connections, self._hosts.channels, strict=True):
                    self._register(os.fdopen(os.dup(connection.output.fileno()), "rb"), channel)
                    self._listen(os.fdopen(os.dup(connection.errors.fileno()), "rb"), "error")
            self._supervisor = self._start_supervisor(command)
        except OSError as error:
            self._close()
            job_processes.remove_run(self._directory, self._cgroups)
            place = str(error.filename or self._directory)
            raise LaunchError(
                f"cannot start the run: {place}: {error.strerror or error}",
                file=place,
                **coded(error, code=system_code(error)),
            ) from None
        weakref.finalize(self, _release, self._supervisor, list(self._pipes))
        try:
            hosts = json.loads(command.files.get(LAUNCH_FILE, "{}")).get("hosts", [])
            several = bool(connections)
            self._order(
                "prepare", cgroups=self._cgroups, grace=grace, hosts=hosts, several=several
            )
            prepare()
            self._order("start", argv=command.argv, forks=command.forks)
        except BaseException:
            self.stop()
            raise

    def _open_fifo(self, name: str, source: Source) -> None:
        """Create a FIFO into which the ranks write directly, not through the launcher, and read from it."""
        path = Path(self._directory) / name
        os.mkfifo(path, 0o600)
        self._listen(os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb"), source)

    def _start_supervisor(self, command: LaunchCommand) -> subprocess.Popen[bytes]:
        """Start the supervisor; it waits for orders."""
        launcher, launcher_output = os.pipe()
        try:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", host_agent.__file__),
                    *(self._directory, str(launcher_output), str(os.getpid())),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self._directory,
                env=environment({**command.environment, job_processes.MARK: self.job}),
                pass_fds=(launcher_output,),
                start_new_session=True,
            )
        except BaseException:
            os.close(launcher)
            raise
        finally:
            os.close(launcher_output)
        assert process.stdout is not None  # noqa: S101 - for the type checker: all three are pipes
        assert process.stderr is not None  # noqa: S101
        self._listen(os.fdopen(launcher, "rb", buffering=0), LAUNCHER)
        self._listen(process.stderr, "error")
        os.set_blocking(process.stdout.fileno(), False)
        self._register(process.stdout, self._channel)
        return process

    def _listen(self, pipe: IO[bytes], source: Source) -> None:
        os.set_blocking(pipe.fileno(), False)
        self._register(pipe, (source, LineBuffer(LINE_LIMIT, truncating=True)))

    def _register(self, pipe: IO[bytes], reader: tuple[Source, LineBuffer] | HostChannel) -> None:
        self._selector.register(pipe, selectors.EVENT_READ, reader)
        self._pipes.append(pipe)

    def _order(self, order: str, **fields: object) -> None:
        """Send an order to the supervisor on this machine."""
        pipe = self._supervisor.stdin
        assert pipe is not None  # noqa: S101 - for the type checker
        with contextlib.suppress(
            BrokenPipeError
        ):  # it ended; `read` notices the end of its reports
            pipe.write(encode({"order": order, **fields}))
            pipe.flush()

    @property
    def directory(self) -> Path:
        """Directory of the run's files, removed at its end."""
        return Path(self._directory)

    @property
    def supervisor_pid(self) -> int:
        """Process id of the run's supervisor."""
        return self._supervisor.pid

    def hang_up(self) -> None:
        """Close the connection to the supervisor, which then ends the run."""
        pipe = self._supervisor.stdin
        if pipe and not pipe.closed:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def ready(self) -> None:
        """Notify the supervisors that every rank has started."""
        if self.running:
            if self._hosts is not None:
                self._hosts.order_all("ready")
            self._order("ready")

    @property
    def running(self) -> bool:
        """Whether a pipe or connection of the run is still open, so that lines may arrive."""
        return bool(self._selector.get_map())

    @property
    def supervised(self) -> bool:
        """Whether the supervisor of this machine still reports: it runs and the run is not over."""
        return any(key.data is self._channel for key in self._selector.get_map().values())

    @property
    def cleared(self) -> bool:
        """Whether the supervisor reported that this machine has no process of the run any more."""
        return self._channel.cleared

    def fileno(self) -> int:
        """Return a file descriptor that is readable if `read` would return at once."""
        return self._selector.fileno()

    def read(self, seconds: float) -> list[tuple[Source, bytes]]:
        """Return the lines that arrived; wait for the first at most `seconds`, and at most a day."""
        lines_read: list[tuple[Source, bytes]] = []
        wait = min(max(0.0, seconds), MAX_WAIT_SECONDS)
        for key, _ in self._selector.select(wait) if self.running else ():
            data = os.read(key.fd, CHUNK)
            if isinstance(key.data, HostChannel):
                lines_read += self._from_host(key.data, data)
            else:
                source, lines = key.data
                completed = lines.feed(data) if data else [lines.rest()]
                sourced = [(source, line) for line in completed if data or line]
                lines_read += self._from_launcher(sourced) if source == LAUNCHER else sourced
            if not data:
                self._selector.unregister(key.fileobj)
        return lines_read

    def _from_host(self, channel: HostChannel, data: bytes) -> list[tuple[Source, bytes]]:
        """Return the lines of a host agent; add a ``report`` if a remote host ended its part or was lost."""
        cleared_before = channel.cleared
        lines = channel.feed(data)
        channel.ended |= not data
        if channel is self._channel:
            return lines
        if channel.cleared and not cleared_before:
            lines.append(("report", f"over {channel.host}".encode()))
        if (channel.broken and data) or not (data or channel.cleared):
            why = channel.broken or "its connection ended"
            lines.append(("report", f"lost {channel.host}: {why}".encode()))
        return lines

    def _from_launcher(self, lines: list[tuple[Source, bytes]]) -> list[tuple[Source, bytes]]:
        """Start the proxies that mpiexec requests; return its other lines."""
        others: list[tuple[Source, bytes]] = []
        for _, line in lines:
            number, argv = ssh.proxy_of(line) or (-1, [])
            if number in self._proxies:
                self._start_proxy(argv, self._proxies.pop(number))
            elif line != ssh.PROXIES_END:
                others.append((LAUNCHER, line))
        return others

    def _start_proxy(self, argv: list[str], host: int | None) -> None:
        if host is None:
            self._order("proxy", argv=argv)
        elif self._hosts is not None:
            words = ssh.proxy_way_back(self._command, host, argv[1:])
            self._hosts.order(host, "start", argv=words)

    def stop(self) -> list[tuple[Source, bytes]]:
        """End the run and return its last lines. A normal return guarantees that none of its processes is left.

        May be called again.

        Raises
        ------
        LaunchError
            A process cannot be killed, because it is blocked in the kernel. The message has its process id.
        """
        last: list[tuple[Source, bytes]] = []
        if self._hosts is not None:
            self._hosts.order_all("end")
        process = self._supervisor
        if process.stdin and not process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            process.send_signal(signal.SIGCONT)  # if stopped, it cannot see the end of input
        deadline = time.monotonic() + STOP_SECONDS + self._grace - GRACE_SECONDS
        while self.supervised and (left := deadline - time.monotonic()) > 0:
            last += self.read(left)
        self._kill_remaining()
        deadline = time.monotonic() + LINGER_SECONDS
        while self._hosts is not None and not self._hosts.over:
            if (left := deadline - time.monotonic()) <= 0:
                break
            last += self.read(left)
        while self.running and self._selector.select(0):
            last += self.read(0)
        if self._hosts is not None:
            self.uncertain_hosts += sweep_hosts(self._command, self._hosts.uncertain(), self.job)
        self._remove_files()
        return last

    def _kill_remaining(self) -> None:
        """Kill the supervisor if it still runs, and the processes that it left."""
        process = self._supervisor
        if self.supervised:
            process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
        if not self._channel.cleared and not job_processes.kill_marked(self.job, STOP_SECONDS):
            left = job_processes.marked(self.job)
            raise LaunchError(
                f"processes that cannot be killed: {left}", code="processes-left", value=list(left)
            )
        self._channel.cleared = True

    def _remove_files(self) -> None:
        """Close the pipes and remove the files."""
        self._close()
        job_processes.remove_run(self._directory, self._cgroups)

    def _close(self) -> None:
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fileobj)
        for pipe in self._pipes:
            pipe.close()
        close_all(self._connections)

    def __enter__(self) -> Processes:
        """Return this object."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the run."""
        self.stop()


def _release(process: subprocess.Popen[bytes], pipes: Sequence[IO[bytes]]) -> None:
    """End a run when its `Processes` object is garbage collected or the interpreter ends."""
    if process.stdin and not process.stdin.closed:
        with contextlib.suppress(OSError):
            process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    for pipe in pipes:
        pipe.close()


def sweep_hosts(command: LaunchCommand, hosts: Sequence[str], job: str) -> list[str]:
    """Open new connections to hosts with a lost supervisor, and kill the processes with the run's job tag there.

    Returns
    -------
    list[str]
        The members of `hosts` on which the cleanup could not be verified.
    """
    if not hosts:
        return []
    remote = json.loads(command.files[LAUNCH_FILE])["remote"]
    places = {there["hosts"][0]["host"]: there for there in remote}
    questions = {}
    for host in hosts:
        config = {"job": job, "folder": places[host]["folder"], "seconds": SWEEP_KILL_SECONDS}
        payload = bootstrap.parcel(SWEEP, config)
        questions[host] = RemoteQuestion(places[host]["ssh"], payload)
    answers = ask(questions, SWEEP_SECONDS)
    return [host for host, answer in answers.items() if answer.code != 0]
