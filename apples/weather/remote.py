"""`RemoteSensing`: the current weather of other machines, from a sensor process on each over ssh."""

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
"""Rounds of measuring; each reads the run queue five times. Up to three probes of 0.1 s precede the first."""
ROUNDS_OF_A_PART = 2
"""The same for a host that shares its machine with other hosts of the list: they wait for each other's probes."""
ROUNDS_WITHOUT_PROBE = 1
"""The same with a stored probe: earlier measurements are stored too, so the error of a forecast is known."""
GREETING_SECONDS = 6.0
SENSE_SECONDS = 10.0
MAX_DELAY_SECONDS = 60.0
"""Maximum age of a measurement when it arrives; an older one does not describe the current load."""
MAX_WARNINGS = 5


class RemoteSensing:
    """Measures other machines and the links between hosts of a list, once.

    All machines are measured at the same time. Of the hosts on one machine, as many are measured at once as leave
    it one CPU. The measurements are stored for later forecasts. If the plan is known, only the links that can
    change it are measured (`apples.weather.link_choice`), else the links of the cliques. No two probes share a
    link (`nws.clique.sites`).

    Parameters
    ----------
    context
        The host list, and the open connections to the checked hosts.
    seen
        The findings on each host to measure; an unfit host, or a host without apples, is not measured.
    propose
        Returns the plan under a weather; None: the plan is not known.

    Attributes
    ----------
    links
        The measurement of the links; None before the first weather.
    remembered
        Host with a stored CPU probe -> the age of the probe in seconds.
    """

    def __init__(
        self,
        context: SensingContext,
        seen: Mapping[str, Fitness],
        propose: Propose | None = None,
    ) -> None:
        assert context.connections is not None  # noqa: S101 - for the type checker: the check of the hosts opened them
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
        """Names of the hosts that are measured."""
        return [host.name for host in self._others]

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks of the sensors on figures that they could not read, each kind once; after the first weather."""
        return merge_remarks(self._remarks)

    def weather(self, over: float | None = None) -> Weather:
        """Return the forecasts over `over` seconds, from new and from stored measurements.

        The first call measures; later calls forecast from the same measurements.
        """
        if not self._others:
            return Weather()
        if self._service is None:
            self._measure()
        return self._forecast(over)

    def _measure(self) -> None:
        """Measure, store the measurements, and make the forecasters of hosts and of links."""
        known, found = history.recall(self._list), Series()
        self._context.phase("hosts")
        sessions = self._sessions()
        self._sense(sessions, known, found)
        # These measurements are minutes apart, without the fixed period that the default profile needs.
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
        """Start a sensor process on all hosts at once; leave out the hosts on which it fails."""

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
        """Measure CPUs and memory: all machines at once, and of one machine as many hosts as leave it one CPU.

        If the CPU of a host contradicts its stored series, the host is measured again, with new probes.
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
            # The stored probe is invalid under another load, and a single reading may catch a short spike.
            with turns[machine].taken(self._list[name].cpu):
                reply = sense(name, ROUNDS if parts_of[machine] == 1 else ROUNDS_OF_A_PART, None)
            if reply is None or reply.bias is None:
                return None
            return cpus, ProbeCorrection(reply.bias, time.time())

        with ThreadPoolExecutor(max(1, len(sessions))) as pool:
            probed = dict(filter(None, pool.map(ask, sessions)))
        self._store(lambda: history.remember_probes(probed) if probed else None)

    def _cpus_of(self, parts: Sequence[str]) -> int:
        """Return the number of usable CPUs of the machine that these hosts are parts of."""
        return max(self._seen[name].cpus for name in parts)

    def _address_of(self, host: str) -> str:
        """Return the address at which other hosts reach a host, as the host reports it."""
        return self._seen[host].address

    def _take(
        self, found: Series, session: HostConnection, do: str, within: float, /, **what: object
    ) -> SensorReply | None:
        """Send a request, and add the measurements of the reply to `found`, timed by this machine's clock."""
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
        """Return whether a measurement is valid: of this host, towards a host of the list, and in range."""
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

        A link is probed once a plan, so a link's forecast is for its next measurement, not for `over`.
        """
        assert self._service is not None  # noqa: S101 - for the type checker: made before it is asked
        assert self.links is not None  # noqa: S101
        if over not in self._of_hosts:  # hosts are measured once, links in several rounds
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
    """A semaphore of CPUs: hosts on one machine are measured at once while their CPUs fit its spare CPUs.

    Parameters
    ----------
    cpus
        Number of spare CPUs of the machine; a host that wants more is measured alone.
    """

    def __init__(self, cpus: float) -> None:
        # In thousandths: rounding errors of float sums could keep the last waiter waiting for ever.
        self._free = self._cpus = self._thousandths(max(1.0, cpus))
        self._changed = Condition()

    @staticmethod
    def _thousandths(cpus: float) -> int:
        """Return CPUs in whole thousandths, rounded up."""
        return math.ceil(1000.0 * cpus)

    @contextmanager
    def taken(self, wanted: float) -> Iterator[None]:
        """Wait until `wanted` CPUs are spare, and hold them during the block."""
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
    """Return each host's free memory; several hosts on one machine get at most an equal part of its memory each.

    Parameters
    ----------
    whole
        Machine -> its bytes in all; if unknown, the largest free memory that one of its hosts reports.
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
