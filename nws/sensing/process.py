"""The sensor process: one loop that measures, reports, renews its lease and takes part in cliques."""

import argparse
import contextlib
import gc
import logging
import queue
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nws.client import Client, ServiceError
from nws.clique.messages import decode
from nws.errors import InputError
from nws.measurement import Measurement
from nws.sensing.budget import Budget, DailyWindow
from nws.sensing.clique_runtime import FETCH_EVERY, CliqueRuntime, MemberAddress
from nws.sensing.delivery import DeliveryQueue, LineWriter
from nws.sensor import Sensor, SensorError
from nws.sensors.cpu import CpuSensor
from nws.sensors.cpu_probe import probe_share
from nws.sensors.free_space import FreeDiskSensor, FreeMemorySensor
from nws.sensors.link_protocol import Endpoint
from nws.sensors.prometheus import PrometheusReader


@dataclass(frozen=True, slots=True)
class SensorOptions:
    """See ``python -m nws.sensing --help``."""

    url: str | None
    token_file: Path | None
    stdout: bool
    certificate: Path | None
    host: str
    site: str
    every: float
    probe_every: float
    disk: Path
    listen: tuple[str, int] | None
    cpu_share: float
    bytes_per_day: float
    link_share: float
    udp: bool
    windows: tuple[DailyWindow, ...]
    rounds: int
    prometheus: str | None


def parse(arguments: Sequence[str]) -> SensorOptions:
    """Return the options; SystemExit(2) with a message if they are wrong."""
    parser = argparse.ArgumentParser(
        prog="nws sense", description="Measure this host and report to a service, until stopped."
    )
    add = parser.add_argument
    add("--service", dest="url", help="where the service answers")
    add("--token-file", type=Path, help="a file with the bearer token")
    add("--stdout", action="store_true", help="print the messages, a line each, and send none")
    add("--certificate", type=Path, help="authorities to trust besides the system's")
    add("--host", default=socket.gethostname().partition(".")[0], help="name of this host")
    add("--site", default="local", help="the site it is in")
    add("--every", type=_seconds, default=10.0, help="seconds between measurements")
    add("--probe-every", type=_seconds, default=60.0, help="seconds between CPU probes")
    add("--disk", type=Path, default=Path("/"), help="the file system to watch")
    add("--listen", type=_address, help="HOST:PORT for the probes of others; none: not probed")
    add("--cpu-share", type=float, default=0.005, help="CPU seconds a second for probes")
    add("--bytes-per-day", type=float, default=4e9, help="bytes a day for bandwidth probes")
    add("--link-share", type=float, default=0.01, help="of a link's time, for bandwidth probes")
    add("--udp", action="store_true", help="measure losses and latency of datagrams too")
    add("--window", type=_window, action="append", default=[], help="HH:MM-HH:MM, may be repeated")
    add("--rounds", type=int, default=0, help="stop after so many rounds; 0: never")
    add("--prometheus", help="read the hosts that this server watches instead of measuring")
    found = vars(parser.parse_args(arguments))
    if found["stdout"] == bool(found["url"]) or (found["url"] and not found["token_file"]):
        parser.error("either --stdout, or --service and --token-file")
    if found["stdout"] and found["listen"]:
        parser.error("--stdout takes no part in cliques: --listen needs a service")
    found["windows"] = tuple(found.pop("window"))
    return SensorOptions(**found)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.1 <= value <= 86400:
        raise InputError(
            f"must be 0.1 to 86400 seconds (is {text})",
            code="value-range",
            value=value,
            bound=86400,
        )
    return value


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def _window(text: str) -> DailyWindow:
    return DailyWindow.parse(text)


@dataclass(slots=True)
class _Task:
    every: float
    due: float
    run: Callable[[], object]


class PeriodicTasks:
    """Tasks repeated on a regular grid; what was missed is not made up for.

    Examples
    --------
    >>> schedule, done = PeriodicTasks(now=0.0), []
    >>> schedule.add(10.0, lambda: done.append("measure"))
    >>> schedule.run(now=0.0), schedule.run(now=35.0), schedule.wake_at
    (1, 1, 40.0)
    """

    def __init__(self, now: float) -> None:
        self._start = now
        self._tasks: list[_Task] = []

    def add(self, every: float, run: Callable[[], object]) -> None:
        """Run a task now and every so many seconds."""
        self._tasks.append(_Task(every, self._start, run))

    @property
    def wake_at(self) -> float:
        """When the next is due."""
        return min((task.due for task in self._tasks), default=float("inf"))

    def run(self, now: float) -> int:
        """Run what is due; return how many were."""
        count = 0
        for task in self._tasks:
            if task.due <= now:
                task.run()
                count += 1
                task.due += task.every * (1 + (now - task.due) // task.every)
        return count


BEATS: Final = 3
"""Heartbeats a lease: two may be lost."""
LONGEST_WAIT: Final = 1.0
PROBE_SECONDS: Final = 0.1
PROBES: Final = 3
"""CPU probes at the start and where the load changes; one that agrees with the run queue is enough."""

_log = logging.getLogger("nws.sense")


class SensorProcess:
    """One host's sensors and its part in the cliques.

    Parameters
    ----------
    options
        Its command line, parsed.
    client
        The service, or a line writer in its place.
    clock
        Seconds that only go forward.
    """

    def __init__(
        self,
        options: SensorOptions,
        client: Client | LineWriter,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.deliveries = DeliveryQueue(client)
        self.rounds = 0
        self._options = options
        self._client = client if isinstance(client, Client) else None
        self._clock = clock
        self._budget = Budget(
            options.cpu_share, options.bytes_per_day, options.windows, options.link_share
        )
        self._sensors = [] if options.prometheus else self._own_sensors()
        self._reader = PrometheusReader(options.prometheus) if options.prometheus else None
        self._inbox: queue.Queue[Callable[[], object]] = queue.Queue(1000)
        self._runtimes: dict[str, CliqueRuntime] = {}
        self._endpoint: Endpoint | None = None
        self._secret = ""
        self._said: dict[str, str] = {}
        self._lease = max(30.0, BEATS * options.every)
        self._schedule = PeriodicTasks(clock())
        self._schedule.add(options.every, self._measure)
        if self._client is not None:
            service = self._client
            self._schedule.add(self._lease / BEATS, lambda: self._beat(service))
        if options.listen is not None and self._client is not None:
            listen, service = options.listen, self._client
            self._schedule.add(FETCH_EVERY, lambda: self._fetch_cliques(service, listen))
        gc.freeze()  # what is here stays: the collector need not look at it again

    def run(self) -> None:
        """Go on until interrupted, or for as many rounds as were asked for."""
        try:
            while not self._options.rounds or self.rounds < self._options.rounds:
                self.step()
        finally:
            self.close()

    def step(self) -> None:
        """Do what is due, then wait for what comes, at most for a second."""
        now = self._clock()
        self._schedule.run(now)
        for runtime in self._runtimes.values():
            runtime.tick(now)
        wakes = [self._schedule.wake_at, *(runtime.wake_at for runtime in self._runtimes.values())]
        wait = min(max(0.0, min(wakes) - self._clock()), LONGEST_WAIT)
        with contextlib.suppress(queue.Empty):
            self._inbox.get(timeout=wait)()
            while True:
                self._inbox.get_nowait()()

    def close(self) -> None:
        """End the lease, the endpoint and the runtimes."""
        for runtime in self._runtimes.values():
            runtime.close()
        if self._endpoint is not None:
            self._endpoint.close()
        with contextlib.suppress(ServiceError):
            self.deliveries.deliver()
            if self._client is not None:
                self._client.leave(self._options.host)

    def _measure(self) -> None:
        self.rounds += 1
        for sensor in self._sensors:
            self._take(str(sensor.series[0]), sensor.measure)
            if isinstance(sensor, CpuSensor) and (sensor.remarks or "run queue" in self._said):
                self._say("run queue", "; ".join(sensor.remarks) or "is seen whole")
        if self._reader is not None:
            self._take("Prometheus", self._reader.read)
        self._deliver()

    def _own_sensors(self) -> list[Sensor]:
        options = self._options
        return [
            CpuSensor(
                options.host,
                probe=self._spin,
                probe_every=options.probe_every,
                probes=PROBES,
                readings=4,
            ),
            FreeMemorySensor(options.host),
            FreeDiskSensor(options.host, options.disk),
        ]

    def _take(self, what: str, measure: Callable[[], Iterable[Measurement]]) -> None:
        try:
            self.deliveries.take(measure())
            self._say(what, "is measured")
        except SensorError as error:
            self._say(what, str(error))

    def _deliver(self) -> None:
        try:
            self.deliveries.deliver()
            self._say("service", "answers")
        except ServiceError as error:
            self._say("service", str(error))

    def _beat(self, client: Client) -> None:
        """Register, or renew the lease."""
        options = self._options
        address = ""
        if options.listen is not None and self._endpoint is not None:
            host, port = self._endpoint.address
            address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        names = [name.resource for sensor in self._sensors for name in sensor.series]
        with contextlib.suppress(ServiceError):  # what goes wrong is said when delivering
            client.register(
                options.host,
                host=options.host,
                site=options.site,
                address=address,
                resources=names,
                seconds=self._lease,
            )

    def _fetch_cliques(self, client: Client, listen: tuple[str, int]) -> None:
        """Ask the service who is in the cliques now; without an answer the lists run out."""
        with contextlib.suppress(ServiceError, OSError):
            names = client.cliques()
            if self._endpoint is None:
                self._open_endpoint(client, listen)
            for name in names:
                self._join(client, name)

    def _open_endpoint(self, client: Client, listen: tuple[str, int]) -> None:
        """Listen for the probes of others, now that we know what they must prove."""
        self._secret = client.probing_secret()
        self._endpoint = Endpoint(self._secret, listen, on_message=self._message_came)
        self._beat(client)

    def _join(self, client: Client, name: str) -> None:
        found = client.clique(name)
        members = tuple(_member(entry) for entry in found["members"])
        if self._options.host not in {member.name for member in members}:
            return
        if name not in self._runtimes:
            self._runtimes[name] = CliqueRuntime(
                name,
                self._options.host,
                found["period"],
                self._secret,
                self._budget,
                self._inbox.put,
                self._took,
                udp=self._options.udp,
            )
        self._runtimes[name].confirm(members, self._clock())

    def _took(self, measurements: list[Measurement]) -> None:
        self.deliveries.take(measurements)
        self._deliver()

    def _message_came(self, data: bytes) -> None:
        """Pass a message on to the main thread; what is no message is nothing."""
        with contextlib.suppress(ValueError, queue.Full):
            clique, message = decode(data)
            runtime = self._runtimes.get(clique)
            if runtime is not None:
                self._inbox.put_nowait(lambda: runtime.receive(message, self._clock()))

    def _spin(self, cpus: frozenset[int]) -> float:
        now = self._clock()
        if not self._budget.may_spin(now):
            raise SensorError(
                "the budget of CPU probes is spent", transient=True, code="probe-budget-spent"
            )
        share = probe_share(cpus, PROBE_SECONDS)
        self._budget.spun(PROBE_SECONDS * share, now)
        return share

    def _say(self, what: str, state: str) -> None:
        """Log a state when it changes, not every time."""
        if self._said.get(what) != state:
            self._said[what] = state
            _log.info("%s: %s", what, state)


def _member(entry: dict[str, str]) -> MemberAddress:
    host, _, port = entry["address"].rpartition(":")
    return MemberAddress(entry["name"], (host.strip("[]"), int(port)))
