"""Where a decision's weather comes from: nothing (static), a file, or this machine's sensors (live)."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from apples.agent.conditions import Conditions, listed
from apples.agent.information.abroad import Abroad
from apples.agent.information.elsewhere import Talk, unheard
from apples.agent.information.service import ServiceSettings, ask, by_names_of, joined
from apples.errors import LaunchError, UsageError
from apples.launch.remote.addresses import is_here
from apples.launch.remote.fitness import Fitness
from apples.resources import Host, HostList
from nws import (
    BandwidthSensor,
    CpuSensor,
    Endpoint,
    Forecast,
    FreeMemorySensor,
    LatencySensor,
    NetworkWeatherService,
    RingMemory,
    Sensor,
    SensorError,
    ServiceError,
    Weather,
)

ROUNDS = 5
"""Measurements before the first forecast: enough for an error, short enough to wait for."""
GLANCE = 3
"""Where an application runs on what is measured: it pays for every probe."""
READINGS, SPACING = 5, 0.01
PROBE_EVERY = 0.0
"""Every round probes: one probe alone, taken at a bad moment, would bend every reading after it."""
MOST_LINKED = 64
"""Hosts on one machine whose links are told one by one."""

Cpus = tuple[int, ...]
Look = Callable[[Sequence[Host]], Mapping[str, Fitness]]


def unseen(hosts: Sequence[Host]) -> Mapping[str, Fitness]:
    """Look at no host."""
    del hosts
    return {}


def read_weather(path: str | Path) -> Weather:
    """Return a recorded weather.

    Raises
    ------
    UsageError
        The file cannot be read or is no weather; names the field. Permanent.
    """
    try:
        return Weather.from_json(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{path}: {reason}") from None


class LiveSky:
    """This machine's weather, told for each host of a list that is a part of it.

    One sensor measures each distinct set of CPUs, one the memory, one pair of sensors the loopback
    that local hosts talk through; never two probes at once. Hosts elsewhere are not in the weather:
    the host list's values stand for them.

    Raises
    ------
    LaunchError
        This machine cannot be measured (no /proc, CPUs of the list that it does not have).
    """

    def __init__(self, hosts: HostList, rounds: int = ROUNDS) -> None:
        self.local = [host for host in hosts if is_here(host)]
        self.rounds = rounds
        self._sensors: dict[str, Sensor] = {}
        try:
            for cpus in sorted({host.cpus for host in self.local}):
                name = _cpu_name(cpus)
                self._sensors[name] = CpuSensor(
                    name,
                    cpus or None,
                    readings=READINGS,
                    spacing=SPACING,
                    probe_every=PROBE_EVERY,
                )
            if self.local:
                self._sensors["memory"] = FreeMemorySensor("memory")
        except SensorError as error:
            users = [h.name for h in self.local if not set(h.cpus) <= os.sched_getaffinity(0)]
            raise LaunchError(f"{', '.join(users) or 'this machine'}: {error}") from None
        self.service = NetworkWeatherService(RingMemory(), self._sensors.values())
        self._between_local: Weather | None = None

    def weather(self, over: float | None = None) -> Weather:
        """Return the forecasts over so many seconds, by the hosts of the list.

        The first call senses a few rounds; later ones ask the same measurements for another frame.
        """
        if not self.local:
            return Weather()
        if self._between_local is None:
            for _ in range(self.rounds):
                self.service.sense()
            linked = 1 < len(self.local) <= MOST_LINKED
            self._between_local = self._links() if linked else Weather()
        sky, links = self.service.weather(over), self._between_local
        return Weather(
            sky.time,
            cpu=self._by_host(sky.cpu),
            current_cpu=self._by_host(sky.current_cpu),
            competitors=self._by_host(sky.competitors),
            free_memory=self._memory(sky.free_memory),
            latency=self._between(links.latency),
            bandwidth=self._between(links.bandwidth),
        )

    def _by_host(self, table: Mapping[str, Forecast]) -> dict[str, Forecast]:
        return {
            host.name: table[_cpu_name(host.cpus)]
            for host in self.local
            if _cpu_name(host.cpus) in table
        }

    def _memory(self, table: Mapping[str, Forecast]) -> dict[str, Forecast]:
        """Return an equal share of the machine's memory for each host on it."""
        whole = table.get("memory")
        if whole is None:
            return {}
        share = whole.scaled(1.0 / len(self.local))
        return {host.name: share for host in self.local}

    def _links(self) -> Weather:
        """Return the weather of the loopback, measured now."""
        secret = secrets.token_hex()
        with ExitStack() as stack:
            endpoint = stack.enter_context(Endpoint(secret))
            sensors: tuple[Callable[..., Sensor], ...] = (LatencySensor, BandwidthSensor)
            service = NetworkWeatherService(
                RingMemory(),
                [make("here", "there", endpoint.address, secret) for make in sensors],
            )
            for _ in range(2):
                service.sense()
            return service.weather()

    def _between(
        self, table: Mapping[tuple[str, str], Forecast]
    ) -> dict[tuple[str, str], Forecast]:
        loopback = table.get(("here", "there"))
        if loopback is None:
            return {}
        return {(a.name, b.name): loopback for a in self.local for b in self.local if a is not b}


class Skies:
    """The live weather of a host list: of the service that is configured, else measured now.

    Hosts that the service knows nothing current of are measured: in this process where they are this
    machine, over ssh where they are other machines that can be asked. Those that cannot are taken from
    the host list. `notes` says so, and why. When the service does not answer, that holds for all.

    Parameters
    ----------
    hosts
        Whose weather it is.
    settings
        The service; None: there is none.
    others
        Hosts that can be measured over ssh.
    look
        Looks at hosts before they are asked.
    talk
        Is told, a line each, what could not be measured.
    rounds
        How often each part of this machine is measured.

    Attributes
    ----------
    seen
        By host: what was found on those that were looked at.

    Raises
    ------
    UsageError
        The service refuses us. Permanent.
    LaunchError
        This machine cannot be measured.
    """

    def __init__(
        self,
        hosts: HostList,
        settings: ServiceSettings | None,
        others: Sequence[Host] = (),
        look: Look = unseen,
        talk: Talk = unheard,
        rounds: int = ROUNDS,
    ) -> None:
        self._hosts, self._rounds = hosts, rounds
        self._settings = settings
        self._others = others
        self._look = look
        self._talk = talk
        self.seen: Mapping[str, Fitness] = {}
        self._own: LiveSky | None = None
        self._abroad: Abroad | None = None
        self._down = ""

    def conditions(self, over: float | None = None) -> Conditions:
        """Return the conditions over so many seconds; None: the next measurement."""
        told = self._told(over)
        source = self._settings.url if self._settings and told.cpu else "this process"
        unknown = [host for host in self._hosts if host.name not in told.cpu]
        far = [host for host in self._others if host in unknown]
        here = [host for host in unknown if host not in far and is_here(host)]
        notes = tuple(self._notes(unknown, far, here))
        if far:
            told = joined(told, self._asked(far, over))
        if here:
            told = joined(told, self._measured(over))
        return Conditions(self._hosts, told, source, notes, over)

    def _told(self, over: float | None) -> Weather:
        """Return what the service knows."""
        if self._settings is None or self._down:
            return Weather()
        try:
            return by_names_of(self._hosts.hosts, ask(self._settings, over))
        except ServiceError as error:
            self._down = str(error)
            return Weather()

    def _notes(
        self, unknown: Sequence[Host], far: Sequence[Host], here: Sequence[Host]
    ) -> Iterator[str]:
        """Yield what is to be said of hosts that the service does not tell of."""
        if self._settings is None:
            return
        if self._down:
            yield f"weather service: {self._down}; not used"
            return
        away = [host for host in unknown if host not in far and host not in here]
        for hosts, instead in (
            (here, ", measured here"),
            (far, ", measured over ssh"),
            (away, ""),
        ):
            if hosts:
                names = listed(host.name for host in hosts)
                yield f"weather of {names}: not at {self._settings.url}{instead}"

    def _measured(self, over: float | None) -> Weather:
        if self._own is None:
            self._own = LiveSky(self._hosts, self._rounds)
        return self._own.weather(over)

    def _asked(self, far: Sequence[Host], over: float | None) -> Weather:
        if self._abroad is None:
            self.seen = self._look(far)
            self._abroad = Abroad(self._hosts, far, self.seen, self._talk)
        return self._abroad.weather(over)


def _cpu_name(cpus: Cpus) -> str:
    return "cpus-" + ("-".join(map(str, sorted(cpus))) if cpus else "all")
