"""The weather of a host list for its page: remembered, or measured on request."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from apples.errors import LaunchError
from apples.launch.remote.addresses import remote_hosts
from apples.launch.remote.fitness import Needs
from apples.launch.remote.preflight import preflight
from apples.launch.slurm.nodes import behind_a_queue
from apples.resources import HostList
from apples.weather.conditions import Conditions
from apples.weather.history import remembered_weather
from apples.weather.pages.series import STALE_SECONDS
from apples.weather.sensing import SensingContext
from apples.weather.service import service_settings
from apples.weather.source import WeatherSource
from nws import Forecast

SHOWN_SECONDS = 600.0
"""Seconds for which a page shows a measurement on request; then it shows the stored weather again."""
MAX_LISTS = 50


@dataclass(frozen=True, slots=True)
class AskedWeather:
    """The weather of a list for its page.

    Attributes
    ----------
    conditions
        Conditions of the hosts.
    time
        Time of the measurement, or of the read of stored measurements.
    said
        Failed measurements.
    age
        Seconds since the measurement on request; None: remembered weather.
    """

    conditions: Conditions
    time: float
    said: tuple[str, ...]
    age: float | None = None

    @property
    def notes(self) -> list[str]:
        """Return the failed measurements, and the remarks on the others."""
        return [*self.said, *self.conditions.notes]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return the row of each host on the page.

        ``cpu`` and ``free_memory`` are facts of a forecast; the latter is None if it is not known.
        """
        known = [(host, self.conditions.free_memory(host)) for host in self.conditions.hosts]
        return [
            {
                "host": host.name, "site": host.site, "slots": host.slots, "address": host.reached_at,
                "cpu": _facts(self.conditions.cpu(host), self.time),
                "free_memory": None if memory is None else _facts(memory, self.time),
            }
            for host, memory in known
        ]  # fmt: skip


class HostWeather:
    """The weather of host lists for their pages; measures only on request, one list at a time."""

    def __init__(self) -> None:
        self._measuring = Lock()
        self._asked: dict[str, AskedWeather] = {}

    def of(self, hosts: HostList) -> AskedWeather:
        """Return the weather measured on request in the last ten minutes, else the remembered weather."""
        asked, now = self._asked.get(hosts.source), time.time()
        if (
            asked is not None
            and now - asked.time < SHOWN_SECONDS
            and asked.conditions.hosts == hosts
        ):
            return replace(asked, age=now - asked.time)
        return AskedWeather(remembered_weather(hosts, service_settings()), now, ())

    def measure(self, hosts: HostList) -> None:
        """Measure the hosts of a list, as a plan under live weather does.

        Raises
        ------
        LaunchError
            A list is being measured: probes would measure each other. Transient.
        """
        if not self._measuring.acquire(blocking=False):
            raise LaunchError(
                "hosts are being measured for another page; ask again in a moment",
                code="measuring-already",
            )  # fmt: skip
        try:
            said: list[str] = []
            queued = behind_a_queue(hosts)
            source = WeatherSource(
                SensingContext(
                    hosts,
                    service_settings(),
                    lambda hosts: [host for host in remote_hosts(hosts) if host not in queued],
                    look=lambda far, connections: preflight(
                        far, hosts, Needs(), connections=connections
                    ),
                    log=said.append,
                )
            )
            conditions = source.conditions()
            self._asked[hosts.source] = AskedWeather(conditions, time.time(), tuple(said))
            while len(self._asked) > MAX_LISTS:
                del self._asked[next(iter(self._asked))]
        finally:
            self._measuring.release()


def _facts(forecast: Forecast, now: float) -> dict[str, Any]:
    """Return a forecast in numbers: value, band, age; a value of the host list has no band and no age."""
    interval, age = forecast.interval, forecast.age(now) if forecast.samples else None
    return {
        "value": forecast.value,
        "lower": interval.lower if interval else None,
        "upper": interval.upper if interval else None,
        "age": age,
        "stale": age is not None and age > STALE_SECONDS,
        "method": forecast.method,
        "samples": forecast.samples,
    }
