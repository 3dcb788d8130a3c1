"""Hosts that a Prometheus server watches with node_exporter: their series without sensors of ours.

Everything is asked for as raw samples over a range, with the timestamps that they were scraped at.
The instant queries of Prometheus are not used, for they mislead about age: an instant vector hides
a stale series only where a stale marker was written, ``rate(x[10s])`` answers for 10 s after the
last scrape and ``last_over_time`` for its whole range, and ``timestamp(last_over_time(x[5m]))`` is
the time of the question, not of the sample. A stale marker itself is a NaN and is passed over.

Shares of the CPU come from the run queue (node_procs_running; the exporter, counted while it is
scraped, stands for the new process), never from idle time: see `nws.sensors.cpu`.
"""

import json
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import requests

from nws.errors import InputError
from nws.measurement import (
    AVAILABLE_CPU,
    COMPETITORS,
    CURRENT_CPU,
    FREE_DISK,
    FREE_MEMORY,
    Measurement,
    SeriesName,
    checked_name,
    read_batch,
)
from nws.sensor import SensorError
from nws.sensors.cpu_share import available_share, current_share

RUNNING: Final = "node_procs_running"
CPUS: Final = 'node_cpu_seconds_total{mode="idle"}'
MEMORY: Final = "node_memory_MemAvailable_bytes"
DISK: Final = 'node_filesystem_avail_bytes{mountpoint="/"}'
MOST_BYTES: Final = 64 << 20
LONGEST_LOOK_BACK: Final = 3600.0
MOST_REASONS: Final = 5
"""Of what is left out of a file: so many are named, all are counted."""

Samples = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class RawSeries:
    """A series of Prometheus: its labels and its samples as they were scraped."""

    labels: Mapping[str, str]
    samples: Samples


@dataclass(slots=True)
class _Host:
    running: Samples = field(default_factory=list)
    cpus: set[str] = field(default_factory=set)
    memory: Samples = field(default_factory=list)
    disk: Samples = field(default_factory=list)


class PrometheusReader:
    """Reads what came since it last read; each sample once.

    Parameters
    ----------
    url
        Of the server; from the operator's configuration only, never from a request.
    names
        The name of the host behind an ``instance`` label; others are named by the label without
        its port.
    token
        A bearer token of the server, if it wants one.
    deadline
        Seconds to wait for it.
    clock
        Seconds since the epoch.
    """

    def __init__(
        self,
        url: str,
        names: Mapping[str, str] | None = None,
        *,
        token: str | None = None,
        deadline: float = 10.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.url = url.rstrip("/")
        self._names = dict(names or {})
        self._deadline = deadline
        self._clock = clock
        self._session = requests.Session()
        self._session.trust_env = False
        if token is not None:
            self._session.headers["Authorization"] = f"Bearer {token}"
        self._read_until: dict[SeriesName, float] = {}
        self._instances: set[str] = set()

    def read(self, look_back: float = 300.0) -> list[Measurement]:
        """Return the measurements of the last `look_back` seconds that were not returned yet.

        Raises
        ------
        SensorError
            Transient: the server does not answer. Permanent: what it says is no answer.
        """
        return self._read(self._clock(), look_back)

    def history(
        self, start: float, stop: float, step: float = LONGEST_LOOK_BACK
    ) -> Iterator[tuple[float, list[Measurement]]]:
        """Yield what was measured from `start` to `stop`, at most an hour at a time, with its end.

        Raises
        ------
        SensorError
            As `read`.
        """
        at = start
        while at < stop:
            at, seconds = min(at + step, stop), min(step, stop - at)
            yield at, self._read(at, seconds)

    def _read(self, until: float, look_back: float) -> list[Measurement]:
        found: list[tuple[str, RawSeries]] = []
        seconds = math.ceil(min(look_back, LONGEST_LOOK_BACK))
        for query in (RUNNING, CPUS, MEMORY, DISK):
            found += [(query, series) for series in self._ask(f"{query}[{seconds}s]", until)]
        return [m for name, host in self._hosts(found) for m in self._new(name, host)]

    def _hosts(self, found: Sequence[tuple[str, RawSeries]]) -> list[tuple[str, _Host]]:
        """Return what was measured of each host, by its name.

        Exporters that differ in the port alone are different hosts (containers of one machine):
        the lowest port has the name, the others the name and their port.
        """
        hosts: dict[str, _Host] = {}
        for query, series in found:
            _sort_in(hosts.setdefault(series.labels.get("instance", ""), _Host()), query, series)
        self._instances |= hosts.keys()
        return [(self._host(instance), host) for instance, host in sorted(hosts.items())]

    def _new(self, name: str, host: _Host) -> list[Measurement]:
        """Return a host's measurements, each time of each series once."""
        measurements = [
            Measurement(SeriesName(resource, name), at, value)
            for resource, samples in _measured(host).items()
            for at, value in samples
        ]
        fresh = []
        for measurement in measurements:
            if measurement.time > self._read_until.get(measurement.series, -math.inf):
                self._read_until[measurement.series] = measurement.time
                fresh.append(measurement)
        return fresh

    def _host(self, instance: str) -> str:
        address, _, port = instance.rpartition(":")
        given = self._names.get(instance)
        if given is None and address:
            beside = [each for each in self._instances if each.rpartition(":")[0] == address]
            if instance != min(beside, key=lambda each: (len(each), each)):
                address = f"{address}-{port}"
        name = given or address or instance
        safe = "".join(each if each.isascii() and each.isalnum() else "-" for each in name)
        return name if _is_name(name) else safe.strip("-") or "unnamed"

    def _ask(self, query: str, until: float) -> list[RawSeries]:
        where = f"{self.url}/api/v1/query"
        parameters: dict[str, str | float] = {"query": query, "time": until}
        try:
            answer = self._session.get(
                where,
                params=parameters,
                timeout=self._deadline,
                allow_redirects=False,
                stream=True,
            )
            with answer:
                text = answer.raw.read(MOST_BYTES + 1, decode_content=True)
        except requests.RequestException as error:
            raise SensorError(
                f"{self.url} does not answer: {error}",
                transient=True,
                code="prometheus-unreachable",
                url=self.url,
            ) from error
        if answer.status_code != 200 or len(text) > MOST_BYTES:
            reason = f"{self.url}: status {answer.status_code}, {len(text)} bytes"
            if answer.status_code >= 500:
                raise SensorError(
                    reason,
                    transient=True,
                    code="prometheus-failed",
                    url=self.url,
                    status=answer.status_code,
                )
            raise SensorError(
                reason,
                transient=False,
                code="answer-invalid",
                url=self.url,
                status=answer.status_code,
            )
        return parse_matrix(text)


def parse_matrix(text: bytes | str) -> list[RawSeries]:
    """Return the series in the answer to a range selector; stale markers are left out.

    Raises
    ------
    SensorError
        Permanent: it is no such answer.

    Examples
    --------
    >>> parse_matrix('{"status": "success", "data": {"resultType": "matrix", "result": '
    ...     '[{"metric": {"instance": "a:9100"}, "values": [[10.5, "3"], [20.5, "NaN"]]}]}}')
    [RawSeries(labels={'instance': 'a:9100'}, samples=[(10.5, 3.0)])]
    """
    try:
        data = json.loads(text)["data"]
        if data["resultType"] != "matrix":
            raise SensorError(
                f"resultType: must be matrix (is {data['resultType']})",
                transient=False,
                code="answer-invalid",
                field="resultType",
            )
        return [
            RawSeries(
                {str(key): str(value) for key, value in each["metric"].items()},
                [sample for sample in map(_sample, each["values"]) if math.isfinite(sample[1])],
            )
            for each in data["result"]
        ]
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        raise SensorError(
            f"not an answer of Prometheus: {error}",
            transient=False,
            code="answer-invalid",
            reason=str(error),
        ) from error


@dataclass(slots=True)
class RecordedHistory:
    """What a file of the past holds.

    Attributes
    ----------
    measurements
        What can be stored.
    left_out
        How many lines, and values of lines, cannot.
    reasons
        The first of them, with the number of the line and why.
    """

    measurements: list[Measurement] = field(default_factory=list)
    left_out: int = 0
    reasons: list[str] = field(default_factory=list)

    def leave_out(self, reason: str) -> None:
        """Count what cannot be stored, and keep why of the first."""
        self.left_out += 1
        if len(self.reasons) < MOST_REASONS:
            self.reasons.append(reason)


def read_history(lines: Iterable[str]) -> RecordedHistory:
    """Return the measurements in a file: messages a line, or what ``promtool tsdb dump`` prints.

    A line, or a value of a line, that is none is left out, counted and named: a dump that was cut
    off, or a sensor that once measured nonsense, costs no more than that. Samples of other metrics
    and Prometheus's stale markers are passed over.

    Examples
    --------
    >>> dump = [
    ...     '{__name__="node_procs_running", instance="a:9100"} 3 10500',
    ...     '{__name__="node_procs_running", instance="a:9100"} many 20500',
    ...     '{__name__="node_cpu_seconds_total", cpu="0", instance="a:9100", mode="idle"} 7 10500',
    ... ]
    >>> history = read_history(dump)
    >>> sorted((str(m.series), m.time, m.value) for m in history.measurements)[:2]
    [('availableCpu/a', 10.5, 0.3333333333333333), ('competitors/a', 10.5, 2.0)]
    >>> history.left_out, history.reasons
    (1, ["line 2: could not convert string to float: 'many'"])
    """
    history = RecordedHistory()
    samples: dict[tuple[str, tuple[tuple[str, str], ...]], Samples] = {}
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        wrong: list[str] = []
        try:
            if text.startswith('{"'):
                history.measurements += read_batch(text, wrong)
            elif text:
                _dumped(text, samples)
        except (ValueError, OverflowError) as error:
            wrong.append(str(error))
        for reason in wrong:
            history.leave_out(f"line {number}: {reason}")
    if samples:
        raw = [(query, RawSeries(dict(labels), s)) for (query, labels), s in samples.items()]
        reader = PrometheusReader("http://nowhere")
        for name, host in reader._hosts(raw):
            history.measurements += reader._new(name, host)
    return history


_DUMPED = re.compile(r"\{(?P<labels>.*)\} (?P<value>\S+) (?P<time>\d+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def _dumped(text: str, samples: dict[tuple[str, tuple[tuple[str, str], ...]], Samples]) -> None:
    """Put a line of ``promtool tsdb dump`` where it belongs, if it is of a host's CPU, memory or disk."""
    match = _DUMPED.fullmatch(text)
    if match is None:
        raise InputError("neither a message of measurements nor a sample of promtool tsdb dump")
    labels = dict(_LABEL.findall(match["labels"]))
    wanted = {
        "node_procs_running": RUNNING,
        "node_cpu_seconds_total": CPUS if labels.get("mode") == "idle" else "",
        "node_memory_MemAvailable_bytes": MEMORY,
        "node_filesystem_avail_bytes": DISK if labels.get("mountpoint") == "/" else "",
    }
    query = wanted.get(labels.get("__name__", ""), "")
    if not query:
        return
    value = float(match["value"])
    if math.isinf(value):
        raise InputError(f"{match['value']} is no measurement", value=match["value"])
    if not math.isnan(value):  # a stale marker
        key = (query, tuple(sorted(labels.items())))
        samples.setdefault(key, []).append((int(match["time"]) / 1e3, value))


def _sample(pair: Sequence[Any]) -> tuple[float, float]:
    at, value = pair
    return float(at), float(value)


def _sort_in(host: _Host, query: str, series: RawSeries) -> None:
    """Add the samples of a series to its host's; a metric has several where a label of it changed."""
    if query == CPUS:
        host.cpus.add(series.labels.get("cpu", ""))
    elif query == RUNNING:
        host.running = sorted(host.running + series.samples)
    elif query == MEMORY:
        host.memory = sorted(host.memory + series.samples)
    else:
        host.disk = sorted(host.disk + series.samples)


def _measured(host: _Host) -> dict[str, Samples]:
    """Return the series of a host in our resources and units."""
    cpus = len(host.cpus)
    # One of those that run is the exporter, at the moment it is scraped.
    others = [(at, max(0.0, running - 1)) for at, running in host.running] if cpus else []
    return {
        AVAILABLE_CPU: [(at, available_share(m, cpus)) for at, m in others],
        CURRENT_CPU: [(at, current_share(m, cpus)) for at, m in others],
        COMPETITORS: others,
        FREE_MEMORY: host.memory,
        FREE_DISK: host.disk,
    }


def _is_name(name: str) -> bool:
    try:
        checked_name("host", name)
    except ValueError:
        return False
    return True
