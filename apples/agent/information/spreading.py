"""From the links that cliques probe to all: what one pair of two sites was seen to do, the others can too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nws import Forecast, Weather

MOST_HOSTS = 64
"""Past it only what was measured is told: the table grows with the square."""

Pair = tuple[str, str]
Table = Mapping[Pair, Forecast]


def spread(sky: Weather, site_of: Mapping[str, str]) -> Weather:
    """Return `sky` with a link between any two hosts that links were measured of.

    A pair nobody probed takes the forecast of the pair that was, between the same sites (the middle one
    where there are several), and no more bandwidth than either host was seen to have in its own site.
    """
    hosts = sorted(
        {host for pair in (*sky.latency, *sky.bandwidth) for host in pair} & set(site_of)
    )
    if len(hosts) > MOST_HOSTS:
        return sky
    return replace(
        sky,
        latency=_filled(sky.latency, hosts, site_of, {}),
        bandwidth=_filled(sky.bandwidth, hosts, site_of, _access(sky.bandwidth, site_of)),
    )


def shared(
    memory: Mapping[str, Forecast],
    machines: Mapping[str, Sequence[str]],
    whole: Mapping[str, float],
) -> dict[str, Forecast]:
    """Return each host's free memory: at most an equal part of its machine's where several are parts of it.

    Parameters
    ----------
    whole
        What each machine has to give in all; where nobody knows, the most that a part of it sees.
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


def _filled(
    table: Table, hosts: list[str], site_of: Mapping[str, str], most: Mapping[str, float]
) -> dict[Pair, Forecast]:
    by_sites: dict[Pair, list[Forecast]] = {}
    for (a, b), forecast in table.items():
        if a in site_of and b in site_of:
            by_sites.setdefault((site_of[a], site_of[b]), []).append(forecast)
    filled = dict(table)
    for a in hosts:
        for b in hosts:
            known = by_sites.get((site_of[a], site_of[b]))
            if a != b and (a, b) not in table and known:
                middle = sorted(known, key=lambda f: f.value)[(len(known) - 1) // 2]
                value = min(middle.value, most.get(a, middle.value), most.get(b, middle.value))
                filled[a, b] = replace(middle, value=value)
    return filled


def _access(table: Table, site_of: Mapping[str, str]) -> dict[str, float]:
    """Return the best bandwidth each host was seen to have inside its site."""
    best: dict[str, list[float]] = {}
    for (a, b), forecast in table.items():
        if site_of.get(a) == site_of.get(b):
            for host in (a, b):
                best.setdefault(host, []).append(forecast.value)
    return {host: max(values) for host, values in best.items()}
