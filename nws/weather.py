"""All forecasts at one moment."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Final, Self

from nws import weather_format
from nws.forecast import Forecast
from nws.measurement import (
    AVAILABLE_CPU,
    BANDWIDTH_TCP,
    COMPETITORS,
    CURRENT_CPU,
    FREE_MEMORY,
    LATENCY_TCP,
    SeriesName,
)

ByHost = Mapping[str, Forecast]
ByPair = Mapping[tuple[str, str], Forecast]

HOST_FIELDS: Final = {
    AVAILABLE_CPU: "cpu",
    CURRENT_CPU: "current_cpu",
    COMPETITORS: "competitors",
    FREE_MEMORY: "free_memory",
}
PAIR_FIELDS: Final = {LATENCY_TCP: "latency", BANDWIDTH_TCP: "bandwidth"}


@dataclass(frozen=True)
class Weather:
    """What was forecast for every host and link at one moment.

    Frozen, so that all candidates of one decision are compared under the same sky and the
    decision can be replayed. What is not in a table is not known; ``Weather()`` knows nothing.

    Attributes
    ----------
    time
        The moment, in seconds since the epoch.
    cpu, current_cpu
        By host: the share of one CPU, 0..1, that a new and that a running process gets.
    competitors
        By host: the runnable processes that a new one shares the CPUs with (see `nws.share`).
    free_memory
        By host: bytes.
    latency, bandwidth
        By ordered pair (host, peer): seconds one way, and bytes per second.

    Examples
    --------
    >>> half = Forecast(0.5, error=0.1, method="last_value", samples=9, time=90.0)
    >>> sky = Weather(time=100.0, cpu={"ada": half})
    >>> Weather.from_json(sky.to_json()) == sky
    True
    """

    time: float = 0.0
    cpu: ByHost = field(default_factory=dict)
    current_cpu: ByHost = field(default_factory=dict)
    competitors: ByHost = field(default_factory=dict)
    free_memory: ByHost = field(default_factory=dict)
    latency: ByPair = field(default_factory=dict)
    bandwidth: ByPair = field(default_factory=dict)

    def __post_init__(self) -> None:
        for table in fields(self)[1:]:
            frozen = MappingProxyType(dict(getattr(self, table.name)))
            object.__setattr__(self, table.name, frozen)

    def __reduce__(self) -> tuple[Callable[[str], "Weather"], tuple[str]]:
        return Weather.from_json, (self.to_json(),)

    @classmethod
    def of(cls, forecasts: Mapping[SeriesName, Forecast], time: float) -> Self:
        """Return the weather that `forecasts` make; a series of another resource has no part."""
        tables: dict[str, dict[Any, Forecast]] = {}
        for series, forecast in forecasts.items():
            if series.peer is None and series.resource in HOST_FIELDS:
                tables.setdefault(HOST_FIELDS[series.resource], {})[series.host] = forecast
            elif series.peer is not None and series.resource in PAIR_FIELDS:
                pair = (series.host, series.peer)
                tables.setdefault(PAIR_FIELDS[series.resource], {})[pair] = forecast
        return cls(time=time, **tables)

    def to_json(self) -> str:
        """Return the weather as JSON text, schema ``nws.weather/1`` (`nws.weather_format`)."""
        tables: dict[str, dict[str, Forecast]] = {}
        for name in HOST_FIELDS.values():
            tables[name] = dict(getattr(self, name))
        for name in PAIR_FIELDS.values():
            pairs: ByPair = getattr(self, name)
            tables[name] = {"/".join(pair): forecast for pair, forecast in pairs.items()}
        return weather_format.write(self.time, tables)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the weather in `text`.

        Raises
        ------
        ValueError
            Permanent: `text` is not such a weather; the message names the field.
        """
        time, tables = weather_format.read(text, HOST_FIELDS.values(), PAIR_FIELDS.values())

        def hosts(name: str) -> ByHost:
            return tables.get(name, {})

        def pairs(name: str) -> ByPair:
            return {_pair(key): forecast for key, forecast in tables.get(name, {}).items()}

        return cls(
            time,
            cpu=hosts("cpu"),
            current_cpu=hosts("current_cpu"),
            competitors=hosts("competitors"),
            free_memory=hosts("free_memory"),
            latency=pairs("latency"),
            bandwidth=pairs("bandwidth"),
        )


def _pair(key: str) -> tuple[str, str]:
    host, _, peer = key.partition("/")
    return host, peer
