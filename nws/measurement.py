"""Measurements: the name of a series, one value of it at one time, and several as a message.

    {"schema": "nws.measurements/1", "measurements": [
        {"series": "availableCpu/ada", "time": 1763600000.0, "value": 0.5}]}

Times are seconds since the epoch on the clock of the sender. A sensor process writes one message a
line, and the service takes one as the body of its ingest; an error in one line does not affect the next.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from nws.errors import InputError

AVAILABLE_CPU: Final = "availableCpu"
"""Share of one CPU, 0..1, that a newly started process would get."""
CURRENT_CPU: Final = "currentCpu"
"""Share of one CPU, 0..1, that an already running process gets."""
COMPETITORS: Final = "competitors"
"""Runnable processes that a new process would share the CPUs with, counted in processes like it: a real >= 0."""
CROWDING: Final = "crowding"
"""By how much ``competitors`` grows with each of ours elsewhere on the machine beyond ``spareCpus``, >= 0."""
SPARE_CPUS: Final = "spareCpus"
"""CPUs elsewhere on the machine that processes of ours may take before ``competitors`` grows, >= 0."""
CPU_QUOTA: Final = "cpuQuota"
"""CPUs' worth of time that all processes of ours on the machine may use together."""
QUOTA_PERIOD: Final = "quotaPeriod"
"""Seconds in which the tightest quota on processes of ours is given out anew; 0 where there is none."""
FREE_DISK: Final = "freeDisk"
"""Bytes that an unprivileged process can still write to a file system."""
FREE_MEMORY: Final = "freeMemory"
"""Bytes that a new process can have without making the host swap or kill."""
LATENCY_TCP: Final = "latencyTcp"
"""Seconds that a small message takes one way: half of the least round trip."""
CONNECT_TIME_TCP: Final = "connectTimeTcp"
"""Seconds that a TCP connection takes to be established."""
BANDWIDTH_TCP: Final = "bandwidthTcp"
"""Bytes per second of a long transfer."""
JITTER_TCP: Final = "jitterTcp"
"""Seconds by which the one-way time of a small message differs from that of the next, in the mean."""
LOSS_TCP: Final = "lossTcp"
"""Share, 0..1, of the segments of a long transfer that were sent again."""
LATENCY_UDP: Final = "latencyUdp"
"""Seconds that a datagram takes one way: half of the least round trip."""
JITTER_UDP: Final = "jitterUdp"
"""As ``jitterTcp``, of datagrams."""
LOSS_UDP: Final = "lossUdp"
"""Share, 0..1, of datagrams that did not come back."""
CAPACITY_CPU: Final = "capacityCpu"
"""Part of a node's processors that is free, 0..1: half with a process on each, none with two."""
CAPACITY_MEMORY: Final = "capacityMemory"
"""Part of a node's memory, 0..1, that a new process can have; of its swap, its disk, its network likewise."""
CAPACITY_SWAP: Final = "capacitySwap"
CAPACITY_DISK: Final = "capacityDisk"
CAPACITY_NETWORK: Final = "capacityNetwork"
WANTED_CPUS: Final = "wantedCpus"
"""Processes that want a processor of a node: all, or those of a job (the peer)."""
USED_CPUS: Final = "usedCpus"
"""Processor time a second of a job on a node, or of one rank of it."""
USED_MEMORY: Final = "usedMemory"
"""Resident bytes of a job on a node, or of one rank of it."""

CAPACITIES: Final = frozenset(
    {CAPACITY_CPU, CAPACITY_MEMORY, CAPACITY_SWAP, CAPACITY_DISK, CAPACITY_NETWORK}
)
SHARES: Final = CAPACITIES | {AVAILABLE_CPU, CURRENT_CPU, LOSS_TCP, LOSS_UDP}
FOLLOW_LOAD: Final = frozenset({AVAILABLE_CPU, CURRENT_CPU, COMPETITORS, SPARE_CPUS})
"""Resources with level shifts, since competitors come and leave. Forecasters forget all values before a shift."""
AMOUNTS: Final = frozenset(
    {
        COMPETITORS,
        CROWDING,
        SPARE_CPUS,
        CPU_QUOTA,
        QUOTA_PERIOD,
        FREE_DISK,
        FREE_MEMORY,
        LATENCY_TCP,
        CONNECT_TIME_TCP,
        BANDWIDTH_TCP,
        JITTER_TCP,
        LATENCY_UDP,
        JITTER_UDP,
        WANTED_CPUS,
        USED_CPUS,
        USED_MEMORY,
    }
)

LARGEST: Final = 1e300
"""The largest magnitude that counts as a measurement; sums of errors stay finite below it."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class SeriesName:
    """The name of one series: its resource, its host, and the peer of a link.

    The names of resource, host and peer start with a letter or digit and go on with letters,
    digits, ``.``, ``_`` or ``-``; so a name is also a safe part of a path or an address.

    Raises
    ------
    ValueError
        A part is not such a name.

    Examples
    --------
    >>> str(SeriesName(BANDWIDTH_TCP, "ada", "bob"))
    'bandwidthTcp/ada/bob'
    >>> SeriesName.parse("availableCpu/ada")
    SeriesName(resource='availableCpu', host='ada', peer=None)
    """

    resource: str
    host: str
    peer: str | None = None

    def __post_init__(self) -> None:
        checked_name("resource", self.resource)
        checked_name("host", self.host)
        if self.peer is not None:
            checked_name("peer", self.peer)

    def __str__(self) -> str:
        return "/".join(part for part in (self.resource, self.host, self.peer) if part)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the series that `text` names: ``resource/host`` or ``resource/host/peer``."""
        parts = text.split("/")
        if len(parts) not in {2, 3}:
            raise InputError(
                f"series {text!r}: must be resource/host or resource/host/peer",
                code="name-invalid",
                field="series",
                value=text,
            )
        return cls(*parts)


@dataclass(frozen=True, slots=True)
class Measurement:
    """One value of one series, in the series' unit, at `time` (seconds since the epoch)."""

    series: SeriesName
    time: float
    value: float


def bounds_of(resource: str) -> tuple[float, float]:
    """Return the least and the greatest value that a resource can have, in its unit.

    Shares lie in 0..1, amounts are not negative; of a resource that is not ours nothing is known.
    """
    if resource in SHARES:
        return 0.0, 1.0
    return (0.0 if resource in AMOUNTS else -math.inf), math.inf


def checked_name(what: str, name: str) -> str:
    """Return `name`; ValueError, naming `what` it is, if it is not a name of the NWS."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{what} {name!r}: a name consists of letters, digits, '.', '_' and '-'",
            code="name-invalid",
            field=what,
            value=name,
        )
    return name


def checked_value(value: float) -> float:
    """Return `value`; ValueError if it cannot be a measurement: NaN, infinite, above 1e300."""
    if -LARGEST <= value <= LARGEST:
        return value
    kind = "not a number" if math.isnan(value) else "infinite or larger than 1e300"
    raise InputError(
        f"{value!r} is not a measurement: it is {kind}", code="value-invalid", value=repr(value)
    )


def checked_time(time: float) -> float:
    """Return `time`; ValueError if no measurement can have it: NaN, infinite, before 1970."""
    if checked_value(time) >= 0:
        return time
    raise InputError(
        f"{time!r} lies before 1970; give seconds since the epoch", code="time-invalid", value=time
    )


def checked_amount(series: str, value: float) -> float:
    """Return `value`; ValueError if a series of this kind cannot have it, such as a share of 7.

    Examples
    --------
    >>> checked_amount("availableCpu/ada", 0.5)
    0.5
    >>> checked_amount("availableCpu/ada", 7.0)
    Traceback (most recent call last):
    nws.errors.InputError: availableCpu/ada: must be in 0..1 (is 7.0)
    """
    resource = series.partition("/")[0]
    least, greatest = bounds_of(resource)
    if least <= checked_value(value) <= greatest:
        return value
    raise InputError(
        f"{series}: {_within(least, greatest)} (is {value!r})",
        code="value-range",
        series=series,
        value=value,
        bound=greatest if value > greatest else least,
    )


def _within(least: float, greatest: float) -> str:
    if greatest < math.inf:
        return f"must be in {least:g}..{greatest:g}"
    return "must not be negative"


SCHEMA: Final = "nws.measurements/1"
MAX_MEASUREMENTS: Final = 20_000
"""Measurements in one message."""
MAX_BYTES: Final = 8 << 20
"""Bytes of one message."""


def batch(measurements: Iterable[Measurement]) -> dict[str, Any]:
    """Return the message of some measurements.

    Examples
    --------
    >>> ada = Measurement(SeriesName("availableCpu", "ada"), 10.0, 0.5)
    >>> read_batch(json.dumps(batch([ada]))) == [ada]
    True
    """
    rows = [{"series": str(m.series), "time": m.time, "value": m.value} for m in measurements]
    return {"schema": SCHEMA, "measurements": rows}


def line(measurements: Iterable[Measurement]) -> str:
    """Return the message as one line, ended."""
    return json.dumps(batch(measurements), separators=(",", ":"), allow_nan=False) + "\n"


def read_batch(text: str | bytes, wrong: list[str] | None = None) -> list[Measurement]:
    """Return the measurements of a message from another program.

    With a list `wrong`, invalid measurements are left out and named there, one line each.

    Raises
    ------
    ValueError
        Permanent: not such a message. The error names the wrong field, without its value.

    Examples
    --------
    >>> wrong = []
    >>> good = {"series": "availableCpu/ada", "time": 1.0, "value": 0.5}
    >>> rows = [good, {**good, "value": 7.0}]
    >>> len(read_batch(json.dumps({"schema": SCHEMA, "measurements": rows}), wrong)), wrong
    (1, ['measurements[1].value: availableCpu must be in 0..1'])
    """
    if len(text) > MAX_BYTES:
        raise InputError(
            f"a message has at most {MAX_BYTES} bytes (has {len(text)})",
            code="message-too-long",
            value=len(text),
            bound=MAX_BYTES,
        )
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError("the message is not JSON", code="message-invalid") from None
    if not isinstance(document, dict) or set(document) != {"schema", "measurements"}:
        raise InputError(
            "a message is an object of schema and measurements", code="message-invalid"
        )
    if document["schema"] != SCHEMA:
        raise InputError(f"schema: must be {SCHEMA!r}", code="schema-unknown", field="schema")
    rows = document["measurements"]
    if not isinstance(rows, list) or len(rows) > MAX_MEASUREMENTS:
        raise InputError(
            f"measurements: must be a list of at most {MAX_MEASUREMENTS}",
            code="message-invalid",
            field="measurements",
            bound=MAX_MEASUREMENTS,
        )
    found = []
    for place, row in enumerate(rows):
        try:
            found.append(read_measurement(row, f"measurements[{place}]"))
        except ValueError as error:
            if wrong is None:
                raise
            wrong.append(str(error))
    return found


def read_measurement(row: object, where: str) -> Measurement:
    """Return the measurement in a row of a message at `where`; ValueError as `read_batch`."""
    if not isinstance(row, Mapping) or set(row) != {"series", "time", "value"}:
        raise InputError(
            f"{where}: must be an object of series, time and value",
            code="message-invalid",
            field=where,
        )
    series, time, value = row["series"], row["time"], row["value"]
    if not isinstance(series, str) or len(series) > 400:
        raise InputError(
            f"{where}.series: must be a text of at most 400 characters",
            code="name-invalid",
            field=f"{where}.series",
        )
    for field, number in (("time", time), ("value", value)):
        if not isinstance(number, int | float) or isinstance(number, bool):
            raise InputError(
                f"{where}.{field}: must be a number", code="value-type", field=f"{where}.{field}"
            )
    try:
        name = SeriesName.parse(series)
        found = Measurement(name, checked_value(float(time)), checked_value(float(value)))
    except (ValueError, OverflowError):
        raise InputError(
            f"{where}: must have a series, a finite time and a finite value",
            code="value-invalid",
            field=where,
        ) from None
    if found.time < 0:
        raise InputError(
            f"{where}.time: must be seconds since 1970", code="time-invalid", field=f"{where}.time"
        )
    try:
        checked_amount(series, found.value)
    except ValueError:
        least, greatest = bounds_of(name.resource)
        raise InputError(
            f"{where}.value: {name.resource} {_within(least, greatest)}",
            code="value-range",
            field=f"{where}.value",
            bound=greatest if found.value > greatest else least,
        ) from None
    return found
