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
MAX_BYTES: Final = 64 << 20
MAX_LOOK_BACK: Final = 3600.0
DEADLINE_SECONDS: Final = 10.0
MAX_REASONS: Final = 5
"""Reasons that are kept of the lines that were left out; all are counted."""

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
    """Reads new samples; each sample once.

    Parameters
    ----------
    url
        Of the server; from the operator's configuration only, never from a request.
    clock
        Seconds since the epoch.
    """

    def __init__(self, url: str, *, clock: Callable[[], float] = time.time) -> None:
        self.url = url.rstrip("/")
        self._clock = clock
        self._session = requests.Session()
        self._session.trust_env = False
        self._read_until: dict[SeriesName, float] = {}
        self._instances: set[str] = set()

    def read(self, look_back: float = 300.0) -> list[Measurement]:
        """Return the measurements of the last `look_back` seconds that were not returned yet.

        Raises
        ------
        SensorError
            Transient: the server does not answer. Permanent: its answer is invalid.
        """
        return self._read(self._clock(), look_back)

    def history(
        self, start: float, stop: float, step: float = MAX_LOOK_BACK
    ) -> Iterator[tuple[float, list[Measurement]]]:
        """Yield the measurements from `start` to `stop`, at most an hour at a time, each with the end of its time.

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
        seconds = math.ceil(min(look_back, MAX_LOOK_BACK))
        for query in (RUNNING, CPUS, MEMORY, DISK):
            found += [(query, series) for series in self._ask(f"{query}[{seconds}s]", until)]
        return [m for name, host in self._hosts(found) for m in self._new(name, host)]

    def _hosts(self, found: Sequence[tuple[str, RawSeries]]) -> list[tuple[str, _Host]]:
        """Return the samples of each host, with its name.

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
        if address:
            same = [each for each in self._instances if each.rpartition(":")[0] == address]
            if instance != min(same, key=lambda each: (len(each), each)):
                address = f"{address}-{port}"
        name = address or instance
        safe = "".join(each if each.isascii() and each.isalnum() else "-" for each in name)
        return name if _is_name(name) else safe.strip("-") or "unnamed"

    def _ask(self, query: str, until: float) -> list[RawSeries]:
        where = f"{self.url}/api/v1/query"
        parameters: dict[str, str | float] = {"query": query, "time": until}
        try:
            answer = self._session.get(
                where,
                params=parameters,
                timeout=DEADLINE_SECONDS,
                allow_redirects=False,
                stream=True,
            )
            text = bytearray()
            with answer:
                for piece in answer.iter_content(1 << 16):
                    text += piece
                    if len(text) > MAX_BYTES:
                        break
        except requests.RequestException as error:
            raise SensorError(
                f"{self.url} does not answer: {error}",
                transient=True,
                code="prometheus-unreachable",
                url=self.url,
            ) from error
        if answer.status_code != 200 or len(text) > MAX_BYTES:
            failed = answer.status_code >= 500
            raise SensorError(
                f"{self.url}: status {answer.status_code}, {len(text)} bytes",
                transient=failed,
                code="prometheus-failed" if failed else "answer-invalid",
                url=self.url,
                status=answer.status_code,
            )
        return parse_matrix(bytes(text))


def parse_matrix(text: bytes | str, *, stale: bool = False) -> list[RawSeries]:
    """Return the series in the answer to a range selector; stale markers only if `stale`.

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
                [
                    sample
                    for sample in map(_sample, each["values"])
                    if stale or math.isfinite(sample[1])
                ],
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
    """The measurements of a recorded file.

    Attributes
    ----------
    measurements
        The valid measurements.
    left_out
        Number of invalid lines, and of invalid values of lines.
    reasons
        The first of them: number of the line, and reason.
    """

    measurements: list[Measurement] = field(default_factory=list)
    left_out: int = 0
    reasons: list[str] = field(default_factory=list)

    def leave_out(self, reason: str) -> None:
        """Count an invalid line or value, and keep the first reasons."""
        self.left_out += 1
        if len(self.reasons) < MAX_REASONS:
            self.reasons.append(reason)


def read_history(lines: Iterable[str]) -> RecordedHistory:
    """Return the measurements in a file.

    The file holds messages, one a line; or the text of ``promtool tsdb dump`` or ``promtool tsdb
    dump-openmetrics``; or one answer of ``query_range`` as JSON. A line, or a value of a line, that is none is
    left out, counted and named: a dump that was cut off, or a sensor that once measured nonsense, costs no
    more than that. Samples of other metrics and Prometheus's stale markers are passed over.

    Examples
    --------
    >>> dump = [
    ...     '{__name__="node_procs_running", instance="a:9100"} 3 10500',
    ...     '{__name__="node_procs_running", instance="a:9100"} many 20500',
    ...     'node_cpu_seconds_total{cpu="0",instance="a:9100",mode="idle"} 7 10.5',
    ... ]
    >>> history = read_history(dump)
    >>> sorted((str(m.series), m.time, m.value) for m in history.measurements)[:2]
    [('availableCpu/a', 10.5, 0.3333333333333333), ('competitors/a', 10.5, 2.0)]
    >>> history.left_out, history.reasons
    (1, ["line 2: could not convert string to float: 'many'"])
    """
    history = RecordedHistory()
    samples: dict[tuple[str, tuple[tuple[str, str], ...]], Samples] = {}
    numbered = enumerate(lines, start=1)
    for number, line in numbered:
        text = line.strip()
        wrong: list[str] = []
        try:
            if _ANSWER.match(text):
                _answered(text, (more for _, more in numbered), samples)
            elif text.startswith('{"'):
                history.measurements += read_batch(text, wrong)
            elif text and not text.startswith("#"):
                labels, at, value = exported_sample(text)
                _put(labels, [(at, value)], samples)
        except (ValueError, OverflowError, SensorError) as error:
            wrong.append(str(error))
        for reason in wrong:
            history.leave_out(f"line {number}: {reason}")
    if samples:
        raw = [(query, RawSeries(dict(labels), s)) for (query, labels), s in samples.items()]
        reader = PrometheusReader("http://nowhere")
        for name, host in reader._hosts(raw):
            history.measurements += reader._new(name, host)
    return history


_ANSWER = re.compile(r'\{\s*(?:$|"(?:status|data|resultType)"\s*:)')
"""How the JSON of an answer of Prometheus begins; a message of measurements begins with its schema."""
_EXPORTED = re.compile(
    r"(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)?(?:\{(?P<labels>.*)\})?[ \t]+(?P<value>[^\s{}]+)"
    r"(?:[ \t]+(?P<time>[-+.0-9eE]+))?(?:[ \t]+#.*)?"
)
_LABEL = re.compile(r'(?<!\w)(\w+)="((?:[^"\\]|\\.)*)"')
_MILLISECONDS_FROM: Final = 1e11
"""A time beyond this, in seconds the year 5138, is in milliseconds, as in Prometheus's older text."""


def is_export(line: str) -> bool:
    """Return whether a line is a sample as `exported_sample` reads it, with labels or a time."""
    match = _EXPORTED.fullmatch(line.strip())
    if match is None or (match["labels"] is None and match["name"] is None):
        return False
    try:
        float(match["value"])
    except ValueError:
        return False
    return True


def exported_sample(line: str) -> tuple[dict[str, str], float, float]:
    """Return the labels, the time in seconds and the value of a sample that Prometheus exported as text.

    ``{__name__="up", job="a"} 1 1700000000000`` of ``promtool tsdb dump`` has milliseconds,
    ``up{job="a"} 1 1700000000.0`` of ``dump-openmetrics`` seconds; the name is the label ``__name__``.

    Raises
    ------
    InputError
        No such sample, or one without a time. Permanent.
    """
    match = _EXPORTED.fullmatch(line)
    if match is None or (match["name"] is None and match["labels"] is None):
        raise InputError("neither a message of measurements nor a sample that Prometheus exported")
    if match["time"] is None:
        raise InputError(
            "the sample has no time: a single scrape is not a recording", field="timestamp"
        )
    labels = dict(_LABEL.findall(match["labels"] or ""))
    at, value = float(match["time"]), float(match["value"])
    if match["name"] is None:
        at /= 1e3
    else:
        labels["__name__"] = match["name"]
        at = at / 1e3 if abs(at) > _MILLISECONDS_FROM else at
    if not math.isfinite(at):
        raise InputError(f"{match['time']} is not a time", field="timestamp")
    return labels, at, value


def series_text(labels: Mapping[str, str]) -> str:
    """Return a series as Prometheus writes it: ``up{job="a"}``."""
    inner = ",".join(
        f'{key}="{value}"' for key, value in sorted(labels.items()) if key != "__name__"
    )
    return labels.get("__name__", "") + (f"{{{inner}}}" if inner else "")


def _answered(
    first: str,
    more: Iterable[str],
    samples: dict[tuple[str, tuple[tuple[str, str], ...]], Samples],
) -> None:
    """Sort in the series of an answer of ``query_range``, the rest of the file."""
    text, size = [first], len(first)
    for line in more:
        text.append(line)
        size += len(line)
        if size > MAX_BYTES:
            raise InputError(f"more than {MAX_BYTES} bytes of JSON", code="file-too-large")
    for series in parse_matrix("\n".join(text)):
        _put(series.labels, series.samples, samples)


def _put(
    labels: Mapping[str, str],
    added: Samples,
    samples: dict[tuple[str, tuple[tuple[str, str], ...]], Samples],
) -> None:
    """Put samples where they belong, if they are of a host's CPU, memory or disk."""
    wanted = {
        "node_procs_running": RUNNING,
        "node_cpu_seconds_total": CPUS if labels.get("mode") == "idle" else "",
        "node_memory_MemAvailable_bytes": MEMORY,
        "node_filesystem_avail_bytes": DISK if labels.get("mountpoint") == "/" else "",
    }
    query = wanted.get(labels.get("__name__", ""), "")
    if not query:
        return
    for _, value in added:
        if math.isinf(value):
            raise InputError(f"{value:+} is not a measurement", value=str(value))
    known = [sample for sample in added if not math.isnan(sample[1])]  # NaN: a stale marker
    if known:
        key = (query, tuple(sorted(labels.items())))
        samples.setdefault(key, []).extend(known)


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
