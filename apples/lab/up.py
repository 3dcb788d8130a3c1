"""Takes a lab up, step by step; each step is in the journal before it is taken."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from apples.errors import LaunchError, UsageError
from apples.lab import (
    cgroups,
    enter,
    host_init,
    network,
    quoting,
    record,
    requirements,
    slurm,
    ssh,
)
from apples.lab import (
    execution as commands,
)
from apples.lab import load as load_program
from apples.lab.document import HEAD, LabDocument, read_lab_file
from apples.lab.down import undo
from apples.lab.host_list import host_list
from apples.lab.journal import FILE, LabJournal, held
from apples.lab.record import MARK, EmulatedHost, Lab

READY_SECONDS = 20.0
SWITCH = "switch"
Talk = Callable[[str], None]
Speeds = Callable[[LabDocument, Path], Mapping[str, float]]
"""Measures the hosts of a lab from its host list: returns dedicated seconds per point by name."""


def up(path: str | Path, speeds: Speeds | None = None, talk: Talk = lambda _: None) -> Lab:
    """Take up the lab that a file describes; when this returns, each host answers.

    Parameters
    ----------
    speeds
        Measures the hosts' speed for the host list; None: `measured_speeds`.
    talk
        Receives one line for each difference between the lab and its file.

    Raises
    ------
    hat.DocumentError
        The file has errors; each is listed with its line and field.
    UsageError
        This machine lacks something, no configuration can express the path of the lab, or a lab of that name
        exists. Nothing was changed.
    LaunchError
        A step failed; the earlier steps are undone.
    """
    document = read_lab_file(path)
    folder = record.labs() / document.name
    quoting.require(folder, ssh=document.ssh, slurm=document.slurm)
    requirements.require(document)
    if speeds is None:
        from apples.lab.host_list import measured_speeds  # noqa: PLC0415 - NumPy and the models, only here

        speeds = measured_speeds
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with held(folder):
        if (folder / FILE).exists():
            raise UsageError(
                f"lab '{document.name}' is up, or only partly up; remove it with: apples lab down {document.name}",
                code="lab-exists",
                lab=document.name,
            )
        try:
            return _Builder(document, folder, talk).build(speeds)
        except BaseException:
            undo(folder)
            raise


class _Builder:
    """One lab coming up."""

    def __init__(self, document: LabDocument, folder: Path, talk: Talk) -> None:
        self.document, self.folder, self.talk = document, folder, talk
        self.identity = record.identity(folder)
        self.outer = f"al{self.identity}"
        self.sockets = Path("/run") / f"{cgroups.PREFIX}{self.identity}"
        self.journal = LabJournal(folder)

    def build(self, speeds: Speeds) -> Lab:
        """Take every step and return the lab."""
        self.delayed = (
            any(site.latency for site in self.document.site) and requirements.can_delay()
        )
        if not self.delayed and any(site.latency for site in self.document.site):
            self.talk(
                "the kernel has no netem: latencies are not emulated, and not in the host list"
            )
        self.journal.record("processes", self.identity)
        if self.document.slurm:
            self.journal.record("directory", str(self.sockets))
            self.sockets.mkdir(mode=0o755)
        addresses = self._addresses()
        self._write_names(addresses)
        switch, machines = self._machines(addresses)
        self._network(addresses, switch, machines)
        if self.document.ssh:
            ssh.make_keys([m.name for m in machines], self.folder)
            (self.folder / "ssh_config").write_text(
                ssh.client_config(machines, self.folder), encoding="utf-8"
            )
            ssh.serve(self.identity, machines, self.folder)
        slurm_conf = self._slurm(switch, machines) if self.document.slurm else ""
        lab = Lab(
            name=self.document.name,
            identity=self.identity,
            folder=str(self.folder),
            interface=self.outer,
            agent=addresses.agent,
            head=addresses.head,
            machines=tuple(machines),
            switch=switch,
            ssh_config=str(self.folder / "ssh_config") if self.document.ssh else "",
            slurm_conf=slurm_conf,
            sites={site.name: i for i, site in enumerate(self.document.sites)},
        )
        self._write_host_list(lab, {})
        self._write_host_list(lab, speeds(self.document, lab.hosts))
        lab = replace(lab, zero=time.monotonic())
        self._loads(lab)
        record.write(lab)
        return lab

    def _slurm(self, switch: EmulatedHost, machines: Sequence[EmulatedHost]) -> str:
        conf = slurm.write(
            self.document.name, switch, machines, self.sockets, self.folder / "slurm"
        )
        slurm.serve(self.identity, switch, machines, self.sockets, conf)
        return str(conf)

    def _write_host_list(self, lab: Lab, speeds: Mapping[str, float]) -> None:
        text = host_list(self.document, lab.machines, speeds, lab.ssh_config, self.delayed)
        lab.hosts.write_text(text, encoding="utf-8")

    def _addresses(self) -> network.Addresses:
        known = network.routed(
            commands.run(["ip", "-j", "address"]),
            commands.run(["ip", "-j", "route", "show", "table", "all"]),
        )
        found = network.free_network(self.identity, known)
        if found is None:
            raise LaunchError(
                f"no network of {network.POOL} is free: all are routed elsewhere",
                code="network-unavailable",
                value=str(network.POOL),
            )
        return found

    def _write_names(self, addresses: network.Addresses) -> None:
        text = network.names(self.document, addresses, os.uname().nodename)
        (self.folder / "hosts").write_text(text, encoding="ascii")

    def _machines(self, addresses: network.Addresses) -> tuple[EmulatedHost, list[EmulatedHost]]:
        """Start the first process of every host and of the switch, all at once."""
        found = cgroups.hierarchies()
        self._delegate(found)
        own = sorted(os.sched_getaffinity(0))
        entries = cgroups.placed(self.document.host, own, int(self.identity, 16))
        joined: list[tuple[str, ...]] = []
        for entry in entries:
            made = cgroups.groups(entry, self.identity, found, len(entries))
            cgroups.make(made, self.journal.record)
            joined.append(tuple(str(g.joined) for g in made if g.path.name == entry.name))
        started = [self._start(HEAD, ())]
        started += [self._start(e.name, j) for e, j in zip(entries, joined, strict=True)]
        pids = [_ready(process) for process in started]
        switch, *hosts = pids
        machines = [
            EmulatedHost(
                *(entry.name, entry.site, addresses.host(i), hosts[i], enter.started(hosts[i])),
                *(joined[i], entry.cpu, entry.cpus, entry.memory, entry.name),
            )
            for i, entry in enumerate(entries)
        ]
        head = EmulatedHost(
            SWITCH, "", addresses.head, switch, enter.started(switch), host_name=HEAD
        )
        return head, machines

    def _delegate(self, found: cgroups.Hierarchies) -> None:
        asked = (name for entry in self.document.host for name in cgroups.wanted(entry))
        for control, controller in cgroups.delegations(asked, found):
            self.journal.record("delegated", f"{control}:{controller}")
            try:
                control.write_text(f"+{controller}")
            except OSError as error:
                raise LaunchError(
                    f"{control}: +{controller}: {error.strerror}",
                    code="cgroup-unwritable",
                    file=control,
                    value=f"+{controller}",
                ) from None

    def _start(self, name: str, joined: tuple[str, ...]) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", host_init.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, MARK: self.identity},
            start_new_session=True,
        )
        order = {
            "host": name,
            "names": str(self.folder / "hosts"),
            "shared": {self.sockets.name: str(self.sockets)} if self.document.slurm else {},
            "cgroups": joined,
        }
        assert process.stdin is not None  # noqa: S101 - for the type checker: it is a pipe
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        return process

    def _network(
        self, addresses: network.Addresses, switch: EmulatedHost, machines: Sequence[EmulatedHost]
    ) -> None:
        self.journal.record("link", self.outer)
        pids = {m.name: m.pid for m in machines}
        links = network.switch_links(self.document, addresses, self.outer, os.getpid(), pids)
        commands.in_network(switch.pid, ["ip", "-batch", "-"], links)
        text = network.own_links(addresses.within(addresses.agent), self.outer)
        commands.run(["ip", "-batch", "-"], text)
        for m in machines:
            text = network.own_links(addresses.within(m.address), "eth0")
            commands.in_network(m.pid, ["ip", "-batch", "-"], text)
        shaping = network.switch_shaping(self.document, self.delayed)
        if shaping:
            commands.in_network(switch.pid, ["tc", "-batch", "-"], shaping)
        for entry, m in zip(self.document.host, machines, strict=True):
            if entry.bandwidth:
                text = network.shaped("eth0", entry.bandwidth)
                commands.in_network(m.pid, ["tc", "-batch", "-"], text)

    def _loads(self, lab: Lab) -> None:
        """Start a process on each host that has loads; it begins and ends them."""
        spells: dict[str, list[tuple[float, float | None, int]]] = {}
        for load in self.document.load:
            spells.setdefault(load.host, []).append((load.start, load.stop, load.processes))
        for host, schedule in spells.items():
            words = [sys.executable, "-I", "-S", load_program.__file__]
            words += [repr(lab.zero), json.dumps(schedule)]
            log = self.folder / f"load-{host}.log"
            commands.leave_running(lab, lab.machine(host), words, log)


def _ready(process: subprocess.Popen[str]) -> int:
    """Return the number of a host's first process, once the host is set up."""
    try:
        output, errors = process.communicate(timeout=READY_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=1)
        raise LaunchError(
            f"a host was not ready within {READY_SECONDS:g} s",
            code="startup-timeout",
            seconds=READY_SECONDS,
        ) from None
    lines = output.split()
    numbers = [line for line in lines if line.isdigit()]
    if "ready" not in lines or not numbers:
        reason = errors.strip() or output.strip()
        raise LaunchError(
            f"a host could not be made: {reason}", code="host-not-made", reason=reason
        )
    return int(numbers[0])
