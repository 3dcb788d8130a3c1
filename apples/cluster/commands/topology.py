"""``topology hosts``: the machines of a host list, and the free CPUs of those with a topology daemon."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from apples.cluster.documents import HostTopologiesDocument, HostTopologyEntry
from apples.cluster.topology_daemons import ASKED_AT_ONCE, NOBODY, TopologyDaemons
from apples.errors import ApplesError, LaunchError
from apples.launch.remote.addresses import remote_hosts
from apples.launch.remote.fitness import Needs
from apples.launch.remote.preflight import preflight
from apples.resources import HostList, read_host_list
from apples.topology import CpuSet, Topology
from apples.topology.commands.topology import commands
from apples.topology.sources.sysfs import read_packed
from apples.topology.sources.this_machine import live_topology
from apples.topology.text import draw, topology_document
from apples.ui.command_line import show_answer
from apples.ui.options import hosts_option, json_option

PROBE = "apples.topology.sources.probe"
"""The program that describes a host's CPUs."""


@commands.command("hosts")
@hosts_option
@json_option
def show_hosts(hosts: Path | None, json: bool) -> int:
    """Show the machine of each host of a list, and the CPUs that its topology daemon can give now.

    Other hosts are asked over ssh.

    Example: apples topology hosts --hosts hosts.toml
    """
    listed = read_host_list(hosts or Path("hosts.toml"))
    machines, free = topologies(listed), free_cpus(listed)
    document: HostTopologiesDocument = {
        "schema": "apples.host-topologies/1",
        "hosts": [_entry(name, machine, free.get(name)) for name, machine in machines.items()],
    }
    drawn = {
        name: machine if isinstance(machine, str) else draw(machine)
        for name, machine in machines.items()
    }
    show_answer(
        document,
        lambda: "\n\n".join(
            "\n".join([f"{name}: {text}", *_free_line(free.get(name))])
            for name, text in drawn.items()
        ),
        json,
    )
    known = any(isinstance(machine, Topology) for machine in machines.values())
    return 0 if known else LaunchError.exit_code


def topologies(hosts: HostList) -> dict[str, Topology | str]:
    """Return the machine of each host with the CPUs that this user may use there, or why it is not known."""
    far = remote_hosts(hosts)
    fitness = preflight(far, hosts, Needs(probe=PROBE)) if far else {}
    machines: dict[str, Topology | str] = {}
    for host in hosts:
        try:
            if host.name not in fitness:
                machines[host.name] = live_topology()
            elif word := fitness[host.name].topology:
                machines[host.name] = read_packed(word, host.name)
            else:
                machines[host.name] = fitness[host.name].refusal or "did not describe its CPUs"
        except ApplesError as error:
            machines[host.name] = str(error)
    return machines


def free_cpus(hosts: HostList) -> dict[str, CpuSet | str]:
    """Return the free CPUs of each host with a topology daemon, or why they are not known."""
    sockets = {host.name: host.topologyd for host in hosts if host.topologyd}
    far = [host.name for host in remote_hosts(hosts)]

    def free(name: str) -> CpuSet | str:
        try:
            return CpuSet.parse(str(daemons.status(name).get("free")))
        except ApplesError as error:
            return str(error)

    with (
        closing(TopologyDaemons(sockets, 0, 0.0, NOBODY, lambda: hosts, far)) as daemons,
        ThreadPoolExecutor(ASKED_AT_ONCE) as pool,
    ):
        return dict(zip(sockets, pool.map(free, sockets), strict=True))


def _entry(host: str, machine: Topology | str, free: CpuSet | str | None) -> HostTopologyEntry:
    entry: HostTopologyEntry = {"host": host}
    if isinstance(machine, str):
        entry["error"] = machine
    else:
        entry["topology"] = topology_document(machine)
    if isinstance(free, str):
        entry["daemon_error"] = free
    elif free is not None:
        entry["free"] = list(free)
    return entry


def _free_line(free: CpuSet | str | None) -> list[str]:
    if free is None:
        return []
    return [free if isinstance(free, str) else f"free for jobs: CPUs {free}"]
