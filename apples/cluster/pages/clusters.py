"""The live schedulers with pages: those of this user, and those named at the start."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import hat
from apples.applications import files as user_files
from apples.applications.folder import DocumentFolder
from apples.cluster.pages.queue import MAX_RUNNING, ClusterQuery, cluster_parts
from apples.errors import ApplesError, LaunchError, UsageError, failure_of
from apples.jobs import JobStatus, store
from apples.jobs.scheduler_client import OVER, SchedulerClient, scheduler_directories
from apples.resources import HostList, read_host_list
from apples.weather.pages.host_series import KnownHost, known_of
from apples.weather.pages.hosts import AskedWeather, HostWeather
from apples.weather.service import service_settings

Document = dict[str, Any]

# All browsers share the caches, so they cost a scheduler as much as one browser.
FRESH_SECONDS = 1.0
"""Time for which an answer of a scheduler and the page made from it serve all browsers."""
WEATHER_SECONDS = 10.0
MAX_PAST = 40
"""Ended jobs for which the page reads records, to show the hosts on which they ran."""
MAX_KEPT = 64
PAGE_SECONDS = 4.0
"""Time limit of a page's request: a stopped scheduler must not block the pages."""
BRIEF_SECONDS = 0.1
"""A request that fails sooner does not block a page."""
SILENT_SECONDS = 10.0
"""After a time-out, pages send a scheduler no request for this time: they show its last state at once."""


class Kept:
    """Cache of answers for some seconds. A thread that needs an answer in the making waits for it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()  # never held while an answer is made
        self._making: dict[object, threading.Lock] = {}
        self._answers: dict[object, tuple[float, Any]] = {}

    def of(self, key: object, make: Callable[[], Any]) -> Any:
        """Return the cached value of this key if it is recent, else call `make` and cache its value."""
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                since, answer = self._answers.get(key, (-1e9, None))
            if time.monotonic() - since <= self._seconds:
                return answer
            answer = make()
            with self._lock:
                self._answers.pop(key, None)
                self._answers[key] = time.monotonic(), answer
                while len(self._answers) > MAX_KEPT:
                    del self._answers[next(iter(self._answers))]
                for old in [each for each in self._making if each not in self._answers]:
                    del self._making[old]
            return answer


class Cluster:
    """One scheduler, for its pages.

    Parameters
    ----------
    name
        In the addresses of its pages.
    directory
        The directory of its journal and socket.
    folder
        Folder with host lists; the scheduler's may be among them.
    weather
        Gives the remembered values of hosts.
    seconds
        Time limit of a page's request.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        folder: DocumentFolder,
        weather: HostWeather,
        seconds: float = PAGE_SECONDS,
    ) -> None:
        self.name, self.directory = name, directory
        self._client = SchedulerClient(directory)
        self._page_client = SchedulerClient(directory, seconds=seconds)
        self._silent: tuple[float, LaunchError] | None = None
        self._folder, self._weather = folder, weather
        self._fresh, self._lists = Kept(FRESH_SECONDS), Kept(WEATHER_SECONDS)
        self._places: dict[str, tuple[str, ...]] = {}
        self._last: tuple[float, Document] | None = None

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Document:
        """Return the answer of the scheduler to a verb, as `SchedulerClient.ask` does.

        Raises
        ------
        LaunchError
            It does not answer, or did not answer a page within the last `SILENT_SECONDS`. Transient.
        """
        return self._asked(self._client, method, path, body)

    def read(self, path: str) -> Document:
        """Return the answer of the scheduler to a page's request.

        Raises
        ------
        LaunchError
            It does not answer in time, or did not within the last `SILENT_SECONDS`. Transient.
        """
        return self._asked(self._page_client, "GET", path, None)

    def _asked(
        self, client: SchedulerClient, method: str, path: str, body: Mapping[str, Any] | None
    ) -> Document:
        """Send a request to the scheduler, unless a request timed out a short time ago."""
        if self._silent is not None and time.monotonic() < self._silent[0]:
            raise self._silent[1]
        began = time.monotonic()
        try:
            answer: Document = client.ask(method, path, body)
        except LaunchError as error:
            timed_out = (
                time.monotonic() - began >= BRIEF_SECONDS
            )  # a refused connection is instant
            if error.code == "scheduler-unreachable" and timed_out:
                self._silent = time.monotonic() + SILENT_SECONDS, error
            raise
        self._silent = None
        return answer

    def queue(self) -> tuple[Document, str]:
        """Return the queue as ``apples.queue/1``, and the reason that it is out of date; empty: it is current.

        Raises
        ------
        LaunchError
            The scheduler does not answer, and has never. Transient.
        """
        answer: tuple[Document, str] = self._fresh.of("queue", self._queue)
        return answer

    def _queue(self) -> tuple[Document, str]:
        try:
            document = self.read("/v1/queue")
        except LaunchError as error:
            if self._last is None:
                raise
            return self._last[1], failure_of(error).line
        self._last = time.time(), document
        return document, ""

    def parts(self, query: ClusterQuery) -> dict[str, Any]:
        """Return the model of the page for a query, as `cluster_parts`.

        Raises
        ------
        LaunchError
            As of `queue`.
        """
        found: dict[str, Any] = self._fresh.of(query, lambda: self._parts(query))
        return found

    def _parts(self, query: ClusterQuery) -> dict[str, Any]:
        document, stale = self.queue()
        jobs = document["jobs"]
        going = [one for one in jobs if one["record"] and one["state"] not in OVER]
        records = {one["job"]: _record(one["record"]) for one in going[:MAX_RUNNING]}
        over = [one for one in jobs if one["record"] and one["ended"] and one["state"] in OVER]
        past = {one["job"]: self._places_of(one["record"]) for one in over[-MAX_PAST:]}
        weather = self._lists.of("weather", lambda: self._host_weather(document))
        parts = cluster_parts(document, query, weather, records, past)
        return {**parts, "stale": stale, "age": time.time() - document["time"]}

    def host(self, name: str) -> tuple[Document, Document | None]:
        """Return a host as in ``apples.queue/1``, and its known share and memory.

        Raises
        ------
        UsageError
            The scheduler has no host of this name.
        LaunchError
            As of `queue`.
        """
        document, _ = self.queue()
        for one in document["hosts"]:
            if one["host"] == name:
                weather = self._lists.of("weather", lambda: self._host_weather(document))
                return one, weather.get(name)
        raise UsageError(
            f"{document['name']} has no host {hat.printable(name)}",
            code="host-unknown", scheduler=document["name"], host=name,
        )  # fmt: skip

    def _places_of(self, record: str) -> tuple[str, ...]:
        """Return the hosts of a job that is over; its record does not change any more."""
        if record not in self._places:
            found = _record(record)
            self._places[record] = () if found is None else tuple(found["hosts"])
            while len(self._places) > 4 * MAX_PAST:
                self._places.pop(next(iter(self._places)), None)
        return self._places[record]

    def _host_weather(self, document: Document) -> dict[str, Document]:
        """Return the known values of the hosts by name; empty if their list is not known."""
        found = self._host_list(document)
        if found is None:
            return {}
        try:
            asked: AskedWeather = self._weather.of(found)
        except ApplesError:  # the service refuses: the page shows the scheduler's values
            return {}
        return {row["host"]: row for row in asked.rows}

    def series_of(self, name: str) -> KnownHost | None:
        """Return the known time series of a host; None if the scheduler's list is not known."""
        found = self._host_list(self.queue()[0])
        if found is None:
            return None
        host = next(one for one in found if one.name == name)
        try:
            return known_of(found, host, service_settings())
        except ApplesError:  # no token of the service: the page shows the scheduler's values
            return None

    def _host_list(self, document: Document) -> HostList | None:
        """Return a host list with all hosts of the scheduler; None: not found."""
        names = {one["host"] for one in document["hosts"]}
        return next(
            (one for one in self._host_lists(document) if names <= {h.name for h in one}), None
        )

    def _host_lists(self, document: Document) -> Iterator[HostList]:
        """Yield the lists that may be the scheduler's: that of its last job, then those of the folder."""
        records = [one["record"] for one in document["jobs"] if one["record"]]
        places: list[str | Path] = []
        for record in records[-1:]:
            try:
                places.append(store.record(record).order()["hosts"])
            except (KeyError, UsageError):
                continue
        for name, one in self._folder.checked():
            if one.kind == user_files.HOST_LIST:
                places.append(self._folder.file(name))
        for place in places:
            try:
                yield read_host_list(place)
            except (hat.DocumentError, OSError):
                continue


def _record(identifier: str) -> Document | None:
    """Return a job's record as ``apples.job/1`` with its predicted run time; None: the record is gone."""
    try:
        found = store.record(identifier)
        record = found.record()
    except (UsageError, OSError):
        return None
    status = JobStatus.of(found, ask=False).document()
    return {**status, "predicted_seconds": record.get("predicted_seconds")}


class Clusters:
    """The schedulers with pages.

    Parameters
    ----------
    named
        Directories of schedulers besides those under the state directory.
    """

    def __init__(
        self, named: Sequence[Path], folder: DocumentFolder, weather: HostWeather
    ) -> None:
        self._named, self._folder, self._weather = named, folder, weather
        self._known: dict[Path, Cluster] = {}

    def all(self) -> list[Cluster]:
        """Return all schedulers: this user's in the order of their names, then those in `named`."""
        names = scheduler_directories(self._named)
        for name, place in names.items():
            if place not in self._known:
                self._known[place] = Cluster(name, place, self._folder, self._weather)
        return [self._known[place] for place in names.values()]

    def one(self, name: str) -> Cluster:
        """Return the scheduler of a name.

        Raises
        ------
        UsageError
            No scheduler here has this name.
        """
        for each in self.all():
            if each.name == name:
                return each
        raise UsageError(
            f"'{hat.printable(name)}': no scheduler has this name",
            code="scheduler-unknown", scheduler=name,
        )  # fmt: skip
