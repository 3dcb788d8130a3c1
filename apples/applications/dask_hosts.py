"""`DaskHosts`: the workers of an existing Dask cluster as hosts of a sweep.

On each worker, an actor runs the worker program that ssh starts on other hosts, so both give `HostsExecutor` the
same replies. A task of the sweep is a task of Dask, pinned to the worker that the plan names; it waits for a
thread like any other task of the cluster. File transfers and stops take no thread. Dask drops the actor when its
client is gone, and the program detects the end of its Dask worker from its pipe; in both cases the tasks are
ended.
"""

from __future__ import annotations

import asyncio
import itertools
import queue
import re
import sys
import uuid
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from threading import Event, Lock, Thread
from typing import Any

import hat
from apples.applications.workers import (
    ANSWER_SECONDS,
    END_SECONDS,
    HELLO_SECONDS,
    HostWorker,
    Reply,
    WorkerConnection,
)
from apples.errors import ApplesError, LaunchError, coded
from apples.launch.dask_cluster import ANSWER_SECONDS as SCHEDULER_SECONDS
from apples.launch.dask_cluster import LOOK_SECONDS, DaskCluster, dask_cluster
from apples.resources import Host, HostList

MAX_SLOTS = 4096


# ------------------------------------------------------------------------ in a worker of the cluster
# An actor, because its coroutines need no thread: a cluster whose threads are all busy can still
# receive a file. Dask cannot end a running task, but it drops the actor of a lost client, and the
# finalizer ends the program.
class DaskWorkerActor:
    """An actor of a Dask worker that runs a worker program as its child; the child ends with the actor."""

    def __init__(self, key: str, name: str) -> None:
        host = Host(name)
        self.worker = HostWorker(host, HostList((host,), None))  # type: ignore[arg-type]
        self.worker.await_hello()
        _ACTORS[key] = self

    async def ask(self, do: str, body: bytes, what: dict[str, Any]) -> Reply:
        """Return the program's reply. It runs beside the worker's threads, which are for tasks."""
        return await asyncio.to_thread(self.worker.ask, do, body, **what)

    async def close(self) -> None:
        """End the program, and with it every task."""
        await asyncio.to_thread(self.worker.close)

    def __del__(self) -> None:
        """End the program when Dask drops the actor, because its client is gone for any reason."""
        if worker := getattr(self, "worker", None):
            Thread(target=worker.close).start()


_ACTORS: weakref.WeakValueDictionary[str, DaskWorkerActor] = weakref.WeakValueDictionary()
"""The actors of this Dask worker by key. Dask keeps them alive, this table does not."""


def _run_task(key: str, what: dict[str, Any]) -> Reply:
    """Run one task of a sweep in a thread of a worker."""
    actor = _ACTORS.get(key)
    if actor is None:
        raise LaunchError("the sweep is over", code="sweep-ended")
    worker = actor.worker
    del actor  # the task must not keep it alive
    return worker.ask("run", within=None, **what)


def _describe(dask_worker: Any) -> dict[str, Any]:
    return {
        "name": str(dask_worker.name),
        "slots": dask_worker.state.nthreads,
        "python": sys.executable,
    }


# ------------------------------------------------------------------------ here
@dataclass(frozen=True)
class _Found:
    """A worker of the cluster: its address in Dask, the number of tasks it runs at a time, its interpreter."""

    address: str
    slots: int
    python: str


class DaskHost(WorkerConnection):
    """The connection to one worker of a Dask cluster."""

    def __init__(self, name: str, found: _Found, cluster: DaskCluster) -> None:
        self.name, self.reason, self.python = name, "", found.python
        self._cluster, self._address = cluster, found.address
        self._key = f"apples-sweep-{name}-{uuid.uuid4().hex}"
        self._actor: Any = None
        self._numbers, self._lock = itertools.count(1), Lock()
        self._waiting: dict[str, tuple[queue.SimpleQueue[None], Any]] = {}
        self._made = self._submit(DaskWorkerActor, self._key, self._key, name, actor=True)

    def await_hello(self, seconds: float = HELLO_SECONDS) -> None:
        """Return when the program has answered."""
        try:
            self._actor = self._made.result(timeout=seconds)
        except TimeoutError:
            words = f"its Dask worker has had no thread free for {seconds:g} s"
        except Exception as error:  # noqa: BLE001 - whatever was raised there
            words = _words(error, self.name)
        else:
            return
        self.close()
        reason = self.reason or words
        raise LaunchError(
            f"{self.name}: {reason}", code="host-unreachable", host=self.name, reason=reason
        )

    def ask(
        self, do: str, body: bytes = b"", within: float | None = ANSWER_SECONDS, **what: Any
    ) -> Reply:
        """Return the program's reply."""
        if self.reason:
            raise LaunchError(
                f"{self.name}: {self.reason}", code="host-lost", host=self.name, reason=self.reason
            )
        if do == "run":
            return self._run(what)
        if do == "stop" and (waiting := self._waiting.get(what["path"])):
            waiting[1].cancel()
        try:
            found: Reply = self._actor.ask(do, body, what).result(timeout=within)
        except Exception as error:  # noqa: BLE001 - whatever was raised there
            late = isinstance(error, TimeoutError)
            reason = self.reason or ("does not answer" if late else _words(error, self.name))
            if isinstance(error, ApplesError) and not self.reason:
                raise LaunchError(f"{self.name}: {reason}", **coded(error)) from None
            raise LaunchError(
                f"{self.name}: {reason}",
                code="host-silent" if late else "host-lost",
                host=self.name,
                reason=reason,
            ) from None
        return found

    def close(self) -> None:
        """End all processes on the worker and release the actor."""
        with self._lock:
            ended, self.reason = self.reason, self.reason or "the sweep is over"
        for waiting, future in list(self._waiting.values()):
            future.cancel()
            waiting.put(None)
        if self._actor is not None and not ended:
            with suppress(Exception):  # its worker may be gone by now
                self._actor.close().result(timeout=END_SECONDS)
        self._actor = None
        with suppress(Exception):
            self._made.cancel()

    def lose(self, reason: str) -> None:
        """Mark the connection as lost, and end all waits for a reply."""
        with self._lock:
            self.reason = self.reason or reason
        for waiting, _ in list(self._waiting.values()):
            waiting.put(None)

    def _run(self, what: dict[str, Any]) -> Reply:
        over: queue.SimpleQueue[None] = queue.SimpleQueue()
        key = f"{self._key}-{next(self._numbers)}"
        future = self._submit(_run_task, key, self._key, what)
        self._waiting[what["path"]] = (over, future)
        try:
            future.add_done_callback(lambda _: over.put(None))
            if not self.reason:
                over.get()
            if future.status == "finished":
                found: Reply = self._cluster.await_answer(lambda: future)
                return found
            failed = future.exception() if future.status == "error" else None
            words = _words(failed, self.name) if failed else "Dask has given the task up"
        finally:
            del self._waiting[what["path"]]
            future.cancel()
        reason = self.reason or words
        raise LaunchError(
            f"{self.name}: {reason}", code="host-lost", host=self.name, reason=reason
        )

    def _submit(self, function: Any, key: str, *told: Any, actor: bool = False) -> Any:
        return self._cluster.client.submit(
            function, *told, key=key, workers=[self._address], allow_other_workers=False,
            retries=0, actor=actor,
        )  # fmt: skip


class DaskHosts:
    """The workers of a cluster, by host name."""

    def __init__(self, cluster: DaskCluster) -> None:
        self._cluster = cluster
        self._found = self._look()
        self._open: list[DaskHost] = []
        self._over = Event()
        self._watch = Thread(target=self._watch_workers, daemon=True)
        self._watch.start()

    def __contains__(self, name: object) -> bool:
        """Whether a host of that name is a worker of the cluster."""
        return name in self._found

    def connect(self, name: str) -> DaskHost:
        """Return the connection to a worker."""
        host = DaskHost(name, self._found[name], self._cluster)
        self._open.append(host)
        return host

    def hosts(self, listing: HostList) -> HostList:
        """Return the host list with the workers added; a worker with the name of a listed host is that host.

        Each machine of the other workers is a site, because they share a folder. A worker has a slot for each
        thread.
        """
        workers = tuple(
            replace(listing[name], slots=found.slots)
            if name in listing
            else Host(name, site=_plain(_machine(found.address)), slots=found.slots)
            for name, found in self._found.items()
        )
        others = tuple(host for host in listing if host.name not in self._found)
        return replace(listing, hosts=(*others, *workers))

    def close(self) -> None:
        """Stop watching the cluster."""
        self._over.set()
        self._watch.join(SCHEDULER_SECONDS)

    def _look(self) -> dict[str, _Found]:
        client, address = self._cluster.client, self._cluster.address
        try:
            told = client.sync(client.run, _describe, callback_timeout=SCHEDULER_SECONDS)
        except ModuleNotFoundError as error:
            raise LaunchError(
                f"a worker of the Dask cluster at {address} has {_words(error)}: its workers need the packages "
                "of this machine",
                code="worker-package-missing",
                address=address,
                package=error.name,
            ) from None
        except Exception as error:  # noqa: BLE001 - whatever was raised there
            raise LaunchError(
                f"the Dask cluster at {address}: {_words(error)}",
                code="dask-unreachable",
                address=address,
                reason=_words(error),
            ) from None
        if not told:
            raise LaunchError(
                f"the Dask cluster at {address} has no worker",
                code="dask-workers-missing",
                address=address,
            )
        return {
            _plain(each["name"]): _Found(
                address, min(MAX_SLOTS, max(1, int(each["slots"]))), each["python"]
            )
            for address, each in sorted(told.items(), key=lambda each: str(each[1]["name"]))
        }

    def _watch_workers(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            try:
                there, reason = self._cluster.workers(), "its Dask worker is gone"
            except Exception as error:  # noqa: BLE001 - who waits for a worker must hear of it, whatever it is
                there, reason = set(), _words(error)
            for host in self._open:
                if self._found[host.name].address not in there and not self._over.is_set():
                    host.lose(reason)


@contextmanager
def dask_hosts(address: str) -> Iterator[DaskHosts | None]:
    """Yield the workers of the cluster at `address`; None if it is empty.

    Raises
    ------
    UsageError
        Dask is not installed. Permanent.
    LaunchError
        No scheduler answers, it has no worker, or the workers lack this package.
    """
    if not address:
        yield None
        return
    with dask_cluster(address) as cluster:
        hosts = DaskHosts(cluster)
        try:
            yield hosts
        finally:
            hosts.close()


def _machine(address: str) -> str:
    """Return the machine of an address of Dask.

    Examples
    --------
    >>> _machine("tcp://10.0.0.3:41231"), _machine("tls://[fe80::1]:8786")
    ('10.0.0.3', '[fe80::1]')
    """
    return address.partition("://")[2].rpartition(":")[0] or address


def _plain(name: str) -> str:
    """Return the host or site name of a worker or machine; a worker without a name is named by its address.

    Examples
    --------
    >>> _plain("tcp://10.0.0.3:41231"), _plain("[fe80::1]"), _plain("gpu-1")
    ('10.0.0.3-41231', 'fe80--1', 'gpu-1')
    """
    text = name.partition("://")[2] or name
    return re.sub(r"[^A-Za-z0-9._-]", "-", text).strip("-._")[:253] or "worker"


def _words(error: BaseException, name: str = "") -> str:
    text = str(error).removeprefix(f"{name}: ") or type(error).__name__
    return hat.printable(text.splitlines()[0])[:300]
