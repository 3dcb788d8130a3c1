"""The served pages of the hosts of a list and of one host, under the weather that is known of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

from apples.ui.page import render
from apples.ui.web.frame import Frame
from apples.weather.pages.series import row_of, series_view

Document = dict[str, Any]
TEMPLATES = "apples.weather"
STALE_SECONDS = 600.0
"""From this age on a measurement is hatched, and said to be stale."""


def hosts_page(
    frame: Frame, name: str, rows: Sequence[Document], notes: Sequence[str], age: float | None
) -> str:
    """Return the hosts of a list under the weather that is known.

    Parameters
    ----------
    age
        Seconds since they were measured for this page; None: what is remembered is shown.
    """
    return render(
        "hosts.html.j2", TEMPLATES, frame=frame,
        name=name, rows=rows, notes=notes, age=age, measured=age is not None,
        stale_seconds=STALE_SECONDS,
        address=lambda host: f"/hosts/{quote(host, safe='')}?{urlencode({'name': name})}",
    )  # fmt: skip


def host_page(frame: Frame, list_name: str, host: Any, known: Any) -> str:
    """Return one host of a list: every series that is known of it, those of its CPU and memory with their league.

    Parameters
    ----------
    host, known
        The `apples.resources.Host`, and what `apples.weather.pages.host_series` found.
    """
    return render(
        "host_weather.html.j2", TEMPLATES, frame=frame, host=host, list=list_name,
        list_address=f"/hosts?{urlencode({'name': list_name})}", series=series_of(known),
    )  # fmt: skip


def series_of(known: Any) -> Document | None:
    """Return what is shown of the series of a host; None where its list is not known."""
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
