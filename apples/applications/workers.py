"""Connections to the worker programs of hosts: over ssh, as children on this machine, or of another cluster.

Parameter sweeps and master/worker programs start their processes through them.
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Lock, Thread
from typing import Any, NamedTuple, Protocol

import hat
from apples.applications.worker import HELLO, MAX_FRAME_BYTES, MAX_OUTPUT_BYTES
from apples.errors import LaunchError
from apples.io.json_lines import Greeting, LineError, decode
from apples.launch.events import Talk
from apples.launch.job_processes import MARK, mark
from apples.launch.rank_ends import signal_name
from apples.launch.remote import bootstrap, ssh
from apples.launch.remote.addresses import remote_hosts
from apples.launch.this_host import PYTHON
from apples.resources import Host, HostList

WORKER = "apples.applications.worker:serve"
ANSWER_SECONDS = 60.0
"""Time limit of a request other than ``run``."""
HELLO_SECONDS = 20.0
MAX_HEADER_BYTES = 1 << 16
MAX_BYTES_BEFORE_HELLO = 1 << 16
END_SECONDS = 5.0

Reply = tuple[dict[str, Any], bytes]
"""The header and the body of a reply."""


class ProgramFault(NamedTuple):
    """A fault of a user's program, in its end or its output: a code, and one line."""

    code: str
    text: str


class ProcessEnd(NamedTuple):
    """The end of a process on a host.

    Attributes
    ----------
    code
        Exit code; negative: the number of the signal that killed it.
    timed_out
        Whether its time limit ended it.
    seconds
        Its duration.
    output
        Its standard output, or the end of its standard error if it failed.
    """

    code: int
    timed_out: bool
    seconds: float
    output: bytes

    @property
    def killed(self) -> bool:
        """Whether a signal ended it."""
        return self.code < 0

    @property
    def fault(self) -> ProgramFault:
        """How a failed process ended, with the last line of its output.

        Examples
        --------
        >>> ProcessEnd(-9, False, 1.0, b"").fault.text, ProcessEnd(3, False, 1.0, b"no licence").fault.text
        ('killed by SIGKILL: no output', 'exit code 3: no licence')
        """
        how = f"killed by {signal_name(-self.code)}" if self.killed else f"exit code {self.code}"
        return ProgramFault(
            "program-killed" if self.killed else "program-failed",
            f"{how}: {last_line(self.output)}",
        )


class FileOnHost(NamedTuple):
    """A file on a host: its absolute path, its bytes, and its time of writing in nanoseconds."""

    path: str
    size: int
    written: int


class WorkerConnection(ABC):
    """The connection to the worker program on one host. Any thread may call any method.

    Each request raises `LaunchError` if the connection is lost, the host does not answer in time, or the worker
    cannot do it. A lost connection gives `reason`.

    Attributes
    ----------
    name
        Name of the host.
    reason
        Reason of the loss of the connection; empty while it works.
    python
        The host's interpreter, or a placeholder that the worker replaces.
    """

    name: str
    reason: str
    python: str

    @abstractmethod
    def await_hello(self, seconds: float = HELLO_SECONDS) -> None:
        """Wait for the first bytes of the worker program.

        Raises
        ------
        LaunchError
            It does not start in time.
        """

    @abstractmethod
    def ask(
        self, do: str, body: bytes = b"", within: float | None = ANSWER_SECONDS, **what: Any
    ) -> Reply:
        """Send one request; return its reply.

        Parameters
        ----------
        within
            Time limit in seconds; None: no limit.

        Raises
        ------
        LaunchError
            The connection is lost, the reply is late, or it reports an error.
        """

    @abstractmethod
    def close(self) -> None:
        """End the connection and all processes that it started."""

    # ------------------------------------------------------------------------ requests
    def open_folder(self, path: str, *, temporary: bool = False) -> tuple[str, dict[str, int]]:
        """Make a folder if it is missing; return its absolute path and the bytes of each whole file in it.

        Parameters
        ----------
        temporary
            Whether the worker removes the folder at the end of the connection.
        """
        header, body = self.ask("list", path=path, temporary=temporary)
        try:
            return str(header["folder"]), {str(k): int(v) for k, v in json.loads(body).items()}
        except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
            raise self._invalid(path, "the list of the folder is invalid") from None

    def stat(self, path: str) -> FileOnHost:
        """Return the path, the size and the time of writing of a file."""
        header, body = self.ask("stat", path=path)
        size, written = header.get("bytes"), header.get("written")
        if not isinstance(size, int) or not isinstance(written, int) or size < 0:
            raise self._invalid(path, f"{path}: its size is invalid ({size})")
        return FileOnHost(os.fsdecode(body), size, written)

    def read(self, path: str, offset: int, count: int) -> bytes:
        """Return at most `count` bytes of a file, and at most `MAX_FRAME_BYTES`; empty at its end."""
        return self.ask("read", path=path, offset=offset, count=count)[1]

    def read_exactly(self, path: str, offset: int, count: int, size: int) -> bytes:
        """Return `count` bytes of a file of `size` bytes; an error if the file has become shorter."""
        data = self.read(path, offset, count)
        if len(data) < min(count, MAX_FRAME_BYTES):
            raise LaunchError(
                f"{self.name}: {path} has become shorter",
                code="file-changed",
                host=self.name,
                file=path,
                value=offset + len(data),
                bound=size,
            )
        return data

    def write(self, path: str, data: bytes) -> None:
        """Write a file. It appears under its name when it is whole and on the disk."""
        for offset in range(0, max(1, len(data)), MAX_FRAME_BYTES):
            piece = data[offset : offset + MAX_FRAME_BYTES]
            self.write_piece(path, piece, offset, last=offset + len(piece) == len(data))

    def write_piece(self, path: str, data: bytes, offset: int, *, last: bool) -> None:
        """Write a piece of a file; the file appears under its name with the last one."""
        self.ask("write", data, path=path, offset=offset, last=last)

    def run(self, argv: Sequence[str], folder: str, timeout: float | None = None) -> ProcessEnd:
        """Run a process in a new folder and wait for its end.

        Parameters
        ----------
        timeout
            Seconds after which the process is killed; None: no limit.
        """
        header, output = self.ask(
            "run", within=None, argv=list(argv), path=folder, timeout=timeout
        )
        try:
            code, seconds = int(header["code"]), float(header["seconds"])
        except (KeyError, ValueError, TypeError):
            raise self._invalid(folder, "the end of a process is invalid") from None
        return ProcessEnd(code, bool(header.get("late")), seconds, output)

    def stop(self, folder: str, within: float = ANSWER_SECONDS) -> None:
        """Kill the process that runs in a folder, if one does."""
        self.ask("stop", within=within, path=folder)

    def remove(self, folder: str) -> None:
        """Remove a folder, and the one above if it is empty then."""
        self.ask("remove", path=folder)

    def _invalid(self, path: str, reason: str) -> LaunchError:
        return LaunchError(
            f"{self.name}: {reason}",
            code="worker-answer-invalid",
            host=self.name,
            file=path,
            reason=reason,
        )


class HostWorker(WorkerConnection):
    """A worker over ssh, or a child process if the host is this machine.

    Raises
    ------
    LaunchError
        It cannot be started.
    """

    def __init__(self, host: Host, hosts: HostList) -> None:
        self.name, self.reason = host.name, ""
        remote = host.name in {each.name for each in remote_hosts(hosts)}
        self.python = PYTHON if remote else os.path.expanduser(host.python) or sys.executable  # noqa: PTH111
        words = bootstrap.words(site=False)
        marks = {MARK: os.environ[MARK]} if MARK in os.environ else {}
        if remote:  # a login passes no environment on, and every process of a job needs its mark
            words += [mark(job) for job in marks.values()]
            argv = ssh.command(ssh.reach(host, hosts), words)
        else:
            argv = [sys.executable, *words]
        self._lock, self._numbers = Lock(), itertools.count(1)
        self._answers: dict[int, queue.SimpleQueue[Reply | None]] = {}
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        self._log: list[str] = []
        cpus = [] if remote else list(host.cpus)
        self._send(bootstrap.parcel(WORKER, {"cpus": cpus, "environment": marks}))
        self._started: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._threads = [
            Thread(target=task, daemon=True) for task in (self._read_until_end, self._read_log)
        ]
        for thread in self._threads:
            thread.start()

    def await_hello(self, seconds: float = HELLO_SECONDS) -> None:
        """Wait for the first bytes of the worker program."""
        with suppress(queue.Empty):
            if self._started.get(timeout=seconds):
                return
        self.close()
        words = self._log[-1] if self._log else self.reason or "does not answer"
        raise LaunchError(
            f"{self.name}: {hat.printable(words)}",
            code="host-unreachable",
            host=self.name,
            reason=words,
        )

    def ask(
        self, do: str, body: bytes = b"", within: float | None = ANSWER_SECONDS, **what: Any
    ) -> Reply:
        """Send one request; return its reply."""
        answer: queue.SimpleQueue[Reply | None] = queue.SimpleQueue()
        number = next(self._numbers)
        self._answers[number] = answer
        if self.reason:
            raise self._lost()
        line = json.dumps({**what, "do": do, "id": number, "size": len(body)}).encode()
        self._send(line + b"\n" + body)
        try:
            found = answer.get(timeout=within)
        except queue.Empty:
            raise LaunchError(
                f"{self.name}: does not answer within {within} s",
                code="host-silent",
                host=self.name,
                seconds=within,
            ) from None
        finally:
            self._answers.pop(number, None)
        if found is None:
            raise self._lost()
        if "error" in found[0]:
            reason = hat.printable(str(found[0]["error"]))
            raise LaunchError(
                f"{self.name}: {reason}",
                code="system-error",
                host=self.name,
                file=what.get("path"),
                reason=reason,
            )
        return found

    def close(self) -> None:
        """End the connection and all processes that it started."""
        with suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for thread, pipe in zip(
            self._threads, (self._process.stdout, self._process.stderr), strict=True
        ):
            thread.join(END_SECONDS)
            if pipe and not thread.is_alive():
                pipe.close()

    def _lost(self) -> LaunchError:
        return LaunchError(
            f"{self.name}: {self.reason}", code="host-lost", host=self.name, reason=self.reason
        )

    def _send(self, data: bytes) -> None:
        with self._lock, suppress(OSError, ValueError):
            self._process.stdin.write(data)  # type: ignore[union-attr]
            self._process.stdin.flush()  # type: ignore[union-attr]

    def _read_until_end(self) -> None:
        try:
            self._read_answers()
        except Exception as error:  # noqa: BLE001 - every waiting request must end
            self.reason = f"invalid reply: {hat.printable(str(error))}"
        self.reason = self.reason or (self._log[-1] if self._log else "the connection ended")
        self._started.put(False)
        for answer in list(self._answers.values()):
            answer.put(None)

    def _read_answers(self) -> None:
        stream = self._process.stdout
        assert stream is not None  # noqa: S101 - for the type checker: it is a pipe
        greeting = Greeting(HELLO, MAX_BYTES_BEFORE_HELLO)
        while not greeting.heard:
            if not (data := stream.read(1)):
                return
            greeting.skip(data)
        self._started.put(True)
        while line := stream.readline(MAX_HEADER_BYTES):
            header = json.loads(line)
            size = header["size"]
            if not isinstance(size, int) or not 0 <= size <= 2 * MAX_FRAME_BYTES:
                raise LineError(f"a frame of {size} bytes")
            body = stream.read(size)
            if len(body) < size:
                return
            if answer := self._answers.get(header["id"]):
                answer.put((header, body))

    def _read_log(self) -> None:
        for line in self._process.stderr or ():
            self._log = [*self._log[-4:], line.decode(errors="replace").rstrip()]


class ConnectedHosts(Protocol):
    """An engine that reaches hosts in another way than over ssh, for example the workers of a Dask cluster."""

    def __contains__(self, name: object) -> bool:
        """Whether the engine reaches a host."""

    def connect(self, name: str) -> WorkerConnection:
        """Return the connection to a host."""


class HostWorkers:
    """The connections to the hosts of a list, opened when they are first needed.

    Attributes
    ----------
    by_name
        The open connections by host.
    hosts
        The host list.
    """

    def __init__(self, cluster: ConnectedHosts | None = None) -> None:
        self.by_name: dict[str, WorkerConnection] = {}
        self.hosts = HostList((), None)  # type: ignore[arg-type]
        self._cluster = cluster

    def start(self, names: list[str], talk: Talk | None = None) -> dict[str, str]:
        """Connect to several hosts at once; return the reason of each host that cannot be reached.

        Raises
        ------
        LaunchError
            A host cannot be reached without a `talk` to print the warning; or no host can be reached.
        """
        lost: dict[str, str] = {}
        new = [name for name in dict.fromkeys(names) if name not in self.by_name]
        for name in new:
            self.by_name[name] = (
                self._cluster.connect(name)
                if self._cluster and name in self._cluster
                else HostWorker(self.hosts[name], self.hosts)
            )
        for name in new:
            try:
                self.by_name[name].await_hello()
            except LaunchError as error:
                if talk is None:
                    raise
                talk(f"warning: {error}")
                lost[name] = str(error).removeprefix(f"{name}: ")
        if lost and len(lost) == len(set(names)):
            name, reason = next(iter(lost.items()))
            raise LaunchError(
                f"no host can be reached: {name}: {reason}",
                code="host-unreachable",
                host=name,
                reason=reason,
                lost=lost,
            )
        return lost


@contextmanager
def host_workers(cluster: ConnectedHosts | None = None) -> Iterator[HostWorkers]:
    """Yield connections, none open yet; close all at the end. `cluster` connects to the hosts that it reaches."""
    workers = HostWorkers(cluster)
    try:
        yield workers
    finally:
        close_all(workers.by_name.values())


def close_all(workers: Collection[WorkerConnection]) -> None:
    """Close connections at the same time: each may wait for its host."""
    with ThreadPoolExecutor(max(1, len(workers))) as pool:
        list(pool.map(lambda worker: worker.close(), workers))


def last_line(output: bytes) -> str:
    """Return the last line of a process's output, in printable characters."""
    lines = output.decode(errors="replace").strip().splitlines() or ["no output"]
    return hat.printable(lines[-1])[:300]


def result_of(output: bytes) -> tuple[dict[str, Any], ProgramFault | None]:
    """Return the result that a task printed, or the fault of its output.

    Examples
    --------
    >>> result_of(b'{"energy": 1.5}')
    ({'energy': 1.5}, None)
    >>> result_of(b"1.5")
    ({}, ProgramFault(code='result-invalid', text='its output is no JSON object: 1.5'))
    """
    if len(output) > MAX_OUTPUT_BYTES:
        return {}, ProgramFault(
            "result-too-long", f"its output has more than {MAX_OUTPUT_BYTES} bytes"
        )
    if not output.strip():
        return {}, ProgramFault(
            "result-missing", "it printed nothing: its result must be a JSON object"
        )
    try:
        return decode(output, MAX_OUTPUT_BYTES), None
    except LineError as error:
        shown = hat.printable(output[:60].decode(errors="replace").strip())
        words = shown if str(error).startswith("no JSON") else str(error)
        return {}, ProgramFault("result-invalid", f"its output is no JSON object: {words}")
