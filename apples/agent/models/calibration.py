"""Calibration: measured speed functions per host and application version, and what runs taught since.

`apples calibrate` stores the kernel's measured seconds per point at several strip sizes. Each run then
says how much slower or faster the host really was and how much of the modelled communication it saw;
both are exponential moving averages, so that a machine that changed is predicted well after a few runs.

The state document keeps the keys of its first version: ``pace`` is `Learned.slowdown`, ``company`` is
`Learned.co_run_slowdown`, ``drag`` is `Learned.straggler_factor` (``drag_of``: by the set that taught it);
``share`` is `Learned.share_bias`, ``runs`` what was promised of each run and what came.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from apples.agent.models.conformal import KEPT_RUNS, PastRun
from apples.agent.models.corrections import (
    EWMA_WEIGHT,
    PLAIN,
    Overlap,
    ShareBias,
    bounded,
    ewma,
    ewma_spread,
    is_positive,
)
from apples.agent.models.links import NO_LINKS, LearnedLinks, MeasuredBorder
from apples.agent.models.model import SpeedFunction
from apples.io import state
from apples.resources import Host
from apples.weather.conditions import Conditions

MOST_SETS = 32
"""So many sets of hosts are remembered with the straggler factor they taught."""
ONE_SET_BELIEVED = 1.3
"""A larger straggler factor may be something else that one set of hosts has; two sets must agree on it."""
ROUNDING = 1e-9
"""A larger strip never takes less time, but for rounding."""


@dataclass(frozen=True, slots=True)
class ShareMeasurement:
    """What a run measured of a host's share of a CPU.

    Attributes
    ----------
    ratio
        Measured over predicted share, the prediction with the share bias that was known.
    forecast
        The forecast share of one new process that it was predicted from.
    """

    ratio: float
    forecast: float


@dataclass(frozen=True)
class RunObservation:
    """What one run showed beside its prediction; what is empty or None it did not show.

    Attributes
    ----------
    hosts
        Identities of its hosts.
    slowdown
        By host: measured over predicted compute seconds, the prediction including the slowdown so far.
    co_run_slowdown
        The same of calibrated hosts in a run of several.
    speeds
        By host whose speed had been assumed: the implementation it ran, and the speed that the run measured.
    shares
        By host: the share of a CPU that it got.
    overlap
        Measured over predicted communication seconds, likewise.
    longest_border
        Seconds of the longest border, modelled without overlap; 0 where the model does not say.
    borders
        What the program measured of its borders.
    messages
        Of one border, one way.
    straggler_factor
        Factor on how long the hosts are busy, computing and at their borders, that explains the iteration time.
        One below 1 counts as 1: no lateness of hosts makes an iteration shorter.
    past
        What was promised of the run and what came.
    """

    hosts: Sequence[str] = ()
    slowdown: Mapping[str, float] = field(default_factory=dict)
    co_run_slowdown: Mapping[str, float] = field(default_factory=dict)
    speeds: Mapping[str, tuple[str, SpeedFunction]] = field(default_factory=dict)
    shares: Mapping[str, ShareMeasurement] = field(default_factory=dict)
    overlap: float | None = None
    longest_border: float = 0.0
    borders: Sequence[MeasuredBorder] = ()
    messages: float = 1.0
    straggler_factor: float | None = None
    past: PastRun | None = None


@dataclass(frozen=True)
class Learned:
    """What is remembered of one application version.

    Attributes
    ----------
    speeds
        Measured speed functions: host (`Host.identity`) -> implementation -> function.
    slowdown
        Measured over modelled compute time, by host, from runs.
    co_run_slowdown
        The same beside `slowdown` for a calibrated host that is not alone: it shares memory and caches then.
    links
        What runs measured of links.
    overlap
        Measured over modelled communication time, from runs: for links that no run measured.
    straggler_factor
        Factor on how long hosts are busy, computing and at their borders, that is left between the model and the
        iterations of past runs: in each iteration some host is late, and not always the same one.
    straggler_of
        The same by set of hosts, as the runs of that set taught it; of one host, how much longer its ranks take
        for meeting one another, and of one by threads (`by_threads`) its threads.
    spread
        Relative standard deviation of each host's `slowdown` from run to run.
    overlap_spread
        The same of `overlap`.
    starts
        By launcher, by host: seconds from the launch until the program was ready there.
    runs
        What was promised of each past run and what came, oldest first.
    share_bias
        Measured over forecast share of a CPU, by host, as far as it is still believed.
    """

    speeds: Mapping[str, Mapping[str, SpeedFunction]] = field(default_factory=dict)
    slowdown: Mapping[str, float] = field(default_factory=dict)
    overlap: Overlap = PLAIN
    straggler_factor: float = 1.0
    straggler_of: Mapping[frozenset[str], float] = field(default_factory=dict)
    spread: Mapping[str, float] = field(default_factory=dict)
    overlap_spread: float = 0.0
    runs: Sequence[PastRun] = ()
    co_run_slowdown: Mapping[str, float] = field(default_factory=dict)
    links: LearnedLinks = NO_LINKS
    starts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    share_bias: Mapping[str, ShareBias] = field(default_factory=dict)

    @property
    def coverage(self) -> float | None:
        """Share of past runs that ended inside the promised interval."""
        held = [run.inside for run in self.runs if run.inside is not None]
        return sum(held) / len(held) if held else None

    def runs_of(self, set_class: str) -> Sequence[PastRun]:
        """Return the past runs of one class of sets, oldest first."""
        return [run for run in self.runs if run.set_class == set_class]

    def co_run_slowdown_of(self, hosts: Iterable[Host]) -> dict[str, float]:
        """Return the co-run slowdowns by the hosts' names; hosts without one are left out."""
        return {
            h.name: self.co_run_slowdown[h.identity]
            for h in hosts
            if h.identity in self.co_run_slowdown
        }

    def share_bias_of(self, conditions: Conditions, *, threads: bool = False) -> dict[str, float]:
        """Return the factors on the forecast shares by the hosts' names; hosts without one are left out."""
        place = by_threads if threads else str
        known = ((h, self.share_bias.get(place(h.identity))) for h in conditions.hosts)
        factors = {h.name: bias.at(conditions.cpu(h).value) for h, bias in known if bias}
        return {name: factor for name, factor in factors.items() if factor != 1.0}

    def straggler_factor_of(self, hosts: Sequence[Host], *, threads: bool = False) -> float:
        """Return the factor of a set of hosts: its own if it ran, else what is believed of any set of several."""
        place = by_threads if threads else str
        own = self.straggler_of.get(frozenset(place(host.identity) for host in hosts))
        believed = self.straggler_factor if len(hosts) > 1 else 1.0
        return believed if own is None else own

    def speed(
        self, host: str, implementation: str, *, threads: bool = False
    ) -> SpeedFunction | None:
        """Return the speed function of a host, corrected by its runs; None when never calibrated."""
        measured = self.speeds.get(host, {}).get(implementation)
        if measured is None:
            return None
        place = by_threads(host) if threads else host
        corrected = measured.scaled(self.slowdown.get(place, 1.0))
        spread = math.hypot(measured.error, self.spread.get(place, 0.0))
        return replace(corrected, error=spread)


def by_threads(host: str) -> str:
    """Return under which name is remembered what runs by threads taught of a host: of ranks it is another.

    Where the system gives sessions equal shares of a CPU, ranks are several and the threads of a process are one.

    Examples
    --------
    >>> by_threads("ada")
    'ada+threads'
    """
    return f"{host}+threads"


def document_name(application: str, version: str) -> str:
    """Return the name of the state document of one application version."""
    safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in f"{application}-{version}")
    return f"learned-{safe}"


def recall(application: str, version: str, clock: Callable[[], float] = time.time) -> Learned:
    """Return what is remembered of an application version; entries that make no sense are left out.

    Parameters
    ----------
    clock
        Seconds since the epoch: what is known of shares is forgotten with time.
    """
    document = state.read(document_name(application, version))
    speeds: dict[str, dict[str, SpeedFunction]] = {}
    for host, by_implementation in _mapping(document.get("speeds")).items():
        for implementation, entry in _mapping(by_implementation).items():
            function = _speed_function(entry)
            if function is not None:
                speeds.setdefault(host, {})[implementation] = function
    overlap = Overlap.recalled(document.get("overlap"))
    by_set = _factors(document.get("drag_of"))
    return Learned(
        speeds,
        _factors(document.get("pace")),
        overlap,
        max(1.0, _believed(document)),
        {frozenset(hosts.split(" ")): max(1.0, factor) for hosts, factor in by_set.items()},
        _factors(document.get("spread")),
        _factor(document.get("overlap_spread"), 0.0) if overlap.points else 0.0,
        _past_runs(document.get("runs")),
        _factors(document.get("company")),
        LearnedLinks.recalled(document.get("links")),
        {launcher: _starts(one) for launcher, one in _mapping(document.get("starts")).items()},
        _share_biases(document.get("share"), clock()),
    )


def store_speeds(
    application: str, version: str, host: str, measured: Mapping[str, SpeedFunction]
) -> None:
    """Remember the speed functions of a host; what its runs taught about the old ones is forgotten.

    Earlier speeds of implementations that are not `measured` now stay. If none is, nothing changes.
    """
    if not measured:
        return

    def change(document: state.Document) -> state.Document:
        functions = {name: _stored_speed(function) for name, function in measured.items()}
        speeds = _mapping(document.get("speeds"))
        document["speeds"] = {**speeds, host: {**_mapping(speeds.get(host)), **functions}}
        _forget(document, host, ("pace", "spread", "company", "share"))
        return document

    state.update(document_name(application, version), change)


def learn(
    application: str,
    version: str,
    run: RunObservation,
    clock: Callable[[], float] = time.time,
) -> None:
    """Remember what one run showed; `clock` says the seconds since the epoch."""

    def change(document: state.Document) -> state.Document:
        _learn_speeds(document, run)
        _learn_slowdowns(document, run)
        _learn_borders(document, run)
        _learn_straggler_factor(document, run)
        _learn_shares(document, run, clock())
        if run.past is not None:
            document["runs"] = [*_sequence(document.get("runs")), run.past.stored()][-KEPT_RUNS:]
        return document

    state.update(document_name(application, version), change)


def _learn_straggler_factor(document: state.Document, run: RunObservation) -> None:
    """Move the factor, and remember it for the set that taught it."""
    if run.straggler_factor is None:
        return
    factor, hosts = max(1.0, run.straggler_factor), " ".join(sorted(run.hosts))
    if len(run.hosts) != 1:
        known = document.get("drag")
        document["drag"] = ewma(known, factor / _factor(known))
    by_set = _factors(document.get("drag_of"))
    before = by_set.pop(hosts, None)
    by_set[hosts] = ewma(before, factor / _factor(before))
    document["drag_of"] = dict(list(by_set.items())[-MOST_SETS:])


def _believed(document: Mapping[str, Any]) -> float:
    """Return the straggler factor, no larger than `ONE_SET_BELIEVED` unless two sets of hosts taught as much."""
    by_set = _factors(document.get("drag_of")).items()
    several = sorted((factor for hosts, factor in by_set if " " in hosts), reverse=True)
    second = several[1] if len(several) > 1 else 1.0
    return min(_factor(document.get("drag")), max(ONE_SET_BELIEVED, second))


def learn_starts(
    application: str, version: str, launcher: str, hosts: Sequence[Host], seconds: float
) -> None:
    """Remember how long after its launch a run was ready, on all of its hosts.

    It is ready when the slowest of them is. So none took longer: what is remembered of one that is believed slower
    moves down, and of one never seen it is taken. And one of them took that long: where all are believed quicker,
    the slowest moves up. Which one it was shows in runs without it.
    """

    def change(document: state.Document) -> state.Document:
        by_launcher = {
            name: _starts(one) for name, one in _mapping(document.get("starts")).items()
        }
        known = by_launcher.setdefault(launcher, {})
        identities = [host.identity for host in hosts]
        slowest = max((known[each] for each in identities if each in known), default=0.0)
        unseen = any(each not in known for each in identities)
        for each in identities:
            before = known.get(each)
            if before is None:
                known[each] = seconds
            elif before > seconds or (before == slowest and not unseen):
                known[each] = before + EWMA_WEIGHT * (seconds - before)
        document["starts"] = by_launcher
        return document

    if math.isfinite(seconds) and seconds >= 0:
        state.update(document_name(application, version), change)


def _starts(value: Any) -> dict[str, float]:
    return {k: float(v) for k, v in _mapping(value).items() if is_positive(v) or v == 0}


def _share_biases(stored: Any, now: float) -> dict[str, ShareBias]:
    recalled = ((host, ShareBias.recalled(one, now)) for host, one in _mapping(stored).items())
    return {host: bias for host, bias in recalled if bias is not None}


def _past_runs(stored: Any) -> tuple[PastRun, ...]:
    recalled = (PastRun.recalled(entry) for entry in _sequence(stored)[-KEPT_RUNS:])
    return tuple(run for run in recalled if run is not None)


def _learn_speeds(document: state.Document, run: RunObservation) -> None:
    speeds = dict(_mapping(document.get("speeds")))
    for host, (implementation, function) in run.speeds.items():
        speeds[host] = {**_mapping(speeds.get(host)), implementation: _stored_speed(function)}
        _forget(document, host, ("pace", "spread", "company"))
    document["speeds"] = speeds


def _forget(document: state.Document, host: str, fields: Sequence[str]) -> None:
    """Forget what runs taught of a host beside a speed that holds no longer."""
    for name in fields:
        others = _mapping(document.get(name)).items()
        its = {host, by_threads(host)}
        document[name] = {other: value for other, value in others if other not in its}


def _learn_slowdowns(document: state.Document, run: RunObservation) -> None:
    spread = _factors(document.get("spread"))
    for name, taught in (("pace", run.slowdown), ("company", run.co_run_slowdown)):
        known = _factors(document.get(name))
        for host, ratio in taught.items():
            if is_positive(ratio):
                spread[host] = ewma_spread(spread.get(host), ratio, host not in known)
                known[host] = ewma(known.get(host), ratio)
        document[name] = known
    document["spread"] = spread


def _learn_borders(document: state.Document, run: RunObservation) -> None:
    if run.overlap is not None and is_positive(run.overlap):
        before = Overlap.recalled(document.get("overlap"))
        spread = document.get("overlap_spread") if before.points else None
        document["overlap_spread"] = ewma_spread(spread, run.overlap, not before.points)
        document["overlap"] = before.taught(run.overlap, run.longest_border).stored()
    if run.borders:
        links = LearnedLinks.recalled(document.get("links")).taught(run.borders, run.messages)
        document["links"] = links.stored()


def _learn_shares(document: state.Document, run: RunObservation, now: float) -> None:
    if run.shares:
        biases = _share_biases(document.get("share"), now)
        for host, one in run.shares.items():
            biases[host] = biases.get(host, ShareBias()).taught(one.ratio, one.forecast)
        document["share"] = {host: bias.stored(now) for host, bias in biases.items()}


def _stored_speed(function: SpeedFunction) -> Mapping[str, Any]:
    return {
        "rows": function.rows,
        "seconds_per_point": function.seconds_per_point,
        "error": function.error,
        "columns": function.columns,
        "memory": function.memory if math.isfinite(function.memory) else None,
        "points": function.points,
    }


def _speed_function(entry: Any) -> SpeedFunction | None:
    entry = _mapping(entry)
    rows = [float(r) for r in _sequence(entry.get("rows")) if is_positive(r)]
    points = [float(s) for s in _sequence(entry.get("seconds_per_point")) if is_positive(s)]
    error = entry.get("error", 0.0)
    if not rows or len(rows) != len(points) or rows != sorted(set(rows)):
        return None
    times = [r * s for r, s in zip(rows, points, strict=True)]
    if any(more < less * (1 - ROUNDING) for less, more in pairwise(times)):
        return None
    error = float(error) if is_positive(error) else 0.0
    columns, memory, grid = entry.get("columns", 0), entry.get("memory"), entry.get("points")
    return SpeedFunction(
        tuple(rows),
        tuple(points),
        error,
        int(columns) if is_positive(columns) else 0,
        float(memory) if is_positive(memory) else math.inf,
        float(grid) if is_positive(grid) else 0.0,
    )


def _factor(value: Any, unknown: float = 1.0) -> float:
    return bounded(value) if is_positive(value) else unknown


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else []


def _factors(value: Any) -> dict[str, float]:
    return {k: bounded(v) for k, v in _mapping(value).items() if is_positive(v)}
