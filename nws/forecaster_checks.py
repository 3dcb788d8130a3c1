"""The contracts of forecasters that save their state, and that look over a frame, as functions.

`nws.checks` has them all; this is where those two groups are written down.
"""

import json
import math
from collections.abc import Callable
from typing import Any, Final

from nws.forecaster import Forecaster
from nws.frame import FrameForecaster

WALK: Final = tuple(
    0.5 + 0.3 * math.sin(step / 3) + 0.2 * ((step * 7919) % 101) / 101 for step in range(300)
)
"""A series with a rhythm and something like noise, longer than two looks for a rhythm."""
NOT_A_STATE: Final[tuple[Any, ...]] = (None, [], {}, {"no": "such field"}, "text", 7)


def check_a_restored_forecaster_goes_on_alike(make: Callable[[], Forecaster]) -> None:
    """Check that a state survives JSON and gives the same forecasts from then on, bit for bit."""
    for stop in (0, 1, 3, 60, 140):
        one, other = make(), make()
        for step, value in enumerate(WALK[:stop]):
            one.update(value)
            if step % 17 == 16:
                one.miss()
        other.restore(json.loads(json.dumps(one.state(), allow_nan=False)))
        for step, value in enumerate(WALK[stop:]):
            one.update(value)
            other.update(value)
            if step % 19 == 18:
                one.miss()
                other.miss()
            _require(one.forecast() == other.forecast(), f"another forecast after {stop}, {step}")
            _require(one.method == other.method, f"another method after {stop}, {step}")


def check_saving_changes_nothing(make: Callable[[], Forecaster]) -> None:
    """Check that one whose state is taken after every value forecasts as one that never was."""
    saved, left_alone = make(), make()
    for value in WALK[:150]:
        saved.update(value)
        saved.state()
        left_alone.update(value)
        _require(saved.forecast() == left_alone.forecast(), "saving changed the forecast")


def check_what_is_no_state_is_refused(make: Callable[[], Forecaster]) -> None:
    """Check that restoring from something else raises ValueError."""
    for nonsense in NOT_A_STATE:
        try:
            make().restore(nonsense)
        except ValueError:
            continue
        raise AssertionError(f"{nonsense!r} was taken for a state")


def check_missing_a_value_keeps_it_safe(make: Callable[[], Forecaster]) -> None:
    """Check that missing values leave the forecast finite, and without a value there is none."""
    forecaster = make()
    forecaster.miss()
    try:
        forecaster.forecast()
    except LookupError:
        pass
    else:
        raise AssertionError("a forecast of nothing but missing values")
    for value in WALK[:100]:
        forecaster.update(value)
        forecaster.miss()
        _require(math.isfinite(forecaster.forecast()), f"{forecaster.forecast()} is forecast")


def check_the_nearest_rung_is_named(make: Callable[[], FrameForecaster]) -> None:
    """Check that an outlook names its horizon, and that more samples never give a nearer one."""
    forecaster = _fed(make())
    _require(forecaster.outlook(1).value == forecaster.forecast(), "outlook(1) is not forecast()")
    rungs = [forecaster.outlook(samples).horizon for samples in (0.3, 1, 2, 7, 15, 45, 90, 9999)]
    _require(rungs == sorted(rungs) and rungs[0] == 1, f"the rungs named are {rungs}")
    for rung in set(rungs):
        _require(forecaster.outlook(rung).horizon == rung, f"{rung} is not its own rung")


def check_an_outlook_stays_among_the_values(make: Callable[[], FrameForecaster]) -> None:
    """Check that the mean forecast lies between the least and the greatest value so far."""
    for values in (WALK, (0.0,) * 60 + (1.0,) * 60, tuple(range(150))):
        forecaster = make()
        for count, value in enumerate(values, start=1):
            forecaster.update(value)
            if count % 10 == 1:
                mean = forecaster.outlook(12).value
                _require(min(values[:count]) <= mean <= max(values[:count]), f"{mean}: outside")


def check_an_interval_is_in_order_and_wider_at_a_higher_level(
    make: Callable[[], FrameForecaster],
) -> None:
    """Check the ends, the level that is named, and that a wider one is not narrower."""
    forecaster = _fed(make())
    for samples in (1, 12, 60):
        narrow, wide = (forecaster.outlook(samples, level).interval for level in (0.5, 0.95))
        for interval in (narrow, wide):
            _require(interval.lower <= interval.upper, f"{interval} is upside down")
            _require(0 <= (interval.coverage or 0) <= 1, f"{interval} covers more than all")
        _require(
            narrow.upper - narrow.lower <= wide.upper - wide.lower, "a higher level is narrower"
        )


def check_a_frame_that_is_none_is_refused(make: Callable[[], FrameForecaster]) -> None:
    """Check that no samples, or a level of none or all, raise ValueError."""
    forecaster = _fed(make())
    for samples, level in (
        (0, 0.9),
        (-1, 0.9),
        (math.nan, 0.9),
        (1, 0.0),
        (1, 1.0),
        (1, math.nan),
    ):
        try:
            forecaster.outlook(samples, level)
        except ValueError:
            continue
        raise AssertionError(f"a frame of {samples} at level {level} was forecast")


def _fed(forecaster: FrameForecaster) -> FrameForecaster:
    for value in WALK:
        forecaster.update(value)
    return forecaster


def _require(condition: bool, promise: str) -> None:
    if not condition:
        raise AssertionError(promise)


STATE_CHECKS: Final = (
    check_a_restored_forecaster_goes_on_alike,
    check_saving_changes_nothing,
    check_what_is_no_state_is_refused,
    check_missing_a_value_keeps_it_safe,
)
FRAME_CHECKS: Final = (
    check_the_nearest_rung_is_named,
    check_an_outlook_stays_among_the_values,
    check_an_interval_is_in_order_and_wider_at_a_higher_level,
    check_a_frame_that_is_none_is_refused,
)
