"""The learned state of an application in one document: measured speeds, corrections, links, past runs.

A document belongs to one application: its name, its version and the folder of its template. A copy of the
application in another folder therefore begins without a document. `Learned` is the document as a value;
`taught` is the rule by which a run changes it; `recall`, `learn` and `store_speeds` read and write it.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from apples.agent.models.conformal import KEPT_RUNS, PastRun
from apples.agent.models.corrections import (
    BORDER_WAIT,
    CO_RUN_SLOWDOWN,
    KINDS,
    SHARE_BIAS,
    SLOWDOWN,
    START,
    STRAGGLER_FACTOR,
    Correction,
    Key,
    is_positive,
)
from apples.agent.models.links import LearnedLink, LearnedLinks, MeasuredBorder, Pair, pair_of
from apples.agent.models.model import SpeedFunction
from apples.io import state
from apples.resources import Host
from apples.weather.conditions import Conditions

MAX_CORRECTIONS = 1000
"""Stored corrections; the corrections with the oldest last run are dropped first."""
ANY_SET: Key = ()
"""Key of the straggler factor for sets of several hosts without a run of their own."""
MIN_SETS = 2
"""Number of different sets that must have taught the straggler factor of any set before it is used.

The lateness in one set may be special to it, and a factor on every set of several hosts moves plans to one
host.
"""
ROUNDING = 1e-9
"""Tolerance of the rule that a larger strip never takes less time."""
PREFIX = "learned-"
FORMAT = 1
"""Format of the documents; documents of another format are ignored."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LearnedKey:
    """The application that a document belongs to.

    Attributes
    ----------
    application, version
        Name and version of the template. folder Folder of the template, resolved.

    Examples
    --------
    >>> LearnedKey("heat", "1", "/home/ada/heat").document
    'learned-heat-1-4ed319c5'
    """

    application: str
    version: str
    folder: str

    @classmethod
    def of(cls, application: str, version: str, folder: Path) -> LearnedKey:
        """Return the key of an application, with the folder of its template."""
        return cls(application, version, str(folder.resolve()))

    @property
    def document(self) -> str:
        """Name of the state document."""
        name = f"{self.application}-{self.version}"
        safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in name)
        return f"{PREFIX}{safe}-{hashlib.sha256(self.folder.encode()).hexdigest()[:8]}"


@dataclass(frozen=True, slots=True)
class ShareMeasurement:
    """The share of a CPU that a run measured on a host.

    Attributes
    ----------
    ratio
        Measured over forecast share; the forecast is without a share bias.
    forecast
        The forecast share of one new process.
    """

    ratio: float
    forecast: float


@dataclass(frozen=True, slots=True)
class WaitMeasurement:
    """The wait for a throttled host at one border.

    Attributes
    ----------
    seconds
        Measured seconds of a border in excess of its link, at most one standstill of the host.
    error_with, error_without
        Errors of the modelled border with the wait learned so far and without it, in logarithms.
    """

    seconds: float
    error_with: float
    error_without: float


@dataclass(frozen=True)
class RunObservation:
    """The measurements of one run in relation to the model; an empty field or None was not measured.

    Each ratio is measured over modelled; the model excludes the correction that the ratio teaches. Hosts are
    given by identity; for threads, by the key of `by_threads`.

    Attributes
    ----------
    hosts
        Hosts of the run.
    listed
        Identities of all hosts of the host list; the hosts of the run are added.
    slowdown
        Ratio of compute seconds, by host.
    co_run_slowdown
        The same ratio for calibrated hosts in a run on several hosts; the model includes the slowdown.
    speeds
        Implementation and speed measured by the run, by host; only for hosts without an earlier measurement.
    shares
        Measured CPU share, by host. borders Borders long enough to measure a link.
    messages
        Messages of one border, one way.
    waits
        Wait at the borders, by throttled host.
    straggler_factor
        Factor on the modelled busy seconds of hosts (computing and borders) that explains the iteration time.
        The model includes the other corrections, updated by this run. A factor below 1 counts as 1, because
        lateness cannot make an iteration shorter.
    iteration
        The same factor with the other corrections as before this run, and not limited to 1. The straggler
        factor is tested on it, so that a factor that only hides another error of the model is not used.
    past
        The prediction of the run and its time.
    """

    hosts: Sequence[str] = ()
    listed: Collection[str] = ()
    slowdown: Mapping[str, float] = field(default_factory=dict)
    co_run_slowdown: Mapping[str, float] = field(default_factory=dict)
    speeds: Mapping[str, tuple[str, SpeedFunction]] = field(default_factory=dict)
    shares: Mapping[str, ShareMeasurement] = field(default_factory=dict)
    borders: Sequence[MeasuredBorder] = ()
    messages: float = 1.0
    waits: Mapping[str, WaitMeasurement] = field(default_factory=dict)
    straggler_factor: float | None = None
    iteration: float | None = None
    past: PastRun | None = None


Corrections = Mapping[tuple[str, Key], Correction]


def by_kind_and_key(corrections: Iterable[Correction]) -> Corrections:
    """Return a mapping of corrections by kind and key."""
    return {(known.kind, known.key): known for known in corrections}


@dataclass(frozen=True)
class Learned:
    """The learned state of one application.

    Attributes
    ----------
    speeds
        Measured speed functions: host (`Host.identity`) -> implementation -> function.
    corrections
        Corrections by kind and key, both in use and still under test.
    links
        Measured links, both in use and still under test.
    runs
        Past runs, oldest first.
    """

    speeds: Mapping[str, Mapping[str, SpeedFunction]] = field(default_factory=dict)
    corrections: Corrections = field(default_factory=dict)
    links: LearnedLinks = field(default_factory=LearnedLinks)
    runs: Sequence[PastRun] = ()

    @property
    def coverage(self) -> float | None:
        """Share of past runs that ended inside their printed interval; None if no interval was printed."""
        held = [run.inside for run in self.runs if run.inside is not None]
        return sum(held) / len(held) if held else None

    def runs_of(self, set_class: str) -> Sequence[PastRun]:
        """Return the past runs of one class of sets, oldest first."""
        return [run for run in self.runs if run.set_class == set_class]

    def factor(self, kind: str, *key: str) -> float:
        """Return the factor of a correction; 1 if it is unknown or not in use."""
        known = self.corrections.get((kind, key))
        return known.factor if known else 1.0

    def co_run_slowdown_of(self, hosts: Iterable[Host]) -> dict[str, float]:
        """Return the co-run slowdowns in use by the hosts' names."""
        factors = {host.name: self.factor(CO_RUN_SLOWDOWN, host.identity) for host in hosts}
        return {name: factor for name, factor in factors.items() if factor != 1.0}

    def share_bias_of(self, conditions: Conditions, *, threads: bool = False) -> dict[str, float]:
        """Return the share biases in use, by the hosts' names, without those measured under another load."""
        place = by_threads if threads else str
        factors: dict[str, float] = {}
        for host in conditions.hosts:
            known = self.corrections.get((SHARE_BIAS, (place(host.identity),)))
            if known and known.of_load(conditions.cpu(host).value) and known.factor != 1.0:
                factors[host.name] = known.factor
        return factors

    def border_waits_of(self, hosts: Iterable[Host]) -> dict[str, float]:
        """Return the border waits in use, in seconds, by the hosts' names."""
        known = ((host, self.corrections.get((BORDER_WAIT, (host.identity,)))) for host in hosts)
        waits = {host.name: wait.seconds for host, wait in known if wait}
        return {name: seconds for name, seconds in waits.items() if seconds}

    def straggler_factor_of(self, hosts: Sequence[Host], *, threads: bool = False) -> float:
        """Return the straggler factor of a set of hosts: its own if a run tested it, else that of any set."""
        place = by_threads if threads else str
        own = self.corrections.get((STRAGGLER_FACTOR, set_key(place(h.identity) for h in hosts)))
        if own is None or not own.evidence.tested:
            own = self.corrections.get((STRAGGLER_FACTOR, ANY_SET)) if len(hosts) > 1 else None
        return max(1.0, own.factor) if own is not None and self.in_use(own) else 1.0

    def in_use(self, known: Correction) -> bool:
        """Return whether the model uses a correction: it helps, and several sets taught it if it is for any."""
        if not known.evidence.helps or (known.kind, known.key) != (STRAGGLER_FACTOR, ANY_SET):
            return known.evidence.helps
        taught_by = set(known.evidence.hosts)
        sets = [
            key
            for kind, key in self.corrections
            if kind == STRAGGLER_FACTOR and len(key) > 1 and taught_by.issuperset(key)
        ]
        return len(sets) >= MIN_SETS

    def starts(self, launcher: str) -> dict[tuple[str, float], float]:
        """Return the learned seconds from the launch until a host is ready, as far as they are in use.

        The key is the host's identity and the host list's seconds (0: not listed). A start that was learned
        with other seconds in the list is not used.
        """
        return {
            (known.key[1], known.forecast): max(0.0, known.forecast + known.seconds)
            for known in self.corrections.values()
            if known.kind == START and known.key[0] == launcher and known.evidence.helps
        }

    def speed(
        self, host: str, implementation: str, *, threads: bool = False
    ) -> SpeedFunction | None:
        """Return the speed function of a host, corrected by its runs; None if it was never measured."""
        measured = self.speeds.get(host, {}).get(implementation)
        if measured is None:
            return None
        known = self.corrections.get((SLOWDOWN, (by_threads(host) if threads else host,)))
        if known is None:
            return measured
        error = math.hypot(measured.error, known.error)
        return replace(measured.scaled(known.factor), error=error)

    def among(self, hosts: Iterable[Host]) -> Learned:
        """Return the part of the learned state that applies to a host list.

        A link between two sites, or the straggler factor of any set, applies if the list has a host that taught
        it: another list may use the same names for other sites.
        """
        listed = {host.identity for host in hosts}
        corrections = dict(self.corrections)
        known = corrections.get((STRAGGLER_FACTOR, ANY_SET))
        if known and not known.evidence.shares_a_host(listed):
            del corrections[STRAGGLER_FACTOR, ANY_SET]
        return replace(self, corrections=corrections, links=self.links.among(listed))

    def without_corrections(self) -> Learned:
        """Return the measured speeds and past runs alone."""
        return Learned(self.speeds, runs=self.runs)

    @property
    def supposed(self) -> Learned:
        """The state for fitting straggler factors: all other corrections that no test rejected."""
        corrections = {
            place: replace(known, evidence=known.evidence.supposed)
            for place, known in self.corrections.items()
            if known.kind != STRAGGLER_FACTOR
        }
        return replace(self, corrections=corrections, links=self.links.supposed)

    def of_hosts(self, identities: Collection[str]) -> Learned:
        """Return the part of these hosts: their speeds, corrections that name any of them, and their links."""
        part = {*identities, *map(by_threads, identities)}
        return Learned(
            {host: known for host, known in self.speeds.items() if host in part},
            {
                place: known
                for place, known in self.corrections.items()
                if not part.isdisjoint(_hosts_of(*place))
            },
            LearnedLinks(
                {
                    pair: link
                    for pair, link in self.links.hosts.items()
                    if not part.isdisjoint(pair)
                }
            ),
            self.runs,
        )

    def without_host(self, identity: str) -> Learned:
        """Return the state without a host: its speeds, its links, and each correction that names it."""
        return Learned(
            {host: known for host, known in self.speeds.items() if host != identity},
            {
                key: known
                for key, known in self.corrections.items()
                if not {identity, by_threads(identity)}.intersection(_hosts_of(*key))
            },
            LearnedLinks(
                {pair: link for pair, link in self.links.hosts.items() if identity not in pair},
                self.links.sites,
            ),
            self.runs,
        )

    @property
    def identities(self) -> list[str]:
        """Identities of all hosts in the state, sorted."""
        named = set(self.speeds)
        for kind, key in self.corrections:
            named.update(_hosts_of(kind, key))
        named.update(identity for pair in self.links.hosts for identity in pair)
        return sorted({name.removesuffix(THREADS) for name in named})


def _hosts_of(kind: str, key: Key) -> Key:
    """Return the host identities in the key of a correction; the key of a start begins with the launcher."""
    return key[1:] if kind == START else key


THREADS = "+threads"


def by_threads(host: str) -> str:
    """Return the key of a host's corrections for threads, which differ from those for ranks.

    If the system gives sessions equal shares of a CPU, each rank counts as a session, but all threads of a
    process together as one.

    Examples
    --------
    >>> by_threads("ada")
    'ada+threads'
    """
    return f"{host}{THREADS}"


def set_key(hosts: Iterable[str]) -> Key:
    """Return the key of a set of hosts, independent of their order."""
    return tuple(sorted(hosts))


def taught(learned: Learned, run: RunObservation, now: float) -> Learned:
    """Return the learned state after a run.

    A speed measured by a run never replaces a calibrated speed: a calibration measures more sizes. A new speed
    of a host removes the slowdowns that earlier runs taught.
    """
    speeds = {host: dict(known) for host, known in learned.speeds.items()}
    corrections = dict(learned.corrections)
    for host, (implementation, function) in run.speeds.items():
        if implementation not in speeds.setdefault(host, {}):
            speeds[host][implementation] = function
            _forget(corrections, host, (SLOWDOWN, CO_RUN_SLOWDOWN))
    _teach_hosts(corrections, run, now)
    _teach_straggler_factor(corrections, run, now)
    links = learned.links
    if run.borders:
        links = links.taught(run.borders, run.messages, now, run.listed)
    runs = learned.runs if run.past is None else (*learned.runs, run.past)[-KEPT_RUNS:]
    return Learned(speeds, dict(list(corrections.items())[-MAX_CORRECTIONS:]), links, runs)


def _teach_hosts(
    corrections: dict[tuple[str, Key], Correction], run: RunObservation, now: float
) -> None:
    """Update slowdowns, share biases and border waits."""
    for kind, ratios in ((SLOWDOWN, run.slowdown), (CO_RUN_SLOWDOWN, run.co_run_slowdown)):
        for host, ratio in ratios.items():
            if is_positive(ratio):
                _teach(corrections, kind, (host,), math.log(ratio), now)
    for host, share in run.shares.items():
        if is_positive(share.ratio):
            known = corrections.get((SHARE_BIAS, (host,)))
            if known and not known.of_load(share.forecast):
                del corrections[SHARE_BIAS, (host,)]  # it was measured under another load
            value = math.log(share.ratio)
            _teach(corrections, SHARE_BIAS, (host,), value, now, forecast=share.forecast)
    for host, wait in run.waits.items():
        errors = (wait.error_with, wait.error_without)
        _teach(corrections, BORDER_WAIT, (host,), wait.seconds, now, errors)


def _teach_straggler_factor(
    corrections: dict[tuple[str, Key], Correction], run: RunObservation, now: float
) -> None:
    """Update the factor of the run's set and, for several hosts, the factor of any set."""
    if run.straggler_factor is None or not is_positive(run.straggler_factor):
        return
    value, own = math.log(max(1.0, run.straggler_factor)), set_key(run.hosts)
    for key in {own, own if len(run.hosts) == 1 else ANY_SET}:
        known, errors = corrections.get((STRAGGLER_FACTOR, key)), None
        hosts = run.hosts if key == ANY_SET else ()
        if known and key == ANY_SET and not known.evidence.shares_a_host((*run.listed, *hosts)):
            del corrections[STRAGGLER_FACTOR, key]  # it belongs to another host list
        elif known is not None and run.iteration is not None and is_positive(run.iteration):
            off = math.log(run.iteration)
            errors = (abs(off - known.candidate), abs(off))
        _teach(corrections, STRAGGLER_FACTOR, key, value, now, errors, hosts=hosts)


def _teach(
    corrections: dict[tuple[str, Key], Correction],
    kind: str,
    key: Key,
    measured: float,
    now: float,
    errors: tuple[float, float] | None = None,
    forecast: float = 0.0,
    hosts: Sequence[str] = (),
) -> None:
    """Update one correction and make it the newest."""
    known = corrections.pop((kind, key), None)
    corrections[kind, key] = (
        known.after(measured, now, errors, forecast, hosts)
        if known
        else Correction.first(kind, key, measured, now, forecast, hosts)
    )


def _forget(
    corrections: dict[tuple[str, Key], Correction], host: str, kinds: Sequence[str]
) -> None:
    """Remove the corrections of a replaced speed."""
    for kind in kinds:
        for place in (host, by_threads(host)):
            corrections.pop((kind, (place,)), None)


def taught_start(
    learned: Learned, launcher: str, hosts: Sequence[Host], seconds: float, now: float
) -> Learned:
    """Return the learned state after a start; its seconds are those of its slowest host.

    A correction is the difference to the seconds of the host list (0: not listed). If the list has other
    seconds now, the correction begins anew. No host took longer than the whole start, so a larger remembered
    value moves down, and a new host gets these seconds. If all remembered values are smaller, the largest moves
    up. Later runs without that host show whether it was the cause.
    """
    corrections = dict(learned.corrections)
    listed = {host.identity: host.start_seconds or 0.0 for host in hosts}
    remembered: dict[str, float] = {}
    predicted = dict(listed)
    for identity, start in listed.items():
        known = corrections.get((START, (launcher, identity)))
        if known and known.forecast == start:
            remembered[identity] = start + known.value
            predicted[identity] = max(0.0, start + known.candidate)
        elif known:
            del corrections[START, (launcher, identity)]
    slowest = max(remembered.values(), default=0.0)
    errors = (
        abs(seconds - max(predicted.values(), default=0.0)),
        abs(seconds - max(listed.values(), default=0.0)),
    )
    for identity, start in listed.items():
        own = remembered.get(identity, math.inf)
        blamed = own > seconds or (own == slowest and len(remembered) == len(listed))
        measured = (seconds if blamed else own) - start
        _teach(corrections, START, (launcher, identity), measured, now, errors, start)
    return replace(learned, corrections=corrections)


# ---------------------------------------------------------------- the document
def recall(
    key: LearnedKey,
    clock: Callable[[], float] = time.time,
    hosts: Iterable[Host] | None = None,
) -> Learned:
    """Return the learned state of an application, without invalid entries.

    Parameters
    ----------
    clock
        Seconds since the epoch, for the age of corrections.
    hosts
        Hosts of the list: return only the part that applies to them (`Learned.among`). None: all.
    """
    known = parsed(state.read(key.document), clock())
    return known if hosts is None else known.among(hosts)


def store_speeds(key: LearnedKey, host: str, measured: Mapping[str, SpeedFunction]) -> None:
    """Store the speed functions of a host and remove the corrections of its old speeds.

    Earlier speeds of implementations that are not in `measured` stay. With an empty `measured` nothing changes.
    """
    if not measured:
        return

    def change(learned: Learned, now: float) -> Learned:
        del now
        corrections = dict(learned.corrections)
        _forget(corrections, host, (SLOWDOWN, CO_RUN_SLOWDOWN, SHARE_BIAS))
        speeds = {**learned.speeds, host: {**learned.speeds.get(host, {}), **measured}}
        return replace(learned, speeds=speeds, corrections=corrections)

    _update(key, change)


def learn(key: LearnedKey, run: RunObservation, clock: Callable[[], float] = time.time) -> None:
    """Store the measurements of a run; `clock` returns the seconds since the epoch."""
    _update(key, lambda learned, now: taught(learned, run, now), clock)


def learn_starts(
    key: LearnedKey,
    launcher: str,
    hosts: Sequence[Host],
    seconds: float,
    clock: Callable[[], float] = time.time,
) -> None:
    """Store the seconds from the launch of a run until all of its hosts were ready."""
    if math.isfinite(seconds) and seconds >= 0:
        _update(
            key, lambda learned, now: taught_start(learned, launcher, hosts, seconds, now), clock
        )


def _update(
    key: LearnedKey,
    change: Callable[[Learned, float], Learned],
    clock: Callable[[], float] = time.time,
) -> None:
    """Read, change and write a document under its lock."""

    def changed(document: state.Document) -> state.Document:
        now = clock()
        return stored(key, change(parsed(document, now), now))

    state.update(key.document, changed)


@dataclass(frozen=True, slots=True)
class _Adapters:
    """Check and write the entries of a document."""

    correction: TypeAdapter[Correction]
    link: TypeAdapter[LearnedLink]
    run: TypeAdapter[PastRun]


@cache
def _adapters() -> _Adapters:
    """Return the adapters, built when a document is first read: a static plan reads none."""
    return _Adapters(TypeAdapter(Correction), TypeAdapter(LearnedLink), TypeAdapter(PastRun))


def _entries(adapter: TypeAdapter[T], values: Any) -> Iterator[T]:
    """Yield the valid entries of a list."""
    for value in values if isinstance(values, list) else ():
        try:
            yield adapter.validate_python(value)
        except ValidationError:
            continue


def parsed(document: Mapping[str, Any], now: float) -> Learned:
    """Return the learned state in a document; `now` is the time in seconds since the epoch."""
    if document.get("format") != FORMAT:
        return Learned()
    speeds: dict[str, dict[str, SpeedFunction]] = {}
    for host, by_implementation in _mapping(document.get("speeds")).items():
        for implementation, entry in _mapping(by_implementation).items():
            function = _speed_function(entry)
            if function is not None:
                speeds.setdefault(host, {})[implementation] = function
    corrections = [
        replace(known, evidence=_aged(known, now))
        for known in _entries(_adapters().correction, document.get("corrections"))
        if known.kind in KINDS and (known.kind != START or len(known.key) == 2)
    ]
    return Learned(
        speeds,
        by_kind_and_key(corrections[-MAX_CORRECTIONS:]),
        LearnedLinks(
            _links(document.get("host_links"), now), _links(document.get("site_links"), now)
        ),
        tuple(_entries(_adapters().run, document.get("runs")))[-KEPT_RUNS:],
    )


def _aged(known: Correction | LearnedLink, now: float) -> Any:
    return replace(known.evidence, age=max(0.0, now - known.evidence.last))


def _links(values: Any, now: float) -> dict[Pair, LearnedLink]:
    return {
        pair_of(*link.between): replace(link, evidence=_aged(link, now))
        for link in _entries(_adapters().link, values)
    }


def stored(key: LearnedKey, learned: Learned) -> state.Document:
    """Return a learned state as a document."""

    def dumped(adapter: TypeAdapter[T], values: Iterable[T]) -> list[Any]:
        age = {"evidence": {"age"}}
        return [adapter.dump_python(value, mode="json", exclude=age) for value in values]

    return {
        "format": FORMAT,
        "application": key.application,
        "version": key.version,
        "folder": key.folder,
        "speeds": {
            host: {name: _stored_speed(function) for name, function in known.items()}
            for host, known in learned.speeds.items()
        },
        "corrections": dumped(_adapters().correction, learned.corrections.values()),
        "host_links": dumped(_adapters().link, learned.links.hosts.values()),
        "site_links": dumped(_adapters().link, learned.links.sites.values()),
        "runs": dumped(_adapters().run, learned.runs),
    }


def documents(clock: Callable[[], float] = time.time) -> Iterator[tuple[LearnedKey, Learned]]:
    """Yield the stored learned state of every application, sorted by name."""
    for name in state.names(PREFIX):
        document = state.read(name)
        names = [document.get(part) for part in ("application", "version", "folder")]
        if document.get("format") == FORMAT and all(isinstance(part, str) for part in names):
            key = LearnedKey(*map(str, names))
            if key.document == name:
                yield key, parsed(document, clock())


def forget(key: LearnedKey) -> None:
    """Remove the document of an application."""
    state.remove(key.document)


def forget_host(key: LearnedKey, identity: str) -> None:
    """Remove a host from the document of an application."""
    _update(key, lambda learned, _: learned.without_host(identity))


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


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else []
