"""The season of a series: what the same time of day, and the same hour of the week, brought before.

The history of the engine holds 896 values. This module remembers further back, for series with a period of a
minute or more, and corrects the forecasts of means where its past errors show that the season helps. A forecast
one step ahead never gains more than 1 % from it, so the first horizon has no season.

A season is two flat blocks beside those of the series: a profile of the day and one of the week, and for every
further horizon the weights of a regression. It forecasts how far the mean will lie from the engine's answer f0::

    x = (v - f0, a - p + v - f0, a + d - f0, a - f0, b - f0)

with the latest value v, the profile of the day p at its time, the profile's mean a over the times ahead, the mean
deviation d of the latest values from the profile, and the mean b of the profile of the week over the times ahead.
"""

from collections.abc import Sequence
from functools import cache
from math import sqrt
from typing import Any, Final

import numpy as np

from nws.engine import layout as at
from nws.engine import tick as step_of
from nws.engine.tick import Narrow, Starts, Whole, Wide, kernel

DAY, WEEK = 86_400.0, 604_800.0
MIN_PERIOD, MAX_PERIOD = 58.0, 22_000.0
"""Seconds between the values of a series that may have a season: a minute to six hours, both with jitter."""
MAX_SLOTS: Final = 288
HOURS: Final = 168
"""Slots of the profiles: at most one each five minutes of a day, and the hours of a week."""
R: Final = 5
"""Regressors of a correction."""
RING: Final = R + 5
"""Numbers that wait to be scored: the regressors, the engine's answers, the season's with its interval."""
PROFILE_GAIN: Final = 0.15
"""How far a slot of the day moves towards a new day, and half as far as one of the week towards a new week."""
MEMORY_DAYS, PATIENCE_DAYS = 30.0, 28.0
"""How long the test of the season remembers; and after how many days a season that never helped is given up."""
MIN_GAIN: Final = 0.02
MIN_STEADINESS: Final = 1.5
"""A season helps if its errors are smaller by this share, and by so many standard errors of the difference."""
PERIOD_GAIN: Final = 0.001
SLACK: Final = 0.1
"""A period that differs by more than this share of it starts a new season."""

HEAD: Final = at.placed(
    {
        "anchor": (),  # seconds, where the slots of the day and of the week start
        "period": (),
        "slots": (2,),  # of a day, of a week
        "ticks": (),
        "since": (),  # the first tick of the present stretch without a pause
        "helped": (),  # the ticks at the latest correction
        "mean": (),  # exponentially weighted over a day
        "variance": (),
        "slot": (2,),  # the present slot of the day, of the week
        "visits": (2,),  # values in it
        "latest": (),  # seconds, the time of the latest value
    }
)
SIZE: Final = HEAD["latest"].stop
HORIZON: Final = at.placed(
    {
        "scored": (),
        "mean_error": (2,),  # mean absolute, mean squared, of the season's answers
        "scale": (),
        "quantile": (at.L, 2),
        "covered": (at.L,),
        "count": (),  # the next are sums, discounted
        "error": (2,),  # absolute, of the engine's answer and of the season's
        "square": (2,),
        "gain": (2,),  # of the season, absolute; and the sum of the squares
        "w": (R,),
        "p": (R, R),
        "deviation": (),
        "value": (),  # the season's answer
        "helps": (2,),  # 1 if the season answers, for the criterion absolute, squared
    }
)
HORIZON_SIZE: Final = HORIZON["helps"].stop

ANCHOR, PERIOD, SLOTS, TICKS, SINCE, HELPED = (field.start for field in list(HEAD.values())[:6])
MEAN, VARIANCE, SLOT, VISITS, LATEST = (field.start for field in list(HEAD.values())[6:])
SCORED, MEAN_ERROR, SCALE, QUANTILE, COVERED = (
    field.start for field in list(HORIZON.values())[:5]
)
COUNT, ERROR, SQUARE, GAIN, W, P, DEVIATION, VALUE, HELPS = (
    field.start for field in list(HORIZON.values())[5:]
)
TRACKED: Final[Starts] = tuple(
    {step_of.SCALE: SCALE, step_of.QUANTILE: QUANTILE, step_of.COVERED: COVERED}.get(place, SCORED)
    for place in range(len(step_of.STEP_AT))
)
"""Offsets for `nws.engine.tick.track`."""
FINAL: Final = step_of.MEAN_AT[step_of.FINAL]
AUDITED: Final = QUANTILE + 2 * at.AUDITED_LEVEL
CLIP, MAX_RING = at.CLIP, at.MAX_SLOTS
FURTHER, FURTHER_SIZE, L = at.FURTHER, at.FURTHER_SIZE, at.L
LOW, HIGH, LAST = step_of.LOW, step_of.HIGH, step_of.EXPERT
MEAN_RATE, SCALE_GAIN = at.MEAN_RATE, at.SCALE_GAIN
clipped, latest_totals, regress, track = (
    step_of.clipped,
    step_of.latest_totals,
    step_of.regress,
    step_of.track,
)


@kernel
def slot_at(deep: Wide, seconds: float, week: bool) -> int:
    """Return the slot of a time, of the day or of the week, in seconds since the anchor."""
    which = 1 if week else 0
    span, slots = (WEEK if week else DAY), int(deep[SLOTS + which])
    # Half a slot of slack: a series is measured at the middle of its slots, so that jitter changes none.
    return int(seconds * slots / span + 0.5) % slots


@kernel
def take_in(deep: Wide, profile: Narrow, seconds: float, value: float, week: bool) -> None:
    """Move the profile of the day or of the week towards `value`."""
    which = 1 if week else 0
    slots = len(profile)
    span = WEEK if week else DAY
    slot, before = slot_at(deep, seconds, week), int(deep[SLOT + which])
    per_slot = max(1.0, span / (deep[PERIOD] * slots))
    deep[VISITS + which] = deep[VISITS + which] + 1.0 if slot == before else 1.0
    deep[SLOT + which] = slot
    if deep[TICKS] * deep[PERIOD] <= span:  # the first day, or week: means, over gaps too
        if slot != before:
            for back in range((slot - before) % slots):
                profile[(slot - back) % slots] = value
        else:
            away = value - float(profile[slot])
            profile[slot] = float(profile[slot]) + away / float(deep[VISITS + which])
    else:
        gain = min(1.0, PROFILE_GAIN * (2.0 if week else 1.0) / per_slot)
        profile[slot] = float(profile[slot]) + gain * (value - float(profile[slot]))


@kernel
def score_season(
    deep: Wide, b: Wide, kept: Narrow, actual: float, horizon: int, deviation: float, judged: bool
) -> None:
    """Score the answers that were kept for `actual`, and move the weights towards it."""
    every = max(1, horizon // MAX_RING)
    engine, squared, season = float(kept[R]), float(kept[R + 1]), float(kept[R + 2])
    if judged:
        b[SCORED] += 1.0
        error = actual - season
        share = 1.0 / float(b[SCORED])
        b[MEAN_ERROR] += share * (abs(error) - b[MEAN_ERROR])
        b[MEAN_ERROR + 1] += share * (error * error - b[MEAN_ERROR + 1])
        slower = sqrt(every / horizon)
        held = 1 if float(kept[R + 3]) <= actual <= float(kept[R + 4]) else 0
        track(b, TRACKED, error, MEAN_RATE * slower, SCALE_GAIN * slower, held, False)
        keep = 1.0 - every * float(deep[PERIOD]) / (MEMORY_DAYS * DAY)
        gain = abs(actual - engine) - abs(error)
        b[COUNT] = keep * b[COUNT] + 1.0
        b[ERROR] = keep * b[ERROR] + abs(actual - engine)
        b[ERROR + 1] = keep * b[ERROR + 1] + abs(error)
        b[SQUARE] = keep * b[SQUARE] + (actual - squared) * (actual - squared)
        b[SQUARE + 1] = keep * b[SQUARE + 1] + error * error
        b[GAIN] = keep * b[GAIN] + gain
        b[GAIN + 1] = keep * b[GAIN + 1] + gain * gain
    x = np.empty(R)
    for i in range(R):
        x[i] = clipped(float(kept[i]) / deviation, CLIP)
    z = clipped((actual - engine) / deviation, CLIP)
    regress(b[P : P + R * R].reshape(R, R), b[W : W + R], x, z)


@kernel
def judge(deep: Wide, b: Wide, horizon: int) -> None:
    """Decide whether the season answers: clearly smaller errors for a day, the errors of means being in runs."""
    every = max(1, horizon // MAX_RING)
    enough = b[COUNT] * every * deep[PERIOD] >= DAY
    steady = MIN_STEADINESS * sqrt(max(1.0, horizon / every) * b[GAIN + 1])
    helps = enough and b[ERROR + 1] < (1.0 - MIN_GAIN) * b[ERROR] and b[GAIN] > steady
    square = helps and b[SQUARE + 1] < (1.0 - 2.0 * MIN_GAIN) * b[SQUARE]
    b[HELPS] = 1.0 if helps else 0.0
    b[HELPS + 1] = 1.0 if square else 0.0
    if helps:
        deep[HELPED] = deep[TICKS]


@kernel
def correct(wide: Wide, b: Wide, x: Wide, engine: float, deviation: float) -> None:
    """Fill in the season's answer, the engine's corrected by the regression on `x`."""
    away = 0.0
    for i in range(R):
        away += float(b[W + i]) * clipped(float(x[i]) / deviation, CLIP)
    value = engine + deviation * clipped(away, CLIP)
    b[VALUE] = min(max(value, float(wide[LOW])), float(wide[HIGH]))


@kernel
def score_seasons(
    narrow: Narrow, deep: Wide, slim: Narrow, horizons: Whole, tick: int, deviation: float
) -> None:
    """Score the answers for the means that are complete by now."""
    ticks, period = float(deep[TICKS]), float(deep[PERIOD])
    totals, counts = latest_totals(narrow, tick)
    ring = MAX_SLOTS + HOURS
    for j in range(len(horizons) - 1):
        horizon = int(horizons[j + 1])
        every = max(1, horizon // MAX_RING)
        places = horizon // every
        kept = tick % every == 0 and tick - horizon >= deep[SINCE]
        if kept and 2.0 * counts[horizon - 1] >= horizon:
            slot = ring + RING * ((tick // every) % places)
            start = SIZE + j * HORIZON_SIZE
            score_season(
                deep,
                deep[start : start + HORIZON_SIZE],
                slim[slot : slot + RING],
                float(totals[horizon - 1]) / float(counts[horizon - 1]),
                horizon,
                deviation,
                (ticks - horizon) * period > 2.0 * DAY,
            )
        ring += RING * places


@kernel
def answer_seasons(
    wide: Wide,
    narrow: Narrow,
    deep: Wide,
    slim: Narrow,
    horizons: Whole,
    tick: int,
    seconds: float,
    deviation: float,
) -> None:
    """Answer every further horizon anew, and keep the answers until they are scored."""
    ticks, period, value = float(deep[TICKS]), float(deep[PERIOD]), float(wide[LAST])
    day = slim[: int(deep[SLOTS])]
    week = slim[MAX_SLOTS : MAX_SLOTS + int(deep[SLOTS + 1])]
    present = float(day[slot_at(deep, seconds, False)])
    x = np.zeros(R)
    day_ahead, week_ahead, ahead = 0.0, 0.0, 0
    ring = MAX_SLOTS + HOURS
    for j in range(len(horizons) - 1):
        horizon = int(horizons[j + 1])
        while ahead < horizon:
            ahead += 1
            day_ahead += float(day[slot_at(deep, seconds + ahead * period, False)])
            week_ahead += float(week[slot_at(deep, seconds + ahead * period, True)])
        start = SIZE + j * HORIZON_SIZE
        b = deep[start : start + HORIZON_SIZE]
        engine = FURTHER + j * FURTHER_SIZE + FINAL
        f, mean = float(narrow[engine]), day_ahead / horizon
        x[0] = value - f
        x[1] = mean - present + value - f
        x[2] = mean + float(b[DEVIATION]) - f
        x[3] = mean - f
        x[4] = week_ahead / horizon - f if ticks * period > WEEK else 0.0
        correct(wide, b, x, f, deviation)
        judge(deep, b, horizon)
        every = max(1, horizon // MAX_RING)
        places = horizon // every
        if tick % every == 0:
            slot = ring + RING * ((tick // every) % places)
            slim[slot : slot + R] = x
            slim[slot + R] = f
            slim[slot + R + 1] = narrow[engine + 1]
            slim[slot + R + 2] = b[VALUE]
            for end in range(2):
                slim[slot + R + 3 + end] = b[VALUE] + b[AUDITED + end] * b[SCALE]
        ring += RING * places


@kernel
def season_step(
    wide: Wide,
    narrow: Narrow,
    deep: Wide,
    slim: Narrow,
    horizons: Whole,
    tick: int,
    seconds: float,
    known: bool,
) -> None:
    """Take in the latest value of the series, of `seconds` since the anchor, after the engine's `step`.

    If the value is not `known`, only the answers that wait are scored.
    """
    value = float(wide[LAST])
    deep[TICKS] += 1.0
    if known:
        share = max(float(deep[PERIOD]) / DAY, 1.0 / float(deep[TICKS]))
        away = value - float(deep[MEAN])
        deep[MEAN] += share * away
        deep[VARIANCE] = (1.0 - share) * (float(deep[VARIANCE]) + share * away * away)
    deviation = sqrt(deep[VARIANCE])
    whole_day = deep[TICKS] * deep[PERIOD] > DAY and deviation > 0
    if whole_day:
        score_seasons(narrow, deep, slim, horizons, tick, deviation)
    if known:
        day = slim[: int(deep[SLOTS])]
        week = slim[MAX_SLOTS : MAX_SLOTS + int(deep[SLOTS + 1])]
        take_in(deep, day, seconds, value, False)
        take_in(deep, week, seconds, value, True)
        present = float(day[slot_at(deep, seconds, False)])
        for j in range(len(horizons) - 1):
            place = SIZE + j * HORIZON_SIZE + DEVIATION
            deep[place] += (value - present - float(deep[place])) / horizons[j + 1]
    if whole_day:
        answer_seasons(wide, narrow, deep, slim, horizons, tick, seconds, deviation)
    else:
        deep[SINCE] = tick + 1.0  # no answer is kept


@cache
def compiled_season() -> Any:
    """Return `season_step` in machine code. ImportError: numba is not installed."""
    edition = step_of.edition_of("layout.py", "tick.py", "season.py")

    def season_once(
        wide: Wide,
        narrow: Narrow,
        deep: Wide,
        slim: Narrow,
        horizons: Whole,
        tick: int,
        seconds: float,
        known: bool,
    ) -> int:
        season_step(wide, narrow, deep, slim, horizons, tick, seconds, known)
        return edition

    return step_of.compiled(season_once)


def may_repeat(period: float | None) -> bool:
    """Return whether a regular series of this period may have a season."""
    return period is not None and MIN_PERIOD <= period <= MAX_PERIOD


class Season:
    """The two blocks of a season.

    Parameters
    ----------
    horizons
        As of the forecaster; the first has no season.
    time
        Of the first value, in seconds.
    period
        Seconds between two values.
    tick
        The first tick of the series with a season.
    """

    def __init__(self, horizons: Sequence[int], time: float, period: float, tick: int) -> None:
        places = sum(at.slots(horizon) for horizon in horizons[1:])
        self.deep = np.zeros(SIZE + (len(horizons) - 1) * HORIZON_SIZE)
        self.slim = np.zeros(MAX_SLOTS + HOURS + RING * places, dtype=np.float32)
        self.deep[ANCHOR], self.deep[PERIOD], self.deep[SINCE] = time, period, tick
        self.deep[SLOTS] = min(MAX_SLOTS, round(DAY / period))
        self.deep[SLOTS + 1] = min(HOURS, round(WEEK / period))
        self.deep[LATEST] = time
        self.deep[SLOT : SLOT + 2] = -1.0
        normal = np.array([0.845, 1.606, 2.061, 2.456])
        for place in range(1, len(horizons)):
            fields = self.of(place)
            fields["p"][:] = 0.1 * np.eye(R)
            fields["quantile"][:] = np.stack([-normal, normal], axis=1)

    def of(self, place: int) -> dict[str, Any]:
        """Return the fields of the horizon at this place, from 1, by name: views."""
        block = self.deep[SIZE + (place - 1) * HORIZON_SIZE :]
        return {name: field.of(block) for name, field in HORIZON.items()}

    def continues(self, time: float, period: float) -> bool:
        """Return whether a value of this time and period continues the season."""
        own = float(self.deep[PERIOD])
        return time >= float(self.deep[LATEST]) and abs(period - own) <= SLACK * own

    def advance(self, time: float) -> float:
        """Go on to `time`; return the seconds since the anchor, less whole weeks."""
        period, distance = float(self.deep[PERIOD]), time - float(self.deep[LATEST])
        if abs(distance - period) < period / 2:
            # The period that starts the season is the median of a few distances: too coarse for 120 values ahead.
            share = max(1.0 / (self.deep[TICKS] + 1.0), PERIOD_GAIN)
            self.deep[PERIOD] += share * (distance - period)
        self.deep[LATEST] = time
        return (time - float(self.deep[ANCHOR])) % WEEK

    def pause(self, tick: int) -> None:
        """Score no answer from before `tick`: a value came without a time."""
        self.deep[SINCE] = tick

    @property
    def useless(self) -> bool:
        """Whether it never helped for `PATIENCE_DAYS`."""
        idle = float(self.deep[TICKS] - self.deep[HELPED])
        return idle * float(self.deep[PERIOD]) > PATIENCE_DAYS * DAY

    @property
    def is_sound(self) -> bool:
        """Whether the head of a restored season is one that `season_step` can continue."""
        day, week = self.deep[SLOTS : SLOTS + 2].tolist()
        whole = day == int(day) and week == int(week)
        slots = whole and 4 <= day <= MAX_SLOTS and 28 <= week <= HOURS
        return slots and 0.9 * MIN_PERIOD < float(self.deep[PERIOD]) < 1.1 * MAX_PERIOD
