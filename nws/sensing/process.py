"""The sensor process: one thread measures, one reports to the service, one probes links in its turns."""

import argparse
import gc
import hashlib
import ipaddress
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar
from urllib.parse import urlsplit

from nws.client import Client
from nws.errors import InputError
from nws.measurement import Measurement, checked_name
from nws.sensing.budget import Budget
from nws.sensing.delivery import DeliveryQueue, LineWriter
from nws.sensing.link_prober import LinkProber
from nws.sensing.reporter import Reporter
from nws.sensor import Sensor, SensorError
from nws.sensors.cpu import CpuSensor
from nws.sensors.cpu_probe import probe_share
from nws.sensors.free_space import FreeDiskSensor, FreeMemorySensor
from nws.sensors.prometheus import PrometheusReader

MAX_PORT: Final = 65535
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class SensorOptions:
    """See ``python -m nws.sensing --help``."""

    url: str | None
    token_file: Path | None
    stdout: bool
    ca: Path | None
    host: str
    site: str
    every: float
    probe_every: float
    disk: Path
    listen: tuple[str, int] | None
    bytes_per_day: float
    rounds: int
    prometheus: str | None


def parse(arguments: Sequence[str]) -> SensorOptions:
    """Return the options; SystemExit(2) with a message if they are wrong."""
    parser = _Parser(
        prog="nws sense", description="Measure this host and report to a service, until stopped."
    )
    add = parser.add_argument
    add("--service", dest="url", type=_option(_url), help="where the service answers")
    add("--token-file", type=Path, help="a file with the bearer token")
    add(
        "--stdout",
        action="store_true",
        help="print the messages, a line each, instead of sending them",
    )
    add("--ca", type=Path, help="authorities to trust besides the system's")
    name = socket.gethostname().partition(".")[0]
    add("--host", type=_option(_name), default=name, help="name of this host")
    add("--site", type=_option(_name), default="local", help="the site it is in")
    add("--every", type=_option(_seconds), default=10.0, help="seconds between measurements")
    add("--probe-every", type=_option(_seconds), default=60.0, help="seconds between CPU probes")
    add("--disk", type=Path, default=Path("/"), help="the file system to watch")
    add(
        "--listen",
        type=_option(_address),
        help="ADDRESS:PORT for the probes of others; none: no link is measured",
    )
    add(
        "--bytes-per-day",
        type=_option(_bytes_per_day),
        default=4e9,
        help="bytes a day for bandwidth probes",
    )
    add("--rounds", type=int, default=0, help="rounds after which to stop; 0: never")
    add(
        "--prometheus",
        type=_option(_url),
        help="read the hosts that this server watches instead of measuring",
    )
    options = SensorOptions(**vars(parser.parse_args(arguments)))
    if options.stdout == bool(options.url) or (options.url and not options.token_file):
        parser.error("either --stdout, or --service and --token-file")
    if options.stdout and options.listen:
        parser.error("--listen needs --service: the service grants the turns of link probes")
    if options.ca and options.url and urlsplit(options.url).scheme == "http":
        parser.error(f"--ca does not apply: {options.url} is without TLS")
    return options


class _Parser(argparse.ArgumentParser):
    """Ends with one line, as the other verbs do."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} [option-invalid]\n")


def _option(convert: Callable[[str], _Value]) -> Callable[[str], _Value]:
    """Return the type of an option; argparse prints its error messages unchanged."""

    def converted(text: str) -> _Value:
        try:
            return convert(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return converted


def _name(text: str) -> str:
    return checked_name("name", text)


def _bytes_per_day(text: str) -> float:
    value = float(text)
    Budget(value)
    return value


def _url(text: str) -> str:
    """Return the URL of a server; ValueError if none can be there."""
    try:
        parts = urlsplit(text)
        host = parts.hostname or ""
        good = parts.scheme in {"http", "https"} and parts.port != 0 and text.isprintable()
        good = good and bool(host.encode("idna"))  # each label of 1 to 63 bytes
    except ValueError:
        good = False
    if not good:
        raise InputError(
            f"{text}: not the address of a service; use http://HOST:PORT",
            code="address-invalid",
            value=text,
        )
    return text


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
    host = host.strip("[]") or "0.0.0.0"  # noqa: S104 - a port alone listens everywhere
    if not (port.isascii() and port.isdecimal() and int(port[:6]) <= MAX_PORT):
        raise InputError(
            f"{text}: the port must be in 0..{MAX_PORT}",
            code="value-range",
            value=text,
            bound=MAX_PORT,
        )
    return str(ipaddress.ip_address(host)), int(port)


def next_round(due: float, every: float, now: float) -> float:
    """Return the time of the next round on the grid of `due` and `every`; missed rounds are skipped.

    Examples
    --------
    >>> next_round(due=0.0, every=10.0, now=35.0)
    40.0
    """
    return due + every * (1 + (now - due) // every)


def reachable_address(listening: tuple[str, int], url: str) -> str:
    """Return the ``address:port`` at which other hosts reach an endpoint.

    An endpoint that listens everywhere is registered under the address from which this host reaches the
    service: no peer can dial a wildcard, it would reach itself.

    Raises
    ------
    InputError
        Permanent: the service is reached over loopback, so the address for other hosts is unknown.
    OSError
        Transient: the service's name is unknown, or the network is unreachable.
    """
    host, port = listening
    if ipaddress.ip_address(host).is_unspecified:
        host = _source_address(urlsplit(url), host)
        if ipaddress.ip_address(host).is_loopback:
            raise InputError(
                f"--listen {listening[0]}: the service is on this machine, so the address for other hosts is "
                "unknown; use --listen ADDRESS:PORT with the address of this host",
                code="listen-address-unknown",
                option="--listen",
                value=listening[0],
            )
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _source_address(service: Any, listening: str) -> str:
    """Return the address from which the kernel sends to a service; a datagram socket sends nothing here."""
    family = socket.AF_INET6 if ":" in listening else socket.AF_INET
    port = service.port or 80
    found = socket.getaddrinfo(service.hostname, port, family, socket.SOCK_DGRAM)
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(found[0][4])
        return str(probe.getsockname()[0])


def loopback_domain() -> str:
    """Return the identity of this machine's loopback network: processes reach each other there if it is equal."""
    boot, network = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/net")
    known = boot.exists() and network.is_symlink()
    text = f"{boot.read_text()} {network.readlink()}" if known else socket.gethostname()
    return hashlib.sha256(text.encode()).hexdigest()[:32]


RENEWALS_PER_LEASE: Final = 3
"""Two renewals of a registration may be lost."""
MAX_LEASE_SECONDS: Final = 3600.0
"""The longest lease that a service grants."""
PROBE_SECONDS: Final = 0.1
PROBES: Final = 3
"""CPU probes at the start and after a change of load. A probe that agrees with the run queue ends them."""

_log = logging.getLogger("nws.sense")


class SensorProcess:
    """One host's sensors, and its link probes.

    Parameters
    ----------
    options
        Its command line, parsed.
    report
        Makes a client of the service, one for each thread; or writes lines in place of a service.
    """

    def __init__(self, options: SensorOptions, report: LineWriter | Callable[[], Client]) -> None:
        self.rounds = 0
        self._options = options
        self._budget = Budget(options.bytes_per_day)
        self._sensors = [] if options.prometheus else self._own_sensors()
        self._reader = PrometheusReader(options.prometheus) if options.prometheus else None
        self._states: dict[str, str] = {}
        self._stopping = threading.Event()
        self._lease = min(MAX_LEASE_SECONDS, max(30.0, RENEWALS_PER_LEASE * options.every))
        self._reporter: Reporter | None = None
        self._prober: LinkProber | None = None
        if isinstance(report, LineWriter):
            self.deliveries = DeliveryQueue(report)
        else:
            self._connect(report)
        gc.freeze()  # these objects stay: the collector need not look at them again

    def run(self) -> None:
        """Measure until interrupted, or for as many rounds as were asked for."""
        try:
            if self._reporter is not None:
                self._reporter.start()
            if self._prober is not None:
                threading.Thread(target=self._probe_links, name="nws links", daemon=True).start()
            due = time.monotonic()
            while not self._options.rounds or self.rounds < self._options.rounds:
                time.sleep(max(0.0, due - time.monotonic()))
                due = next_round(due, self._options.every, time.monotonic())
                self._measure()
        finally:
            self.close()

    def close(self) -> None:
        """Deliver the rest, and end the registration and the endpoint."""
        self._stopping.set()
        if self._prober is not None:
            self._prober.close()
        if self._reporter is not None:
            self._reporter.stop()

    def _connect(self, connect: Callable[[], Client]) -> None:
        options = self._options
        service = connect()
        self.deliveries = DeliveryQueue(service)
        self._reporter = Reporter(
            service,
            self.deliveries,
            options.host,
            self._registration,
            self._lease / RENEWALS_PER_LEASE,
            self._log_state,
        )
        if options.listen is not None:
            self._prober = LinkProber(
                options.host,
                connect(),
                options.listen,
                self._budget,
                self._take_links,
                self._log_state,
            )

    def _registration(self) -> dict[str, Any]:
        options = self._options
        endpoint = self._prober.endpoint if self._prober is not None else None
        address = machine = ""
        if endpoint is not None and options.url is not None:
            address = reachable_address(endpoint.address, options.url)
            if ipaddress.ip_address(endpoint.address[0]).is_loopback:
                machine = loopback_domain()
        return {
            "host": options.host,
            "site": options.site,
            "address": address,
            "machine": machine,
            "resources": [name.resource for sensor in self._sensors for name in sensor.series],
            "seconds": self._lease,
        }

    def _probe_links(self) -> None:
        prober, registered = self._prober, False
        while prober is not None and not self._stopping.is_set():
            wait = prober.step()
            if prober.endpoint is not None and not registered and self._reporter is not None:
                registered = True
                self._reporter.wake(renew=True)  # with the address of the endpoint
            self._stopping.wait(wait)

    def _take_links(self, measurements: list[Measurement]) -> None:
        self.deliveries.take(measurements)
        if self._reporter is not None:
            self._reporter.wake()

    def _measure(self) -> None:
        self.rounds += 1
        for sensor in self._sensors:
            self._take(str(sensor.series[0]), sensor.measure)
            if isinstance(sensor, CpuSensor) and (sensor.remarks or "run queue" in self._states):
                self._log_state("run queue", "; ".join(sensor.remarks) or "is seen whole")
        if self._reader is not None:
            self._take("Prometheus", self._reader.read)
        if self._reporter is not None:
            self._reporter.wake()
        else:
            self.deliveries.deliver()

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
            self._log_state(what, "is measured")
        except SensorError as error:
            self._log_state(what, str(error))

    def _spin(self, cpus: frozenset[int]) -> float:
        now = time.monotonic()
        if not self._budget.may_spin(now):
            raise SensorError(
                "the budget of CPU probes is spent", transient=True, code="probe-budget-spent"
            )
        share = probe_share(cpus, PROBE_SECONDS)
        self._budget.spun(PROBE_SECONDS * share, now)
        return share

    def _log_state(self, what: str, state: str) -> None:
        """Log a state when it changes."""
        if self._states.get(what) != state:
            self._states[what] = state
            _log.info("%s: %s", what, state)
