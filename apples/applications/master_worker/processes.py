"""`RunProcesses`: the master and the workers of a run as processes on their hosts.

A worker process is a lane; a host has as many lanes as slots. The connections are those of parameter sweeps, and
the end of a connection ends its processes and removes their folders.
"""

from __future__ import annotations

import hashlib
import itertools
import queue
import secrets
import socket
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from ipaddress import ip_address
from threading import Thread
from typing import Any, NamedTuple

from apples.applications.master_worker.chunks import MAX_UNITS
from apples.applications.master_worker.messages import (
    ALL_INTERFACES,
    LEAVE_FILE,
    PORT_FILE,
    PROGRESS_FILE,
    host_of,
)
from apples.applications.master_worker.planning import MasterWorkerPlan
from apples.applications.worker import TASK_PREFIX
from apples.applications.workers import HostWorkers, ProcessEnd, WorkerConnection, result_of
from apples.errors import LaunchError
from apples.launch.remote import bootstrap, ssh
from apples.launch.remote.addresses import numbers, remote_hosts
from apples.launch.remote.preflight import address_towards
from apples.resources import Host

NODE = "apples.applications.master_worker.node:main"
FOLDERS = "~/.cache/apples/master-worker"
MASTER = "master"
END_SECONDS = 2.0
MAX_CHUNK_BYTES = 1 << 22
"""Bytes of the units that the master hands out at a time."""
MAX_REPORT_BYTES = 1 << 20


class RoleEnd(NamedTuple):
    """The end of a role, `MASTER` or a lane: how its process ended, or the error of its connection."""

    role: str
    end: ProcessEnd | None
    error: str = ""


class RunProcesses:
    """Starts the roles of a run, asks lanes to leave, and collects the ends of processes.

    Attributes
    ----------
    lanes
        The folder of each lane that runs.
    leaving
        The lanes that were asked to leave.
    """

    def __init__(self, run: MasterWorkerPlan, workers: HostWorkers) -> None:
        self._run, self._workers = run, workers
        self._master = run.hosts[run.choice.master]
        unique = f"{socket.gethostname()}:{time.time_ns()}:{secrets.token_hex(8)}"
        mark = hashlib.sha256(unique.encode()).hexdigest()[:12]
        self._root = f"{FOLDERS}/{run.document.name}-{mark}"
        self._folders: dict[str, str] = {}
        # Read once, so that a host that joins later gets the same program.
        self._program = {name: path.read_bytes() for name, path in run.program.items()}
        self._secret = secrets.token_hex(32)
        self._ends: queue.SimpleQueue[RoleEnd] = queue.SimpleQueue()
        self._host_of_folder: dict[str, str] = {}
        self._numbers = itertools.count(1)
        self._master_folder = ""
        self._address, self._port = "", 0
        self.lanes: dict[str, str] = {}
        self.leaving: set[str] = set()

    # ------------------------------------------------------------------------ the master
    def start_master(self, sample: list[int]) -> None:
        """Start the master; its port is known once `find_port` returns True."""
        run = self._run
        bind, self._address = _addresses(self._master, run)
        size = max(1.0, run.rates.costs.size)
        self._connect(self._master)
        self._send(self._master.name, {
            "role": MASTER, "bind": bind, "count": run.count, "samples": sample,
            "attempts": run.document.attempts, "rate": run.choice.rate,
            "most": max(1, min(MAX_UNITS, int(MAX_CHUNK_BYTES / size))),
            "workers": sorted(run.choice.workers),
        })  # fmt: skip
        self._master_folder = self._start(MASTER, self._master.name)

    def find_port(self) -> bool:
        """Return whether the master listens."""
        if found := self._read(PORT_FILE):
            self._port = int(found["port"])
        return bool(self._port)

    def progress(self) -> dict[str, Any]:
        """Return the last progress report of the master; empty before the first."""
        return self._read(PROGRESS_FILE)

    def _read(self, name: str) -> dict[str, Any]:
        """Return a document in the master's folder; empty if it is not there yet."""
        worker, path = self._workers.by_name[self._master.name], f"{self._master_folder}/{name}"
        try:
            data = worker.read(path, 0, MAX_REPORT_BYTES)
        except LaunchError:
            if worker.reason:
                raise
            return {}
        found, fault = result_of(data)
        if fault:
            raise LaunchError(
                f"{worker.name}: {fault.text}",
                code="worker-answer-invalid",
                host=worker.name,
                file=path,
                reason=fault.text,
            )
        return found

    # ------------------------------------------------------------------------ the workers
    def join(self, name: str, rate: float) -> str:
        """Start a lane for each slot of a host; return the reason of a failure, empty on success.

        Parameters
        ----------
        rate
            Expected units a second of the host.
        """
        host = self._run.hosts[name]
        try:
            self._connect(host)
            for slot in range(host.slots):
                lane = f"{name}#{slot}-{next(self._numbers)}"
                self._send(name, {
                    "role": "worker", "lane": lane, "rate": max(1e-9, rate / host.slots),
                    "port": self._port, "address": self._address,
                })  # fmt: skip
                self.lanes[lane] = self._start(lane, name)
        except LaunchError as error:
            return str(error).removeprefix(f"{name}: ")
        return ""

    def join_all(self, rates: Mapping[str, float]) -> dict[str, str]:
        """Start the lanes of several hosts at once; return the reason of each failed host."""
        with ThreadPoolExecutor(max(1, len(rates))) as pool:
            reasons = pool.map(self.join, rates.keys(), rates.values())
            return {name: reason for name, reason in zip(rates, reasons, strict=True) if reason}

    def leave(self, name: str) -> None:
        """Ask a host's lanes to leave after their current units."""
        for lane, folder in self.lanes.items():
            if host_of(lane) == name:
                self.leaving.add(lane)
                with suppress(LaunchError):
                    self._workers.by_name[name].write(f"{folder}/{LEAVE_FILE}", b"")

    @property
    def occupied(self) -> set[str]:
        """The hosts with a process of the run."""
        return {self._master.name, *map(host_of, self.lanes)}

    @property
    def connected(self) -> set[str]:
        """The hosts with a working connection."""
        return {name for name, worker in self._workers.by_name.items() if not worker.reason}

    # ------------------------------------------------------------------------ ends
    def next_end(self, seconds: float) -> RoleEnd | None:
        """Return the next role that ends; None if none ends within `seconds`."""
        with suppress(queue.Empty):
            ended = self._ends.get(timeout=seconds)
            self.lanes.pop(ended.role, None)
            return ended
        return None

    def keep_only(self, hosts: frozenset[str]) -> None:
        """Close the connections to all other hosts, which ends the processes there."""
        for name in self._workers.by_name.keys() - hosts:
            self._folders.pop(name, None)
            folders = self._host_of_folder.items()
            self._host_of_folder = {folder: host for folder, host in folders if host != name}
            self._workers.by_name.pop(name).close()

    def close(self) -> None:
        """Stop all processes and close all connections."""
        for folder, host in list(self._host_of_folder.items()):
            with suppress(LaunchError):
                self._workers.by_name[host].stop(folder, END_SECONDS)
        for worker in list(self._workers.by_name.values()):  # a thread may be adding a host
            worker.close()

    # ------------------------------------------------------------------------ one process
    def _connect(self, host: Host) -> None:
        """Connect to a host, and send it the files of the program."""
        self._workers.start([host.name])
        worker = self._workers.by_name[host.name]
        if host.name not in self._folders:
            folder, _ = worker.open_folder(f"{self._root}/{host.name}", temporary=True)
            for name, data in self._program.items():
                worker.write(f"{folder}/{name}", data)
            self._folders[host.name] = folder

    def _send(self, host: str, config: Mapping[str, Any]) -> None:
        """Write the script of a role to a host's folder."""
        folder = self._folders[host]
        script = role_script({
            **config, "program": f"{folder}/{self._run.document.program}",
            "parameters": dict(self._run.parameters), "secret": self._secret,
        })  # fmt: skip
        name = config.get("lane", config["role"])
        self._workers.by_name[host].write(f"{folder}/{name}.py", script)

    def _start(self, role: str, host: str) -> str:
        """Start the script of a role; return its folder."""
        worker, parent = self._workers.by_name[host], self._folders[host]
        folder = f"{parent}/{TASK_PREFIX}{next(self._numbers)}"
        self._host_of_folder[folder] = host
        words = role, worker, f"{parent}/{role}.py", folder
        Thread(target=self._wait, args=words, daemon=True).start()
        return folder

    def _wait(self, role: str, worker: WorkerConnection, script: str, folder: str) -> None:
        try:
            self._ends.put(RoleEnd(role, worker.run([worker.python, script], folder)))
        except Exception as error:  # noqa: BLE001 - the run's loop must receive the end of each role
            self._ends.put(RoleEnd(role, None, str(error)))


def role_script(config: Mapping[str, Any]) -> bytes:
    """Return the program of a role with its configuration, as one Python file."""
    return bootstrap.parcel(NODE, config)[10:]


def _addresses(master: Host, run: MasterWorkerPlan) -> tuple[str, str]:
    """Return the address that the master listens on, and the address under which the workers reach it."""
    far = {host.name: host for host in remote_hosts(run.hosts)}
    some = [host for host in (master, *run.usable) if host.name in far]
    if not some:
        return "127.0.0.1", "127.0.0.1"
    known = numbers({host.name: ssh.reach(host, run.hosts) for host in some})
    if master.name in far:
        address = known.get(master.name, master.reached_at)
    else:
        address = address_towards(known.values())
        if not address:
            raise LaunchError(
                f"master {master.name}: its workers cannot reach it",
                code="host-unreachable",
                host=master.name,
            )
    try:
        ip_address(address)
    except ValueError:  # a host's own name may be an address of the loopback interface
        return ALL_INTERFACES, address
    return address, address
