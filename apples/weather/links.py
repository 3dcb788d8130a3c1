"""`LinkSensing`: measures the links between reachable hosts, as far as a decision needs them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace

import nws
from apples.weather import history
from apples.weather.link_choice import (
    REVERSE_SPREAD,
    UNKNOWN,
    UNSEEN_SPREAD,
    LinkBounds,
    Propose,
    holds_for,
    measured_as_needed,
    spread_of,
)
from apples.weather.sensing import SensingContext
from nws import (
    BANDWIDTH_TCP,
    Forecast,
    Measurement,
    NetworkWeatherService,
    RingMemory,
    SensorReply,
    SeriesName,
    Weather,
    classic,
)

LISTEN_SECONDS = 5.0
PROBE_SECONDS = 5.0
"""Time limit of one sensor; a probe runs three sensors."""
MAX_BYTES = 1 << 24
"""Size limit of one probe. Above 100 MB/s its transfer is shorter than 50 ms: exact enough for a row of a grid."""
MAX_INTERPOLATED = 64
"""Above this number of hosts only measured links are reported: the table grows with the square."""

Pair = tuple[str, str]
Table = Mapping[Pair, Forecast]
Series = dict[SeriesName, list[Measurement]]
Ask = Callable[..., SensorReply | None]
"""``ask(host, verb, seconds, **fields)``: the reply of a host's sensor process; its measurements go to `found`."""


class LinkSensing:
    """Measures links and forecasts them, from new and from stored measurements.

    Parameters
    ----------
    context
        The host list, and whether stored measurements are ignored.
    hosts
        Names of the hosts with a sensor process.
    ask
        Sends a request to the sensor process of a host.
    known, found
        The stored measurements of all links; the table that receives the new measurements.
    machine_of, most
        Host -> its machine, for hosts that share one; the number of probes that a machine runs at once.
    address_of
        Returns the address at which other hosts reach a host.

    Attributes
    ----------
    reused
        Link that the decision could depend on -> the age in seconds of its stored measurement.
    left_out
        Links of the plan without a recent measurement; the plan does not depend on them.
    probed
        Links that this object measured.
    """

    def __init__(
        self,
        context: SensingContext,
        hosts: Iterable[str],
        ask: Ask,
        known: Series,
        found: Series,
        *,
        machine_of: Mapping[str, str],
        most: int,
        address_of: Callable[[str], str],
    ) -> None:
        self._sites = {host.name: host.site for host in context.hosts}
        self._site_of = {host: self._sites[host] for host in hosts}
        self._ask = ask
        self._known, self._found = known, found
        self._machine_of, self._most = machine_of, most
        self._address_of = address_of
        self._secret = secrets.token_hex()
        self._places: dict[str, tuple[str, int]] = {}
        self._begin = time.time()
        self._forecasts = self._forecast()
        self._old = {} if context.fresh else self._remembered()
        self.reused: dict[Pair, float] = {}
        self.left_out: set[Pair] = set()

    @property
    def probed(self) -> set[Pair]:
        """Links that this object measured."""
        return {
            (name.host, name.peer)
            for name in self._found
            if name.peer and name.resource == BANDWIDTH_TCP
        }

    def tables(self) -> tuple[Table, Table]:
        """Return the forecast latencies and bandwidths of all links with a measurement."""
        return self._forecasts.latency, self._forecasts.bandwidth

    def interpolated(self, weather: Weather) -> Weather:
        """Return `weather` with a link between any two hosts that have a sensor process or a measured link."""
        return interpolate_links(weather, self._sites, self._site_of)

    # ---------------------------------------------------------------- links to measure
    def measure_cliques(self) -> None:
        """Measure the links of the cliques without a valid measurement; used while no plan is known."""
        wanted = set(nws.clique_pairs(self._site_of))
        self.measure({pair for pair in wanted if self._age_if_held(pair) is None})
        self._note(wanted)

    def measure_needed(self, weather: Callable[[], Weather], propose: Propose) -> None:
        """Measure the links that can change the plan."""
        plan = measured_as_needed(
            weather, self.bounds, propose, self.measure, first=self._one_per_site_pair
        )
        self._note(
            {pair for pair in (plan.links if plan else ()) if set(pair) <= set(self._site_of)}
        )

    def _one_per_site_pair(self, pairs: set[Pair]) -> set[Pair]:
        """Return the links, but only one of the unknown links between each pair of sites, in one direction.

        The measured link bounds the others (`UNSEEN_SPREAD`, `REVERSE_SPREAD`), which rules out most plans that
        use them.
        """
        if len(self._site_of) > MAX_INTERPOLATED:
            return pairs
        latency, bandwidth = self.tables()
        filled = self.interpolated(Weather(latency=latency, bandwidth=bandwidth))
        between: dict[Pair, Pair] = {}
        told = set()
        for pair in sorted(pairs):
            if _unseen(filled, pair) is UNKNOWN and pair not in self._old:
                first, second = sorted(self._site_of[host] for host in pair)
                between.setdefault((first, second), pair)
            else:
                told.add(pair)
        return told | set(between.values())

    def _note(self, used: Set[Pair]) -> None:
        for pair in used - self.probed:
            age = self._age_if_held(pair)
            if age is None:
                self.left_out.add(pair)
            else:
                self.reused[pair] = age

    def _age_if_held(self, pair: Pair) -> float | None:
        """Return the age of a link's last measurement while that is valid, else None."""
        return self._old[pair][0] if pair in self._old and self._old[pair][1] is None else None

    def bounds(self) -> dict[Pair, LinkBounds]:
        """Return the bounds of every link without a valid measurement."""
        latency, bandwidth = self.tables()
        filled = self.interpolated(Weather(latency=latency, bandwidth=bandwidth))
        access = access_of(bandwidth, self._site_of)
        directions = {(self._sites.get(a), self._sites.get(b)) for a, b in bandwidth}
        probed = self.probed
        told: dict[Pair, LinkBounds] = {}
        for a in self._site_of:
            for b in self._site_of:
                pair = (a, b)
                if a == b or pair in probed:
                    continue
                if pair not in self._old:
                    known = (self._site_of[a], self._site_of[b]) in directions
                    if not (known and self._is_between(pair, filled, access)):
                        told[pair] = _unseen(
                            filled, pair, UNSEEN_SPREAD if known else REVERSE_SPREAD
                        )
                elif (bounds := self._old[pair][1]) is not None:
                    told[pair] = bounds
        return told

    def _is_between(self, pair: Pair, filled: Weather, access: Mapping[str, float]) -> bool:
        """Return whether the path between the sites, not a host's access line, limits the rate of a link."""
        if self._site_of[pair[0]] == self._site_of[pair[1]] or pair not in filled.bandwidth:
            return False
        return all(filled.bandwidth[pair].value < access.get(host, 0.0) / 2 for host in pair)

    def _remembered(self) -> dict[Pair, tuple[float, LinkBounds | None]]:
        """Return each stored link with its age, and with its bounds if its measurement is no longer valid."""
        latency, bandwidth = self.tables()
        old: dict[Pair, tuple[float, LinkBounds | None]] = {}
        for pair in bandwidth.keys() & latency.keys():
            series = self._known[SeriesName(BANDWIDTH_TCP, *pair)]
            age, held = self._begin - series[-1].time, holds_for(series)
            spread = spread_of(bandwidth[pair], age, held)
            bounds = LinkBounds(latency[pair].value, bandwidth[pair].value, spread)
            old[pair] = age, None if age <= held else bounds
        return old

    # ---------------------------------------------------------------------- measuring
    def measure(self, wanted: Set[Pair]) -> None:
        """Measure these links, disjoint links at once; repeat a probe that contradicts the stored series."""
        self._listen(sorted({host for pair in wanted for host in pair} - set(self._places)))
        turns = nws.ProbeTurns(  # loaded here: a run on this machine alone needs no cliques
            self._site_of,
            sorted(pair for pair in wanted if pair[1] in self._places),
            self._machine_of,
            self._most,
        )
        repeated: set[Pair] = set()
        with ThreadPoolExecutor(max(1, len(self._site_of))) as pool:
            running: dict[Future[None], Pair] = {}
            while True:
                running |= {pool.submit(self._probe, pair): pair for pair in turns.begin()}
                if not running:
                    break
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    pair = running.pop(future)
                    future.result()
                    turns.done(pair)
                    if pair not in repeated and self._is_news(pair):
                        repeated.add(pair)
                        turns.again(pair)
        self._forecasts = self._forecast()

    def _listen(self, hosts: Sequence[str]) -> None:
        """Have the sensor processes of hosts listen for probes."""

        def listen(host: str) -> tuple[str, int] | None:
            address = self._address_of(host)
            reply = self._ask(host, "listen", LISTEN_SECONDS, address=address, secret=self._secret)
            return reply.listening if reply else None

        with ThreadPoolExecutor(max(1, len(hosts))) as pool:
            places = zip(hosts, pool.map(listen, hosts), strict=True)
            self._places |= {host: place for host, place in places if place is not None}

    def _probe(self, pair: Pair) -> None:
        source, target = pair
        self._ask(
            source,
            "probe",
            3 * PROBE_SECONDS + 1,
            host=source,
            peer=target,
            address=list(self._places[target]),
            secret=self._secret,
            seconds=PROBE_SECONDS,
            wide=True,
            most_bytes=MAX_BYTES,
        )

    def _is_news(self, pair: Pair) -> bool:
        """Return whether the new measurements of a link contradict its stored series; then it is probed again."""
        name = SeriesName(BANDWIDTH_TCP, *pair)
        return history.is_news(self._known.get(name, ()), self._found.get(name, ()))

    def _forecast(self) -> Weather:
        """Return the weather of the links from the stored and the new measurements."""
        memory = RingMemory()
        for name, measurements in history.all_of(self._known, self._found).items():
            if name.peer:
                for measurement in measurements:
                    memory.store(measurement)
        return NetworkWeatherService(memory, (), classic).weather()


def _unseen(filled: Weather, pair: Pair, spread: float = UNSEEN_SPREAD) -> LinkBounds:
    """Return the bounds of a link that was never measured, from the links between its sites."""
    latency, bandwidth = filled.latency.get(pair), filled.bandwidth.get(pair)
    if latency is None or bandwidth is None:
        return UNKNOWN
    return LinkBounds(latency.value, bandwidth.value, spread)


def interpolate_links(
    weather: Weather, site_of: Mapping[str, str], hosts: Collection[str] = ()
) -> Weather:
    """Return `weather` with a link between any two hosts of `hosts` and of the measured links.

    A pair without a measurement takes the forecast of a measured pair between the same sites: the median of
    several, or of the other direction if this direction has no measurement. Its bandwidth is at most the best
    bandwidth measured for either host inside its own site.
    """
    measured = {host for pair in (*weather.latency, *weather.bandwidth) for host in pair}
    among = sorted((measured | set(hosts)) & set(site_of))
    if len(among) > MAX_INTERPOLATED:
        return interpolate_links(weather, site_of) if hosts else weather
    return replace(
        weather,
        latency=_filled(weather.latency, among, site_of, {}),
        bandwidth=_filled(
            weather.bandwidth, among, site_of, access_of(weather.bandwidth, site_of)
        ),
    )


def _filled(
    table: Table, hosts: list[str], site_of: Mapping[str, str], most: Mapping[str, float]
) -> dict[Pair, Forecast]:
    by_sites: dict[Pair, list[Forecast]] = {}
    for (a, b), forecast in table.items():
        if a in site_of and b in site_of:
            by_sites.setdefault((site_of[a], site_of[b]), []).append(forecast)
    middle_of = {
        sites: sorted(known, key=lambda f: f.value)[(len(known) - 1) // 2]
        for sites, known in by_sites.items()
    }
    filled = dict(table)
    for a in hosts:
        for b in hosts:
            sites = site_of[a], site_of[b]
            middle = middle_of.get(sites) or middle_of.get((sites[1], sites[0]))
            if a != b and (a, b) not in table and middle:
                value = min(middle.value, most.get(a, middle.value), most.get(b, middle.value))
                filled[a, b] = replace(middle, value=value)
    return filled


def access_of(table: Table, site_of: Mapping[str, str]) -> dict[str, float]:
    """Return the best measured bandwidth of each host inside its site."""
    best: dict[str, list[float]] = {}
    for (a, b), forecast in table.items():
        if site_of.get(a) == site_of.get(b):
            for host in (a, b):
                best.setdefault(host, []).append(forecast.value)
    return {host: max(values) for host, values in best.items()}
