"""`remembered_weather`: what is known of the hosts of a list without measuring anything."""

from __future__ import annotations

from apples.agent.weather import history
from apples.agent.weather.conditions import Conditions
from apples.agent.weather.service import ServiceSettings, ask, by_names_of, joined
from apples.resources import HostList
from nws import NetworkWeatherService, RingMemory, ServiceError, Weather


def remembered_weather(hosts: HostList, settings: ServiceSettings | None) -> Conditions:
    """Return the weather of a list as a service tells it and as earlier plans measured it over ssh.

    A host of which neither knows anything has what the list says of it.

    Parameters
    ----------
    settings
        The weather service that is configured; None: there is none.

    Raises
    ------
    UsageError
        The service refuses us. Permanent.
    """
    told, notes = Weather(), tuple[str, ...]()
    if settings is not None:
        try:
            told = by_names_of(hosts.hosts, ask(settings, None))
        except ServiceError as error:
            notes = (f"weather service: {error}; not used",)
    service = NetworkWeatherService(RingMemory())
    for measurements in history.recall(hosts).values():
        for one in measurements:
            service.memory.store(one)
    return Conditions(hosts, joined(told, service.weather()), "what is remembered", notes)
