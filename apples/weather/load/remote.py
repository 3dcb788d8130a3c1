"""Command lines of the load monitor's slaves: one for the hosts on this machine, one over ssh for each other."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping
from dataclasses import replace

from apples.launch.remote import ssh
from apples.launch.remote.addresses import is_here
from apples.resources import Host, HostList

MODULE = "apples.weather.load.reporter"
HERE = "this machine"


def load_slaves(hosts: HostList, far: Collection[Host], every: float) -> dict[str, list[str]]:
    """Return the command line of the slave of each machine: all hosts on this machine share one.

    Parameters
    ----------
    far
        Hosts of the list on other machines; each needs a Python with apples.
    every
        Seconds between two snapshots.
    """
    others = {host.name for host in far}
    here = {host.name: list(host.cpus) for host in hosts if host.name not in others}
    found = {HERE: [sys.executable, *_words(here, every)]} if here else {}
    for host in far:
        told = _words({host.name: []}, every)
        found[host.name] = ssh.command(ssh.reach(host, hosts), told)
    return found


def load_slave(hosts: HostList, host: Host, every: float) -> list[str]:
    """Return the command line of a slave for a single host of a list, on this machine or another."""
    one = replace(hosts, hosts=(host,))
    (command,) = load_slaves(one, () if is_here(host) else (host,), every).values()
    return command


def _words(hosts: Mapping[str, list[int]], every: float) -> list[str]:
    return ["-I", "-m", MODULE, json.dumps(hosts), "--every", f"{every:g}"]
