"""All forecasts at one moment, frozen; and their JSON text, schema ``nws.weather/1``.

    {"schema": "nws.weather/1", "time": 1763600000.0,
     "cpu": {"ada": {"value": 0.5, "error": 0.1, "method": "last_value",
                     "samples": 12, "time": 1763599990.0}},
     "latency": {"ada/bob": {"value": 0.0001}}}

Keys are hosts, or for links the ordered pair ``host/peer``. Tables may be missing. A forecast needs a value only,
so that a user can write weather by hand.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from types import MappingProxyType
from typing import Any, Final, NoReturn, Self

from nws.errors import InputError
from nws.forecast import Forecast, Interval
from nws.measurement import (
    AVAILABLE_CPU,
    BANDWIDTH_TCP,
    COMPETITORS,
    CPU_QUOTA,
    CROWDING,
    CURRENT_CPU,
    FREE_MEMORY,
    LATENCY_TCP,
    QUOTA_PERIOD,
    SPARE_CPUS,
    SeriesName,
    checked_name,
)

SCHEMA: Final = "nws.weather/1"
MAX_VALUES: Final = {"cpu": 1.0, "current_cpu": 1.0}
"""The largest value of a table that is bounded."""
OPTIONAL: Final[Mapping[str, Any]] = {"rmse": None, "horizon": 1, "over": None, "interval": None}
"""Fields of a forecast that the text omits at these defaults."""
FORECAST_NAMES: Final = tuple(each.name for each in fields(Forecast))


def _plain(forecast: Forecast) -> dict[str, Any]:
    """Return the fields of a forecast, without the optional fields that have their default."""
    return {
        name: asdict(value) if isinstance(value, Interval) else value
        for name in FORECAST_NAMES
        if (value := getattr(forecast, name)) != OPTIONAL.get(name, ...)
    }


def _parse(text: str) -> object:
    def constant(name: str) -> NoReturn:
        _refuse("weather", f"{name} is not a number", "value-invalid")

    try:
        return json.loads(text, parse_constant=constant)
    except json.JSONDecodeError as error:
        raise InputError(
            f"weather: not JSON: {error}", code="weather-invalid", reason=str(error)
        ) from error
    except RecursionError as error:
        raise InputError("weather: nested too deeply", code="weather-invalid") from error


def _key(key: str, hosts: int, where: str) -> str | tuple[str, ...]:
    names = tuple(key.split("/"))
    if len(names) != hosts:
        _refuse(where, f"the key is not {'a host' if hosts == 1 else 'host/peer'}", "name-invalid")
    for name in names:
        checked_name(f"{where}: host", name)
    return names if hosts > 1 else key


def _forecast(value: object, where: str, time: float, table: str) -> Forecast:
    entry = _object(value, where)
    for name in entry:
        if name not in READERS:
            _refuse(
                f"{where}.{name}",
                f"unknown field; must be one of {', '.join(READERS)}",
                "field-unknown",
            )
    given = {"value": None, "error": None, "method": "given", "samples": 0, "time": time, **entry}
    forecast = Forecast(
        **{name: READERS[name](field, f"{where}.{name}") for name, field in given.items()}
    )
    if forecast.value > MAX_VALUES.get(table, math.inf):
        _refuse(f"{where}.value", f"must be in 0..1 (is {forecast.value})", "value-range")
    return forecast


def _object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        _refuse(where, f"must be an object (is {value!r:.60})")
    return value


def _number(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(where, f"must be a number (is {value!r:.60})")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        _refuse(where, "must be a finite number", "value-invalid")
    return number


def _amount(value: object, where: str) -> float:
    number = _number(value, where)
    if number < 0:
        _refuse(where, f"must not be negative (is {number})", "value-range")
    return number


def _error(value: object, where: str) -> float | None:
    return None if value is None else _amount(value, where)


def _interval(value: object, where: str) -> Interval | None:
    if value is None:
        return None
    entry = _object(value, where)
    if set(entry) != {"lower", "upper", "level", "coverage"}:
        _refuse(where, "must have lower, upper, level and coverage", "field-missing")
    ends = [_number(entry[name], f"{where}.{name}") for name in ("lower", "upper")]
    level = _amount(entry["level"], f"{where}.level")
    coverage = _error(entry["coverage"], f"{where}.coverage")
    if not ends[0] <= ends[1] or level >= 1 or (coverage or 0) > 1:
        _refuse(where, "must have lower <= upper, level < 1 and coverage <= 1", "value-range")
    return Interval(ends[0], ends[1], level, coverage)


def _count(value: object, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        _refuse(where, f"must be a whole number >= 0 (is {value!r:.60})")
    return value


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        _refuse(where, f"must be text (is {value!r:.60})")
    return value


READERS: Final[Mapping[str, Callable[[object, str], Any]]] = {
    "value": _amount,
    "error": _error,
    "method": _text,
    "samples": _count,
    "time": _number,
    "rmse": _error,
    "horizon": _count,
    "over": _error,
    "interval": _interval,
}
"""The check of each field of a forecast."""


def _refuse(where: str, why: str, code: str = "value-type") -> NoReturn:
    raise InputError(f"{where}: {why}", code=code, field=where)


ByHost = Mapping[str, Forecast]
ByPair = Mapping[tuple[str, str], Forecast]


@dataclass(frozen=True)
class Weather:
    """The forecasts for every host and link at one moment.

    Frozen, so that all candidates of one decision are compared under the same weather and the
    decision can be replayed. A host or link that a table lacks has no forecast; ``Weather()`` has none at all.

    Attributes
    ----------
    time
        The moment, in seconds since the epoch.
    cpu, current_cpu
        By host: the share of one CPU, 0..1, that a new and that a running process gets.
    competitors
        By host: the runnable processes that a new one shares the CPUs with (see `nws.sensors.cpu`).
    crowding, spare_cpus
        By host: the contention slope, the growth of `competitors` with each further process of ours on the host's
        machine; and the number of other CPUs there that ours may take before it grows.
    cpu_quota, quota_period
        By host: how many CPUs' worth of time all of ours on its machine may use together, and in how many
        seconds that is given out anew.
    free_memory
        By host: bytes.
    latency, bandwidth
        By ordered pair (host, peer): seconds one way, and bytes per second.

    Examples
    --------
    >>> half = Forecast(0.5, error=0.1, method="last_value", samples=9, time=90.0)
    >>> weather = Weather(time=100.0, cpu={"ada": half})
    >>> Weather.from_json(weather.to_json()) == weather
    True
    """

    time: float = 0.0
    cpu: ByHost = field(default_factory=dict, metadata={"host": AVAILABLE_CPU})
    current_cpu: ByHost = field(default_factory=dict, metadata={"host": CURRENT_CPU})
    competitors: ByHost = field(default_factory=dict, metadata={"host": COMPETITORS})
    crowding: ByHost = field(default_factory=dict, metadata={"host": CROWDING})
    spare_cpus: ByHost = field(default_factory=dict, metadata={"host": SPARE_CPUS})
    cpu_quota: ByHost = field(default_factory=dict, metadata={"host": CPU_QUOTA})
    quota_period: ByHost = field(default_factory=dict, metadata={"host": QUOTA_PERIOD})
    free_memory: ByHost = field(default_factory=dict, metadata={"host": FREE_MEMORY})
    latency: ByPair = field(default_factory=dict, metadata={"pair": LATENCY_TCP})
    bandwidth: ByPair = field(default_factory=dict, metadata={"pair": BANDWIDTH_TCP})

    def __post_init__(self) -> None:
        for name in TABLES:
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

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

    def renamed(self, names: Mapping[str, str]) -> "Weather":
        """Return the weather of hosts under other names.

        Parameters
        ----------
        names
            By new name: the host here. Several new names may stand for one host, between which no link is known.
            A host without a new name is left out.

        Examples
        --------
        >>> half = Forecast(0.5, error=0.1, method="last_value", samples=9, time=90.0)
        >>> sorted(Weather(cpu={"machine": half}).renamed({"a": "machine", "b": "machine"}).cpu)
        ['a', 'b']
        """
        place = {new: k for k, new in enumerate(names)}
        of: dict[str, list[str]] = {}
        for new, host in names.items():
            of.setdefault(host, []).append(new)
        tables: dict[str, dict[Any, Forecast]] = {}
        for name in HOST_FIELDS.values():
            by_host: ByHost = getattr(self, name)
            tables[name] = {new: by_host[host] for new, host in names.items() if host in by_host}
        for name in PAIR_FIELDS.values():
            by_pair: ByPair = getattr(self, name)
            pairs = [
                ((a, b), f)
                for (x, y), f in by_pair.items()
                for a in of.get(x, ())
                for b in of.get(y, ())
            ]
            tables[name] = dict(
                sorted(pairs, key=lambda entry: tuple(place[end] for end in entry[0]))
            )
        return Weather(self.time, **tables)

    def merge(self, other: "Weather") -> "Weather":
        """Return the forecasts of both, as of the later moment; this weather's where both have one.

        Examples
        --------
        >>> half = Forecast(0.5, error=0.1, method="last_value", samples=9, time=90.0)
        >>> Weather(9.0, cpu={"ada": half}).merge(Weather(8.0, cpu={"ada": half.scaled(0.5)})).cpu["ada"].value
        0.5
        """
        tables = {name: {**getattr(other, name), **getattr(self, name)} for name in TABLES}
        return Weather(max(self.time, other.time), **tables)

    def to_json(self) -> str:
        """Return the weather as JSON text, schema ``nws.weather/1`` (`nws.weather`)."""
        document: dict[str, Any] = {"schema": SCHEMA, "time": self.time}
        for name in HOST_FIELDS.values():
            by_host: ByHost = getattr(self, name)
            document[name] = {host: _plain(forecast) for host, forecast in by_host.items()}
        for name in PAIR_FIELDS.values():
            by_pair: ByPair = getattr(self, name)
            document[name] = {
                "/".join(pair): _plain(forecast) for pair, forecast in by_pair.items()
            }
        return json.dumps(document, allow_nan=False, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the weather in `text`.

        Raises
        ------
        ValueError
            Permanent: `text` is not such a weather; the message names the field.
        """
        document = _object(_parse(text), "weather")
        if document.pop("schema", None) != SCHEMA:
            _refuse("schema", f"must be {SCHEMA!r}", "schema-unknown")
        time = _number(document.pop("time", None), "time")
        tables: dict[str, dict[Any, Forecast]] = {}
        for name, table in document.items():
            if name not in TABLES:
                _refuse(
                    name, f"unknown table; must be one of {', '.join(TABLES)}", "field-unknown"
                )
            hosts = 2 if name in PAIR_FIELDS.values() else 1
            tables[name] = {
                _key(key, hosts, f"{name}.{key}"): _forecast(value, f"{name}.{key}", time, name)
                for key, value in _object(table, name).items()
            }
        return cls(time, **tables)


HOST_FIELDS: Final = {f.metadata["host"]: f.name for f in fields(Weather) if "host" in f.metadata}
"""By resource: its table in `Weather`, by host."""
PAIR_FIELDS: Final = {f.metadata["pair"]: f.name for f in fields(Weather) if "pair" in f.metadata}
"""By resource: its table in `Weather`, by ordered pair of hosts."""
TABLES: Final = (*HOST_FIELDS.values(), *PAIR_FIELDS.values())
