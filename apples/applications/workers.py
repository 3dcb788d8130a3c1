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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Lock, Thread
from typing import Any, NamedTuple, Protocol

import hat
from apples.applications.worker import HELLO, LONGEST_OUTPUT, MOST_BYTES
from apples.errors import LaunchError
from apples.io.json_lines import Greeting, LineError, decode
from apples.launch.events import Talk
from apples.launch.job_processes import MARK, mark
from apples.launch.rank_wrapper import signal_name
from apples.launch.remote import bootstrap, ssh
from apples.launch.remote.addresses import remote_hosts
from apples.resources import Host, HostList

WORKER = "apples.applications.worker:serve"
ANSWER_SECONDS = 60.0
"""For what is no task: a piece of a file, a list."""
HELLO_SECONDS = 20.0
LONGEST_HEAD = 1 << 16
MOST_BEFORE_HELLO = 1 << 16
END_SECONDS = 5.0


class WorkerConnection(ABC):
    """The connection to the program that obeys on one host. Every method may be called from any thread.

    Attributes
    ----------
    name
        The host's.
    reason
        Why nothing more comes from it; empty while it may.
    python
        Its interpreter.
    """

    name: str
    reason: str
    python: str

    @abstractmethod
    def await_hello(self, seconds: float = HELLO_SECONDS) -> None:
        """Return when the program talks.

        Raises
        ------
        LaunchError
            It does not begin to.
        """

    @abstractmethod
    def ask(
        self, do: str, body: bytes = b"", within: float | None = ANSWER_SECONDS, **what: Any
    ) -> tuple[dict[str, Any], bytes]:
        """Return the program's answer; None `within`: whenever it comes.

        Raises
        ------
        LaunchError
            The connection is gone, it does not answer, or says that it cannot.
        """

    @abstractmethod
    def close(self) -> None:
        """End the connection, and with it whatever runs there."""


class HostWorker(WorkerConnection):
    """One over ssh, or a child where the host is this machine.

    Raises
    ------
    LaunchError
        It cannot be started.
    """

    def __init__(self, host: Host, hosts: HostList) -> None:
        self.name, self.reason = host.name, ""
        self.python = host.python or sys.executable
        remote = host.name in {each.name for each in remote_hosts(hosts)}
        words = bootstrap.words(site=False)
        marks = {MARK: os.environ[MARK]} if MARK in os.environ else {}
        if remote:  # a login passes no environment on, and every process of a job bears its mark
            words += [mark(job) for job in marks.values()]
            argv = ssh.command(ssh.reach(host, hosts), words)
        else:
            argv = [sys.executable, *words]
        self._lock, self._numbers = Lock(), itertools.count(1)
        self._answers: dict[int, queue.SimpleQueue[tuple[dict[str, Any], bytes] | None]] = {}
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        self._talk: list[str] = []
        cpus = [] if remote else list(host.cpus)
        self._write(bootstrap.parcel(WORKER, {"cpus": cpus, "environment": marks}))
        self._heard: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._threads = [
            Thread(target=task, daemon=True) for task in (self._listen, self._hear_talk)
        ]
        for thread in self._threads:
            thread.start()

    def await_hello(self, seconds: float = HELLO_SECONDS) -> None:
        """Return when the program talks."""
        with suppress(queue.Empty):
            if self._heard.get(timeout=seconds):
                return
        self.close()
        words = self._talk[-1] if self._talk else self.reason or "does not answer"
        raise LaunchError(
            f"{self.name}: {hat.printable(words)}",
            code="host-unreachable",
            host=self.name,
            reason=words,
        )

    def ask(
        self, do: str, body: bytes = b"", within: float | None = ANSWER_SECONDS, **what: Any
    ) -> tuple[dict[str, Any], bytes]:
        """Return the program's answer."""
        answer: queue.SimpleQueue[tuple[dict[str, Any], bytes] | None] = queue.SimpleQueue()
        number = next(self._numbers)
        self._answers[number] = answer
        if self.reason:
            raise self._lost()
        what["asked"] = number
        line = json.dumps({**what, "do": do, "id": number, "size": len(body)}).encode()
        self._write(line + b"\n" + body)
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
        """End the connection, and with it whatever runs there."""
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

    def _write(self, data: bytes) -> None:
        with self._lock, suppress(OSError, ValueError):
            self._process.stdin.write(data)  # type: ignore[union-attr]
            self._process.stdin.flush()  # type: ignore[union-attr]

    def _listen(self) -> None:
        try:
            self._read_answers()
        except Exception as error:  # noqa: BLE001 - whoever waits for an answer must hear of it, whatever it is
            self.reason = f"its answer is not a worker's: {hat.printable(str(error))}"
        self.reason = self.reason or (self._talk[-1] if self._talk else "the connection ended")
        self._heard.put(False)
        for answer in list(self._answers.values()):
            answer.put(None)

    def _read_answers(self) -> None:
        stream = self._process.stdout
        assert stream is not None  # noqa: S101 - for the type checker: it is a pipe
        greeting = Greeting(HELLO, MOST_BEFORE_HELLO)
        while not greeting.heard:
            if not (data := stream.read(1)):
                return
            greeting.skip(data)
        self._heard.put(True)
        while line := stream.readline(LONGEST_HEAD):
            header = json.loads(line)
            size = header["size"]
            if not isinstance(size, int) or not 0 <= size <= 2 * MOST_BYTES:
                raise LineError(f"a frame of {size} bytes")
            body = stream.read(size)
            if len(body) < size:
                return
            if answer := self._answers.get(header["id"]):
                answer.put((header, body))

    def _hear_talk(self) -> None:
        for line in self._process.stderr or ():
            self._talk = [*self._talk[-4:], line.decode(errors="replace").rstrip()]


class ConnectedHosts(Protocol):
    """Hosts that are reached in another way than over ssh."""

    def __contains__(self, name: object) -> bool:
        """Whether a host is one of these."""

    def connect(self, name: str) -> WorkerConnection:
        """Return the connection to one."""


class HostWorkers:
    """Connections to workers of hosts, opened when first needed.

    Attributes
    ----------
    by_name
        Those that were opened, by host.
    hosts
        The list that names the hosts.
    """

    def __init__(self, cluster: ConnectedHosts | None = None) -> None:
        self.by_name: dict[str, WorkerConnection] = {}
        self.hosts = HostList((), None)  # type: ignore[arg-type]
        self._cluster = cluster

    def start(self, names: list[str], talk: Talk | None = None) -> dict[str, str]:
        """Connect to hosts, all at once; return those that cannot be reached, an error unless there is `talk`."""
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
    """Hand out connections, none yet, that are closed at the end; those to hosts of `cluster` are made by it."""
    found = HostWorkers(cluster)
    try:
        yield found
    finally:
        for worker in found.by_name.values():
            worker.close()


class ProgramFault(NamedTuple):
    """What is wrong with the end or the output of a user's program: a code, and one line."""

    code: str
    text: str


def ending(header: Mapping[str, Any], said: bytes) -> ProgramFault:
    """Return how a failed process ended, with the last line of its output.

    Examples
    --------
    >>> ending({"code": -9}, b"").text, ending({"code": 3}, b"no licence").text
    ('killed by SIGKILL: no output', 'exit code 3: no licence')
    """
    code = header["code"]
    killed = isinstance(code, int) and code < 0
    how = f"killed by {signal_name(-code)}" if killed else f"exit code {code}"
    return ProgramFault(
        "program-killed" if killed else "program-failed", f"{how}: {last_line(said)}"
    )


def last_line(said: bytes) -> str:
    """Return the last line of a process's output, made printable."""
    lines = said.decode(errors="replace").strip().splitlines() or ["no output"]
    return hat.printable(lines[-1])[:300]


def result_of(said: bytes) -> tuple[dict[str, Any], ProgramFault | None]:
    """Return the result that a task printed, or the fault of its output.

    Examples
    --------
    >>> result_of(b'{"energy": 1.5}')
    ({'energy': 1.5}, None)
    >>> result_of(b"1.5")
    ({}, ProgramFault(code='result-invalid', text='its output is no JSON object: 1.5'))
    """
    if len(said) > LONGEST_OUTPUT:
        return {}, ProgramFault(
            "result-too-long", f"its output has more than {LONGEST_OUTPUT} bytes"
        )
    if not said.strip():
        return {}, ProgramFault(
            "result-missing", "it printed nothing: its result must be a JSON object"
        )
    try:
        return decode(said, LONGEST_OUTPUT), None
    except LineError as error:
        shown = hat.printable(said[:60].decode(errors="replace").strip())
        words = shown if str(error).startswith("no JSON") else str(error)
        return {}, ProgramFault("result-invalid", f"its output is no JSON object: {words}")
