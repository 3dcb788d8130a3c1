"""The lab file: a TOML description of the cluster to emulate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field, Strict, model_validator

import hat
from apples.resources import Cpus, Memory, Name, PositiveNumber

MIN_MEMORY = 32 << 20
"""Smallest memory limit: the processes that make a host need it."""
MAX_HOSTS = 200
"""Largest number of hosts: they share 254 addresses with the services of the lab."""
ADDED_SITE = "local"
HEAD = "switch-of-the-lab"
"""Name of the machine that runs the services of the lab."""
TAKEN = {"localhost": "every host is that", HEAD: "the lab's own services answer there"}
TAKEN_BY_SLURM = dict.fromkeys(("all", "default"), "to Slurm that is no single node")

ShortName = Annotated[Name, Field(max_length=32)]
Seconds = Annotated[float, Strict(), Field(ge=0, le=1e9, allow_inf_nan=False)]
Cores = Annotated[float, Strict(), Field(ge=0.01, le=4096, allow_inf_nan=False)]
Rate = Annotated[PositiveNumber, Field(ge=1e4, le=1e11)]


class SiteEntry(hat.StrictTable):
    """``[[site]]``: hosts on one network; `bandwidth` and `latency` are of its link to the other sites."""

    name: ShortName
    bandwidth: Rate | None = None
    latency: Seconds = 0.0


class HostEntry(hat.StrictTable):
    """``[[host]]``: one emulated machine.

    Attributes
    ----------
    cpu
        CPU quota in cores; None: no limit.
    cpus
        CPUs of this machine to which it is pinned.
    memory
        Memory limit of all its processes, in bytes.
    bandwidth
        Bytes per second of its own link, both ways.
    """

    name: ShortName
    site: ShortName = ADDED_SITE
    cpu: Cores | None = None
    cpus: Cpus = ()
    memory: Annotated[Memory, Field(ge=MIN_MEMORY)] | None = None
    bandwidth: Rate | None = None


class LoadEntry(hat.StrictTable):
    """``[[load]]``: processes that compete for a host's CPU from `start` to `stop` seconds after up."""

    host: ShortName
    processes: Annotated[int, Strict(), Field(ge=1, le=64)] = 1
    start: Seconds = 0.0
    stop: Seconds | None = None


class LabDocument(hat.StrictTable):
    """A lab file as written."""

    name: ShortName
    ssh: Annotated[bool, Strict()] = True
    slurm: Annotated[bool, Strict()] = False
    site: list[SiteEntry] = Field([])
    host: Annotated[list[HostEntry], Field(min_length=1, max_length=MAX_HOSTS)]
    load: list[LoadEntry] = Field([])

    @model_validator(mode="after")
    def _check_names(self) -> LabDocument:
        hat.refuse([*self._repeated(), *self._unknown(), *self._never_ending()])
        return self

    def _repeated(self) -> Iterator[hat.Fault]:
        """Report names that occur twice; case does not count, because a host's name is its network name too."""
        listed = {"site": [site.name for site in self.site], "host": [h.name for h in self.host]}
        for field, names in listed.items():
            count = Counter(name.lower() for name in names)
            for i, name in enumerate(names):
                if count[name.lower()] > 1:
                    message = f"must be unique ('{name}' is there {count[name.lower()]} times)"
                    yield hat.Fault((field, i, "name"), message, code="name-repeated")
        taken = TAKEN | (TAKEN_BY_SLURM if self.slurm else {})
        for i, host in enumerate(self.host):
            why = taken.get(host.name.lower())
            if why:
                yield hat.Fault(
                    ("host", i, "name"), f"cannot be '{host.name}': {why}", code="name-reserved"
                )

    def _unknown(self) -> Iterator[hat.Fault]:
        sites = {site.name for site in self.site} or {ADDED_SITE}
        hosts = {host.name for host in self.host}
        for i, host in enumerate(self.host):
            if host.site not in sites:
                message = f"names '{host.site}', which is no [[site]] of this file"
                yield hat.Fault(
                    ("host", i, "site"),
                    message,
                    hat.nearest(host.site, sorted(sites)),
                    code="site-unknown",
                )
        for i, load in enumerate(self.load):
            if load.host not in hosts:
                message = f"names '{load.host}', which is no [[host]] of this file"
                yield hat.Fault(
                    ("load", i, "host"),
                    message,
                    hat.nearest(load.host, sorted(hosts)),
                    code="host-unknown",
                )

    def _never_ending(self) -> Iterator[hat.Fault]:
        for i, load in enumerate(self.load):
            if load.stop is not None and load.stop <= load.start:
                message = f"must be after start ({load.start:g} s)"
                yield hat.Fault(("load", i, "stop"), message, code="value-range")

    @property
    def sites(self) -> tuple[SiteEntry, ...]:
        """The sites of the file; if it names none, one site without limits."""
        return tuple(self.site) or (SiteEntry(name=ADDED_SITE),)


def read_lab_file(path: str | Path) -> LabDocument:
    """Return the lab a file describes.

    Raises
    ------
    hat.DocumentError
        Every problem with its file, line and field.
    """
    return hat.read(path, LabDocument)
