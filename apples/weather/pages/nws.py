"""The pages of a weather service, made of what its routes answer: its series, one of them, a form for a token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from apples.ui.page import pieces, render
from apples.ui.web.frame import Frame
from apples.weather.pages.series import row_of, series_view

Document = Mapping[str, Any]
TEMPLATES = "apples.weather"

PAGES: Mapping[str, str] = {"/": "Series"}
FRAMES: Mapping[str, str] = {
    "": "the next value", "60": "the next minute", "300": "the next 5 min", "3600": "the next hour",
}  # fmt: skip
"""What the list can be asked to forecast: seconds, and in words."""
HOURS: Mapping[str, str] = {"1": "hour", "6": "6 hours", "24": "day", "168": "week"}
"""How far back the page of a series can look."""
PLACES = 240
"""Of the drawing, across what was measured."""


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
    return render("sign_in.html.j2", TEMPLATES, frame=frame, title=title, reason=reason)


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
        "series_list.html.j2", TEMPLATES, frame=frame, asked=asked, frames=FRAMES, list=found, problems=problems,
        rows=[{**row_of(one), "address": series_address(one["series"])} for one in found["series"]],
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
    return pieces(
        "series.html.j2", TEMPLATES, frame=frame,
        one=series_view(kept, forecasts, league, now - 3600 * float(back), now),
        back=back, choices=HOURS, problems=problems,
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
