"""The record of a lab that is up: its hosts with address, first process and cgroups.

It is written last, when everything works, and read by commands that enter a host or show the lab. The steps to
take a lab down are in its journal.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from apples.errors import UsageError
from apples.io import documents, state
from apples.lab import enter
from apples.lab.journal import FILE as JOURNAL

FILE = "lab.json"
MARK = "APPLES_LAB"
"""Environment variable of each process that a lab starts: the lab's identity."""
TRANSPORT = {"UCX_TLS": "tcp,self"}
"""Settings of UCX: else it uses shared memory between hosts of one machine, not the emulated links."""


@dataclass(frozen=True, slots=True)
class EmulatedHost:
    """One emulated host.

    Attributes
    ----------
    pid, started
        Its first process and the start time of that (process ids are reused).
    cgroups
        Files into which a process writes its id to become one of the host.
    host_name
        Output of ``hostname`` there.
    """

    name: str
    site: str
    address: str
    pid: int
    started: int
    cgroups: tuple[str, ...] = ()
    cpu: float | None = None
    cpus: tuple[int, ...] = ()
    memory: int | None = None
    host_name: str = ""

    @property
    def alive(self) -> bool:
        """Whether its first process still runs."""
        return enter.started(self.pid) == self.started


@dataclass(frozen=True, slots=True)
class Lab:
    """A lab that is up.

    Attributes
    ----------
    identity
        Distinguishes its processes, cgroups and interface from all others.
    interface, agent
        This machine's own interface and address in the lab: the value of mpiexec's ``-iface``.
    hosts
        The host list it wrote.
    zero
        Time when it came up, by the monotonic clock: the start of the loads' schedule.
    """

    name: str
    identity: str
    folder: str
    interface: str
    agent: str
    head: str
    machines: tuple[EmulatedHost, ...]
    switch: EmulatedHost
    ssh_config: str = ""
    slurm_conf: str = ""
    zero: float = 0.0
    sites: dict[str, int] = field(default_factory=dict)

    @property
    def hosts(self) -> Path:
        """The host list the lab wrote."""
        return Path(self.folder) / "hosts.toml"

    def machine(self, name: str) -> EmulatedHost:
        """Return the host of that name.

        Raises
        ------
        UsageError
            The lab has no such host.
        """
        for machine in self.machines:
            if machine.name == name:
                return machine
        known = ", ".join(machine.name for machine in self.machines)
        raise UsageError(
            f"lab '{self.name}' has no host '{name}' (it has {known})",
            code="host-unknown",
            lab=self.name,
            host=name,
            known=[machine.name for machine in self.machines],
        )


def labs() -> Path:
    """Return the directory that holds the labs, one directory each."""
    return state.directory() / "labs"


def identity(folder: Path) -> str:
    """Return the identity of the lab in `folder`: labs of the same name in two places differ.

    Examples
    --------
    >>> identity(Path("/a/labs/x")) == identity(Path("/b/labs/x"))
    False
    """
    return hashlib.sha256(str(folder.absolute()).encode()).hexdigest()[:8]


def write(lab: Lab) -> None:
    """Write a lab's record; it is whole or not there."""
    documents.replace(Path(lab.folder) / FILE, json.dumps(asdict(lab), indent=1))


def read(folder: Path) -> Lab | None:
    """Return the lab in a directory; None if it never came up."""
    try:
        document: dict[str, Any] = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    document["machines"] = tuple(_machine(entry) for entry in document["machines"])
    document["switch"] = _machine(document["switch"])
    return Lab(**document)


def _machine(entry: dict[str, Any]) -> EmulatedHost:
    return EmulatedHost(
        **{**entry, "cgroups": tuple(entry["cgroups"]), "cpus": tuple(entry["cpus"])}
    )


def begun() -> Iterator[Path]:
    """Yield the directories of all labs of this user, also of those that never came up."""
    for folder in sorted(labs().glob("*")):
        if (folder / JOURNAL).is_file():
            yield folder


def find(name: str | None) -> Lab:
    """Return the lab of that name; without a name, the only lab.

    Raises
    ------
    UsageError
        It is not up; or no name is given, and there is not exactly one lab.
    """
    known = [folder.name for folder in begun()]
    if name is None and len(known) != 1:
        which = f"several labs are up ({', '.join(known)}): name one" if known else "no lab is up"
        raise UsageError(which, code="lab-ambiguous" if known else "lab-missing", known=known)
    lab = read(labs() / (name or known[0]))
    if lab is None:
        half = name in known or name is None
        raise UsageError(
            f"lab '{name or known[0]}' is only partly up; remove it with: apples lab down {name or known[0]}"
            if half
            else f"no lab '{name}' is up" + (f" (up: {', '.join(known)})" if known else ""),
            code="lab-incomplete" if half else "lab-unknown",
            lab=name or known[0],
            known=known,
        )
    return lab
