"""The request handler: the state that all routes share, and their answers."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from importlib import metadata
from typing import Any, Final, TypeVar

from nws.clique.turns import TurnTable
from nws.forecast import Forecast, Interval
from nws.forecasters.scored import MIN_FOR_INTERVAL
from nws.memory.connection import StorageError
from nws.memory.slots import Slot
from nws.memory.sqlite import Arrival
from nws.memory.summary import SeriesSummary
from nws.memory.writer import BusyError
from nws.service.arrival_order import ArrivalOrder
from nws.service.database import CURRENT, ForecastDatabase
from nws.service.events import EventBroker
from nws.service.forecasting import UnfollowedError
from nws.service.grid import on_grid
from nws.service.messages import (
    MAX_REASONS,
    Forecasts,
    LeaseAnswer,
    NetworkForecast,
    Receipt,
    RefusedSample,
    SeriesEntry,
    SeriesLeague,
    SeriesList,
    SeriesRange,
    ServiceStatus,
)
from nws.service.metrics import SeriesMetrics, page_of
from nws.service.registry import Lease, LeaseRegistry
from nws.service.worker import Job
from nws.weather import Weather

CLIQUE_PERIOD: Final = 120.0
"""Seconds in which every member of a clique gets a turn (NWS 2.x: DEFAULT_CLIQUE_PERIOD)."""
# One fdatasync can take a minute while the disk is busy with mkfs or an unmount. Sending a batch
# again is safe.
DISK_SECONDS: Final = 20.0
"""Seconds that a batch waits for the disk; then its sender must send it again."""
STALL_SECONDS: Final = 30.0
TIDY_SECONDS: Final = 30.0
VERSION: Final = metadata.version("apples")
MAX_PROBLEMS: Final = 50
PER_PAGE: Final = 100
LISTING_ORDERS: Final = ("series", "value", "age")

_log = logging.getLogger(__name__)

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ListingQuery:
    """A query of the list of series.

    Attributes
    ----------
    words
        Words that must all be in a name.
    order
        One of `LISTING_ORDERS`.
    descending
        Whether the order is reversed.
    page
        Page number, from 1; beyond the last page it is the last.
    """

    words: str = ""
    order: str = "series"
    descending: bool = False
    page: int = 1


def listed(
    summaries: Sequence[SeriesSummary], query: ListingQuery, now: float
) -> tuple[list[SeriesSummary], dict[str, int]]:
    """Return a page of the series, which are given in the order of their names, and its counts.

    The counts are ``found``, the matching series, ``total``, all series, ``page`` and ``pages``.
    """
    words = query.words.lower().split()
    found = [each for each in summaries if all(word in each.text.lower() for word in words)]
    sign = -1.0 if query.descending else 1.0
    if query.order == "series":
        found = found[::-1] if query.descending else found
    elif query.order == "value":
        found.sort(key=lambda each: sign * each.latest)
    else:
        found.sort(key=lambda each: sign * (now - each.seen(now)))
    pages = max(1, -(-len(found) // PER_PAGE))
    page = min(max(1, query.page), pages)
    counts = {"found": len(found), "total": len(summaries), "page": page, "pages": pages}
    return found[(page - 1) * PER_PAGE : page * PER_PAGE], counts


@dataclass
class RequestHandler:
    """One running service.

    Attributes
    ----------
    database
        Memory and forecasters.
    secret
        The secret that endpoints and probers of links share.
    period
        Of the cliques, in seconds.
    monotonic, clock
        Seconds that only go forward, for leases; seconds since the epoch.
    own_process
        Whether only the service runs in this process; then the garbage collector skips the forecasters
        and all other objects.
    failing
        Problem lines of periodic work that failed the last time, by the name of the work.
    disk_seconds
        Seconds that a request to store waits for the disk.
    tidy_seconds
        Interval between two savings of states and removals of old measurements.
    stall_seconds
        Seconds after which the stream of a reader that takes no events ends.
    """

    database: ForecastDatabase
    secret: str
    period: float = CLIQUE_PERIOD
    monotonic: Callable[[], float] = time.monotonic
    clock: Callable[[], float] = time.time
    own_process: bool = False
    leases: LeaseRegistry = field(default_factory=LeaseRegistry)
    turns: TurnTable = field(init=False)
    broker: EventBroker = field(default_factory=EventBroker)
    stored_total: int = 0
    refused_total: int = 0
    started: float = field(default_factory=time.monotonic)
    loop: asyncio.AbstractEventLoop | None = None
    mended: list[str] = field(default_factory=list)
    failing: dict[str, str] = field(default_factory=dict)
    disk_seconds: float = DISK_SECONDS
    tidy_seconds: float = TIDY_SECONDS
    stall_seconds: float = STALL_SECONDS

    def __post_init__(self) -> None:
        self.turns = TurnTable(self.period, self.monotonic())

    def on_stored(self, arrivals: Sequence[Arrival]) -> None:
        """Publish stored measurements to the subscribers; called in the writer's thread."""
        if self.loop is not None:
            self.broker.publish(arrivals, self.loop)

    @contextlib.contextmanager
    def report_failure(self, consequence: str) -> Iterator[None]:
        """List a failure of periodic work among the problems, until the work succeeds, and go on.

        Any failure: a service that silently stops saving states looks well.
        """
        try:
            yield
        except Exception as error:  # noqa: BLE001 - see above
            known = isinstance(error, OSError | StorageError | BusyError)
            reason = str(error) if known and str(error) else repr(error)
            if consequence not in self.failing:
                _log.warning("%s: %s", consequence, reason, exc_info=not known)
            self.failing[consequence] = f"{consequence}: {reason}"
        else:
            self.failing.pop(consequence, None)

    async def store(self, rows: Sequence[tuple[str, float, float]]) -> Receipt:
        """Store rows and return when they are on the disk."""
        waiting = asyncio.wrap_future(self.database.submit(rows))
        try:
            result = await asyncio.wait_for(asyncio.shield(waiting), self.disk_seconds)
        except TimeoutError:
            waiting.add_done_callback(_ignore_outcome)
            raise StorageError(
                f"the disk did not answer in {self.disk_seconds:g} s", seconds=self.disk_seconds
            ) from None
        self.stored_total += result.stored
        self.refused_total += len(result.refused)
        return Receipt(
            stored=result.stored,
            duplicates=result.duplicates,
            refused=[
                RefusedSample(index=index, reason=str(error)[:300], code=error.code)
                for index, error in result.refused[:MAX_REASONS]
            ],
            refused_total=len(result.refused),
            late=result.late,
            ahead=result.ahead,
        )

    async def forecasts(self, names: Sequence[str], **question: Any) -> Forecasts:
        """Return the forecasts of series, known or not, in the order asked."""
        asof = self.clock()
        found = await self._job(self._forecasts(names, _asked(question)))
        return Forecasts(asof=asof, forecasts=found)

    async def listing(self, query: ListingQuery, **question: Any) -> dict[str, Any]:
        """Return a page of the series, each as of `forecasts` with its ``latest`` value.

        Only they are forecast. The answer has the counts of `listed` too.
        """
        shown, counts = await asyncio.to_thread(
            listed, self.database.summaries(), query, self.clock()
        )
        answers = await self._job(
            self._forecasts([summary.text for summary in shown], _asked(question))
        )
        series = [
            {**answer.model_dump(), "latest": summary.latest}
            for answer, summary in zip(answers, shown, strict=True)
        ]
        return {"series": series, **counts}

    def entries(self, matches: Callable[[str], bool], limit: int) -> SeriesList:
        """Return the series with matching names; not in the event loop: there may be many."""
        found = [each for each in self.database.summaries() if matches(each.text)]
        return SeriesList(total=len(found), series=[self._entry(each) for each in found[:limit]])

    def _entry(self, summary: SeriesSummary) -> SeriesEntry:
        fresh = self.database.freshness(summary.text)
        return SeriesEntry(
            series=summary.text,
            state=fresh.state,
            age=fresh.age,
            period=fresh.period,
            count=summary.count,
            oldest=summary.oldest,
            newest=summary.newest,
            latest=summary.latest,
        )

    def kept(
        self,
        series: str,
        start: float | None = None,
        stop: float | None = None,
        count: int = 1000,
        step: float | None = None,
    ) -> SeriesRange:
        """Return the measurements later than `start`, until `stop`, the latest `count` of them.

        On a grid of `step` from a start on, slots of older measurements too. It reads the database:
        not in the event loop.

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
            slots = database.slots(series, since, until)
        if step is None:
            answer.times, answer.values = [s.start for s in slots], [s.mean for s in slots]
        elif slots:
            grid = on_grid(slots, step)
            answer.times, answer.values = grid.times, grid.means
            answer.lows, answer.highs, answer.counts = grid.lows, grid.highs, grid.counts
            answer.partial = grid.partial
            answer.resolution = max(slot.step for slot in slots)
        return answer

    async def weather(self, **question: Any) -> str:
        """Return the weather of the current series as ``nws.weather/1``."""
        now = self.clock()
        current = [
            each
            for each in self.database.summaries()
            if self.database.freshness(each.text).state == CURRENT
        ]
        names = [summary.text for summary in current]
        found = await self._job(self.database.forecasting.forecasts(names, _asked(question)))
        known = {
            summary.series: forecast
            for summary, forecast in zip(current, found, strict=True)
            if forecast is not None and forecast.value >= 0
        }
        return await asyncio.to_thread(lambda: Weather.of(known, now).to_json())

    async def metrics(self, over: float | None, level: float | None) -> bytes:
        """Return the page for a Prometheus server, with forecasts that wait for no measurement."""
        summaries = self.database.summaries()
        names = [summary.text for summary in summaries]
        question = _asked({"over": over, "level": level})
        found = await self._job(self.database.forecasting.answers_now(names, question))

        def page() -> bytes:
            series = [
                SeriesMetrics(summary, self.database.freshness(summary.text), forecast)
                for summary, forecast in zip(summaries, found, strict=True)
            ]
            return page_of(series, self.status())

        return await asyncio.to_thread(page)

    async def forecast(self, name: str, **question: Any) -> NetworkForecast:
        """Return the forecast of one series."""
        (found,) = await self._job(self._forecasts([name], _asked(question)))
        return found

    def latest(self, name: str) -> float | None:
        """Return the last value of a series; None if it is unknown."""
        summary = self.database.memory.summary(name)
        return None if summary is None else summary.latest

    async def league(self, name: str, **question: Any) -> SeriesLeague:
        """Return the league of a series' predictors; empty if it is unknown, or its profile has no league."""
        fresh = self.database.freshness(name)
        table = None
        with contextlib.suppress(LookupError):
            table = await self._job(self.database.forecasting.league(name, _asked(question)))
        return SeriesLeague.of(name, fresh.state, fresh.age, table)

    async def _job(self, job: Job[Result]) -> Result:
        """Return the result of a job of the forecasters' thread."""
        return await asyncio.wrap_future(self.database.forecasting.worker.submit(job))

    def _forecasts(
        self, names: Iterable[str], question: dict[str, Any]
    ) -> Job[list[NetworkForecast]]:
        answers = []
        for name in names:
            fresh = self.database.freshness(name)
            answer = NetworkForecast(
                series=name, state=fresh.state, age=fresh.age, period=fresh.period
            )
            try:
                forecast = yield from self.database.forecasting.forecast(name, question)
            except UnfollowedError as error:
                answer.remarks = [str(error)]
            except LookupError:
                pass
            else:
                order = self.database.forecasting.order(name)
                answer = answer.model_copy(update=forecast_fields(forecast, order))
            answers.append(answer)
            yield
        return answers

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

    def status(self) -> ServiceStatus:
        """Return the health of the service."""
        summaries = self.database.summaries()
        problems = [*self.database.problems(), *self.failing.values()]
        retention = self.database.memory.retention
        limits = {each.name: getattr(retention, each.name) for each in fields(retention)}
        return ServiceStatus(
            status="impaired" if problems else "ok",
            version=VERSION,
            profile=self.database.profile,
            uptime=time.monotonic() - self.started,
            series=len(summaries),
            measurements=sum(summary.count for summary in summaries),
            stored_total=self.stored_total,
            refused_total=self.refused_total,
            backlog=self.database.forecasting.backlog,
            subscribers=len(self.broker.subscribers),
            retention={
                key: None if value == float("inf") else value for key, value in limits.items()
            },
            problems=problems[:MAX_PROBLEMS],
            problems_total=len(problems),
            archived_bytes=self.database.memory.slot_bytes(),
            mended=[*self.mended, *self.database.mended][:MAX_PROBLEMS],
        )


def _asked(question: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a question without defaults."""
    return {key: value for key, value in question.items() if value is not None}


def _ignore_outcome(future: "asyncio.Future[Any]") -> None:
    """Discard the outcome of a batch after its sender got an answer."""
    if not future.cancelled():
        future.exception()


FORECAST_FIELDS: Final = {
    kind: tuple(each.name for each in fields(kind) if each.name in NetworkForecast.model_fields)
    for kind in (Forecast, Interval)
}
"""The fields of a forecast, and of its interval, that an answer has."""


def forecast_fields(forecast: Forecast, order: ArrivalOrder | None) -> dict[str, Any]:
    """Return the fields of an answer that a forecast, its interval and the order of arrival fill."""
    found = {name: getattr(forecast, name) for name in FORECAST_FIELDS[Forecast]}
    remarks = []
    if order is not None:
        found |= {"held": len(order.held), "late": order.late, "ahead": order.ahead}
        remarks += [order.remark] if order.remark else []
    if forecast.interval is not None:
        found |= {name: getattr(forecast.interval, name) for name in FORECAST_FIELDS[Interval]}
    elif forecast.samples < MIN_FOR_INTERVAL:
        remarks.append(
            f"no interval before {MIN_FOR_INTERVAL} measurements; there are {forecast.samples}"
        )
    return {**found, "remarks": remarks}
