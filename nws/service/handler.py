"""The request handler: what all routes share, and the answers made of it."""

import asyncio
import contextlib
import itertools
import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, fields
from importlib import metadata
from itertools import pairwise
from operator import itemgetter
from statistics import median_low
from typing import Any, Final

import numpy as np

from nws.clique.sites import cliques_of
from nws.errors import InputError
from nws.forecast import Forecast, Interval
from nws.forecasters.scored import FEWEST_FOR_INTERVAL
from nws.memory.archive import Slot
from nws.memory.column import SeriesColumn
from nws.memory.journal import BusyError, LogError
from nws.memory.journalled import Submission
from nws.service.arrival_order import ArrivalOrder
from nws.service.database import CURRENT, Arrivals, ForecastDatabase
from nws.service.events import EventBroker
from nws.service.messages import (
    MOST_REASONS,
    CliqueAnswer,
    LeaseAnswer,
    NetworkForecast,
    Receipt,
    SeriesLeague,
    SeriesRange,
    ServiceStatus,
)
from nws.service.metrics import MetricsPage, in_slices
from nws.service.registry import Lease, LeaseRegistry
from nws.weather import assembled, entry

CLIQUE_PERIOD: Final = 120.0
"""Seconds in which every member of a clique gets a turn (NWS 2.x: DEFAULT_CLIQUE_PERIOD)."""
# One fdatasync can take a minute while the disk is busy with mkfs or an unmount. Sending a batch
# again is safe.
DISK_SECONDS: Final = 20.0
SAVE_SECONDS: Final = 300.0
ROLL_UP_SECONDS: Final = 30.0
"""How long a batch waits for the disk before its sender is told to send it again."""
VERSION: Final = metadata.version("apples")
MOST_AT_ONCE: Final = 250
"""Rows that are checked before others get a turn."""
MOST_PROBLEMS: Final = 50
MOST_PAGES: Final = 4
"""Questions for which a page of metrics is kept from scrape to scrape."""
NOTHING_ARCHIVED: Final = "nothing is archived"
PER_PAGE: Final = 100
LISTING_ORDERS: Final = ("series", "value", "age")
MOST_PLACES: Final = 100_000
BESIDE: Final = 16
"""Slots at an end of a grid that tell how often it was measured there."""
LATE: Final = 1.5
"""Usual spacings without a measurement after which one is missing."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ListingQuery:
    """What is asked of the list of series.

    Attributes
    ----------
    words
        All of them must be in a name.
    order
        One of `LISTING_ORDERS`.
    descending
        Whether the last, the largest, the oldest come first.
    page
        From 1; one that is not there is the nearest that is.
    """

    words: str = ""
    order: str = "series"
    descending: bool = False
    page: int = 1


@dataclass(frozen=True, slots=True)
class SeriesListing:
    """A page of the list.

    Attributes
    ----------
    columns
        At most `PER_PAGE`.
    found, total
        How many series the words are in, and how many there are.
    page, pages
        Which page it is, of how many; there is one at least.
    """

    columns: Sequence[SeriesColumn]
    found: int
    total: int
    page: int
    pages: int


async def listed(
    columns: Sequence[SeriesColumn], query: ListingQuery, now: float
) -> SeriesListing:
    """Return the part of the series, given in the order of their names, that is asked for."""
    words = query.words.lower().split()
    found = list(columns)
    if words:
        names = await in_slices(columns, lambda column: column.text.lower())
        fits = await in_slices(names, lambda name: all(word in name for word in words))
        found = [column for column, fit in zip(columns, fits, strict=True) if fit]
    if query.order == "series":
        found = found[::-1] if query.descending else found
    else:
        keys = np.array(
            await in_slices(
                found,
                (lambda column: column.latest)
                if query.order == "value"
                else (lambda column: now - column.seen(now)),
            ),
            dtype=float,
        )
        order = np.argsort(-keys if query.descending else keys, kind="stable")
        found = [found[place] for place in order.tolist()]
    pages = max(1, -(-len(found) // PER_PAGE))
    page = min(max(1, query.page), pages)
    shown = found[(page - 1) * PER_PAGE : page * PER_PAGE]
    return SeriesListing(shown, len(found), len(columns), page, pages)


@dataclass(frozen=True, slots=True)
class RegularGrid:
    """What was measured in each place of a grid; a gap has no mean and a count of 0.

    Attributes
    ----------
    times
        One a place. Of measurements alone the middle: a place takes those that are nearer to its
        time than to any other. With slots of the archive the beginning, a multiple of the step.
    means, lows, highs, counts
        Of what was measured in it.
    partial
        The times of the first and the last place, where measuring began or ended within: their
        mean is not that of the whole place.
    """

    times: list[float] = field(default_factory=list)
    means: list[float | None] = field(default_factory=list)
    lows: list[float | None] = field(default_factory=list)
    highs: list[float | None] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    partial: list[float] = field(default_factory=list)


def on_grid(slots: Sequence[Slot], step: float) -> RegularGrid:
    """Return what was measured on a grid of `step` seconds from the first slot to the last.

    No value is ever carried over a gap.

    Parameters
    ----------
    slots
        In the order of time; a measurement is a slot of 0 s.
    step
        Seconds from place to place, > 0.

    Raises
    ------
    ValueError
        A step that is not positive, or more than 100,000 places.

    Examples
    --------
    >>> measured = [Slot(at, 0.0, 1, at, at, at) for at in (0.0, 10.4, 30.0)]
    >>> grid = on_grid(measured, step=10.0)
    >>> grid.times, grid.means
    ([0.0, 10.0, 20.0, 30.0], [0.0, 10.4, None, 30.0])
    >>> minutes = [Slot(60.0 * n, 60.0, 6, 0.5, 0.1, 0.9) for n in range(7, 62)]
    >>> hours = on_grid(minutes, step=3600.0)
    >>> hours.times, hours.counts, hours.partial
    ([0.0, 3600.0], [318, 12], [0.0, 3600.0])
    """
    if not (step > 0 and math.isfinite(step)):
        raise InputError(
            f"must be a positive number of seconds (is {step})",
            code="value-range",
            field="step",
            value=step,
        )
    if not slots:
        return RegularGrid()
    summed = any(slot.step for slot in slots)
    first = slots[0].start
    begin = math.floor(first / step) * step if summed else first - step / 2

    def place_of(slot: Slot) -> int:
        return math.floor((slot.start + slot.step / 2 - begin) / step)

    count = place_of(slots[-1]) + 1
    if count > MOST_PLACES:
        raise InputError(
            f"gives {count} places, more than {MOST_PLACES}; use a longer step",
            code="value-range",
            field="step",
            value=count,
            bound=MOST_PLACES,
        )
    found: dict[int, list[Slot]] = {}
    for slot in slots:
        found.setdefault(place_of(slot), []).append(slot)
    grid = RegularGrid()
    for place in range(count):
        held = found.get(place, [])
        mean, low, high = _band(held)
        grid.times.append(begin + place * step + (0.0 if summed else step / 2))
        grid.means.append(mean)
        grid.lows.append(low)
        grid.highs.append(high)
        grid.counts.append(sum(slot.count for slot in held))
    # Of the slots beside an end: its own may hold less.
    early = min(_spacing(slots[1:BESIDE]), _spacing(slots[:BESIDE]))
    late = min(_spacing(slots[-BESIDE:-1]), _spacing(slots[-BESIDE:]))
    edges = set()
    if _start(slots[0], early) - begin > LATE * early:
        edges.add(grid.times[0])
    if begin + count * step - _stop(slots[-1], late) > LATE * late:
        edges.add(grid.times[-1])
    grid.partial.extend(sorted(edges))
    return grid


def _band(slots: list[Slot]) -> tuple[float | None, float | None, float | None]:
    """Return mean, low and high of slots together."""
    if not slots:
        return None, None, None
    total = sum(slot.count for slot in slots)
    mean = math.fsum(slot.mean * (slot.count / total) for slot in slots)
    low, high = min(slot.low for slot in slots), max(slot.high for slot in slots)
    return min(max(mean, low), high), low, high


def _spacing(slots: Sequence[Slot]) -> float:
    """Return the usual seconds from one measurement to the next; infinity where nothing tells."""
    found = [slot.step / slot.count for slot in slots if slot.step]
    found += [b.start - a.start for a, b in pairwise(slots) if not (a.step or b.step)]
    return median_low(found) if found else math.inf


def _start(slot: Slot, spacing: float) -> float:
    """Return when measuring began in the first slot: as many as it holds, it holds at its end."""
    return slot.start + max(0.0, slot.step - slot.count * spacing) if slot.step else slot.start


def _stop(slot: Slot, spacing: float) -> float:
    """Return when measuring ended in the last slot: as many as it holds, it holds at its beginning."""
    return slot.start + min(slot.step, slot.count * spacing) if slot.step else slot.start


@dataclass
class RequestHandler:
    """One running service.

    Attributes
    ----------
    database
        Memory and forecasters.
    secret
        What the endpoints of probing hosts ask of each other.
    period
        Of the cliques, in seconds.
    monotonic, clock
        Seconds that only go forward, for leases; seconds since the epoch.
    own_process
        Whether nothing but the service runs in this process; then the garbage collector leaves
        alone what follows the series, and whatever else there is.
    failing
        What of the work beside the requests failed the last time, and why, by what it is.
    disk_seconds
        How long a request to store waits for the disk.
    save_seconds, roll_up_seconds
        Interval between two times that the states are saved, and that the archive takes in measurements.
    """

    database: ForecastDatabase
    secret: str
    period: float = CLIQUE_PERIOD
    monotonic: Callable[[], float] = time.monotonic
    clock: Callable[[], float] = time.time
    own_process: bool = False
    leases: LeaseRegistry = field(default_factory=LeaseRegistry)
    broker: EventBroker = field(default_factory=EventBroker)
    asked_to_store: int = 0
    stored_total: int = 0
    refused_total: int = 0
    started: float = field(default_factory=time.monotonic)
    loop: asyncio.AbstractEventLoop | None = None
    mended: list[str] = field(default_factory=list)
    failing: dict[str, str] = field(default_factory=dict)
    pages: dict[tuple[float | None, float | None], MetricsPage] = field(default_factory=dict)
    disk_seconds: float = DISK_SECONDS
    save_seconds: float = SAVE_SECONDS
    roll_up_seconds: float = ROLL_UP_SECONDS

    def on_stored(self, arrivals: Arrivals) -> None:
        """Push what was stored to those who listen; called in the threads of the log."""
        if self.loop is not None and self.broker.subscribers:
            events = [(column.text, at, value) for column, _, at, value in arrivals]
            self.loop.call_soon_threadsafe(self.broker.publish, events)

    @contextlib.contextmanager
    def going_on(self, what: str) -> Iterator[None]:
        """Name a piece of the keeping that fails among the problems, until one does not, and go on.

        Whatever it is: a service whose archive, states or forecasters stand still without a word looks well.
        """
        try:
            yield
        except Exception as error:  # noqa: BLE001 - see above
            known = isinstance(error, OSError | LogError | BusyError)
            reason = str(error) if known and str(error) else repr(error)
            if what not in self.failing:
                _log.warning("%s: %s", what, reason, exc_info=not known)
            self.failing[what] = f"{what}: {reason}"
        else:
            self.failing.pop(what, None)

    async def store(self, rows: Sequence[tuple[str, float, float]]) -> Receipt:
        """Store rows and return when they are on the disk."""
        self.asked_to_store += 1
        submissions: list[tuple[int, Submission]] = []
        for start in range(0, len(rows), MOST_AT_ONCE):
            if start:
                await asyncio.sleep(0)  # others first
            part = rows[start : start + MOST_AT_ONCE]
            submissions.append((start, self.database.submit(part)))
        futures = [future for _, each in submissions for future in each.futures]
        await _on_disk(futures, self.disk_seconds)
        if self.database.roll_up_due:  # or what this sender sends next would push it out
            with self.going_on(NOTHING_ARCHIVED):
                await asyncio.to_thread(self.database.roll_up)
        parts = [each for _, each in submissions]
        refused = sorted(
            ((start + i, error) for start, each in submissions for i, error in each.refused),
            key=itemgetter(0),
        )
        stored = sum(each.stored for each in parts)
        self.stored_total += stored
        self.refused_total += len(refused)
        return Receipt(
            stored=stored,
            duplicates=len(rows) - len(refused) - stored,
            refused=[
                {"index": i, "reason": str(error)[:300], "code": error.code}
                for i, error in refused[:MOST_REASONS]
            ],
            refused_total=len(refused),
            late=sum(each.late for each in parts),
            ahead=sum(each.ahead for each in parts),
        )

    async def forecasts(self, names: Iterable[str], **question: Any) -> bytes:
        """Return the forecasts of series, known or not, as JSON; others are served meanwhile."""
        asked = {key: value for key, value in question.items() if value is not None}
        asof = self.clock()
        found = await in_slices(names, lambda name: json.dumps(self.forecast(name, **asked)))
        return f'{{"asof":{asof!r},"forecasts":[{",".join(found)}]}}'.encode()

    async def listing(self, query: ListingQuery, **question: Any) -> dict[str, Any]:
        """Return a page of the series, each as of `forecasts` with its ``latest`` value.

        No other is forecast. With them ``found``, ``total``, ``page`` and ``pages`` of a
        `SeriesListing`.
        """
        asked = {key: value for key, value in question.items() if value is not None}
        found = await listed(self.database.columns(), query, self.clock())
        series = await in_slices(
            found.columns,
            lambda column: {**self.forecast(column.text, **asked), "latest": column.latest},
        )
        return {
            "series": series,
            **{name: getattr(found, name) for name in ("found", "total", "page", "pages")},
        }

    def kept(
        self,
        series: str,
        start: float | None = None,
        stop: float | None = None,
        count: int = 1000,
        step: float | None = None,
    ) -> SeriesRange:
        """Return the measurements later than `start`, until `stop`, the latest `count` of them.

        On a grid of `step` from a start on, those archived too. It may read files.

        Raises
        ------
        ValueError
            The grid would have too many places.
        """
        database = self.database
        since = float("-inf") if start is None else start
        until = float("inf") if stop is None else stop
        fresh = database.freshness(series)
        answer = SeriesRange(series=series, state=fresh.state, age=fresh.age, times=[], values=[])
        if step is None or start is None:
            samples = database.memory.samples(series, since, until, count)
            slots = [Slot(at, 0.0, 1, value, value, value) for at, value in samples]
        else:
            until = min(until, self.clock() + database.memory.retention.skew)
            slots = database.slots(series, since, until, step)
        if step is None:
            answer.times, answer.values = [s.start for s in slots], [s.mean for s in slots]
        elif slots:
            grid = on_grid(slots, step)
            answer.times, answer.values = grid.times, grid.means
            answer.lows, answer.highs, answer.counts = grid.lows, grid.highs, grid.counts
            answer.partial = grid.partial
            answer.resolution = max(slot.step for slot in slots)
        return answer

    async def weather(self, **question: Any) -> list[bytes]:
        """Return the weather of what is current as ``nws.weather/1``, in pieces: what is stale is not known."""
        asked = {key: value for key, value in question.items() if value is not None}

        def told(column: SeriesColumn) -> tuple[str, str] | None:
            forecast, fresh = self.database.forecast(column.text, **asked)
            if forecast is None or fresh.state != CURRENT or forecast.value < 0:
                return None
            return entry(column.series, forecast)

        now = self.clock()
        found = await in_slices(self.database.columns(), told)
        return [
            piece.encode()
            for piece in assembled(now, (each for each in found if each is not None))
        ]

    async def metrics(self, over: float | None, level: float | None) -> list[bytes]:
        """Return the page for a Prometheus server, in pieces."""
        page = self.pages.pop((over, level), None)
        if page is None:
            question = {"over": over, "level": level}
            asked = {key: value for key, value in question.items() if value is not None}
            page = MetricsPage(self.database, asked, self.clock)
        self.pages[over, level] = page  # the latest one asked for is the last one to be forgotten
        while len(self.pages) > MOST_PAGES:
            del self.pages[next(iter(self.pages))]
        return await page.pieces(self.status)

    def forecast(self, name: str, **question: Any) -> dict[str, Any]:
        """Return a `NetworkForecast` as a document."""
        forecast, fresh = self.database.forecast(name, **question)
        answer = {
            **NOTHING_KNOWN,
            "series": name,
            "state": fresh.state,
            "age": fresh.age,
            "period": fresh.period,
        }
        if forecast is None:
            return answer
        answer |= forecast_fields(forecast)
        order = self.database.forecasting.order(name)
        if order is not None:
            answer |= order_fields(order)
        answer["remarks"] = [*answer["remarks"], *no_interval(forecast)]
        return answer

    def latest(self, name: str) -> float | None:
        """Return the last value of a series; None where nothing was measured."""
        column = self.database.memory.column(name)
        return None if column is None else column.latest

    def league(self, name: str, **question: Any) -> SeriesLeague:
        """Return the league of a series' predictors; empty where it is unknown, or its profile keeps none."""
        asked = {key: value for key, value in question.items() if value is not None}
        fresh = self.database.freshness(name)
        try:
            found = self.database.forecasting.league(name, **asked)
        except LookupError:
            found = None
        return SeriesLeague.of(name, fresh.state, fresh.age, found)

    def registered(self, lease: Lease, now: float) -> LeaseAnswer:
        """Return the answer that describes a registration."""
        known = lease.registration
        return LeaseAnswer(
            name=known.name,
            kind=known.kind,
            host=known.host,
            site=known.site,
            address=known.address,
            resources=list(known.resources),
            expires_in=lease.expires - now,
            alive_for=now - lease.since,
        )

    def cliques(self) -> dict[str, CliqueAnswer]:
        """Return the cliques of those that are there and can be probed."""
        now = self.monotonic()
        reachable = {
            name: self.registered(lease, now)
            for name, lease in self.leases.alive(now).items()
            if lease.registration.address
        }
        return {
            name: CliqueAnswer(
                name=name,
                period=self.period,
                members=[reachable[member] for member in members],
            )
            for name, members in cliques_of({n: a.site for n, a in reachable.items()}).items()
        }

    def status(self, measurements: int | None = None) -> ServiceStatus:
        """Return how the service is; `measurements`: how many are kept, if that is known."""
        columns = self.database.columns()
        problems = [*self.database.problems(), *self.failing.values()]
        retention = self.database.memory.retention
        limits = {each.name: getattr(retention, each.name) for each in fields(retention)}
        return ServiceStatus(
            status="impaired" if problems else "ok",
            version=VERSION,
            profile=self.database.profile,
            uptime=time.monotonic() - self.started,
            series=len(columns),
            measurements=sum(map(len, columns)) if measurements is None else measurements,
            stored_total=self.stored_total,
            refused_total=self.refused_total,
            backlog=self.database.forecasting.backlog,
            subscribers=len(self.broker.subscribers),
            retention={
                key: None if value == float("inf") else value for key, value in limits.items()
            },
            problems=problems[:MOST_PROBLEMS],
            problems_total=len(problems),
            archived_bytes=self.database.archive.size(),
            mended=[*self.mended, *self.database.mended()][:MOST_PROBLEMS],
        )


async def _on_disk(futures: "list[Future[int]]", seconds: float) -> None:
    """Return when all are done; raise what the first of them that failed says, or that it takes too long.

    The loop is woken up once for all of them.
    """
    if not futures:
        return
    loop, ready, left = asyncio.get_running_loop(), asyncio.Event(), itertools.count(1)

    def done(_: "Future[int]") -> None:
        if next(left) == len(futures):
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(ready.set)

    for future in futures:
        future.add_done_callback(done)
    timer = loop.call_later(seconds, ready.set)
    await ready.wait()
    timer.cancel()
    for future in futures:
        if future.done() and (error := future.exception()) is not None:
            raise error
    if not all(future.done() for future in futures):
        raise LogError(f"the disk did not answer in {seconds:g} s", full=False, seconds=seconds)


NOTHING_KNOWN: Final = NetworkForecast(
    series="", state="unknown", age=None, period=None
).model_dump()
FORECAST_FIELDS: Final = {
    kind: tuple(each.name for each in fields(kind) if each.name in NetworkForecast.model_fields)
    for kind in (Forecast, Interval)
}
"""The fields of a forecast, and of its interval, that an answer has."""


def order_fields(order: ArrivalOrder) -> dict[str, Any]:
    """Return what an answer tells of the order in which measurements came."""
    return {
        "held": len(order.held),
        "late": order.late,
        "ahead": order.ahead,
        "remarks": [order.remark] if order.remark else [],
    }


def no_interval(forecast: Forecast) -> list[str]:
    """Return why a forecast has no interval yet, if that is why it has none."""
    if forecast.interval is not None or forecast.samples >= FEWEST_FOR_INTERVAL:
        return []
    return [f"no interval before {FEWEST_FOR_INTERVAL} measurements; there are {forecast.samples}"]


def forecast_fields(forecast: Forecast) -> dict[str, Any]:
    """Return the fields of a forecast, and of its interval if it has one, that an answer has."""
    found = {name: getattr(forecast, name) for name in FORECAST_FIELDS[Forecast]}
    if forecast.interval is not None:
        found |= {name: getattr(forecast.interval, name) for name in FORECAST_FIELDS[Interval]}
    return found
