"""`RemoteSensing`: this moment's weather of other machines, asked of a sensor process on each over ssh."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from threading import Condition

from apples.errors import LaunchError
from apples.launch.remote.connection import HostConnection
from apples.launch.remote.fitness import Fitness
from apples.weather import history
from apples.weather.conditions import merge_remarks
from apples.weather.link_choice import Propose
from apples.weather.links import LinkSensing, Series
from apples.weather.sensing import SensingContext
from nws import (
    AVAILABLE_CPU,
    CURRENT_CPU,
    Forecast,
    Measurement,
    NetworkWeatherService,
    ProbeCorrection,
    RingMemory,
    SensorReply,
    SeriesName,
    Weather,
    classic,
)

ROUNDS = 3
"""Of which each reads the run queue five times; before the first, up to three probes of 0.1 s."""
ROUNDS_OF_A_PART = 2
"""The same of a host that shares its machine with other hosts of the list: they wait for each other's probes."""
ROUNDS_WITHOUT_PROBE = 1
"""The same where a probe is remembered: past looks are too, so the error of a forecast is known."""
GREETING_SECONDS = 6.0
SENSE_SECONDS = 10.0
MAX_DELAY_SECONDS = 60.0
"""Seconds; a measurement that is older when it comes is none of this moment."""
MAX_WARNINGS = 5


class RemoteSensing:
    """Measures other machines and the links between hosts of a list, once.

    Every machine is measured at the same time; of hosts that are parts of one machine as many at once as leave
    it a CPU. What was measured is remembered, and forecast from next time. Where it is known what would be
    planned, only the links that the plan can depend on are measured (`apples.weather.link_choice`), else
    those of the cliques; no two probes share a link (`nws.clique.sites`).

    Parameters
    ----------
    context
        The list, and the connections through which the hosts were looked at.
    seen
        The findings on each host to be measured; a host that is unfit, or has no apples, is not measured.
    propose
        Returns the plan under a weather; None: the plan is not known.

    Attributes
    ----------
    links
        What was done about the links; None before the first weather.
    remembered
        By host whose CPUs were not probed again: how many seconds ago they were.
    """

    def __init__(
        self,
        context: SensingContext,
        seen: Mapping[str, Fitness],
        propose: Propose | None = None,
    ) -> None:
        assert context.connections is not None  # noqa: S101 - for the type checker: whoever looked has them
        self._context, self._list, self._connections = context, context.hosts, context.connections
        self._seen, self._propose = seen, propose
        self._warned = 0
        self._remarks: list[tuple[str, str]] = []
        self._service: NetworkWeatherService | None = None
        self._of_hosts: dict[float | None, Weather] = {}
        self.links: LinkSensing | None = None
        self.remembered: dict[str, float] = {}
        others = [host for host in self._list if host.name in seen]
        fit = [host for host in others if not seen[host.name].refusal]
        for host in fit:
            if not seen[host.name].apples:
                self._warn(f"{host.name}: its python has no apples")
        self._others = [host for host in fit if seen[host.name].apples]

    @property
    def measured_hosts(self) -> list[str]:
        """Hosts that are measured."""
        return [host.name for host in self._others]

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the sensors there could not see, each kind once; after the first weather."""
        return merge_remarks(self._remarks)

    def weather(self, over: float | None = None) -> Weather:
        """Return the forecasts over so many seconds, from what was measured now and before.

        The first call measures; later ones ask the same measurements for another frame.
        """
        if not self._others:
            return Weather()
        if self._service is None:
            self._measure()
        return self._forecast(over)

    def _measure(self) -> None:
        """Measure, remember, and make the forecasters of hosts and of links."""
        known, found = history.recall(self._list), Series()
        self._context.phase("hosts")
        sessions = self._sessions()
        self._sense(sessions, known, found)
        # Looks are minutes apart: there is no period, and so no frame, to ask the default profile for.
        self._service = NetworkWeatherService(RingMemory(), (), classic)
        for name, measurements in history.all_of(known, found).items():
            if not name.peer:
                for measurement in measurements:
                    self._service.memory.store(measurement)
        self._context.phase("links")
        machines = self._machines()
        self.links = LinkSensing(
            self._context,
            sessions,
            lambda host, do, within, /, **what: self._take(
                found, sessions[host], do, within, **what
            ),
            known,
            found,
            machine_of={n: m for m, parts in machines.items() if len(parts) > 1 for n in parts},
            most=max([1, *(self._cpus_of(parts) // 2 for parts in machines.values())]),
            address_of=self._address_of,
        )
        if self._propose is None or self._context.fresh:
            self.links.measure_cliques()
        else:
            self.links.measure_needed(lambda: self._forecast(None), self._propose)
        together = history.all_of(known, found)
        series = {
            name: together[name] if name.peer else history.as_one(together[name], look)
            for name, look in found.items()
        }
        self._store(lambda: history.remember(self._list, series))

    # ------------------------------------------------------------------- asking
    def _sessions(self) -> dict[str, HostConnection]:
        """Make all hosts sensor processes at once; leave out those that do not become one."""

        def begin(name: str) -> HostConnection | None:
            connection = self._connections.get(name)
            if connection is None:
                self._warn(f"{name}: its connection ended")
                return None
            try:
                connection.begin_sensing(GREETING_SECONDS)
            except LaunchError as error:
                self._warn(str(error))
                return None
            return connection

        names = [host.name for host in self._others]
        with ThreadPoolExecutor(max(1, len(names))) as pool:
            begun = zip(names, pool.map(begin, names), strict=True)
            return {name: one for name, one in begun if one is not None}

    def _sense(
        self,
        sessions: Mapping[str, HostConnection],
        known: Mapping[SeriesName, Sequence[Measurement]],
        found: Series,
    ) -> None:
        """Measure CPUs and memory, machines side by side, of one machine as many parts as leave it a CPU.

        A host whose CPU is not as remembered is measured again, with new probes.
        """
        turns, machine_of = dict[str, MachineTurns](), dict[str, str]()
        parts_of = dict[str, int]()
        for machine, parts in self._machines().items():
            turns[machine] = MachineTurns(self._cpus_of(parts) - 1)
            parts_of[machine] = len(parts)
            machine_of |= dict.fromkeys(parts, machine)

        remembered = {} if self._context.fresh else history.recall_probes()

        def sense(name: str, rounds: int, bias: float | None) -> SensorReply | None:
            return self._take(
                found, sessions[name], "sense", SENSE_SECONDS, host=name, rounds=rounds, bias=bias
            )

        def ask(name: str) -> tuple[str, ProbeCorrection] | None:
            machine = machine_of[name]
            cpus = history.probe_name(machine, self._list[name].identity)
            probe, of_host = remembered.get(cpus), SeriesName(AVAILABLE_CPU, name)
            if probe is not None:
                sense(name, ROUNDS_WITHOUT_PROBE, probe.bias)
                if not history.is_news(known.get(of_host, ()), found.get(of_host, ())):
                    self.remembered[name] = time.time() - probe.time
                    return None
            # A probe of another load does not hold, and one reading may be of a bad moment.
            with turns[machine].taken(self._list[name].cpu):
                reply = sense(name, ROUNDS if parts_of[machine] == 1 else ROUNDS_OF_A_PART, None)
            if reply is None or reply.bias is None:
                return None
            return cpus, ProbeCorrection(reply.bias, time.time())

        with ThreadPoolExecutor(max(1, len(sessions))) as pool:
            probed = dict(filter(None, pool.map(ask, sessions)))
        self._store(lambda: history.remember_probes(probed) if probed else None)

    def _cpus_of(self, parts: Sequence[str]) -> int:
        """Return the CPUs of the machine that these hosts are parts of, as far as they may use them."""
        return max(self._seen[name].cpus for name in parts)

    def _address_of(self, host: str) -> str:
        """Return where others reach a host, by its own word."""
        return self._seen[host].address

    def _take(
        self, found: Series, session: HostConnection, do: str, within: float, /, **what: object
    ) -> SensorReply | None:
        """Ask, and keep what was measured, by this machine's clock."""
        answer = self._ask(session, do, within, **what)
        if answer is None:
            return None
        reply, ahead = answer
        now = time.time()
        for measurement in reply.measurements:
            mine = replace(measurement, time=min(now, measurement.time - ahead))
            if self._is_its_own(mine, session.host) and now - mine.time < MAX_DELAY_SECONDS:
                found.setdefault(mine.series, []).append(mine)
        return reply

    def _is_its_own(self, measurement: Measurement, host: str) -> bool:
        """Whether a host may say this: of itself, towards a host of the list, and possible at all."""
        name = measurement.series
        known = name.peer is None or (name.peer != host and name.peer in self._list)
        share = name.resource in {AVAILABLE_CPU, CURRENT_CPU}
        return name.host == host and known and (measurement.value <= 1.0 or not share)

    def _ask(
        self, session: HostConnection, do: str, within: float, /, **what: object
    ) -> tuple[SensorReply, float] | None:
        try:
            reply, ahead = session.ask(do, within, **what)
        except LaunchError as error:
            self._warn(str(error))
            return None
        for failure in reply.failures:
            self._warn(f"{session.host}: {failure}")
        self._remarks += [(session.host, remark) for remark in reply.remarks]
        return reply, ahead

    # ------------------------------------------------------------ remembering
    def _store(self, remember: Callable[[], None]) -> None:
        try:
            remember()
        except OSError as error:
            self._warn(f"{error.filename}: {error.strerror}; nothing is remembered")

    def _forecast(self, over: float | None) -> Weather:
        """Return the weather of all hosts and links.

        A link is probed once a plan: its next measurement is the next plan's, and no frame of this one.
        """
        assert self._service is not None  # noqa: S101 - for the type checker: made before it is asked
        assert self.links is not None  # noqa: S101
        if over not in self._of_hosts:  # they are measured once, links again and again
            self._of_hosts[over] = self._service.weather(over)
        weather, (latency, bandwidth) = self._of_hosts[over], self.links.tables()
        machines = self._machines()
        whole = {m: max(self._seen[h].memory for h in parts) for m, parts in machines.items()}
        weather = replace(
            weather,
            free_memory=share_memory(weather.free_memory, machines, whole),
            latency=latency,
            bandwidth=bandwidth,
        )
        return self.links.interpolated(weather)

    def _machines(self) -> dict[str, list[str]]:
        """Return the hosts that are parts of each machine."""
        machines: dict[str, list[str]] = {}
        for host in self._others:
            machines.setdefault(self._seen[host.name].machine or host.name, []).append(host.name)
        return machines

    def _warn(self, what: str) -> None:
        """Log a measurement that failed, the first `MAX_WARNINGS` times."""
        self._warned += 1
        if self._warned <= MAX_WARNINGS:
            self._context.log(f"warning: not measured: {what}")
        elif self._warned == MAX_WARNINGS + 1:
            self._context.log("warning: not measured: more of the like")


class MachineTurns:
    """Lets parts of one machine be measured at once, as many as together want no more CPUs than it has to spare.

    Parameters
    ----------
    cpus
        How many it has to spare; whoever wants more than that has it alone.
    """

    def __init__(self, cpus: float) -> None:
        # Whole thousandths: sums of fractions do not return to their start, and the last waiter
        # would wait for ever.
        self._free = self._cpus = self._thousandths(max(1.0, cpus))
        self._changed = Condition()

    @staticmethod
    def _thousandths(cpus: float) -> int:
        """Return whole thousandths: sums of fractions would not come back to where they began."""
        return math.ceil(1000.0 * cpus)

    @contextmanager
    def taken(self, wanted: float) -> Iterator[None]:
        """Wait until so many CPUs are to spare, and hold them."""
        held = min(self._thousandths(wanted), self._cpus)
        with self._changed:
            self._changed.wait_for(lambda: self._free >= held)
            self._free -= held
        try:
            yield
        finally:
            with self._changed:
                self._free += held
                self._changed.notify_all()


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
