"""The weather from a Network Weather Service that is configured, for the hosts of a list."""

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
    """Where the service is, what it is shown, and whose certificates are trusted."""

    url: str
    token: str
    certificate: Path | None = None


def service_settings(environment: Mapping[str, str] = os.environ) -> ServiceSettings | None:
    """Return the service that is configured; None if there is none.

    ``NWS_SERVICE`` (URL), ``NWS_TOKEN_FILE`` and ``NWS_CA``; without the first the one that
    ``nws serve`` runs for this user on this machine. An empty ``NWS_SERVICE`` means none.

    Raises
    ------
    UsageError
        A service without a token that can be read, by this user alone.
    """
    url = environment.get("NWS_SERVICE")
    try:
        home = state.directory() / "nws"
    except OSError:  # nobody can have left a service's address where no folder can be
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
    """Return the weather of a service over so many seconds: what is stale there is not in it.

    Raises
    ------
    UsageError
        It refuses us: the address, the token or its scope is wrong. Permanent.
    ServiceError
        It does not answer, or cannot now. Transient.
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
    """Return the part of a weather that is of these hosts, under the names that the list gives them.

    A host of the list is the host of that name, else, if it is not a part of a machine, the one that
    is named as its address.
    """
    known = {*weather.cpu, *weather.free_memory}
    known |= {end for pair in (*weather.latency, *weather.bandwidth) for end in pair}
    return weather.renamed(
        {h.name: h.name if h.name in known or h.cpus else h.reached_at for h in hosts}
    )
