"""What is measured: the name of a series, and one value of it at one time."""

import math
import re
from dataclasses import dataclass
from typing import Final, Self

AVAILABLE_CPU: Final = "availableCpu"
"""Share of one CPU, 0..1, that a newly started process would get."""
CURRENT_CPU: Final = "currentCpu"
"""Share of one CPU, 0..1, that an already running process gets."""
COMPETITORS: Final = "competitors"
"""Runnable processes, a real number >= 0, that a new process would share the CPUs with."""
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

SHARES: Final = frozenset({AVAILABLE_CPU, CURRENT_CPU})
AMOUNTS: Final = frozenset(
    {COMPETITORS, FREE_DISK, FREE_MEMORY, LATENCY_TCP, CONNECT_TIME_TCP, BANDWIDTH_TCP}
)

LARGEST: Final = 1e300
"""The largest magnitude that counts as a measurement; sums of errors stay finite below it."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class SeriesName:
    """The name of one series: what is measured, on which host, and towards which peer.

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
            raise ValueError(f"series {text!r} is not resource/host or resource/host/peer")
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
        raise ValueError(f"{what} {name!r} is not a name: letters, digits, '.', '_', '-'")
    return name


def checked_value(value: float) -> float:
    """Return `value`; ValueError if it cannot be a measurement: NaN, infinite, above 1e300."""
    if -LARGEST <= value <= LARGEST:
        return value
    kind = "not a number" if math.isnan(value) else "infinite or larger than 1e300"
    raise ValueError(f"{value!r} is not a measurement: it is {kind}")
