"""The page that a Prometheus server scrapes: values, forecasts, errors, ages, own health."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import CollectorRegistry

from nws.forecast import Forecast
from nws.memory.summary import SeriesSummary
from nws.service.database import CURRENT, Freshness
from nws.service.messages import ServiceStatus

KIND: Final = "text/plain; version=0.0.4; charset=utf-8"

OF_SERIES: Final = {
    "nws_value": "The last measurement, in the unit of the resource.",
    "nws_forecast": "Forecast of the next value, or of the mean over the frame, in the unit of the resource.",
    "nws_forecast_error": "Mean absolute error of such forecasts so far.",
    "nws_forecast_lower": "Lower end of the interval of the forecast.",
    "nws_forecast_upper": "Upper end of the interval of the forecast.",
    "nws_forecast_frame_seconds": "Next seconds with the forecast mean.",
    "nws_age_seconds": "Seconds since the last measurement.",
    "nws_current": "1 if the series is current, 0 if it is stale.",
}


@dataclass(frozen=True, slots=True)
class SeriesMetrics:
    """A series at the moment of a scrape."""

    summary: SeriesSummary
    fresh: Freshness
    forecast: Forecast | None

    def values(self) -> dict[str, float | None]:
        """Return the values of the metrics of `OF_SERIES`; None if a value is missing.

        A stale series has an age but neither value nor forecast.
        """
        current = self.fresh.state == CURRENT
        values: dict[str, float | None] = {
            "nws_age_seconds": self.fresh.age,
            "nws_current": float(current),
        }
        if not current:
            return values
        values["nws_value"] = self.summary.latest
        if self.forecast is not None:
            interval = self.forecast.interval
            values |= {
                "nws_forecast": self.forecast.value,
                "nws_forecast_error": self.forecast.error,
                "nws_forecast_lower": None if interval is None else interval.lower,
                "nws_forecast_upper": None if interval is None else interval.upper,
                "nws_forecast_frame_seconds": self.forecast.over,
            }
        return values


class _Page(CollectorRegistry):
    """The metrics of one scrape."""

    def __init__(self, series: Sequence[SeriesMetrics], status: ServiceStatus) -> None:
        super().__init__()
        self._series, self._status = series, status

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics of the series, then those of the service."""
        families = {name: GaugeMetricFamily(name, text) for name, text in OF_SERIES.items()}
        for each in self._series:
            series = each.summary.series
            labels = {"resource": series.resource, "host": series.host}
            if series.peer is not None:
                labels["peer"] = series.peer
            for name, value in each.values().items():
                if value is not None:
                    families[name].add_sample(name, labels, value)
        yield from families.values()
        status = self._status
        for name, text, value in (
            ("nws_up", "1 if the service has no problem.", float(status.status == "ok")),
            ("nws_series", "Stored series.", status.series),
            ("nws_measurements", "Stored measurements.", status.measurements),
            ("nws_backlog", "Measurements that wait for the forecasters.", status.backlog),
            ("nws_subscribers", "Open event streams.", status.subscribers),
            ("nws_uptime_seconds", "Seconds since the start.", status.uptime),
            ("nws_problems", "Problems, see nws status.", status.problems_total),
        ):
            yield GaugeMetricFamily(name, text, value)
        for name, text, value in (
            ("nws_stored", "Measurements stored since the start.", status.stored_total),
            ("nws_refused", "Measurements refused since the start.", status.refused_total),
        ):
            yield CounterMetricFamily(name, text, value)


def page_of(series: Sequence[SeriesMetrics], status: ServiceStatus) -> bytes:
    """Return the page as text; not in the event loop: 12,000 series take about a second."""
    return generate_latest(_Page(series, status))
