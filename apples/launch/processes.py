"""The processes of one run, behind their supervisor: started, listened to, and gone when asked.

Every wait here has a deadline. What the program writes is handed on line by line and never kept.
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
from apples.io.json_lines import LineBuffer
from apples.io.naming import naming
from apples.launch import host_agent as supervisor
from apples.launch import job_processes, reach
from apples.launch.channels import SupervisorChannel, SupervisorChannels
from apples.launch.events import LINE_LIMIT
from apples.launch.host_agent import MOST_OWN_ERRORS, OWN_ERRORS
from apples.launch.hydra import LAUNCH_FILE, TASK_FILE, LaunchCommand, environment
from apples.launch.remote import bootstrap
from apples.launch.remote.ask import RemoteQuestion, ask
from apples.launch.remote.connection import HostConnection, close_all
from apples.launch.ssh import RELAY_ASKS, RELAY_BETWEEN, RELAY_WAITS

Source = str
"""Where a line comes from: ``output``, ``error``, ``report``; ``error-N`` where it is known to be rank N's. Of the
source ``messages`` it is no line, but what a rank of another machine has counted."""
GRACE_SECONDS = 1.0
"""From the polite signal to the impolite one."""
LINGER_SECONDS = 1.0
"""How long connections to other hosts may take to end by themselves."""
STOP_SECONDS = 4.0
"""How long the supervisor may take to clear up before it is killed and its work done here."""
CHUNK = 1 << 16
SWEEP = "apples.launch.job_processes:sweep"
SWEEP_SECONDS, SWEEP_KILL_SECONDS = 6.0, 2.0
"""For a last look at all hosts together, and for the killing on one; a supervisor that lives needs less."""


def job_name() -> str:
    """Return a fresh name for a run, by which its processes and cgroups can be told from all others."""
    return secrets.token_hex(8)


class Processes:
    """Everything that runs for one command. A context manager: leaving it ends the run.

    Parameters
    ----------
    command
        What to run; its files are written into a directory of the run's own.
    job
        Name of the run: every process bears it in its environment.
    cgroups
        Directories that are removed when the run is over.
    prepare
        Called when the supervisor is ready and before the command starts: makes the cgroups.
    remote
        Other hosts that supervisors report from, in the order of the launch file.
    connections
        Open connections to them, in the same order, each waiting for a program: the run's from then on.
    grace
        Seconds the command is given to end by itself.
    ranks
        How many ranks there are whose standard error is to be told apart.

    Attributes
    ----------
    uncertain_hosts
        After `stop`: hosts of which nobody knows whether something is left there.

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
        remote: Sequence[str] = (),
        grace: float = GRACE_SECONDS,
        connections: Sequence[HostConnection] = (),
        ranks: int = 0,
    ) -> None:
        self.job, self._grace = job, grace
        self.uncertain_hosts: list[str] = []
        self._command = command
        self._connections = connections
        self._channels = SupervisorChannels(remote, connections)
        self._relay: Relay | None = None
        self._cgroups = [str(path) for path in cgroups]
        self._directory = tempfile.mkdtemp(prefix="apples-")
        self._cleared = False
        self._selector = selectors.DefaultSelector()
        self._pipes: list[IO[bytes]] = []
        try:
            for name, text in command.files.items():
                with naming(Path(self._directory) / name):
                    (Path(self._directory) / name).write_text(text, encoding="utf-8")
            self._open_fifo("output", "output")
            self._open_fifo("errors", "error")
            for rank in range(min(ranks, MOST_OWN_ERRORS)):
                self._open_fifo(f"{OWN_ERRORS}{rank}", f"error-{rank}")
            for pipe, channel in self._channels.open(Path(self._directory)):
                self._register(os.fdopen(pipe, "rb"), channel)
            for connection in connections:
                self._listen(os.fdopen(os.dup(connection.errors.fileno()), "rb"), "error")
            if connections:
                self._relay = Relay(Path(self._directory), command, connections)
                self._selector.register(self._relay.pipe, selectors.EVENT_READ, self._relay)
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
            config = {
                "argv": command.argv,
                "forks": command.forks,
                "hosts": json.loads(command.files.get(LAUNCH_FILE, "{}")).get("hosts", []),
                "cgroups": self._cgroups,
                "grace": grace,
                "linger": LINGER_SECONDS if remote else 0.0,
            }
            self._send(json.dumps(config))
            prepare()
            self._send("go")
        except BaseException:
            self.stop()
            raise

    def _open_fifo(self, name: str, source: Source) -> None:
        """Listen to the ranks themselves; what the launcher passes on is its own talk."""
        path = Path(self._directory) / name
        os.mkfifo(path, 0o600)
        self._listen(os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb"), source)

    def _start_supervisor(self, command: LaunchCommand) -> subprocess.Popen[bytes]:
        """Start the supervisor, which waits for its orders."""
        report, reported = os.pipe()
        try:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", supervisor.__file__),
                    *(self._directory, str(reported), str(os.getpid())),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self._directory,
                env=environment({**command.environment, job_processes.MARK: self.job}),
                pass_fds=(reported,),
                start_new_session=True,
            )
        except BaseException:
            os.close(report)
            raise
        finally:
            os.close(reported)
        assert process.stdout is not None  # noqa: S101 - for the type checker: all three are pipes
        assert process.stderr is not None  # noqa: S101
        self._listen(process.stdout, "output")
        self._listen(process.stderr, "error")
        self._listen(os.fdopen(report, "rb", buffering=0), "report")
        return process

    def _listen(self, pipe: IO[bytes], source: Source) -> None:
        os.set_blocking(pipe.fileno(), False)
        self._register(pipe, (source, LineBuffer(LINE_LIMIT, truncating=True)))

    def _register(
        self, pipe: IO[bytes], what: tuple[Source, LineBuffer] | SupervisorChannel
    ) -> None:
        self._selector.register(pipe, selectors.EVENT_READ, what)
        self._pipes.append(pipe)

    def _send(self, line: str) -> None:
        pipe = self._supervisor.stdin
        assert pipe is not None  # noqa: S101 - for the type checker
        with contextlib.suppress(BrokenPipeError):  # it is gone: reading says so
            pipe.write(f"{line}\n".encode())
            pipe.flush()

    @property
    def directory(self) -> Path:
        """Where the run keeps its files until its end."""
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
        """Tell the supervisor that every rank is up."""
        if self.running:
            self._channels.send("ready")
            self._send("ready")

    def look(self) -> None:
        """Ask the supervisors which ranks wait inside the MPI library: a report of each follows."""
        if self.running:
            self._channels.send("look")
            self._send("look")

    @property
    def running(self) -> bool:
        """Whether anything may still come."""
        return bool(self._selector.get_map())

    @property
    def supervised(self) -> bool:
        """Whether the supervisor is there and the run not over."""
        return any(
            isinstance(key.data, tuple) and key.data[0] == "report"
            for key in self._selector.get_map().values()
        )

    def read(self, seconds: float) -> list[tuple[Source, bytes]]:
        """Return the lines that came, waiting at most `seconds` for the first of them."""
        lines_read: list[tuple[Source, bytes]] = []
        for key, _ in self._selector.select(max(0.0, seconds)) if self.running else ():
            data = os.read(key.fd, CHUNK)
            if isinstance(key.data, Relay):
                if not key.data.feed(data):
                    self._selector.unregister(key.fileobj)
                continue
            if isinstance(key.data, SupervisorChannel):
                lines_read += self._from_remote(key.data, data)
            else:
                source, lines = key.data
                found = lines.feed(data) if data else [lines.rest()]
                lines_read += [(source, line) for line in found if data or line]
            if not data:
                self._selector.unregister(key.fileobj)
        self._cleared |= ("report", b"clear") in lines_read
        if self._relay is not None and self._channels.over:
            self._relay.let_go()
        return lines_read

    def _from_remote(self, channel: SupervisorChannel, data: bytes) -> list[tuple[Source, bytes]]:
        """Return what a remote supervisor says; that all is over on its host, or lost, is a report of ours."""
        cleared_before = channel.cleared
        said: list[tuple[Source, bytes]] = [*(channel.feed(data) if data else channel.rest())]
        channel.ended |= not data
        if channel.cleared and not cleared_before:
            said.append(("report", f"over {channel.host}".encode()))
        if (channel.broken and data) or not (data or channel.cleared):
            why = channel.broken or "its connection ended"
            said.append(("report", f"lost {channel.host}: {why}".encode()))
        return said

    def stop(self) -> list[tuple[Source, bytes]]:
        """End the run and return its last lines; no process of it is left when this returns.

        May be called again.

        Raises
        ------
        LaunchError
            A process cannot be killed (the kernel holds it): named by its number.
        """
        last: list[tuple[Source, bytes]] = []
        self._channels.send("end")
        process = self._supervisor
        if process.stdin and not process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            process.send_signal(signal.SIGCONT)  # one that was stopped would never hear of the end
        deadline = time.monotonic() + STOP_SECONDS + self._grace - GRACE_SECONDS
        while self.supervised and (left := deadline - time.monotonic()) > 0:
            last += self.read(left)
        self._kill_remaining()
        deadline = time.monotonic() + LINGER_SECONDS
        while self._connections and not self._channels.over:
            if (left := deadline - time.monotonic()) <= 0:
                break
            last += self.read(left)
        while self.running and self._selector.select(0):
            last += self.read(0)
        self.uncertain_hosts += sweep_hosts(self._command, self._channels.uncertain(), self.job)
        self._remove_files()
        return last

    def _kill_remaining(self) -> None:
        """End the supervisor if it would not, and what it left."""
        process = self._supervisor
        if self.supervised:
            process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
        if not self._cleared and not job_processes.kill_marked(self.job, STOP_SECONDS):
            left = job_processes.marked(self.job)
            raise LaunchError(
                f"processes that cannot be killed: {left}", code="processes-left", value=list(left)
            )
        self._cleared = True

    def _remove_files(self) -> None:
        """Close the pipes and remove the files."""
        self._close()
        job_processes.remove_run(self._directory, self._cgroups)

    def _close(self) -> None:
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fileobj)
        for pipe in self._pipes:
            pipe.close()
        self._channels.close()
        if self._relay is not None:
            self._relay.close()
        close_all(self._connections)

    def __enter__(self) -> Processes:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the run."""
        self.stop()


class Relay:
    """Starts a proxy through each connection, as hydra asks for it.

    What hydra starts in place of an ssh writes its words into one pipe, and waits at another until the run is
    over: a launcher that ended before its proxy would be taken for one that failed.

    Attributes
    ----------
    pipe
        To be read; what comes is for `feed`.
    """

    def __init__(
        self, folder: Path, command: LaunchCommand, connections: Sequence[HostConnection]
    ) -> None:
        self._connections = connections
        self._launch = json.loads(command.files[LAUNCH_FILE])
        self._task = command.files[TASK_FILE]
        self._program = bootstrap.Program(reach.SUPERVISOR)
        self._lines, self._left = LineBuffer(LINE_LIMIT), len(connections)
        for name in (RELAY_ASKS, RELAY_WAITS):
            os.mkfifo(folder / name, 0o600)
        self.pipe = os.open(folder / RELAY_ASKS, os.O_RDWR | os.O_NONBLOCK)
        self._waits = os.open(folder / RELAY_WAITS, os.O_RDWR | os.O_NONBLOCK)

    def feed(self, data: bytes) -> bool:
        """Start what is asked for; False when all are started."""
        for line in self._lines.feed(data):
            words = line.decode(errors="replace").split(RELAY_BETWEEN)[:-1]
            address, proxy = reach.parsed(words)
            there = self._launch["remote"][address]
            orders = reach.orders(there, proxy, self._task, self._launch)
            self._connections[there["number"]].write(self._program.parcel(orders))
            self._left -= 1
        return self._left > 0

    def let_go(self) -> None:
        """Let the launchers that wait end."""
        if self._waits >= 0:
            os.close(self._waits)
            self._waits = -1

    def close(self) -> None:
        """Close both pipes."""
        self.let_go()
        if self.pipe >= 0:
            os.close(self.pipe)
            self.pipe = -1


def _release(process: subprocess.Popen[bytes], pipes: Sequence[IO[bytes]]) -> None:
    """End a run nobody holds any more, also when the interpreter ends; its supervisor does the work."""
    if process.stdin and not process.stdin.closed:
        with contextlib.suppress(OSError):
            process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    for pipe in pipes:
        pipe.close()


def sweep_hosts(command: LaunchCommand, hosts: Sequence[str], job: str) -> list[str]:
    """Look once more at hosts whose supervisor was lost, over new connections, and kill what bears the run's mark.

    Returns
    -------
    list[str]
        Those of `hosts` of which nobody knows afterwards whether something of the run is left.
    """
    if not hosts:
        return []
    remote = json.loads(command.files[LAUNCH_FILE])["remote"].values()
    places = {there["hosts"][0]["host"]: there for there in remote}
    questions = {}
    for host in hosts:
        told = {"job": job, "folder": places[host]["folder"], "seconds": SWEEP_KILL_SECONDS}
        parcel = bootstrap.parcel(SWEEP, told)
        questions[host] = RemoteQuestion(places[host]["ssh"], parcel)
    answers = ask(questions, SWEEP_SECONDS)
    return [host for host, answer in answers.items() if answer.code != 0]
