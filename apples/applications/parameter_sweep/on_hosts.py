"""`HostsExecutor`: tasks and files of a sweep on this machine and other hosts, over one connection a host.

A file is sent from its storage through this machine to the cache, and appears there when it is complete. A result
is fetched before its lane becomes free. When a connection ends, all its processes on the host end.
"""

from __future__ import annotations

import itertools
import queue
import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from apples.applications.parameter_sweep.costs import SweepCosts
from apples.applications.parameter_sweep.executor import (
    FileMoved,
    HostLost,
    SweepEvent,
    SweepExecutor,
    TaskEnded,
)
from apples.applications.parameter_sweep.tasks import InputFile, SiteCache
from apples.applications.worker import MAX_FRAME_BYTES, TASK_PREFIX
from apples.applications.workers import ProcessEnd, WorkerConnection, close_all, result_of
from apples.errors import LaunchError, system_code
from apples.io import documents

MAX_OUTPUT_FILE_BYTES = 1 << 36
PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")
"""The placeholder of a value in a command."""


@dataclass(frozen=True)
class SweepCommand:
    """The command of each task.

    Attributes
    ----------
    words
        Words of the command. ``{NAME}`` is replaced by a parameter's value, the path of an input or the host's
        ``{python}``; a word equal to a name of `program`, by its path.
    values
        By task: values of its parameters, as text.
    inputs
        By task: input name -> file name.
    program
        Files to send to each cache.
    storage
        By input file: its path on its storage host.
    cached
        By input file: its name in a cache, which changes when the file changes.
    outputs
        Names of the files that each task writes in its folder.
    timeout
        Time limit of a task in seconds.
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
    """Runs tasks on the hosts of the host list. A context manager: its end stops every task.

    Parameters
    ----------
    costs
        The lanes, caches and files.
    workers
        By host: the connections to the hosts of all caches and storages.
    folders
        By cache: its folder on the hosts that share it.
    results
        Folder of the output files, in a subfolder for each task.
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
        # Copies of a task that end at the same time write the same files, one after the other.
        self._fetching = {task.name: Lock() for task in costs.sweep.tasks}
        self._pool = ThreadPoolExecutor(len(costs.hosts) + len(costs.caches) ** 2 + 4)
        self._asked: dict[tuple[str, int], str] = {}
        self._number = itertools.count(1)
        self._broken: LaunchError | None = None
        self._lost: set[str] = set()
        self._files = {file.name: file for file in costs.sweep.files}
        self._cache_of_host = {h: cache for cache in costs.caches for h in cache.hosts}

    def prepare(self) -> frozenset[tuple[str, str]]:
        """Make the caches and send them the program; return the files they already have.

        Raises
        ------
        LaunchError
            A cache cannot be made.
        """
        return frozenset().union(*self._pool.map(self._prepare, self._costs.caches))

    def clear(self) -> None:
        """Remove the caches, because all results are on this machine."""
        for cache in self._costs.caches:
            for host in self._living(cache)[:1]:
                with suppress(LaunchError):
                    self._workers[host].remove(self._folders[cache.name])

    def now(self) -> float:
        """Return the seconds since the executor was created."""
        return time.monotonic() - self._begun

    def start(self, task: str, lane: int) -> None:
        """Ask the host's worker to run the task."""
        cache = self._cache_of_host[self._costs.hosts[lane]].name
        self._asked[task, lane] = self._path(cache, f"{TASK_PREFIX}{next(self._number)}")
        self._pool.submit(self._run, task, lane)

    def stop(self, task: str, lane: int) -> None:
        """Ask the worker to kill the task; its end gives no event."""
        host = self._costs.hosts[lane]
        with suppress(LaunchError):
            self._workers[host].stop(self._asked[task, lane])

    def move(self, file: str, cache: str) -> None:
        """Send a file from its storage, through this machine, to the first connected host of a cache."""
        self._pool.submit(self._move, file, cache)

    def events(self, until: float) -> list[SweepEvent]:
        """Return the next events."""
        if self._broken:
            raise self._broken
        found: list[SweepEvent] = []
        with suppress(queue.Empty):
            found.append(self._events.get(timeout=max(0.0, until - self.now())))
            while True:
                found.append(self._events.get_nowait())
        return found

    def close(self) -> None:
        """Stop all tasks and transfers."""
        close_all(self._workers.values())
        self._pool.shutdown(wait=True, cancel_futures=True)

    # ------------------------------------------------------------------------ in threads
    def _prepare(self, cache: SiteCache) -> set[tuple[str, str]]:
        if not (living := self._living(cache)):
            return set()
        worker = self._workers[living[0]]
        self._folders[cache.name], there = worker.open_folder(self._folders[cache.name])
        for name, path in self._command.program.items():
            worker.write(self._path(cache.name, name), path.read_bytes())
        return {
            (name, cache.name)
            for name, file in self._files.items()
            if there.get(self._command.cached[name]) == file.size
            and file.storage not in cache.hosts
        }

    def _living(self, cache: SiteCache) -> Sequence[str]:
        return [h for h in cache.hosts if h not in self._lost and not self._workers[h].reason]

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
        """Copy a file in pieces: read a piece while the previous piece is written."""
        place, size = self._command.storage[file.name], int(file.size)
        pieces = [
            (offset, min(MAX_FRAME_BYTES, size - offset))
            for offset in range(0, size, MAX_FRAME_BYTES)
        ] or [(0, 0)]

        def read(piece: tuple[int, int]) -> bytes:
            return source.read_exactly(place, *piece, size)

        with ThreadPoolExecutor(1) as ahead:
            coming = ahead.submit(read, pieces[0])
            for number, (offset, _) in enumerate(pieces):
                data = coming.result()
                last = number + 1 == len(pieces)
                if not last:
                    coming = ahead.submit(read, pieces[number + 1])
                target.write_piece(path, data, offset, last=last)

    def _run(self, task: str, lane: int) -> None:
        host = self._costs.hosts[lane]
        worker = self._workers[host]
        folder = self._asked[task, lane]
        try:
            end = worker.run(self._argv(task, host), folder, self._command.timeout)
            self._events.put(self._ended(task, lane, end, worker))
            worker.remove(folder)
        except LaunchError as error:
            if worker.reason and host not in self._lost:
                self._lost.add(host)
                self._events.put(HostLost(host, worker.reason))
            elif not worker.reason:
                self._events.put(TaskEnded(task, lane, 0.0, {}, str(error), error.code))
        except Exception as error:  # noqa: BLE001 - a thread whose error nobody hears
            words = f"{type(error).__name__}: {error}"
            if isinstance(error, OSError):  # an error on this machine: results cannot be stored
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
        end: ProcessEnd,
        worker: WorkerConnection,
    ) -> TaskEnded:
        """Return the end of a task: check its result and fetch its output files."""
        seconds = end.seconds
        if end.timed_out:
            reason = f"took more than {self._command.timeout:g} s"
            return TaskEnded(task, lane, seconds, {}, reason, "task-timeout")
        result, fault = ({}, end.fault) if end.code else result_of(end.output)
        if fault:
            return TaskEnded(task, lane, seconds, {}, fault.text, fault.code)
        for name in self._command.outputs:
            try:
                with self._fetching[task]:
                    self._fetch(
                        worker, f"{self._asked[task, lane]}/{name}", self._results / task / name
                    )
            except LaunchError as error:
                return TaskEnded(task, lane, seconds, {}, f"no {name}: {error}", "output-missing")
        if self._command.outputs:  # the files must be stored before the result is acknowledged
            # Sync before the journal records the task. After a power cut, a result without its
            # files would count as done.
            own = self._results / task
            for folder in (own, self._results, self._results.parent):
                documents.sync(folder)
        return TaskEnded(task, lane, seconds, result)

    def _fetch(self, worker: WorkerConnection, there: str, here: Path) -> None:
        size = worker.stat(there).size
        if size > MAX_OUTPUT_FILE_BYTES:
            raise LaunchError(
                f"{worker.name}: {there} has {size} bytes, more than {MAX_OUTPUT_FILE_BYTES}",
                code="output-too-large",
                host=worker.name,
                file=there,
                value=size,
                bound=MAX_OUTPUT_FILE_BYTES,
            )
        here.parent.mkdir(parents=True, exist_ok=True)
        partial = here.with_name(here.name + ".part")
        with partial.open("wb") as stream:
            while stream.tell() < size:
                offset = stream.tell()
                stream.write(worker.read_exactly(there, offset, size - offset, size))
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
            else PLACEHOLDER.sub(lambda hole: values.get(hole[1], hole[0]), word)
            for word in command.words
        ]
