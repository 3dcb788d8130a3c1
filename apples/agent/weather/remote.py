"""`RemoteSensing`: this moment's weather of other machines, asked of a sensor process on each over ssh."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import replace

from apples.agent.weather import history
from apples.errors import LaunchError
from apples.launch.events import Talk
from apples.launch.remote import ssh
from apples.launch.remote.addresses import is_here
from apples.launch.remote.fitness import Fitness
from apples.launch.remote.preflight import address_towards
from apples.launch.remote.session import WORDS, SensorSession
from apples.resources import Host, HostList
from nws import (
    AVAILABLE_CPU,
    BANDWIDTH_TCP,
    CURRENT_CPU,
    Forecast,
    Measurement,
    NetworkWeatherService,
    ProbeTurns,
    RingMemory,
    SensorReply,
    SeriesName,
    Weather,
    classic,
)

ROUNDS = 5
GREETING_SECONDS = 6.0
SENSE_SECONDS = 10.0
LISTEN_SECONDS = 5.0
PROBE_SECONDS = 5.0
"""Of one sensor; a probe is three."""
FRESH_SECONDS = 10.0
"""A link that was measured so lately is not probed again: two plans in a row cost one."""
MOST_DELAY = 60.0
"""Seconds; a measurement that is older when it comes is none of this moment."""
MOST_SAID = 5
MOST_INTERPOLATED = 64
"""Past it only what was measured is told: the table grows with the square."""

Pair = tuple[str, str]
Table = Mapping[Pair, Forecast]
Series = dict[SeriesName, list[Measurement]]
Forecasts = tuple[NetworkWeatherService, NetworkWeatherService]


class RemoteSensing:
    """Measures other machines and the links between all hosts of a list, once.

    Hosts that are parts of one machine are measured one after the other, and no two probes share a
    link (`nws.clique.sites`). What was measured is remembered, and forecast from next time.

    Parameters
    ----------
    hosts
        The list.
    others
        Those of it to be measured over ssh.
    seen
        What was found on them; a host that is unfit, or has no apples, is not measured.
    talk
        Is told, a line each, what could not be measured.

    Attributes
    ----------
    remarks
        What the sensors there could not see, a line each, after the first weather.
    """

    def __init__(
        self,
        hosts: HostList,
        others: Sequence[Host],
        seen: Mapping[str, Fitness],
        talk: Talk,
    ) -> None:
        self._list = hosts
        self._seen = seen
        self._talk = talk
        self._said = 0
        self._forecasts: Forecasts | None = None
        self.remarks: list[str] = []
        fit = [host for host in others if not seen[host.name].refusal]
        for host in fit:
            if not seen[host.name].apples:
                self._say(f"{host.name}: its python has no apples")
        self._others = [host for host in fit if seen[host.name].apples]
        self._here = next((host for host in hosts if is_here(host)), None)

    def weather(self, over: float | None = None) -> Weather:
        """Return the forecasts over so many seconds, from what was measured now and before.

        The first call measures; later ones ask the same measurements for another frame.
        """
        if not self._others:
            return Weather()
        if self._forecasts is None:
            self._forecasts = self._measured()
        return self._forecast(self._forecasts, over)

    def _measured(self) -> Forecasts:
        """Measure, remember, and return the forecasters of hosts and of links."""
        measured: Series = {}
        with ExitStack() as stack:
            sessions = self._sessions(stack)
            self._sense(sessions, measured)
            known = history.recall(self._list)
            if len(sessions) > 1:
                self._probe(sessions, known, measured)
        series = {
            name: history.joined(known.get(name, []), measured.get(name, []))
            for name in {*known, *measured}
        }
        kept = {
            name: series[name] if name.peer else history.as_one(series[name], look)
            for name, look in measured.items()
        }
        self._remember(kept)
        hosts, links = RingMemory(), RingMemory()
        for name, measurements in series.items():
            for measurement in measurements:
                (links if name.peer else hosts).store(measurement)
        return NetworkWeatherService(hosts), NetworkWeatherService(links, (), classic)

    # ------------------------------------------------------------------- asking
    def _sessions(self, stack: ExitStack) -> dict[str, SensorSession]:
        """Start all sensor processes at once; leave out those that do not greet."""
        begun: dict[str, SensorSession] = {}
        for host in self._others:
            argv = ssh.command(ssh.reach(host, self._list), WORDS)
            begun[host.name] = SensorSession(host.name, argv)
            stack.callback(begun[host.name].close)
        if self._here is not None:
            name = self._here.name
            begun[name] = SensorSession(name, [sys.executable, *WORDS])
            stack.callback(begun[name].close)
        deadline = time.monotonic() + GREETING_SECONDS
        greeted = {}
        for name, session in begun.items():
            try:
                session.greet(max(0.1, deadline - time.monotonic()))
            except LaunchError as error:
                self._say(str(error))
            else:
                greeted[name] = session
        return greeted

    def _sense(self, sessions: Mapping[str, SensorSession], measured: Series) -> None:
        """Measure CPUs and memory, machines side by side, parts of one machine in turn."""

        def ask(names: Sequence[str]) -> None:
            for name in filter(sessions.__contains__, names):
                self._take(
                    measured, sessions[name], "sense", SENSE_SECONDS, host=name, rounds=ROUNDS
                )

        machines = self._machines().values()
        with ThreadPoolExecutor(max(1, len(machines))) as pool:
            list(pool.map(ask, machines))

    def _probe(self, sessions: Mapping[str, SensorSession], known: Series, found: Series) -> None:
        """Probe the links of the cliques, as many at once as share nothing."""
        places, secret = {}, secrets.token_hex()
        for name, session in sessions.items():
            place = self._listening(session, secret)
            if place is not None:
                places[name] = place
        turns = ProbeTurns({name: self._list[name].site for name in places})
        with ThreadPoolExecutor(max(1, len(places))) as pool:
            running: dict[Future[None], Pair] = {}
            repeated: set[Pair] = set()

            def probe(pair: Pair) -> None:
                source, target = pair
                if not _is_fresh(known, pair):
                    self._take(
                        found,
                        sessions[source],
                        "probe",
                        3 * PROBE_SECONDS + 1,
                        host=source,
                        peer=target,
                        address=list(places[target]),
                        secret=secret,
                        seconds=PROBE_SECONDS,
                        wide=True,
                    )

            while True:
                running |= {pool.submit(probe, pair): pair for pair in turns.begin()}
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    pair = running.pop(future)
                    turns.done(pair)
                    if pair not in repeated and _is_news(known, found, pair):
                        repeated.add(pair)
                        turns.again(pair)

    def _listening(self, session: SensorSession, secret: str) -> tuple[str, int] | None:
        """Let a host be probed; return where, None where it cannot."""
        seen = self._seen.get(session.host)
        address = seen.address if seen else self._own_address()
        reply = self._ask(session, "listen", LISTEN_SECONDS, address=address, secret=secret)
        return reply[0].listening if reply else None

    def _own_address(self) -> str:
        return address_towards(self._seen[host.name].address for host in self._others)

    def _take(
        self, found: Series, session: SensorSession, do: str, within: float, /, **what: object
    ) -> None:
        """Ask, and keep what was measured, by this machine's clock."""
        answer = self._ask(session, do, within, **what)
        if answer is None:
            return
        reply, ahead = answer
        now = time.time()
        for measurement in reply.measurements:
            mine = replace(measurement, time=min(now, measurement.time - ahead))
            if self._is_its_own(mine, session.host) and now - mine.time < MOST_DELAY:
                found.setdefault(mine.series, []).append(mine)

    def _is_its_own(self, measurement: Measurement, host: str) -> bool:
        """Whether a host may say this: of itself, towards a host of the list, and possible at all."""
        name = measurement.series
        known = name.peer is None or (name.peer != host and name.peer in self._list)
        share = name.resource in {AVAILABLE_CPU, CURRENT_CPU}
        return name.host == host and known and (measurement.value <= 1.0 or not share)

    def _ask(
        self, session: SensorSession, do: str, within: float, /, **what: object
    ) -> tuple[SensorReply, float] | None:
        try:
            reply, ahead = session.ask(do, within, **what)
        except LaunchError as error:
            self._say(str(error))
            return None
        for failure in reply.failures:
            self._say(f"{session.host}: {failure}")
        self.remarks += [
            line for one in reply.remarks if (line := f"{session.host}: {one}") not in self.remarks
        ]
        return reply, ahead

    # ------------------------------------------------------------ remembering
    def _remember(self, series: Series) -> None:
        try:
            history.remember(self._list, series)
        except OSError as error:
            self._say(f"{error.filename}: {error.strerror}; nothing is remembered")

    def _forecast(self, forecasts: Forecasts, over: float | None) -> Weather:
        """Return the weather of all hosts and links.

        A link is probed once a plan: its next measurement is the next plan's, and no frame of this one.
        """
        hosts, links = forecasts
        weather, between, machines = hosts.weather(over), links.weather(), self._machines()
        whole = {m: max(self._seen[h].memory for h in parts) for m, parts in machines.items()}
        weather = replace(
            weather,
            free_memory=share_memory(weather.free_memory, machines, whole),
            latency=between.latency,
            bandwidth=between.bandwidth,
        )
        return interpolate_links(weather, {host.name: host.site for host in self._list})

    def _machines(self) -> dict[str, list[str]]:
        """Return the hosts that are parts of each machine."""
        machines: dict[str, list[str]] = {}
        for host in self._others:
            machines.setdefault(self._seen[host.name].machine or host.name, []).append(host.name)
        return machines

    def _say(self, what: str) -> None:
        """Say what could not be measured; the first few times."""
        self._said += 1
        if self._said <= MOST_SAID:
            self._talk(f"warning: not measured: {what}")
        elif self._said == MOST_SAID + 1:
            self._talk("warning: not measured: more of the like")


def _is_fresh(known: Series, pair: Pair) -> bool:
    """Whether a link was measured a moment ago."""
    old = known.get(SeriesName(BANDWIDTH_TCP, *pair))
    return bool(old) and time.time() - old[-1].time < FRESH_SECONDS if old else False


def _is_news(known: Series, found: Series, pair: Pair) -> bool:
    """Whether what was measured of a link is unlike what is remembered: measured once more then."""
    name = SeriesName(BANDWIDTH_TCP, *pair)
    old, new = known.get(name, []), found.get(name, [])
    return bool(old and new) and len(history.joined(old, new)) == len(new)


def interpolate_links(weather: Weather, site_of: Mapping[str, str]) -> Weather:
    """Return `weather` with a link between any two hosts that links were measured of.

    A pair that no probe crossed takes the forecast of the pair that was, between the same sites (the middle one
    where there are several), and no more bandwidth than either host was seen to have in its own site.
    """
    hosts = sorted(
        {host for pair in (*weather.latency, *weather.bandwidth) for host in pair} & set(site_of)
    )
    if len(hosts) > MOST_INTERPOLATED:
        return weather
    return replace(
        weather,
        latency=_filled(weather.latency, hosts, site_of, {}),
        bandwidth=_filled(weather.bandwidth, hosts, site_of, _access(weather.bandwidth, site_of)),
    )


def share_memory(
    memory: Mapping[str, Forecast],
    machines: Mapping[str, Sequence[str]],
    whole: Mapping[str, float],
) -> dict[str, Forecast]:
    """Return each host's free memory: at most an equal part of its machine's where several are parts of it.

    Parameters
    ----------
    whole
        What each machine has to give in all; where that is unknown, the most that a part of it sees.
    """
    told = dict(memory)
    for machine, names in machines.items():
        parts = [name for name in names if name in memory]
        seen = max((memory[name].value for name in parts), default=0.0)
        most = (whole.get(machine) or seen) / max(1, len(parts))
        for name in parts:
            one = memory[name]
            share = min(1.0, most / one.value) if one.value > 0 else 1.0
            error = None if one.error is None else one.error * share
            told[name] = replace(one, value=one.value * share, error=error)
    return told


def _filled(
    table: Table, hosts: list[str], site_of: Mapping[str, str], most: Mapping[str, float]
) -> dict[Pair, Forecast]:
    by_sites: dict[Pair, list[Forecast]] = {}
    for (a, b), forecast in table.items():
        if a in site_of and b in site_of:
            by_sites.setdefault((site_of[a], site_of[b]), []).append(forecast)
    filled = dict(table)
    for a in hosts:
        for b in hosts:
            known = by_sites.get((site_of[a], site_of[b]))
            if a != b and (a, b) not in table and known:
                middle = sorted(known, key=lambda f: f.value)[(len(known) - 1) // 2]
                value = min(middle.value, most.get(a, middle.value), most.get(b, middle.value))
                filled[a, b] = replace(middle, value=value)
    return filled


def _access(table: Table, site_of: Mapping[str, str]) -> dict[str, float]:
    """Return the best bandwidth each host was seen to have inside its site."""
    best: dict[str, list[float]] = {}
    for (a, b), forecast in table.items():
        if site_of.get(a) == site_of.get(b):
            for host in (a, b):
                best.setdefault(host, []).append(forecast.value)
    return {host: max(values) for host, values in best.items()}
