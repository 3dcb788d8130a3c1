"""Measurements of other machines and CPU probes, kept from run to run in the state directory."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, replace
from statistics import median
from typing import Any

from apples.io import state
from apples.resources import Host, HostList
from apples.weather import service
from apples.weather.conditions import Conditions
from nws import (
    Measurement,
    NetworkWeatherService,
    ProbeCorrection,
    RingMemory,
    SeriesName,
    Weather,
)

DOCUMENT = "measurements"
PROBES = "probes"
PROBES_HOLD = 60.0
"""Seconds for which a probe is valid: as long as in a sensor process that keeps running."""
KEPT = 50
"""Maximum number of measurements kept of one series."""
MAX_SERIES = 5000
OLDEST_SECONDS = 86400.0
BREAK = 0.25
"""If all new measurements differ from a short series' median by more than this part of it, the series restarts."""
MIN_FOR_NOISE = 4
NOISE = 4.0
"""The same threshold for a series of at least `MIN_FOR_NOISE` measurements, in median absolute deviations."""
MIN_BREAK, MAX_BREAK = 0.1, 0.5
"""Bounds of the threshold by `NOISE`, as parts of the median."""

AllSeries = Mapping[SeriesName, Sequence[Measurement]]


def recall(hosts: Iterable[Host], now: float | None = None) -> dict[SeriesName, list[Measurement]]:
    """Return the stored measurements of `hosts` by series, oldest first; invalid entries are left out."""
    by_identity = {host.identity: host.name for host in hosts}
    now = time.time() if now is None else now
    found: dict[SeriesName, list[Measurement]] = {}
    document = state.read(DOCUMENT).get("series")
    for entry in document if isinstance(document, list) else ():
        series = _series(entry, by_identity)
        if series is not None:
            kept = [m for m in _samples(series, entry) if now - OLDEST_SECONDS < m.time <= now]
            found[series] = sorted(kept, key=lambda m: m.time)
    return found


def remember(hosts: Iterable[Host], measured: Mapping[SeriesName, Sequence[Measurement]]) -> None:
    """Replace the stored measurements of these series; samples that another process added meanwhile stay.

    Raises
    ------
    OSError
        The state directory cannot be written.
    """
    identity = {host.name: host.identity for host in hosts}
    fresh = {
        (name.resource, identity[name.host], identity[name.peer] if name.peer else None): [
            [m.time, m.value] for m in values[-KEPT:]
        ]
        for name, values in measured.items()
    }

    def change(document: state.Document) -> state.Document:
        old = document.get("series")
        entries = {_key(e): e for e in old} if isinstance(old, list) else {}
        others = [entry for key, entry in entries.items() if key not in fresh]
        mine = [
            {
                "resource": r,
                "host": h,
                "peer": p,
                "samples": _with_newer(s, entries.get((r, h, p))),
            }
            for (r, h, p), s in fresh.items()
        ]
        return {"schema": "apples.measurements/1", "series": [*others, *mine][-MAX_SERIES:]}

    state.update(DOCUMENT, change)


def _with_newer(samples: list[list[float]], entry: object) -> list[list[float]]:
    """Return samples merged with the samples of a stored entry that are newer than the oldest of them."""
    known = entry.get("samples") if isinstance(entry, dict) else None
    if not samples or not isinstance(known, list):
        return samples
    begun = samples[0][0]
    both = {pair[0]: pair for pair in known if _is_pair(pair) and pair[0] > begun}
    both.update({pair[0]: pair for pair in samples})
    return [both[time] for time in sorted(both)][-KEPT:]


def joined(old: Sequence[Measurement], new: Sequence[Measurement]) -> list[Measurement]:
    """Return a series' old and new measurements, or only the new if the level of the series changed.

    Examples
    --------
    >>> name = SeriesName("bandwidthTcp", "ada", "bob")
    >>> old = [Measurement(name, t, 100e6) for t in (1.0, 2.0)]
    >>> len(joined(old, [Measurement(name, 3.0, 95e6)])), len(joined(old, [Measurement(name, 3.0, 1e6)]))
    (3, 1)
    """
    if not new or not old:
        return [*old, *new]
    values = [m.value for m in old[-KEPT:]]
    usual = median(values)
    # The predictor with the lowest error so far makes the forecast, so fifty good values would hide a
    # collapse that has just begun.
    far = BREAK * usual
    if len(values) >= MIN_FOR_NOISE:
        noise = NOISE * median(abs(value - usual) for value in values)
        far = min(max(noise, MIN_BREAK * usual), MAX_BREAK * usual)
    low, high = usual - far, usual + far
    if all(m.value < low for m in new) or all(m.value > high for m in new):
        return list(new)
    return [*old, *new]


def is_news(old: Sequence[Measurement], new: Sequence[Measurement]) -> bool:
    """Return whether the new measurements contradict the stored measurements, which `joined` then drops."""
    return bool(old and new) and len(joined(old, new)) == len(new)


def all_of(known: AllSeries, found: AllSeries) -> dict[SeriesName, list[Measurement]]:
    """Return every series, its stored and its new measurements `joined`."""
    return {name: joined(known.get(name, ()), found.get(name, ())) for name in {**known, **found}}


def as_one(series: Sequence[Measurement], look: Sequence[Measurement]) -> list[Measurement]:
    """Return a host's series with the measurements of the last probe, `look`, replaced by one: their median.

    These measurements lie a fraction of a second apart, and the next probe follows minutes later. A forecaster
    would take them for a regular series with hundreds of missing samples, and process each missing sample.

    Examples
    --------
    >>> name = SeriesName("availableCpu", "ada")
    >>> look = [Measurement(name, 60.0, 0.4), Measurement(name, 60.1, 0.6)]
    >>> [(m.time, m.value) for m in as_one([Measurement(name, 1.0, 1.0), *look], look)]
    [(1.0, 1.0), (60.1, 0.5)]
    """
    if not look:
        return list(series)
    middle = median(m.value for m in look)  # a spike in one round is no load
    return [*series[: -len(look)], replace(look[-1], value=middle)]


def recall_probes() -> dict[str, ProbeCorrection]:
    """Return the stored results of CPU probes that are still valid, by `probe_name`."""
    return probes_of(state.read(PROBES), time.time())


def probes_of(document: Mapping[str, Any], now: float) -> dict[str, ProbeCorrection]:
    """Return the valid probe results of a document; invalid entries are left out."""
    found = document.get("found")
    return {
        name: ProbeCorrection(
            float(entry[0]), float(entry[1]), None if entry[2] is None else float(entry[2])
        )
        for name, entry in (found.items() if isinstance(found, dict) else ())
        if _is_probe(entry) and abs(entry[0]) <= 1 and 0 <= now - entry[1] < PROBES_HOLD
    }


def remember_probes(found: Mapping[str, ProbeCorrection]) -> None:
    """Store results of probes beside the stored results that are still valid.

    Raises
    ------
    OSError
        The state directory cannot be written.
    """
    fresh = {name: astuple(one) for name, one in found.items()}

    def change(document: state.Document) -> state.Document:
        kept = {name: astuple(one) for name, one in probes_of(document, time.time()).items()}
        return {"schema": "apples.probes/2", "found": {**kept, **fresh}}

    state.update(PROBES, change)


def probe_name(machine: str, cpus: str) -> str:
    """Return the key of a set of CPUs; the name `machine` changes with each boot."""
    return f"{cpus} of {machine}"


def remembered_weather(hosts: HostList, settings: service.ServiceSettings | None) -> Conditions:
    """Return the weather of a list from a service and from the measurements of earlier plans over ssh.

    A host without any of these has the values of the list.

    Parameters
    ----------
    settings
        The configured weather service; None: no service.

    Raises
    ------
    UsageError
        The service rejects the request. Permanent.
    """
    told, notes = Weather(), tuple[str, ...]()
    if settings is not None:
        from nws import ServiceError  # noqa: PLC0415 - an HTTP client, where there is a service

        try:
            told = service.by_names_of(hosts.hosts, service.ask(settings, None))
        except ServiceError as error:
            notes = (f"weather service: {error}; not used",)
    measured = NetworkWeatherService(RingMemory())
    for measurements in recall(hosts).values():
        for one in measurements:
            measured.memory.store(one)
    return Conditions(hosts, told.merge(measured.weather()), "remembered measurements", notes)


def _is_pair(pair: object) -> bool:
    """Return whether `pair` is a list of two finite numbers."""
    return (
        isinstance(pair, list)
        and len(pair) == 2
        and all(type(x) in {int, float} and math.isfinite(x) for x in pair)
    )


def _is_probe(entry: object) -> bool:
    """Return whether `entry` is a list of a bias, a time and a share; the share may be null."""
    return (
        isinstance(entry, list)
        and len(entry) == 3
        and _is_pair(entry[:2])
        and (entry[2] is None or _is_pair([entry[2], 0.0]))
    )


def _key(entry: object) -> tuple[Any, ...]:
    if not isinstance(entry, dict):
        return ()
    return tuple(str(v) if v else None for v in map(entry.get, ("resource", "host", "peer")))


def _series(entry: object, by_identity: Mapping[str, str]) -> SeriesName | None:
    resource, host, peer = (*_key(entry), None, None, None)[:3]
    if not resource or host not in by_identity or (peer and peer not in by_identity):
        return None
    try:
        return SeriesName(resource, by_identity[host], by_identity[peer] if peer else None)
    except ValueError:
        return None


def _samples(series: SeriesName, entry: Mapping[str, Any]) -> list[Measurement]:
    samples = entry.get("samples")
    return [
        Measurement(series, float(pair[0]), float(pair[1]))
        for pair in (samples if isinstance(samples, list) else [])[-KEPT:]
        if _is_pair(pair) and min(pair) >= 0
    ]
