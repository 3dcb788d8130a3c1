"""What the weather service answers, and how good its forecasts would have been, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

SHOWN = 5
"""Predictors of the league table that are shown."""

Document = Mapping[str, Any]


def forecasts_text(forecasts: Sequence[Document]) -> str:
    """Return forecasts, a line each."""
    return "\n".join(_forecast(one) for one in forecasts)


def _forecast(one: Document) -> str:
    if one["value"] is None:
        return f"{one['series']}  unknown"
    error = "" if one["error"] is None else f" +- {one['error']:.3g}"
    interval = ""
    if one["lower"] is not None and one["upper"] is not None:
        interval = f" [{one['lower']:.6g}, {one['upper']:.6g}]"
    return (
        f"{one['series']}  {one['value']:.6g}{error}{interval}  {one['state']}, "
        f"{one['age']:.0f} s old; {one['method']} from {one['samples']}{_horizon(one)}"
        + "".join(f"; {remark}" for remark in one.get("remarks", ()))
    )


def _horizon(one: Document) -> str:
    if (one["horizon"] or 1) == 1:
        return ""
    seconds = "" if one["over"] is None else f" ({one['over']:.6g} s)"
    return f", mean of the next {one['horizon']}{seconds}"


def series_text(series: Sequence[Document]) -> str:
    """Return how fresh series are and what is kept of them, a line each."""
    return "\n".join(
        f"{one['series']}  {one['latest']:.6g}  {one['state']}, {one['age']:.0f} s old; "
        f"{one['count']} kept since {_moment(one['oldest'])}"
        for one in series
    )


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def measurements_csv(found: Document) -> str:
    """Return measurements as CSV, every figure in full."""
    lines = ["timestamp,value"]
    for time, value in zip(found["times"], found["values"], strict=True):
        lines.append(f"{time!r},{'' if value is None else repr(value)}")
    return "\n".join(lines)


def service_text(status: Document, sensors: Sequence[Document]) -> str:
    """Return how a service is, who reports to it, and what is wrong."""
    head = (
        f"{status['status']}: {status['series']} series, {status['measurements']} measurements, "
    )
    head += f"{len(sensors)} sensors, {status['backlog']} wait to be forecast from"
    leases = [
        f"  {one['name']} in {one['site']}, lease for {one['expires_in']:.0f} s" for one in sensors
    ]
    problems = [f"  problem: {problem}" for problem in status["problems"]]
    return "\n".join([head, *leases, *problems])


def backtest_text(report: Document) -> str:
    """Return the league table of predictors on one series; an empty line ends it."""
    classic, last, interval = report["classic"], report["last_value"], report["interval"]
    lines = [
        f"{report['name']}: {_against(report['mae'], classic['mae'])} ({report['n']} samples)",
        f"  {'predictor':<24} {'MAE':>12} {'RMSE':>12}",
        _row("default profile", report),
        _row("classic profile (NWS 2.x)", classic),
        _row("last value", last),
    ]
    ranked = sorted(
        (item for item in report["predictors"].items() if item[1]["mae"] is not None),
        key=lambda item: item[1]["mae"],
    )
    lines += [
        _row(f"{place}. {name}", errors) for place, (name, errors) in enumerate(ranked[:SHOWN], 1)
    ]
    width = _number(interval["width_ratio"])
    lines.append(
        f"  interval of {interval['level']:.0%}: held {_percent(interval['coverage'])}, "
        f"{width} as wide as +-1.645 RMSE of the classic forecast"
    )
    lines += [
        f"  mean of the next {horizon}: MAE {_number(errors['mae'])}, of the classic one-step forecast "
        f"{_number(errors['classic_one_step_mae'])}"
        for horizon, errors in report["horizons"].items()
    ]
    return "\n".join([*lines, ""])


def _against(ours: float | None, classic: float | None) -> str:
    if ours is None or classic is None:
        return "too short to be scored"
    if not classic:
        return f"mean absolute error {ours:.4g}, classic 0"
    return f"mean absolute error {ours:.4g}, {ours / classic:.2f} of the classic {classic:.4g}"


def _row(name: str, errors: Document) -> str:
    return f"  {name:<25} {_number(errors['mae']):>11} {_number(errors['rmse']):>12}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
