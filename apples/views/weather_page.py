"""The pages of a weather service, made of what its routes answer: its series, one of them, a form for a token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from apples.units import duration
from apples.views.formats import Number, moment
from apples.views.frame import Frame
from apples.views.page import pieces, render
from apples.views.series_chart import series_chart
from apples.views.weather import ago, quantity

Document = Mapping[str, Any]

PAGES: Mapping[str, str] = {"/": "Series"}
FRAMES: Mapping[str, str] = {
    "": "the next value", "60": "the next minute", "300": "the next 5 min", "3600": "the next hour",
}  # fmt: skip
"""What the list can be asked to forecast: seconds, and in words."""
HOURS: Mapping[str, str] = {"1": "hour", "6": "6 hours", "24": "day", "168": "week"}
"""How far back the page of a series can look."""
PLACES = 240
"""Of the drawing, across what was measured."""
MOST_PREDICTORS = 40


@dataclass(frozen=True, slots=True)
class ListAddress:
    """What the list of series was asked for, which is its address."""

    words: str
    order: str
    descending: bool
    page: int
    over: str

    def but(self, **changes: object) -> str:
        """Return the address of the same list with changes."""
        asked = {name: getattr(self, name) for name in self.__slots__}
        return f"/?{urlencode({**asked, **changes})}"


def sign_in_page(frame: Frame, title: str, reason: str) -> str:
    """Return the form for a token, and why it is shown."""
    return render("sign_in.html.j2", frame=frame, title=title, reason=reason)


def list_page(
    frame: Frame, asked: ListAddress, found: Document, problems: Sequence[str]
) -> Iterator[str]:
    """Yield the list of series piece by piece.

    Parameters
    ----------
    found
        As of `nws.service.handler.RequestHandler.listing`.
    problems
        What is wrong with the service.
    """
    return pieces(
        "series_list.html.j2", frame=frame, asked=asked, frames=FRAMES, list=found, problems=problems,
        rows=[_row(one) for one in found["series"]],
    )  # fmt: skip


def series_page(
    frame: Frame,
    kept: Document,
    forecasts: Sequence[Document],
    league: Document,
    problems: Sequence[str],
    back: str,
    now: float,
) -> Iterator[str]:
    """Yield the page of a series piece by piece.

    Parameters
    ----------
    kept
        As ``/v1/range`` on a grid, of the latest hours.
    forecasts
        As ``nws.forecast/1``: of the next value, then over more and more seconds.
    league
        As ``/v1/league``.
    """
    series = kept["series"]
    lows, highs = kept["lows"] or kept["values"], kept["highs"] or kept["values"]
    known = [
        row
        for row in zip(kept["times"], kept["values"], lows, highs, strict=True)
        if row[1] is not None
    ]
    return pieces(
        "series.html.j2", frame=frame, series=series, forecast=_row(forecasts[0]), back=back, choices=HOURS,
        drawing=series_chart(series, kept, forecasts, now - 3600 * float(back), now) if known else None,
        forecasts=[_row(one) for one in forecasts], remarks=forecasts[0]["remarks"], problems=problems,
        **league_parts(league),
        measured=[(moment(at), *(_amount(series, one) for one in rest)) for at, *rest in known[::-1]],
        address=lambda **changes: series_address(series, **{"back": back, **changes}),
    )  # fmt: skip


def series_address(series: str, **more: object) -> str:
    """Return the address of the page of a series.

    Examples
    --------
    >>> series_address("availableCpu/ada", back=6)
    '/series?name=availableCpu%2Fada&back=6'
    """
    return f"/series?{urlencode({'name': series, **more})}"


def league_parts(league: Document) -> dict[str, Any]:
    """Return what the template of a league shows of ``/v1/league``."""
    series = league["series"]
    taken = league["method"]
    return {
        "league": {
            "series": series,
            "method": taken,
            "horizon": league["horizon"],
            "scored": league["scored"],
            "predictors": [
                (one["name"], _amount(series, one["error"]), _amount(series, one["lately"]), one["name"] == taken)
                for one in league["predictors"][:MOST_PREDICTORS]
            ],
            "candidates": [
                (one["name"], _amount(series, one["rmse"]), one["taken"]) for one in league["candidates"]
            ],
        }
    }  # fmt: skip


def _row(one: Document) -> dict[str, Any]:
    """Return a forecast as a page shows it: numbers with their units, None where nobody knows."""
    series = one["series"]
    keys = ("latest", "value", "lower", "upper", "error", "rmse")
    return {
        "series": series,
        "address": series_address(series),
        **{key: _amount(series, one.get(key)) for key in keys},
        "over": None if one["over"] is None else Number(one["over"], duration(one["over"])),
        "age": None if one["age"] is None else Number(one["age"], ago(one["age"])),
        "period": None
        if one["period"] is None
        else Number(one["period"], duration(one["period"])),
        "horizon": one["horizon"],
        "coverage": one["coverage"],
        "level": one["level"],
        "stale": one["state"] == "stale",
        "method": one["method"],
        "samples": one["samples"],
    }


def _amount(series: str, value: float | None) -> Number | None:
    return None if value is None else Number(value, quantity(series, value))
