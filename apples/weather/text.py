"""The answers of the weather service, and the scores of a backtest, as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import nws
from apples.ui.units import amount, digits, duration

if TYPE_CHECKING:
    from apples.weather.documents import BacktestedSeries, ForecastErrors

SHOWN = 5
"""Maximum number of predictors in a league table."""

Document = Mapping[str, Any]


def forecasts_text(forecasts: Sequence[Document]) -> str:
    """Return forecasts, a line each."""
    return "\n".join(_forecast(one) for one in forecasts)


def _forecast(one: Document) -> str:
    if one["value"] is None:
        return f"{one['series']}  unknown"
    series = one["series"]
    error = "" if one["error"] is None else f" +- {quantity(series, one['error'])}"
    interval = ""
    if one["lower"] is not None and one["upper"] is not None:
        ends = (quantity(series, one["lower"]), quantity(series, one["upper"]))
        interval = f" [{ends[0]}, {ends[1]}]"
    return (
        f"{series}  {quantity(series, one['value'])}{error}{interval}  {one['state']}, "
        f"{ago(one['age'])} old; {one['method']} from {one['samples']}{_horizon(one)}"
        + "".join(f"; {remark}" for remark in one.get("remarks", ()))
    )


def quantity(series: str, value: float) -> str:
    """Return a value of a series with a suitable unit of its resource.

    Examples
    --------
    >>> quantity("freeMemory/ada", 15.9e9), quantity("latencyTcp/ada/bob", 2.1e-4)
    ('15.9 GB', '210 us')
    >>> quantity("availableCpu/ada", 0.5), quantity("degrees/ada", 21.25)
    ('0.500', '21.25')
    """
    resource = series.partition("/")[0]
    if resource in SHARES:
        return digits(value)
    return WORDS.get(resource, "{:.6g}".format)(value)


def ago(seconds: float) -> str:
    """Return an age with a suitable unit.

    Examples
    --------
    >>> ago(12.5), ago(1500.0), ago(7200.0), ago(1e6)
    ('12.5 s', '25 min', '2 h', '11.57 d')
    """
    for unit, name in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.4g} {name}"
    return duration(seconds)


def _rate(value: float) -> str:
    return f"{amount(value)}/s"


SHARES = (nws.AVAILABLE_CPU, nws.CURRENT_CPU, nws.LOSS_TCP, nws.LOSS_UDP)
WORDS: Mapping[str, Callable[[float], str]] = {
    nws.FREE_MEMORY: amount,
    nws.FREE_DISK: amount,
    nws.BANDWIDTH_TCP: _rate,
    nws.LATENCY_TCP: duration,
    nws.LATENCY_UDP: duration,
    nws.JITTER_TCP: duration,
    nws.JITTER_UDP: duration,
    nws.CONNECT_TIME_TCP: duration,
    nws.QUOTA_PERIOD: duration,
}
"""The format of a resource with a unit."""


def top_text(found: Document, width: int, blocks: bool) -> str:
    """Return a line per series: value, forecast, and the band on a scale that all series of a resource share.

    The scale of a CPU share or a loss is 0 to 1; any other scale is 0 to the largest value shown of that resource.
    """
    rows = found["series"]
    most: dict[str, float] = {}
    for one in rows:
        resource = one["series"].partition("/")[0]
        told = [one["latest"], *(one[key] for key in ("value", "upper") if one[key] is not None)]
        most[resource] = max([most.get(resource, 0.0), *told])
    name = min(40, max([len(one["series"]) for one in rows], default=6))
    room = max(10, min(40, width - name - 44))
    shown = f"{len(rows)} of " if len(rows) < found["total"] else ""
    lines = [
        f"{shown}{found['total']} series, {_moment(found['time'])}",
        f"{'series':<{name}} {'now':>10} {'expected':>10}  {'band':<{room}} {'age':>8}",
    ]
    for one in rows:
        resource = one["series"].partition("/")[0]
        scale = 1.0 if resource in SHARES else most[resource] or 1.0
        expected = "-" if one["value"] is None else quantity(one["series"], one["value"])
        age = "-" if one["age"] is None else ago(one["age"])
        stale = "" if one["state"] == "current" else f"  {one['state']}"
        lines.append(
            f"{one['series']:<{name}} {quantity(one['series'], one['latest']):>10} {expected:>10}  "
            f"{band(one, scale, room, blocks)} {age:>8}{stale}"
        )
    return "\n".join(lines)


def band(one: Document, scale: float, room: int, blocks: bool) -> str:
    """Return the interval of a forecast as a band on 0..scale, with the forecast and the last value.

    Examples
    --------
    >>> one = {"latest": 0.2, "value": 0.5, "lower": 0.4, "upper": 0.7}
    >>> band(one, 1.0, 11, blocks=False)
    '  o =#==   '
    """
    within, expected, now = ("\u2592", "\u2588", "\u2502") if blocks else ("=", "#", "o")

    def place(value: float) -> int:
        return min(room - 1, max(0, int(value / scale * (room - 1))))

    cells = [" "] * room
    if one["lower"] is not None and one["upper"] is not None:
        start, stop = place(one["lower"]), place(one["upper"])
        cells[start : stop + 1] = within * (stop + 1 - start)
    cells[place(one["latest"])] = now
    if one["value"] is not None:
        cells[place(one["value"])] = expected
    return "".join(cells)


def _horizon(one: Document) -> str:
    if (one["horizon"] or 1) == 1:
        return ""
    seconds = "" if one["over"] is None else f" ({duration(one['over'])})"
    return f", mean of the next {one['horizon']}{seconds}"


def series_text(series: Sequence[Document]) -> str:
    """Return a line per series: its latest value and age, and the number of stored measurements."""
    return "\n".join(
        f"{one['series']}  {quantity(one['series'], one['latest'])}  {one['state']}, "
        f"{ago(one['age'])} old; "
        f"{one['count']} kept since {_moment(one['oldest'])}"
        for one in series
    )


def _moment(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):  # a time outside the calendar
        return f"{seconds:.6g}"


def measurements_csv(found: Document, band: bool = False) -> str:
    """Return measurements as CSV in full precision; with `band`, also the range of each point."""
    columns = [found["times"], found["values"]]
    if band and found.get("lows") is not None:
        columns += [found["lows"], found["highs"]]
    rows = zip(*columns, strict=True)
    lines = [",".join("" if value is None else repr(value) for value in row) for row in rows]
    return "\n".join(["timestamp,value,low,high" if band else "timestamp,value", *lines])


def service_text(status: Document, sensors: Sequence[Document]) -> str:
    """Return the state of a service, its sensors, and its problems."""
    head = (
        f"{status['status']}: {status['series']} series, {status['measurements']} measurements, "
    )
    head += f"{len(sensors)} sensors, {status['backlog']} wait to be forecast from"
    leases = [
        f"  {one['name']} in {one['site']}, lease for {one['expires_in']:.0f} s" for one in sensors
    ]
    problems = [f"  problem: {problem}" for problem in status["problems"]]
    mended = [f"  mended: {line}" for line in status.get("mended", ())]
    return "\n".join([head, *leases, *problems, *mended])


def backtest_text(report: BacktestedSeries) -> str:
    """Return the league table of predictors on one series; an empty line ends it."""
    classic, last, interval = report["classic"], report["last_value"], report["interval"]
    lines = [
        f"{report['name']}: {_against(report['mae'], classic['mae'])} ({report['n']} samples)",
        f"  {'predictor':<24} {'MAE':>12} {'RMSE':>12}",
        _row("default profile", report),
        _row("classic profile (NWS 2.x)", classic),
        _row("last value", last),
    ]
    scored = [item for item in report["predictors"].items() if item[1]["mae"] is not None]
    ranked = sorted(scored, key=lambda item: item[1]["mae"] or 0.0)
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


def _row(name: str, errors: ForecastErrors) -> str:
    return f"  {name:<25} {_number(errors['mae']):>11} {_number(errors['rmse']):>12}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
