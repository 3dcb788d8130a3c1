"""The series of one host, from a weather service and from stored measurements, with forecasts and leagues."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

import nws
from apples.resources import Host, HostList
from apples.weather import history
from apples.weather.pages.series import STALE_SECONDS, longer, row_of, series_view
from apples.weather.service import DEADLINE, ServiceSettings

Document = Mapping[str, Any]

MAIN = (nws.AVAILABLE_CPU, nws.FREE_MEMORY)
"""Resources shown with past values, forecasts and league table."""
MAX_SERIES = 50
"""Maximum number of listed series of a host, and of its links."""
SPAN_SECONDS = 6 * 3600.0
STEP_SECONDS = 90.0
LATEST_MOMENT = 1e11
"""Latest time that a page shows, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class ShownSeries:
    """A series with its past values, its forecasts and its league table.

    Attributes
    ----------
    source
        The source of the series, in words.
    kept
        As ``/v1/range`` of a weather service.
    forecasts
        As ``nws.forecast/1``: of the next value, with the ``latest`` value, then of longer horizons.
    league
        As ``/v1/league``.
    """

    source: str
    kept: Document
    forecasts: Sequence[Document]
    league: Document


@dataclass(frozen=True, slots=True)
class KnownHost:
    """The series of a host.

    Attributes
    ----------
    rows
        A forecast of the next value of each series, with its ``latest`` value.
    shown
        The series of `MAIN`.
    notes
        Failed requests.
    since, time
        Time of the first shown measurement, and of the request.
    """

    since: float
    time: float
    rows: list[Document] = field(default_factory=list)
    shown: list[ShownSeries] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def known_of(hosts: HostList, host: Host, settings: ServiceSettings | None) -> KnownHost:
    """Return the series of a host from the service, then from this user's stored measurements.

    Parameters
    ----------
    settings
        The configured weather service, or None.
    """
    now = time.time()
    found = KnownHost(now - SPAN_SECONDS, now)
    if settings is not None:
        try:
            _ask(settings, host, found)
        except nws.ServiceError as error:
            found.notes.append(f"weather service: {error}; not used [{error.code}]")
    told = {_of(one["series"]) for one in found.rows}
    _recall(hosts, host, found, told)
    found.rows.sort(key=lambda one: (one["series"].partition("/")[0] not in MAIN, one["series"]))
    found.shown.sort(key=lambda one: one.kept["series"])
    return found


def series_of(known: KnownHost | None) -> Document | None:
    """Return the series of a host for its page; None if its list is not known."""
    if known is None:
        return None
    shown = [
        {
            **series_view(one.kept, one.forecasts, one.league, known.since, known.time, letter),
            "source": one.source,
        }
        for letter, one in zip("abcdefgh", known.shown, strict=False)
    ]
    return {"rows": [row_of(one) for one in known.rows], "shown": shown, "notes": known.notes}


def _ask(settings: ServiceSettings, host: Host, found: KnownHost) -> None:
    """Add the series of a host from a service: under its name, else, as plans do, under its address."""
    with nws.Client(
        settings.url, settings.token, certificate=settings.certificate, deadline=DEADLINE
    ) as client:
        entries: list[Document] = []
        for name in dict.fromkeys([host.name] if host.cpus else [host.name, host.reached_at]):
            for match in (f"*/{name}", f"*/{name}/*"):
                listed = _checked(client, nws.SeriesList, client.series(match, MAX_SERIES))[
                    "series"
                ]
                entries += [one for one in listed if one["series"].split("/")[1:2] == [name]]
            if entries:
                break
        latest = {one["series"]: one["latest"] for one in entries[: 2 * MAX_SERIES]}
        for one in _forecasts(client, [*latest]):
            row = {**one, "latest": latest[one["series"]]}
            found.rows.append(row)
            if one["series"].partition("/")[0] in MAIN:
                found.shown.append(_asked(client, row, found.since))


def _asked(client: nws.Client, row: Document, since: float) -> ShownSeries:
    series, period = row["series"], row["period"]
    frames = [horizon * period for horizon in nws.HORIZONS[1:]] if period else []
    forecasts = [one for over in frames for one in _forecasts(client, [series], over=over)]
    step = max(STEP_SECONDS, period or 0.0)
    return ShownSeries(
        f"the weather service {client.url}",
        _checked(client, nws.SeriesRange, client.range(series, start=since, step=step)),
        longer([row, *forecasts]),
        _league(client, row),
    )


def _forecasts(
    client: nws.Client, series: Sequence[str], over: float | None = None
) -> list[Document]:
    """Return the forecasts of some series, one each and in their order."""
    try:
        found = client.forecasts(series, over=over)
    except TypeError:  # the answer is not a list
        raise _no_answer(client) from None
    forecasts = [_checked(client, nws.NetworkForecast, one) for one in found]
    if [one["series"] for one in forecasts] != [*series]:
        raise _no_answer(client)
    return forecasts


def _checked(client: nws.Client, model: type[BaseModel], answer: Document) -> Document:
    """Return the answer of a service if every field is as documented, and every number finite."""
    try:
        found = model.model_validate_json(json.dumps(answer, allow_nan=False)).model_dump()
    except ValueError:
        raise _no_answer(client) from None
    if model is nws.SeriesRange and not _is_drawable(found):
        raise _no_answer(client)
    return found


def _is_drawable(kept: Document) -> bool:
    """Return whether each point of a range has a time, and either all or none of value and band."""
    columns = [kept[key] for key in ("values", "lows", "highs") if kept[key] is not None]
    return all(len(each) == len(kept["times"]) for each in columns) and all(
        0 <= at <= LATEST_MOMENT and len({one is None for one in rest}) == 1
        for at, *rest in zip(kept["times"], *columns, strict=True)
    )


def _no_answer(client: nws.Client) -> nws.ServiceError:
    reason = f"{client.url}: not the answer of a weather service; check the address"
    return nws.ServiceError(reason, transient=False, code="answer-invalid", url=client.url)


def _league(client: nws.Client, row: Document) -> Document:
    """Return the league table of a series; an empty table if the service is too old to have it."""
    try:
        return _checked(client, nws.SeriesLeague, client.league(row["series"]))
    except nws.ServiceError as error:
        if error.status != 404:
            raise
    return nws.SeriesLeague.of(row["series"], row["state"], row["age"], None).model_dump()


def _of(series: str) -> tuple[str, ...]:
    """Return the resource of a series of a host, and the other end of a link."""
    resource, _, *peer = series.split("/")
    return resource, *peer


def _recall(hosts: HostList, host: Host, found: KnownHost, told: set[tuple[str, ...]]) -> None:
    """Add the stored measurements of plans over ssh, except series in `told`."""
    memory = nws.RingMemory()
    service = nws.NetworkWeatherService(memory)
    for series, measurements in history.recall(hosts).items():
        if series.host != host.name or _of(str(series)) in told:
            continue
        for one in measurements:
            memory.store(one)
        if not measurements:
            continue
        first = _document(service.forecast(series), series, measurements, found.time)
        found.rows.append(first)
        if series.resource not in MAIN:
            continue
        frames = (
            [horizon * first["period"] for horizon in nws.HORIZONS[1:]] if first["period"] else []
        )
        forecasts = (
            _document(service.forecast(series, over), series, measurements, found.time)
            for over in frames
        )
        table = service.league(series)
        drawn = [one for one in measurements if one.time > found.since]
        found.shown.append(
            ShownSeries(
                "remembered measurements of plans over ssh",
                {
                    "series": str(series), "times": [one.time for one in drawn],
                    "values": [one.value for one in drawn], "lows": None, "highs": None,
                },
                longer([first, *forecasts]),
                nws.SeriesLeague.of(str(series), first["state"], first["age"], table).model_dump(),
            )
        )  # fmt: skip


def _document(
    forecast: nws.Forecast,
    series: nws.SeriesName,
    measurements: Sequence[nws.Measurement],
    now: float,
) -> Document:
    """Return a forecast of this process as an answer of a weather service."""
    interval, age = forecast.interval, forecast.age(now)
    told = nws.NetworkForecast(
        series=str(series),
        state="stale" if age > STALE_SECONDS else "current",
        age=age,
        period=forecast.over / forecast.horizon if forecast.over else None,
        value=forecast.value,
        error=forecast.error,
        method=forecast.method,
        samples=forecast.samples,
        time=forecast.time,
        rmse=forecast.rmse,
        lower=interval.lower if interval else None,
        upper=interval.upper if interval else None,
        level=interval.level if interval else None,
        coverage=interval.coverage if interval else None,
        horizon=forecast.horizon,
        over=forecast.over,
    )
    return {**told.model_dump(), "latest": measurements[-1].value}
