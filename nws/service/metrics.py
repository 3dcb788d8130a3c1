"""The page that a Prometheus server scrapes: values, forecasts, errors, ages, own health.

A page of 12,000 series has 100,000 lines and its forecasts take a second to make. So what a series
shows is kept from scrape to scrape and made anew only after a measurement, in slices between which
all other requests are served.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from nws.memory.column import SeriesColumn
from nws.service.database import ForecastDatabase, is_current
from nws.service.messages import ServiceStatus

KIND: Final = "text/plain; version=0.0.4; charset=utf-8"
SLICE_SECONDS: Final = 0.001
"""How long answers are made before others get a turn."""
REFRESH_SECONDS: Final = 0.05
"""How long a scrape makes forecasts anew; what is left is shown as it was, a few seconds ago."""
WANTED_SECONDS: Final = 300.0
"""So long after a scrape its forecasts are kept up to date for the next one."""

OF_SERIES: Final = {
    "nws_value": "The last measurement, in the unit of the resource.",
    "nws_forecast": "Forecast of the next value, or of the mean over the frame, in the unit of the resource.",
    "nws_forecast_error": "Mean absolute error of such forecasts so far.",
    "nws_forecast_lower": "Lower end of the interval of the forecast.",
    "nws_forecast_upper": "Upper end of the interval of the forecast.",
    "nws_forecast_frame_seconds": "Seconds to come whose mean is forecast.",
    "nws_age_seconds": "Seconds since the last measurement.",
    "nws_current": "1 if the series is current, 0 if it is stale.",
}
OF_SERVICE: Final = {
    "nws_up": "1 if nothing is wrong with the service.",
    "nws_series": "Series that are kept.",
    "nws_measurements": "Measurements that are kept.",
    "nws_stored_total": "Measurements stored since the start.",
    "nws_refused_total": "Measurements refused since the start.",
    "nws_backlog": "Measurements that wait to be forecast from.",
    "nws_subscribers": "Readers of the stream of events.",
    "nws_uptime_seconds": "Seconds since the start.",
    "nws_problems": "Things that are wrong, see nws status.",
    "nws_forecasts_behind": "Series whose forecast on this page is older than their last measurement.",
}

Made = TypeVar("Made")
Item = TypeVar("Item")


async def in_slices(
    items: Iterable[Item],
    make: Callable[[Item], Made],
    timer: Callable[[], float] = time.perf_counter,
) -> list[Made]:
    """Return what is made of each item, others served in between."""
    made, stop = [], timer() + SLICE_SECONDS
    for item in items:
        made.append(make(item))
        if timer() > stop:
            await asyncio.sleep(0)
            stop = timer() + SLICE_SECONDS
    return made


@dataclass(slots=True)
class _Shown:
    """What a series shows of itself and of the forecast after the record at `position`."""

    position: int
    labels: str
    value: str
    lines: tuple[tuple[str, str], ...]
    current: str
    stale: str


class MetricsPage:
    """The page for one question, kept from scrape to scrape.

    Parameters
    ----------
    database
        Whose series.
    question
        What the forecasts are for, such as ``over=300.0``.
    clock, timer
        Seconds since the epoch; seconds that only go forward.
    """

    def __init__(
        self,
        database: ForecastDatabase,
        question: Mapping[str, Any],
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._database = database
        self._question = dict(question)
        self._clock = clock
        self.timer = timer
        self._shown: dict[str, _Shown] = {}
        self._asked = float("-inf")

    @property
    def wanted(self) -> bool:
        """Whether it was asked for lately."""
        return self.timer() - self._asked < WANTED_SECONDS

    async def pieces(self, status: Callable[[int], ServiceStatus]) -> list[bytes]:
        """Return the page in pieces. A stale series has an age but no forecast: it is not to look alive.

        `status` is asked for the state of the service, given how many measurements are kept.
        """
        self._asked = self.timer()
        until, behind, now = self._asked + REFRESH_SECONDS, 0, self._clock()
        rows: dict[str, list[str]] = {name: [] for name in OF_SERIES}
        values, ages, currents = (
            rows[name] for name in ("nws_value", "nws_age_seconds", "nws_current")
        )
        latest, known = self._database.forecasting.latest, self._shown.get

        def show(column: SeriesColumn) -> None:
            nonlocal behind
            shown = known(column.text)
            fresh = shown is not None and shown.position == latest(column.text)
            if shown is None or (not fresh and self.timer() < until):
                shown, fresh = self._show(column), True
            behind += not fresh
            age = max(0.0, now - column.seen(now))
            if is_current(age, column.spacing()):
                values.append(shown.value if fresh else _value(shown.labels, column))
                for name, line in shown.lines:
                    rows[name].append(line)
                currents.append(shown.current)
            else:
                currents.append(shown.stale)
            ages.append(f"nws_age_seconds{shown.labels} {age!r}\n")

        await in_slices(self._database.columns(), show)
        pieces = []
        for name, lines in rows.items():
            pieces.append(f"# HELP {name} {OF_SERIES[name]}\n# TYPE {name} gauge\n".encode())
            pieces += [text.encode() for text in await in_slices(thousands(lines), "".join)]
        kept = sum(await in_slices(self._database.columns(), len))
        pieces.append(_health(status(kept), behind).encode())
        return pieces

    def refresh(self, seconds: float, columns: Iterable[SeriesColumn]) -> bool:
        """Make some of what is behind anew, for about `seconds`; return whether `columns` were all looked at."""
        stop = self.timer() + seconds
        for column in columns:
            shown = self._shown.get(column.text)
            if shown is not None and self._is_behind(column, shown):
                self._show(column)
            if self.timer() > stop:
                return False
        return True

    def _is_behind(self, column: SeriesColumn, shown: _Shown) -> bool:
        return shown.position != self._database.forecasting.latest(column.text)

    def _show(self, column: SeriesColumn) -> _Shown:
        position = self._database.forecasting.latest(column.text)
        known, _ = self._database.forecast(column.text, **self._question)
        labels, lines = _labels(column.text), []
        if known is not None:
            interval = known.interval
            told: dict[str, float | None] = {
                "nws_forecast": known.value,
                "nws_forecast_error": known.error,
                "nws_forecast_lower": None if interval is None else interval.lower,
                "nws_forecast_upper": None if interval is None else interval.upper,
                "nws_forecast_frame_seconds": known.over,
            }
            for name, value in told.items():
                if value is not None:
                    lines.append((name, f"{name}{labels} {value!r}\n"))
        shown = self._shown[column.text] = _Shown(
            position,
            labels,
            _value(labels, column),
            tuple(lines),
            f"nws_current{labels} 1\n",
            f"nws_current{labels} 0\n",
        )
        return shown


def _value(labels: str, column: SeriesColumn) -> str:
    return f"nws_value{labels} {column.latest!r}\n"


def thousands(lines: list[str]) -> list[list[str]]:
    """Return lines in lots that are joined at once."""
    return [lines[start : start + 1000] for start in range(0, len(lines), 1000)]


def _health(status: ServiceStatus, behind: int) -> str:
    values = {
        "nws_up": int(status.status == "ok"),
        "nws_series": status.series,
        "nws_measurements": status.measurements,
        "nws_stored_total": status.stored_total,
        "nws_refused_total": status.refused_total,
        "nws_backlog": status.backlog,
        "nws_subscribers": status.subscribers,
        "nws_uptime_seconds": status.uptime,
        "nws_problems": status.problems_total,
        "nws_forecasts_behind": behind,
    }
    return "".join(
        f"# HELP {name} {OF_SERVICE[name]}\n"
        f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}\n"
        f"{name} {value!r}\n"
        for name, value in values.items()
    )


def _labels(series: str) -> str:
    """Return the labels of a series; its name holds nothing that would need an escape."""
    resource, host, *peer = series.split("/")
    labels = {"resource": resource, "host": host, **({"peer": peer[0]} if peer else {})}
    return "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}"
