"""The weather of a host list for its page: what is remembered, or what was measured when somebody asked."""

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
from apples.weather.sensing import SensingContext
from apples.weather.service import service_settings
from apples.weather.source import WeatherSource
from nws import Forecast

SHOWN_SECONDS = 600.0
"""For how long what was measured for a page is shown on it; then it is what is remembered again."""
MOST_LISTS = 50


@dataclass(frozen=True, slots=True)
class AskedWeather:
    """The weather of a list for its page.

    Attributes
    ----------
    conditions
        What is known of the hosts.
    time
        When that was looked up, or measured.
    said
        What could not be measured.
    age
        Seconds since it was measured because somebody asked; None: it is what is remembered.
    """

    conditions: Conditions
    time: float
    said: tuple[str, ...]
    age: float | None = None


class HostWeather:
    """The weather of host lists for their pages; measures only when it is told to, one list at a time."""

    def __init__(self) -> None:
        self._measuring = Lock()
        self._asked: dict[str, AskedWeather] = {}

    def of(self, hosts: HostList) -> AskedWeather:
        """Return what was measured in the last ten minutes because somebody asked, else what is remembered."""
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
            while len(self._asked) > MOST_LISTS:
                del self._asked[next(iter(self._asked))]
        finally:
            self._measuring.release()


def host_rows(asked: AskedWeather) -> list[dict[str, Any]]:
    """Return what the page of a host list says of each host.

    ``cpu`` and ``free_memory`` are facts of a forecast; the latter is None where nobody knows.
    """
    conditions = asked.conditions
    rows = []
    for host in conditions.hosts:
        memory = conditions.free_memory(host)
        rows.append(
            {
                "host": host.name,
                "site": host.site,
                "slots": host.slots,
                "address": host.reached_at,
                "cpu": _facts(conditions.cpu(host), asked.time),
                "free_memory": None if memory is None else _facts(memory, asked.time),
            }
        )
    return rows


def _facts(forecast: Forecast, now: float) -> dict[str, Any]:
    """Return a forecast in numbers: value, band, age; what a host list states has neither."""
    interval = forecast.interval
    return {
        "value": forecast.value,
        "lower": interval.lower if interval else None,
        "upper": interval.upper if interval else None,
        "age": forecast.age(now) if forecast.samples else None,
        "method": forecast.method,
        "samples": forecast.samples,
    }
