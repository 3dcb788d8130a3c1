"""The host list of a lab, as a user of the emulated cluster would write it."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import hat
from apples.agent.information import load_information, program_of
from apples.lab.document import HostEntry, LabDocument, SiteEntry
from apples.lab.quoting import login
from apples.lab.record import EmulatedHost
from apples.launch.calibrate import calibrate
from apples.launch.sample import example_folder
from apples.resources import Host

WIRE_LATENCY = 5e-5
"""Seconds of a small message between two hosts without shaping."""
WIRE_BANDWIDTH = 1e9
"""Bytes per second without shaping: more than one core copies through the kernel's network."""
# Memory of a Python rank in addition to its strip, as measured for the largest lab host.
OWN_MEMORY, RANK_MEMORY = 48 << 20, 64 << 20
"""Bytes of a host's memory limit that strips cannot use: for its own processes with a login, and for each rank."""


def host_list(
    document: LabDocument,
    machines: Sequence[EmulatedHost],
    speeds: Mapping[str, float],
    ssh_config: str,
    delayed: bool,
) -> str:
    """Return the text of ``hosts.toml``.

    Parameters
    ----------
    speeds
        Host -> measured dedicated seconds per point; hosts that were not measured are missing.
    delayed
        Whether the kernel can delay packets as the file requires.
    """
    pairs = zip(document.host, machines, strict=True)
    content: dict[str, Any] = {"ssh_config": ssh_config} if ssh_config else {}
    content["host"] = [_host(entry, machine, speeds) for entry, machine in pairs]
    content["link"] = list(_links(document, delayed))
    return f"# Written by: apples lab up (lab '{document.name}')\n" + hat.dump(content)


def slots(cpu: float | None, cpus: Sequence[int]) -> int:
    """Return how many ranks a host runs at once: its cores, rounded up.

    Examples
    --------
    >>> slots(0.4, ()), slots(1.5, ()), slots(None, (0, 1)), slots(0.5, (0, 1))
    (1, 2, 2, 1)
    """
    width = min(cpu or math.inf, len(cpus) or math.inf)
    return 1 if math.isinf(width) else max(1, math.ceil(width))


def _host(entry: HostEntry, machine: EmulatedHost, speeds: Mapping[str, float]) -> dict[str, Any]:
    count = slots(machine.cpu, machine.cpus)
    written: dict[str, Any] = {
        "name": entry.name,
        "address": machine.address,
        "site": entry.site,
        "user": login(),
        "python": sys.executable,
    }
    if count > 1:
        written["slots"] = count
    if entry.name in speeds:
        written["seconds_per_point"] = speeds[entry.name]
    if entry.cpu is not None and entry.cpu < count:
        written["cpu"] = entry.cpu / count
    if entry.memory is not None:
        written["free_memory"] = max(0, entry.memory - OWN_MEMORY - RANK_MEMORY * count)
    return written


def _links(document: LabDocument, delayed: bool) -> Iterator[dict[str, Any]]:
    """Yield the links that a plan may need: inside and between sites, and of hosts with a link of their own."""
    sites = document.sites
    for i, one in enumerate(sites):
        yield _link(one.name, one.name, (), 0.0)
        for other in sites[i + 1 :]:
            latency = one.latency + other.latency if delayed else 0.0
            yield _link(one.name, other.name, (one.bandwidth, other.bandwidth), latency)
    slow = [host for host in document.host if host.bandwidth]
    for host in slow:
        for site in sites:
            limits, latency = _between(document, host.site, site, delayed)
            yield _link(host.name, site.name, (host.bandwidth, *limits), latency)
    for i, host in enumerate(slow):
        for other_host in slow[i + 1 :]:
            site = next(site for site in sites if site.name == other_host.site)
            limits, latency = _between(document, host.site, site, delayed)
            both = (host.bandwidth, other_host.bandwidth, *limits)
            yield _link(host.name, other_host.name, both, latency)


def _between(
    document: LabDocument, name: str, site: SiteEntry, delayed: bool
) -> tuple[tuple[float | None, ...], float]:
    if name == site.name:
        return (), 0.0
    own = next(one for one in document.sites if one.name == name)
    return (own.bandwidth, site.bandwidth), own.latency + site.latency if delayed else 0.0


def _link(a: str, b: str, limits: Sequence[float | None], latency: float) -> dict[str, Any]:
    known = [limit for limit in limits if limit is not None]
    bandwidth = min([*known, WIRE_BANDWIDTH])
    return {"between": [a, b], "latency": WIRE_LATENCY + latency, "bandwidth": bandwidth}


GRID, ROWS = 2000, 400
"""A strip of 13 MB: past the caches, and measured in half a second."""


def measured_speeds(document: LabDocument, hosts: Path) -> Mapping[str, float]:
    """Return the dedicated seconds per point of each host; hosts on the same CPUs are measured once.

    Quotas are ignored: the measurement is processor time, which a quota does not change.

    Parameters
    ----------
    hosts
        The lab's host list, without speeds.

    Raises
    ------
    ApplesError
        The sample application could not be run.
    """
    folder = example_folder()
    files = (hosts, folder / "template.toml", folder / "user.toml")
    information = load_information(*files, settings={"grid": GRID}, weather="static")
    parameters = information.application.parameters
    known: dict[tuple[int, ...], float] = {}
    for entry in document.host:
        if entry.cpus not in known:
            name = information.implementation(information.hosts[entry.name])
            place, program = Host(entry.name, cpus=entry.cpus), program_of(information, name)
            (found,) = calibrate(place, program, name, parameters, [ROWS])
            known[entry.cpus] = found.seconds_per_point
    return {entry.name: known[entry.cpus] for entry in document.host}
