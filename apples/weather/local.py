"""`LocalSensing`: this machine's weather, measured now by sensors of this process."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from types import MappingProxyType

from apples.errors import LaunchError, coded
from apples.launch.remote.addresses import is_here
from apples.launch.this_host import own_machine
from apples.resources import HostList
from apples.weather.conditions import HERE, merge_remarks
from apples.weather.history import PROBES_HOLD, probe_name
from nws import (
    BandwidthSensor,
    CpuSensor,
    Endpoint,
    Forecast,
    FreeMemorySensor,
    LatencySensor,
    NetworkWeatherService,
    ProbeCorrection,
    RingMemory,
    Sensor,
    SensorError,
    Weather,
)

ROUNDS = 3
"""Measurements before the first forecast: enough for an error, short enough to wait for."""
READINGS, SPACING = 5, 0.01
QUICK_ROUNDS = 2
PROBES = 3
"""First probes of CPUs without a remembered probe: a single probe at a bad moment would falsify every reading."""
MAX_LINKED = 64
"""Maximum number of hosts on one machine with forecasts of their links."""

Cpus = tuple[int, ...]


def quick_sample() -> Weather:
    """Return the weather of `HERE`, this whole machine, from a few samples of its run queues, without a probe.

    Raises
    ------
    LaunchError
        This machine cannot be measured (no /proc).
    """
    try:
        sensor = CpuSensor(HERE, readings=READINGS, spacing=SPACING, probe=None)
        service = NetworkWeatherService(RingMemory(), [sensor])
        for _ in range(QUICK_ROUNDS):
            service.sense()
    except SensorError as error:
        raise LaunchError(f"this machine: {error}", **coded(error, code="sensor-failed")) from None
    return service.weather()


class LocalSensing:
    """This machine's weather, for each host of a list that is a part of it.

    One sensor measures each distinct set of CPUs, all from the same samples of the run queue; one the memory; one
    pair of sensors the loopback between local hosts. Two probes never run at once. Remote hosts are not
    in the weather: the values of the host list apply to them.

    Parameters
    ----------
    rounds
        Number of measurements.
    corrections
        Remembered probes by `probe_name`: their CPUs are not probed again.

    Attributes
    ----------
    remarks
        Parts that the sensors could not read, after the first weather.

    Raises
    ------
    LaunchError
        This machine cannot be measured (no /proc, CPUs of the list that it does not have).
    """

    def __init__(
        self,
        hosts: HostList,
        rounds: int = ROUNDS,
        corrections: Mapping[str, ProbeCorrection] = MappingProxyType({}),
    ) -> None:
        self.local = [host for host in hosts if is_here(host)]
        self.rounds = rounds
        self._cpus: dict[str, CpuSensor] = {}
        self._known = corrections
        try:
            for cpus in sorted({host.cpus for host in self.local}):
                name = _cpus_name(cpus)
                known = corrections.get(_probe_name(cpus))
                self._cpus[name] = CpuSensor(
                    name,
                    cpus or None,
                    readings=READINGS,
                    spacing=SPACING,
                    shares_samples_of=next(iter(self._cpus.values()), None),
                    probe_every=PROBES_HOLD,
                    probes=PROBES,
                    correction=known,
                )
            memory = [FreeMemorySensor("memory")] if self.local else []
        except SensorError as error:
            users = [h.name for h in self.local if not set(h.cpus) <= os.sched_getaffinity(0)]
            raise LaunchError(
                f"{', '.join(users) or 'this machine'}: {error}",
                **coded(error, code="sensor-failed"),
            ) from None
        self.service = NetworkWeatherService(RingMemory(), [*self._cpus.values(), *memory])
        self._between_local: Weather | None = None
        self.remarks: tuple[str, ...] = ()

    def weather(self, over: float | None = None) -> Weather:
        """Return the forecasts over `over` seconds, by the hosts of the list.

        The first call measures a few rounds; later calls forecast from the same measurements.
        """
        if not self.local:
            return Weather()
        if self._between_local is None:
            for _ in range(self.rounds):
                self.service.sense()
            self.remarks = merge_remarks(self._remarks())
            linked = 1 < len(self.local) <= MAX_LINKED
            self._between_local = self._links() if linked else Weather()
        weather, links = self.service.weather(over), self._between_local
        return replace(
            weather.renamed({host.name: _cpus_name(host.cpus) for host in self.local}),
            free_memory=self._memory(weather.free_memory),
            latency=self._between(links.latency),
            bandwidth=self._between(links.bandwidth),
        )

    @property
    def remembered(self) -> dict[str, float]:
        """Return the age of the remembered probe in seconds, by host; after the first weather."""
        found = self.corrections
        names = ((host.name, _probe_name(host.cpus)) for host in self.local)
        return {
            host: time.time() - found[name].time
            for host, name in names
            if name in found and name in self._known and found[name].time == self._known[name].time
        }

    @property
    def corrections(self) -> dict[str, ProbeCorrection]:
        """Return all corrections, new and remembered, by `probe_name`; after the first weather."""
        known = ((_probe_name(sensor.cpus), sensor.correction) for sensor in self._cpus.values())
        return {name: one for name, one in known if one is not None}

    def _remarks(self) -> list[tuple[str, str]]:
        """Return the remarks of the sensors."""
        sensors = self._cpus.values()
        return [("this machine", remark) for sensor in sensors for remark in sensor.remarks]

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


def _cpus_name(cpus: Cpus) -> str:
    return "cpus-" + ("-".join(map(str, sorted(cpus))) if cpus else "all")


def _probe_name(cpus: Collection[int]) -> str:
    """Return the `probe_name` of some CPUs of this machine; without CPUs, of all that this process may use."""
    numbers = sorted(cpus or os.sched_getaffinity(0))
    return probe_name(own_machine(), f"CPUs {','.join(map(str, numbers))}")
