"""Corrections of the model, learned from runs; each is used only while it improves the predictions.

The Network Weather Service lets its predictors compete by their errors so far. Here a correction competes with
the model without it. Before a run moves a correction, the value fitted to *earlier* runs and no correction at
all both predict that run. Two decayed means keep their absolute errors. The correction is used after
`MIN_TESTS` tests, or after a clear first test (`CLEAR`), while its mean error is the smaller of the two and it
was not worse in the newest test.

A correction in use is shrunk towards no correction by its evidence (`Evidence.shrinkage`) and kept within the
bound of its kind (`KINDS`).
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
"""Relative spread assumed after a single run, before a second run shows how much runs differ."""
MIN_SPREAD = 0.02
"""Least relative spread, even if all runs agree."""
MAX_STEP_SPREADS = 3.0
"""Largest deviation of a run, in spreads, that moves a value.

The spread itself uses the whole deviation, so that the value follows a lasting change within a few runs but not
a single spike.
"""
MAX_EFFECTIVE_RUNS = 6
"""Runs that count as evidence: with `EWMA_WEIGHT`, older runs have no weight left (2 / 0.3 - 1 = 5.7)."""
MIN_TESTS = 2
"""Tests before a correction is used: a correction from pure noise wins a single test in half of the cases."""
CLEAR = 0.5
"""A correction passes with its first test alone if its error is at most this part of the error without it."""
MAX_HOSTS = 1000
"""Stored hosts of the runs behind a correction; the newest are kept."""
DAY = 86400.0
LAST_MOMENT = 253402300799.0
"""The last second of the year 9999, the last one with a date."""

Finite = Annotated[float, Field(allow_inf_nan=False, ge=-MOST, le=MOST)]
NotNegative = Annotated[float, Field(allow_inf_nan=False, ge=0.0, le=MOST)]
Moment = Annotated[float, Field(allow_inf_nan=False, ge=0.0, le=LAST_MOMENT)]
Count = Annotated[int, Field(ge=0, le=10**9)]


def is_positive(value: Any) -> bool:
    """Return whether a value of a document or a run is a finite number above 0, within `LEAST` and `MOST`."""
    return (
        isinstance(value, (int, float)) and not isinstance(value, bool) and LEAST <= value <= MOST
    )


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of correction.

    Attributes
    ----------
    bound
        The largest factor either way; for corrections in seconds, the most seconds.
    half_life
        Seconds without a run after which half of a correction remains.
    reason
        Reason for the bound, in one sentence.
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
        """Return a value limited to the bound."""
        most = self.bound if self.in_seconds else math.log(self.bound)
        return min(max(value, -most if self.signed else 0.0), most)


SLOWDOWN, CO_RUN_SLOWDOWN, SHARE_BIAS = "slowdown", "co_run_slowdown", "share_bias"
STRAGGLER_FACTOR, BORDER_WAIT, START = "straggler_factor", "border_wait", "start"
LINK = "link"

SHARE_HALF_LIFE = 1800.0
"""Seconds after which half of a share bias is forgotten: competing programs come and go."""
SAME_LOAD = 1.25
"""If a forecast share changed by more than this factor, the load is another."""

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
    """The runs behind a correction, and its test results against the model without it.

    Attributes
    ----------
    runs
        Runs that taught it.
    first, last
        Seconds since the epoch of the first and the last of them.
    tested
        Runs that it predicted before they taught it.
    error_with, error_without
        Decayed means of the absolute errors of these predictions, with it and without it. The unit depends on
        the kind: logarithms of factors, or seconds for starts.
    age
        Seconds from the last run until the document was read.
    hosts
        Identities of the hosts of these runs, if the correction also applies to other hosts; else empty.
    worse
        Whether its error was the larger of the two in the newest test.

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
        """Whether it had enough tests to be used or rejected, or passed its first test clearly."""
        clear = self.tested > 0 and self.error_with <= CLEAR * self.error_without
        return self.tested >= MIN_TESTS or clear

    @property
    def helps(self) -> bool:
        """Whether it had enough tests, has the smaller mean error and was not worse in the newest test."""
        return self.decided and not self.worse and self.error_with < self.error_without

    @property
    def supposed(self) -> Evidence:
        """The evidence, counted as proven while its tests are undecided."""
        if self.decided:
            return self
        return replace(self, tested=MIN_TESTS, error_with=0.0, error_without=1.0, worse=False)

    @property
    def weight(self) -> float:
        """Weight of the next run in a moving average; the first few runs have equal weights."""
        return max(EWMA_WEIGHT, 1.0 / (self.runs + 1))

    def freshness(self, half_life: float) -> float:
        """Return the part of a correction that remains at its age, 0 to 1."""
        return float(0.5 ** (self.age / half_life))

    def shrinkage(self, value: float, spread: float, half_life: float) -> float:
        """Return the part of a value that its evidence supports, 0 to 1.

        It is n v^2 / (n v^2 + s^2) for n runs with mean v and standard deviation s (the empirical Bayes
        estimate with v^2 as the variance between corrections), times `freshness`.
        """
        signal = min(self.runs, MAX_EFFECTIVE_RUNS) * value**2
        supported = signal / (signal + spread**2) if signal else 0.0
        return supported * self.freshness(half_life)

    def shares_a_host(self, listed: Iterable[str]) -> bool:
        """Return whether a run on any of these hosts taught it."""
        return not set(self.hosts).isdisjoint(listed)

    def after(
        self, now: float, errors: tuple[float, float] | None, hosts: Iterable[str] = ()
    ) -> Evidence:
        """Return the evidence after another run.

        Parameters
        ----------
        errors
            Errors with and without the correction; None: not tested.
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

    The step is limited to `MAX_STEP_SPREADS` spreads; the spread uses the whole deviation.

    Parameters
    ----------
    scale
        Unit of relative spreads: 1 for logarithms, the value itself for seconds.
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
        Standard deviation of `value` from run to run, in the same unit.
    evidence
        Its runs and its test results.
    forecast
        For a share bias: the forecast share during its measurement. For a start: the host list's seconds. Else
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
        """Return the correction from a first run; it is not used before later runs test it."""
        value = KINDS[kind].limited(measured)
        spread = FIRST_SPREAD * (abs(forecast + value) if KINDS[kind].in_seconds else 1.0)
        return cls(kind, key, value, spread, Evidence().after(now, None, hosts), forecast)

    @classmethod
    def proven(cls, kind: str, key: Key, factor: float, forecast: float = 0.0) -> Correction:
        """Return a proven correction by this factor (or these seconds), without spread."""
        value = factor if KINDS[kind].in_seconds else math.log(factor)
        return cls(kind, key, value, 0.0, PROVEN, forecast)

    @property
    def candidate(self) -> float:
        """Its value, shrunk by its evidence and within its bound, in use or not."""
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
        """Relative standard deviation that it adds to the corrected term; 0 while it is not used."""
        return self.spread if self.evidence.helps else 0.0

    def of_load(self, forecast: float) -> bool:
        """Return whether a forecast share belongs to the load under which a share bias was measured."""
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
            Logarithm of measured over modelled (the model without this correction); or seconds.
        now
            Seconds since the epoch.
        errors
            Errors with and without it on this run. None: compare `candidate`, and no correction, with
            `measured`.
        forecast
            For a share bias: the forecast share of the run. For a start: the host list's seconds.
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
