"""The weather from the configured Network Weather Service, for the hosts of a list."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from apples.errors import UsageError, coded
from apples.io import state
from apples.resources import Host
from nws import Weather, read_token

DEADLINE = 5.0
"""Seconds that the service may take to answer."""


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """URL of the service, the token for it, and the file of trusted certificates."""

    url: str
    token: str
    certificate: Path | None = None


def service_settings(environment: Mapping[str, str] = os.environ) -> ServiceSettings | None:
    """Return the settings of the configured service; None without a service.

    The settings are ``NWS_SERVICE`` (URL), ``NWS_TOKEN_FILE`` and ``NWS_CA``. The default of the first is the
    service that ``nws serve`` runs for this user on this machine. An empty ``NWS_SERVICE`` means no service.

    Raises
    ------
    UsageError
        The token of the service cannot be read, or other users can read it.
    """
    url = environment.get("NWS_SERVICE")
    try:
        home = state.directory() / "nws"
    except OSError:  # without a state directory, no service of this user has stored its address
        home = Path(os.devnull)
    if url is None:
        try:
            url = (home / "url").read_text(encoding="utf-8").strip()
        except OSError:
            return None
    if not url:
        return None
    path = Path(environment.get("NWS_TOKEN_FILE") or home / "token")
    certificate = environment.get("NWS_CA")
    try:
        token = read_token(path)
    except ValueError as error:
        raise UsageError(
            f"token of the weather service {url}: {error}", **coded(error, code="token-invalid")
        ) from None
    return ServiceSettings(url, token, Path(certificate) if certificate else None)


def ask(settings: ServiceSettings, over: float | None) -> Weather:
    """Return the weather of a service over `over` seconds; stale series are left out.

    Raises
    ------
    UsageError
        The service rejects the request: the address, the token or its scope is wrong. Permanent.
    ServiceError
        The service does not answer, or is temporarily unable to. Transient.
    """
    from nws import Client, ServiceError  # noqa: PLC0415 - an HTTP client, where there is a service

    try:
        with Client(
            settings.url, settings.token, certificate=settings.certificate, deadline=DEADLINE
        ) as client:
            return client.weather(over)
    except ServiceError as error:
        if error.transient:
            raise
        raise UsageError(
            f"weather service {error}", **coded(error, code="service-refused")
        ) from None
    except ValueError as error:  # not a weather
        raise UsageError(
            f"weather service {settings.url}: {error}", **coded(error, code="answer-invalid")
        ) from None


def by_names_of(hosts: Sequence[Host], weather: Weather) -> Weather:
    """Return the part of a weather that belongs to these hosts, under their names in the list.

    A host of the list matches the host of that name in the weather. A host without CPUs in its list entry also
    matches by its address.
    """
    known = {*weather.cpu, *weather.free_memory}
    known |= {end for pair in (*weather.latency, *weather.bandwidth) for end in pair}
    return weather.renamed(
        {h.name: h.name if h.name in known or h.cpus else h.reached_at for h in hosts}
    )
