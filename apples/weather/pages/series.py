"""A series on a page: its forecasts with their bands, a chart of its past, and its league table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from apples.ui.formats import Number, moment
from apples.ui.units import duration
from apples.weather.pages.series_chart import series_chart
from apples.weather.text import ago, quantity

Document = Mapping[str, Any]

MAX_PREDICTORS = 40
STALE_SECONDS = 600.0
"""From this age on a measurement is stale: pages hatch it."""


def series_view(
    kept: Document,
    forecasts: Sequence[Document],
    league: Document,
    since: float,
    now: float,
    key: str = "",
) -> dict[str, Any]:
    """Return the variables of the template of a series.

    Parameters
    ----------
    kept
        As ``/v1/range`` on a grid.
    forecasts
        As ``nws.forecast/1``: of the next value, with the ``latest`` value, then over longer and longer horizons.
    league
        As ``/v1/league``.
    since
        Start of its chart, in seconds since the epoch.
    key
        Prefix that is unique on the page.
    """
    series = kept["series"]
    lows, highs = kept["lows"] or kept["values"], kept["highs"] or kept["values"]
    known = [
        row
        for row in zip(kept["times"], kept["values"], lows, highs, strict=True)
        if row[1] is not None
    ]
    return {
        "series": series,
        "key": key,
        "forecast": row_of(forecasts[0]),
        "forecasts": [row_of(one) for one in forecasts],
        "remarks": forecasts[0]["remarks"],
        "drawing": series_chart(series, kept, forecasts, since, now, key) if known else None,
        "league": _league(league),
        "measured": [
            (moment(at), *(_amount(series, one) for one in rest)) for at, *rest in known[::-1]
        ],
    }


def row_of(one: Document) -> dict[str, Any]:
    """Return a forecast as a page shows it: numbers with their units, None if unknown."""
    series = one["series"]
    keys = ("latest", "value", "lower", "upper", "error")
    words = {"over": duration, "age": ago, "period": duration}
    return {
        **{key: _amount(series, one.get(key)) for key in keys},
        **{
            key: None if one[key] is None else Number(one[key], said(one[key]))
            for key, said in words.items()
        },
        **{
            key: one[key]
            for key in ("series", "horizon", "coverage", "level", "method", "samples")
        },
        "stale": one["state"] == "stale",
    }


def longer(forecasts: Iterable[Document]) -> list[Document]:
    """Return the forecasts with strictly growing horizons.

    For a horizon without a score, the forecaster returns the forecast of a shorter horizon; it is left out.

    Examples
    --------
    >>> [one["horizon"] for one in longer([{"horizon": 1}, {"horizon": 3}, {"horizon": 3}])]
    [1, 3]
    """
    found: list[Document] = []
    for one in forecasts:
        if not found or (one["horizon"] or 0) > (found[-1]["horizon"] or 0):
            found.append(one)
    return found


def _league(league: Document) -> dict[str, Any]:
    """Return a league as a page shows it: names and errors in the unit of the series."""
    series, method = league["series"], league["method"]
    return {
        **{key: league[key] for key in ("series", "method", "horizon", "scored")},
        "predictors": [
            (one["name"], *(_amount(series, one[key]) for key in ("error", "lately")), one["name"] == method)
            for one in league["predictors"][:MAX_PREDICTORS]
        ],
        "candidates": [
            (one["name"], _amount(series, one["rmse"]), one["taken"]) for one in league["candidates"]
        ],
    }  # fmt: skip


def _amount(series: str, value: float | None) -> Number | None:
    return None if value is None else Number(value, quantity(series, value))
