"""Hosts in an application's files: their names, their speeds and their recorded weather."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import hat
from apples.errors import UsageError
from apples.resources import Host, HostList
from apples.ui.units import listed
from nws import Weather


class Speeds(NamedTuple):
    """Dedicated seconds of one unit of work by host, and a line about the values that were assumed."""

    seconds: Mapping[str, float]
    assumed: tuple[str, ...]


def speeds_of(hosts: Sequence[Host]) -> Speeds:
    """Return the `seconds_per_point` of each host; a host without it gets the median of the others.

    Without any given value each host takes 1 second.

    Examples
    --------
    >>> found = speeds_of([Host("ada", seconds_per_point=0.5), Host("bob")])
    >>> found.seconds["bob"], *found.assumed
    (0.5, 'seconds_per_point of bob: not given, taken as like the median of the others')
    """
    given = {h.name: h.seconds_per_point for h in hosts if h.seconds_per_point is not None}
    usual = median(given.values()) if given else 1.0
    unknown = [host.name for host in hosts if host.name not in given]
    why = "like the median of the others" if given else "1 second"
    line = f"seconds_per_point of {listed(unknown)}: not given, taken as {why}"
    seconds = {host.name: given.get(host.name, usual) for host in hosts}
    return Speeds(seconds, (line,) if unknown else ())


def recorded_weather(name: str, hosts: HostList) -> Weather:
    """Return an empty weather for ``static``, else the weather of that file.

    Raises
    ------
    UsageError
        The file is missing, or names a host that the list does not have. Permanent.
    """
    if name == "static":
        return Weather()
    if not Path(name).exists():
        raise UsageError(
            f"--weather '{name}': neither static nor a file of that name",
            code="file-missing",
            option="--weather",
            file=name,
        )
    from apples.weather.source import read_weather  # noqa: PLC0415 - a static plan does without

    return read_weather(name, hosts)


def check_hosts(hosts: HostList, names: Iterable[str], field: str, **fields: Any) -> None:
    """Raise an error for the first name that the host list lacks.

    Parameters
    ----------
    field
        The field or option with the names; the message begins with it.
    fields
        Further fields of the error.

    Raises
    ------
    UsageError
        A name is unknown; the message suggests the nearest known name. Permanent.
    """
    known = [host.name for host in hosts]
    for name in names:
        if name not in known:
            source = hosts.source or "the host list"
            raise UsageError(
                f"{field}: '{name}' is not a host of {source}{did_you_mean(name, known)}",
                code="host-unknown",
                field=field,
                host=name,
                host_list=source,
                **fields,
            )


def did_you_mean(name: str, known: Collection[str]) -> str:
    """Return a question for the nearest known name, which ends a message; empty if none is near.

    Examples
    --------
    >>> did_you_mean("bobb", ["ada", "bob"]), did_you_mean("x", ["ada"])
    ("; did you mean 'bob'?", '')
    """
    near = hat.nearest(name, known)
    return f"; did you mean '{near}'?" if near else ""
