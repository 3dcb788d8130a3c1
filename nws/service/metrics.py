"""The page that a Prometheus server scrapes: values, forecasts, errors, ages, own health."""

from collections.abc import Iterable, Mapping
from typing import Final

from nws.service.database import CURRENT
from nws.service.messages import NetworkForecast, ServiceStatus

KIND: Final = "text/plain; version=0.0.4; charset=utf-8"
HELP: Final = {
    "nws_forecast": "Forecast of the next value, in the unit of the resource.",
    "nws_forecast_error": "Mean absolute error of such forecasts so far.",
    "nws_age_seconds": "Seconds since the last measurement.",
    "nws_current": "1 if the series is current, 0 if it is stale.",
}


def exposition(forecasts: Iterable[NetworkForecast], status: ServiceStatus) -> str:
    """Return the page. A stale series has an age but no forecast: it is not to look alive."""
    rows: dict[str, list[str]] = {name: [] for name in HELP}
    for forecast in forecasts:
        labels = _labels(forecast.series)
        current = forecast.state == CURRENT
        if current and forecast.value is not None:
            rows["nws_forecast"].append(f"{labels} {forecast.value!r}")
        if current and forecast.error is not None:
            rows["nws_forecast_error"].append(f"{labels} {forecast.error!r}")
        if forecast.age is not None:
            rows["nws_age_seconds"].append(f"{labels} {forecast.age!r}")
            rows["nws_current"].append(f"{labels} {int(current)}")
    lines = []
    for name, entries in rows.items():
        lines += [f"# HELP {name} {HELP[name]}", f"# TYPE {name} gauge"]
        lines += [f"{name}{entry}" for entry in entries]
    for name, value in _health(status).items():
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# TYPE {name} {kind}", f"{name} {value!r}"]
    return "\n".join(lines) + "\n"


def _health(status: ServiceStatus) -> Mapping[str, float]:
    return {
        "nws_up": int(status.status == "ok"),
        "nws_series": status.series,
        "nws_measurements": status.measurements,
        "nws_stored_total": status.stored_total,
        "nws_refused_total": status.refused_total,
        "nws_backlog": status.backlog,
        "nws_subscribers": status.subscribers,
        "nws_uptime_seconds": status.uptime,
        "nws_problems": status.problems_total,
    }


def _labels(series: str) -> str:
    """Return the labels of a series; its name holds nothing that would need an escape."""
    resource, host, *peer = series.split("/")
    labels = {"resource": resource, "host": host, **({"peer": peer[0]} if peer else {})}
    return "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}"
