"""Corrections of the model, learned from runs, each used only while it predicts better than the model without it.

The Network Weather Service lets its predictors compete by their errors so far. Here a correction competes with
its own absence. Before a run moves a correction, the value fitted to *earlier* runs and no correction at all both
predict that run. Two decayed means keep their absolute errors. The correction is used after `MIN_TESTS` tests,
or after a first one that was clear (`CLEAR`), while its mean error is the smaller one and it was not worse in the
newest test.

A correction in use is shrunk towards none by its evidence (`Correction.shrinkage`) and kept within the bound of
its kind (`KINDS`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field

from apples.resources import LEAST, MOST

EWMA_WEIGHT = 0.3
"""Least weight of the newest run in a moving average; the tenth last run still counts 4 %."""
FIRST_SPREAD = 0.1
"""Relative spread taken after a single run, before the next one shows how much runs differ."""
MIN_SPREAD = 0.02
"""Relative spread that remains however well runs agree."""
MAX_STEP_SPREADS = 3.0
"""A run moves a value by its weight of at most this many spreads. The spread takes the whole deviation, so that a
change that lasts is followed within a few runs and a single spike is not."""
MAX_EFFECTIVE_RUNS = 6
"""Runs that count as evidence: with `EWMA_WEIGHT`, older runs have no weight left (2 / 0.3 - 1 = 5.7)."""
MIN_TESTS = 2
"""Tests before a correction is used: a correction of mere noise wins one test in half of the cases."""
CLEAR = 0.5
"""Part of the error without a correction up to which its first test alone is enough."""
MAX_HOSTS = 1000
"""Hosts that are remembered as those of the runs of a correction, the newest."""
DAY = 86400.0
LAST_MOMENT = 253402300799.0
"""The last second of the year 9999, the last one with a date."""

Finite = Annotated[float, Field(allow_inf_nan=False, ge=-MOST, le=MOST)]
NotNegative = Annotated[float, Field(allow_inf_nan=False, ge=0.0, le=MOST)]
Moment = Annotated[float, Field(allow_inf_nan=False, ge=0.0, le=LAST_MOMENT)]
Count = Annotated[int, Field(ge=0, le=10**9)]


def is_positive(value: Any) -> bool:
    """Whether a value of a document or a run is a finite number above 0, within `LEAST` and `MOST`."""
    return (
        isinstance(value, (int, float)) and not isinstance(value, bool) and LEAST <= value <= MOST
    )


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of correction.

    Attributes
    ----------
    bound
        The largest factor either way; of corrections in seconds, the most seconds.
    half_life
        Seconds after which half of an unused correction is left.
    reason
        The reason of the bound, one sentence.
    in_seconds
        Whether the value is in seconds. Else it is the logarithm of a factor.
    signed
        Whether the value may be below 0. A wait may not.
    """

    bound: float
    half_life: float
    reason: str
    in_seconds: bool = False
    signed: bool = True

    def limited(self, value: float) -> float:
        """Return a value, no further from none than the bound."""
        most = self.bound if self.in_seconds else math.log(self.bound)
        return min(max(value, -most if self.signed else 0.0), most)


SLOWDOWN, CO_RUN_SLOWDOWN, SHARE_BIAS = "slowdown", "co_run_slowdown", "share_bias"
STRAGGLER_FACTOR, BORDER_WAIT, START = "straggler_factor", "border_wait", "start"
LINK = "link"

SHARE_HALF_LIFE = 1800.0
"""Seconds after which half of a share bias is forgotten: competing programs come and go."""
SAME_LOAD = 1.25
"""A forecast share that has moved further than this factor is that of another load."""

KINDS: Mapping[str, Kind] = {
    SLOWDOWN: Kind(
        4.0, 30 * DAY, "clock rates and memory contention slow a CPU by at most about 4"
    ),
    CO_RUN_SLOWDOWN: Kind(
        4.0, 30 * DAY, "the cores of a machine share a memory that a few of them saturate"
    ),
    SHARE_BIAS: Kind(
        4.0, SHARE_HALF_LIFE, "a larger error of a forecast share is another load, not a bias"
    ),
    STRAGGLER_FACTOR: Kind(
        2.0, 30 * DAY, "the longest of 30 times that vary by 30 % is 1.6 times their mean"
    ),
    LINK: Kind(30.0, 7 * DAY, "a shaped link passes its burst at the speed of the network card"),
    BORDER_WAIT: Kind(
        1.0,
        30 * DAY,
        "a quota of the CPU has a period of at most 1 s",
        in_seconds=True,
        signed=False,
    ),
    START: Kind(600.0, 30 * DAY, "a launch that takes longer fails", in_seconds=True),
}
"""The kinds of corrections by name."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The runs behind a correction, and its contest with the model without it.

    Attributes
    ----------
    runs
        Runs that taught it.
    first, last
        Seconds since the epoch of the first and the last of them.
    tested
        Runs that it predicted before they taught it.
    error_with, error_without
        Decayed means of the absolute errors of these predictions, with it and without it. The unit is that of the
        kind: logarithms of factors, or seconds for starts.
    age
        Seconds from the last run to the moment at which the document was read.
    hosts
        Identities of the hosts of these runs, where the correction holds for other hosts too; else empty.
    worse
        Whether its error was the larger one in the newest test.

    Examples
    --------
    >>> Evidence(3, tested=2, error_with=0.1, error_without=0.4).helps
    True
    >>> Evidence(2, tested=1, error_with=0.1, error_without=0.4).helps
    True
    >>> Evidence(2, tested=1, error_with=0.3, error_without=0.4).helps
    False
    """

    runs: Count = 0
    first: Moment = 0.0
    last: Moment = 0.0
    tested: Count = 0
    error_with: NotNegative = 0.0
    error_without: NotNegative = 0.0
    age: NotNegative = 0.0
    hosts: tuple[str, ...] = ()
    worse: bool = False

    @property
    def decided(self) -> bool:
        """Whether it was tested often enough to be used or rejected, or passed its first test clearly."""
        clear = self.tested > 0 and self.error_with <= CLEAR * self.error_without
        return self.tested >= MIN_TESTS or clear

    @property
    def helps(self) -> bool:
        """Whether it was tested often enough, has the smaller mean error and was not worse in the newest test."""
        return self.decided and not self.worse and self.error_with < self.error_without

    @property
    def supposed(self) -> Evidence:
        """The evidence as if it had passed its tests, unless these have decided."""
        if self.decided:
            return self
        return replace(self, tested=MIN_TESTS, error_with=0.0, error_without=1.0, worse=False)

    @property
    def weight(self) -> float:
        """Weight of the next run in a moving average: the first few runs count alike."""
        return max(EWMA_WEIGHT, 1.0 / (self.runs + 1))

    def freshness(self, half_life: float) -> float:
        """Return the part of a correction that is left after its age, 0 to 1."""
        return float(0.5 ** (self.age / half_life))

    def shrinkage(self, value: float, spread: float, half_life: float) -> float:
        """Return the part of a value that its evidence supports, 0 to 1.

        n v^2 / (n v^2 + s^2) for n runs with mean v and standard deviation s (the empirical Bayes estimate with
        v^2 as the variance between corrections), times what its age leaves of it.
        """
        signal = min(self.runs, MAX_EFFECTIVE_RUNS) * value**2
        supported = signal / (signal + spread**2) if signal else 0.0
        return supported * self.freshness(half_life)

    def shares_a_host(self, listed: Iterable[str]) -> bool:
        """Return whether a host of these identities taught it."""
        return not set(self.hosts).isdisjoint(listed)

    def after(
        self, now: float, errors: tuple[float, float] | None, hosts: Iterable[str] = ()
    ) -> Evidence:
        """Return the evidence after another run.

        Parameters
        ----------
        errors
            With and without the correction; None: not tested.
        hosts
            Identities of the hosts of the run, as `Evidence.hosts`.
        """
        tested, with_it, without = self.tested, self.error_with, self.error_without
        worse = self.worse
        if errors is not None:
            weight = max(EWMA_WEIGHT, 1.0 / (tested + 1))
            with_it += weight * (min(errors[0], MOST) - with_it)
            without += weight * (min(errors[1], MOST) - without)
            tested, worse = tested + 1, errors[0] > errors[1]
        first = self.first if self.runs else now
        newest = tuple(dict.fromkeys([*self.hosts, *hosts]))[-MAX_HOSTS:]
        return Evidence(self.runs + 1, first, now, tested, with_it, without, 0.0, newest, worse)


UNTESTED = Evidence()
"""Before the first run."""
PROVEN = Evidence(MAX_EFFECTIVE_RUNS, tested=MIN_TESTS, error_with=0.0, error_without=1.0)
"""Evidence of a correction that has passed its tests, for example of a what-if question."""


def stepped(
    value: float, spread: float, measured: float, weight: float, scale: float = 1.0
) -> tuple[float, float]:
    """Return a moving average and its spread after a measurement.

    The step is limited to `MAX_STEP_SPREADS` spreads, the spread takes the whole deviation.

    Parameters
    ----------
    scale
        What relative spreads are relative to: 1 of logarithms, the value of seconds.
    """
    deviation = measured - value
    least = MIN_SPREAD * scale
    most = MAX_STEP_SPREADS * max(spread, least)
    step = min(max(deviation, -most), most)
    wider = math.sqrt((1 - EWMA_WEIGHT) * spread**2 + EWMA_WEIGHT * deviation**2)
    return value + weight * step, max(wider, least)


Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Correction:
    """A correction of one term of the model, for one host or set of hosts.

    Attributes
    ----------
    kind
        One of `KINDS`.
    key
        Identities of its hosts (`Host.identity`); of a start, the launcher and the host.
    value
        Logarithm of the factor, or seconds; before shrinkage. Of a start: seconds beyond the host list's.
    spread
        Standard deviation of `value` from run to run, same unit.
    evidence
        Its runs and its contest.
    forecast
        Of a share bias: the forecast share that it was measured under; of a start: the host list's seconds. Else
        0.

    Examples
    --------
    Two runs find a host 1.5 times as slow. The second tests the first:

    >>> known = Correction.first("slowdown", ("ada",), math.log(1.5), 0.0)
    >>> known.factor, known.evidence.tested
    (1.0, 0)
    >>> known = known.after(math.log(1.5), 10.0)
    >>> round(known.factor, 2), known.evidence.tested
    (1.49, 1)
    """

    kind: str
    key: Key
    value: Finite = 0.0
    spread: NotNegative = FIRST_SPREAD
    evidence: Evidence = UNTESTED
    forecast: NotNegative = 0.0

    @classmethod
    def first(
        cls,
        kind: str,
        key: Key,
        measured: float,
        now: float,
        forecast: float = 0.0,
        hosts: Iterable[str] = (),
    ) -> Correction:
        """Return the correction that a first run teaches; it is not used before later runs test it."""
        value = KINDS[kind].limited(measured)
        spread = FIRST_SPREAD * (abs(forecast + value) if KINDS[kind].in_seconds else 1.0)
        return cls(kind, key, value, spread, Evidence().after(now, None, hosts), forecast)

    @classmethod
    def proven(cls, kind: str, key: Key, factor: float, forecast: float = 0.0) -> Correction:
        """Return a correction by this factor (or these seconds) that has passed its tests, without spread."""
        value = factor if KINDS[kind].in_seconds else math.log(factor)
        return cls(kind, key, value, 0.0, PROVEN, forecast)

    @property
    def candidate(self) -> float:
        """Its value, shrunk by its evidence and within its bound, whether it is used or not."""
        kind = KINDS[self.kind]
        part = self.evidence.shrinkage(self.value, self.spread, kind.half_life)
        return kind.limited(part * self.value)

    @property
    def factor(self) -> float:
        """The factor to multiply by: 1 while the model predicts better without it."""
        return math.exp(self.candidate) if self.evidence.helps else 1.0

    @property
    def seconds(self) -> float:
        """The seconds to add: 0 while the model predicts better without them."""
        return self.candidate if self.evidence.helps else 0.0

    @property
    def error(self) -> float:
        """Relative standard deviation that it adds to what it corrects; 0 while it is not used."""
        return self.spread if self.evidence.helps else 0.0

    def of_load(self, forecast: float) -> bool:
        """Whether a forecast share is of the load that a share bias was measured beside."""
        return max(forecast, self.forecast) <= SAME_LOAD * min(forecast, self.forecast)

    def after(
        self,
        measured: float,
        now: float,
        errors: tuple[float, float] | None = None,
        forecast: float = 0.0,
        hosts: Iterable[str] = (),
    ) -> Correction:
        """Return the correction after another run.

        Parameters
        ----------
        measured
            Logarithm of measured over modelled, the model without this correction; or seconds.
        now
            Seconds since the epoch.
        errors
            Errors with and without it on this run; None: those of `candidate` and of none against `measured`.
        forecast
            Of a share bias: the forecast share of the run. Of a start: the host list's seconds.
        hosts
            Identities of the hosts of the run, as `Evidence.hosts`.
        """
        kind = KINDS[self.kind]
        if errors is None:
            errors = (abs(measured - self.candidate), abs(measured))
        known = self.value * self.evidence.freshness(kind.half_life)
        scale = abs(forecast + known) if kind.in_seconds else 1.0
        measured = kind.limited(measured)
        value, spread = stepped(known, self.spread, measured, self.evidence.weight, scale)
        return replace(
            self,
            value=value,
            spread=spread,
            evidence=self.evidence.after(now, errors, hosts),
            forecast=forecast,
        )
