"""`HostsExecutor`: tasks and files of a sweep on this machine's and on other hosts, over one connection a host.

A file goes from its storage through this machine to the cache, and is there when it is whole. A result is fetched
before its lane is free: results come first. Whatever ends the connection ends what runs at its other end.
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import re
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, Thread
from typing import Any, NamedTuple, Protocol

import hat
from apples.errors import LaunchError, system_code
from apples.launch.bind import signal_name
from apples.launch.events import Talk
from apples.launch.remote import shipping, ssh
from apples.launch.remote.addresses import remote_hosts
from apples.resources import Host, HostList
from apples.storage import documents
from apples.supervision.job_processes import MARK, mark
from apples.sweeps.costs import SweepCosts
from apples.sweeps.executor import FileMoved, HostLost, SweepEvent, SweepExecutor, TaskEnded
from apples.sweeps.tasks import InputFile, SiteCache
from apples.sweeps.worker import HELLO, LONGEST_OUTPUT, MOST_BYTES, TASKS
from apples.wire.json_lines import Greeting, LineError, decode

WORKER = "apples.sweeps.worker:serve"
ANSWER_SECONDS = 60.0
"""For what is no task: a piece of a file, a list."""
HELLO_SECONDS = 20.0
LONGEST_HEAD = 1 << 16
MOST_BEFORE_HELLO = 1 << 16
END_SECONDS = 5.0
MOST_OUTPUT_FILE = 1 << 36
HOLE = re.compile(r"\{([A-Za-z_]\w*)\}")
"""What stands for a value in a word of a command."""


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
        words = shipping.words(site=False)
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
        self._write(shipping.parcel(WORKER, {"cpus": cpus, "environment": marks}))
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


@dataclass(frozen=True)
class SweepCommand:
    """What each task runs.

    Attributes
    ----------
    words
        What is run; ``{NAME}`` stands for a parameter's value, the path of an input or the host's ``{python}``,
        and a whole word that is a name of `program` for its path.
    values
        By task: values of its parameters, as text.
    inputs
        By task: the name of its file, by that of the input.
    program
        Files that are sent to each cache.
    storage
        By input file: its path on its storage.
    cached
        By input file: its name in a cache, another when the file has changed.
    outputs
        Names of files that each task leaves in its folder.
    timeout
        Seconds that a task may take.
    """

    words: Sequence[str]
    values: Mapping[str, Mapping[str, str]]
    inputs: Mapping[str, Mapping[str, str]]
    program: Mapping[str, Path]
    storage: Mapping[str, str]
    cached: Mapping[str, str]
    outputs: Sequence[str] = ()
    timeout: float | None = None


class HostsExecutor(SweepExecutor):
    """Runs tasks where the host list says. A context manager: its end ends every task.

    Parameters
    ----------
    costs
        Whose lanes, caches and files.
    workers
        By host: of every host of a cache and every storage.
    folders
        By cache: where it is, on the hosts that share it.
    results
        Where the files that tasks leave are kept, in a folder each.
    """

    def __init__(
        self,
        costs: SweepCosts,
        command: SweepCommand,
        workers: Mapping[str, WorkerConnection],
        folders: Mapping[str, str],
        results: Path,
    ) -> None:
        self._costs, self._command, self._workers = costs, command, workers
        self._folders, self._results = dict(folders), results
        self._begun = time.monotonic()
        self._events: queue.SimpleQueue[SweepEvent] = queue.SimpleQueue()
        # Copies of a task that end together write the same files, one after the other.
        self._fetching = {task.name: Lock() for task in costs.sweep.tasks}
        self._pool = ThreadPoolExecutor(len(costs.hosts) + len(costs.caches) ** 2 + 4)
        self._asked: dict[tuple[str, int], str] = {}
        self._number = itertools.count(1)
        self._broken: LaunchError | None = None
        self._lost: set[str] = set()
        self._files = {file.name: file for file in costs.sweep.files}
        self._cache_of_host = {h: cache for cache in costs.caches for h in cache.hosts}

    def prepare(self) -> frozenset[tuple[str, str]]:
        """Make the caches and send them the program; return which files they have already.

        Raises
        ------
        LaunchError
            A cache cannot be had.
        """
        return frozenset().union(*self._pool.map(self._prepare, self._costs.caches))

    def clear(self) -> None:
        """Remove the caches: all results are here."""
        for cache in self._costs.caches:
            for host in self._living(cache)[:1]:
                with suppress(LaunchError):
                    self._workers[host].ask("remove", path=self._folders[cache.name])

    def now(self) -> float:
        """Return the seconds since it was made."""
        return time.monotonic() - self._begun

    def start(self, task: str, lane: int) -> None:
        """Have the host's worker run it."""
        cache = self._cache_of_host[self._costs.hosts[lane]].name
        self._asked[task, lane] = self._path(cache, f"{TASKS}{next(self._number)}")
        self._pool.submit(self._run, task, lane)

    def stop(self, task: str, lane: int) -> None:
        """Have the worker kill it; its end is heard by nobody."""
        host = self._costs.hosts[lane]
        with suppress(LaunchError):
            self._workers[host].ask("stop", path=self._asked[task, lane])

    def move(self, file: str, cache: str) -> None:
        """Bring a file from its storage, through this machine, to the first host of a cache that is there."""
        self._pool.submit(self._move, file, cache)

    def events(self, until: float) -> list[SweepEvent]:
        """Return what has happened."""
        if self._broken:
            raise self._broken
        found: list[SweepEvent] = []
        with suppress(queue.Empty):
            found.append(self._events.get(timeout=max(0.0, until - self.now())))
            while True:
                found.append(self._events.get_nowait())
        return found

    def close(self) -> None:
        """End everything."""
        for worker in self._workers.values():
            worker.close()
        self._pool.shutdown(wait=True, cancel_futures=True)

    # ------------------------------------------------------------------------ in threads
    def _prepare(self, cache: SiteCache) -> set[tuple[str, str]]:
        if not (living := self._living(cache)):
            return set()
        worker = self._workers[living[0]]
        header, body = worker.ask("list", path=self._folders[cache.name])
        self._folders[cache.name] = str(header["folder"])
        try:
            there = dict(json.loads(body))
        except (ValueError, TypeError, RecursionError):
            raise LaunchError(
                f"{worker.name}: the list of its cache is invalid",
                code="worker-answer-invalid",
                host=worker.name,
                file=self._folders[cache.name],
            ) from None
        for name, path in self._command.program.items():
            self._send(worker, path.read_bytes(), self._path(cache.name, name))
        return {
            (name, cache.name)
            for name, file in self._files.items()
            if there.get(self._command.cached[name]) == file.size
            and file.storage not in cache.hosts
        }

    def _living(self, cache: SiteCache) -> Sequence[str]:
        return [h for h in cache.hosts if h not in self._lost and not self._workers[h].reason]

    def _send(self, worker: WorkerConnection, data: bytes, path: str) -> None:
        for offset in range(0, max(1, len(data)), MOST_BYTES):
            piece = data[offset : offset + MOST_BYTES]
            last = offset + MOST_BYTES >= len(data)
            worker.ask("write", piece, path=path, offset=offset, last=last)

    def _move(self, name: str, cache: str) -> None:
        begun, file = self.now(), self._files[name]
        each = next(each for each in self._costs.caches if each.name == cache)
        failure = ""
        try:
            target = self._workers[(self._living(each) or each.hosts)[0]]
            self._copy(
                self._workers[file.storage],
                target,
                file,
                self._path(cache, self._command.cached[name]),
            )
        except LaunchError as error:
            failure = str(error)
        except Exception as error:  # noqa: BLE001 - a thread whose error nobody hears
            failure = f"{type(error).__name__}: {error}"
        self._events.put(FileMoved(name, cache, self.now() - begun, failure))

    def _copy(
        self, source: WorkerConnection, target: WorkerConnection, file: InputFile, path: str
    ) -> None:
        """Copy a file piece by piece: one is read while the one before is written."""
        place, size = self._command.storage[file.name], int(file.size)
        pieces = [
            (offset, min(MOST_BYTES, size - offset)) for offset in range(0, size, MOST_BYTES)
        ] or [(0, 0)]

        def read(piece: tuple[int, int]) -> bytes:
            data = source.ask("read", path=place, offset=piece[0], count=piece[1])[1]
            if len(data) < piece[1]:
                raise LaunchError(
                    f"{source.name}: {place} has become shorter",
                    code="file-changed",
                    host=source.name,
                    file=place,
                    value=piece[0] + len(data),
                    bound=size,
                )
            return data

        with ThreadPoolExecutor(1) as ahead:
            coming = ahead.submit(read, pieces[0])
            for number, (offset, _) in enumerate(pieces):
                data = coming.result()
                last = number + 1 == len(pieces)
                if not last:
                    coming = ahead.submit(read, pieces[number + 1])
                target.ask("write", data, path=path, offset=offset, last=last)

    def _run(self, task: str, lane: int) -> None:
        host = self._costs.hosts[lane]
        worker = self._workers[host]
        folder = self._asked[task, lane]
        try:
            header, said = worker.ask(
                "run", within=None, argv=self._argv(task, host), path=folder,
                timeout=self._command.timeout,
            )  # fmt: skip
            self._events.put(self._ended(task, lane, header, said, worker))
            worker.ask("remove", path=folder)
        except LaunchError as error:
            if worker.reason and host not in self._lost:
                self._lost.add(host)
                self._events.put(HostLost(host, worker.reason))
            elif not worker.reason:
                self._events.put(TaskEnded(task, lane, 0.0, {}, str(error), error.code))
        except Exception as error:  # noqa: BLE001 - a thread whose error nobody hears
            words = f"{type(error).__name__}: {error}"
            if isinstance(error, OSError):  # this machine's: the results cannot be kept
                file = str(error.filename or self._results)
                self._broken = LaunchError(
                    f"{file}: {error.strerror or error}",
                    code=system_code(error),
                    file=file,
                )
            self._events.put(TaskEnded(task, lane, 0.0, {}, words, "internal-error"))

    def _ended(
        self,
        task: str,
        lane: int,
        header: Mapping[str, Any],
        said: bytes,
        worker: WorkerConnection,
    ) -> TaskEnded:
        """Return how a task ended: its result, checked, and the files that it left fetched."""
        seconds = float(header["seconds"])
        if header["late"]:
            reason = f"took more than {self._command.timeout:g} s"
            return TaskEnded(task, lane, seconds, {}, reason, "task-timeout")
        if header["code"] != 0:
            fault = ending(header, said)
            return TaskEnded(task, lane, seconds, {}, fault.text, fault.code)
        result, wrong = result_of(said)
        if wrong:
            return TaskEnded(task, lane, seconds, {}, wrong.text, wrong.code)
        for name in self._command.outputs:
            try:
                with self._fetching[task]:
                    self._fetch(
                        worker, f"{self._asked[task, lane]}/{name}", self._results / task / name
                    )
            except LaunchError as error:
                return TaskEnded(task, lane, seconds, {}, f"no {name}: {error}", "output-missing")
        if (
            self._command.outputs
        ):  # its result will be acknowledged, which says that these are kept
            # Sync before the journal records the task. After a power cut, a result without its
            # files would count as done.
            own = self._results / task
            for folder in (own, self._results, self._results.parent):
                documents.sync(folder)
        return TaskEnded(task, lane, seconds, result)

    def _fetch(self, worker: WorkerConnection, there: str, here: Path) -> None:
        size = worker.ask("stat", path=there)[0]["bytes"]
        if not isinstance(size, int) or size < 0:
            raise LaunchError(
                f"{worker.name}: {there}: its size is invalid ({size})",
                code="worker-answer-invalid",
                host=worker.name,
                file=there,
            )
        if size > MOST_OUTPUT_FILE:
            raise LaunchError(
                f"{worker.name}: {there} has {size} bytes, more than {MOST_OUTPUT_FILE}",
                code="output-too-large",
                host=worker.name,
                file=there,
                value=size,
                bound=MOST_OUTPUT_FILE,
            )
        here.parent.mkdir(parents=True, exist_ok=True)
        partial = here.with_name(here.name + ".part")
        with partial.open("wb") as stream:
            while stream.tell() < size:
                left = size - stream.tell()
                data = worker.ask("read", path=there, offset=stream.tell(), count=left)[1]
                if not data:
                    raise LaunchError(
                        f"{worker.name}: {there} has become shorter",
                        code="file-changed",
                        host=worker.name,
                        file=there,
                        value=stream.tell(),
                        bound=size,
                    )
                stream.write(data)
        documents.sync(partial)
        partial.replace(here)

    # ------------------------------------------------------------------------ names
    def _path(self, cache: str, name: str) -> str:
        return f"{self._folders[cache]}/{name}"

    def _argv(self, task: str, host: str) -> list[str]:
        """Return the words that run a task on a host."""
        cache, command = self._cache_of_host[host], self._command
        values = {**command.values[task], "python": self._workers[host].python}
        for name, file in command.inputs[task].items():
            here = self._files[file].storage in cache.hosts
            values[name] = (
                command.storage[file] if here else self._path(cache.name, command.cached[file])
            )
        return [
            self._path(cache.name, word)
            if word in command.program
            else HOLE.sub(lambda hole: values.get(hole[1], hole[0]), word)
            for word in command.words
        ]


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
