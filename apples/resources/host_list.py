"""The host list: ``hosts.toml`` read, checked and turned into hosts and a network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, Strict, model_validator

import hat
from apples.resources.host import MOST, Host, Name, PositiveNumber, Text
from apples.resources.network import Link, Network
from apples.ui.units import counted, in_one_line, some

Latency = Annotated[float, Strict(), Field(ge=0, le=MOST, allow_inf_nan=False)]


class DefaultLink(hat.StrictTable):
    """``[default_link]``: the link of each pair of hosts without an entry."""

    latency: Latency = Field(
        description="Time of an empty message, one way.",
        examples=[1e-4],
        json_schema_extra={"unit": "s"},
    )
    bandwidth: PositiveNumber = Field(
        description="Bytes that the link carries in a second, one way.",
        examples=[1e8],
        json_schema_extra={"unit": "bytes per s"},
    )


class LinkEntry(DefaultLink):
    """``[[link]]``: both directions ``between`` two hosts or sites, or one, ``from`` to ``to``."""

    between: tuple[Name, Name] | None = Field(
        None,
        description="Two hosts or sites; the link holds in both directions.",
        examples=[["lab", "attic"]],
    )
    source: Name | None = Field(
        None,
        alias="from",
        description="Host or site that sends, for a link of one direction.",
        examples=["lab"],
    )
    target: Name | None = Field(
        None, alias="to", description="Host or site that receives.", examples=["attic"]
    )

    def pairs(self) -> Sequence[tuple[str, str]]:
        """Return the directed pairs of names of the entry; empty if it is incomplete."""
        if self.between and not (self.source or self.target):
            a, b = self.between
            return ((a, b), (b, a))
        if self.source and self.target and not self.between:
            return ((self.source, self.target),)
        return ()

    def ends(self) -> Iterator[tuple[str, str]]:
        """Yield every name in the entry, with its field."""
        if self.between:
            yield from (("between", name) for name in self.between)
        if self.source:
            yield ("from", self.source)
        if self.target:
            yield ("to", self.target)


class HostListDocument(hat.StrictTable):
    """A host list file as written."""

    host: list[Host] = Field(min_length=1, description="Hosts that a plan can use.")
    link: list[LinkEntry] = Field(
        [],
        description="Links between hosts or sites. A site with itself is the network inside it.",
    )
    default_link: DefaultLink | None = Field(
        None, description="Link of each pair that no entry covers."
    )
    ssh_config: Text = Field(
        "",
        description="ssh configuration, relative to this file; empty: your own.",
        examples=["ssh_config"],
    )

    @model_validator(mode="after")
    def _check_names(self) -> HostListDocument:
        hat.refuse([*self._repeated_names(), *self._unknown_ends(), *self._repeated_pairs()])
        return self

    def _repeated_names(self) -> Iterator[hat.Fault]:
        count = Counter(host.name for host in self.host)
        for i, host in enumerate(self.host):
            if count[host.name] > 1:
                message = f"must be unique ('{host.name}' names {count[host.name]} hosts)"
                yield hat.Fault(("host", i, "name"), message, code="name-repeated")

    def _repeated_pairs(self) -> Iterator[hat.Fault]:
        first: dict[tuple[str, str], int] = {}
        for i, entry in enumerate(self.link):
            for pair in dict.fromkeys(entry.pairs()):
                if pair in first:
                    message = f"{pair[0]} to {pair[1]} has its link already, link[{first[pair]}]"
                    yield hat.Fault(("link", i), message, code="link-repeated")
                    break
                first[pair] = i

    def _unknown_ends(self) -> Iterator[hat.Fault]:
        known = {host.name for host in self.host} | {host.site for host in self.host}
        for i, entry in enumerate(self.link):
            if not entry.pairs():
                message = "must have either 'between' or both 'from' and 'to'"
                yield hat.Fault(("link", i), message, code="link-ends-missing")
            for field, name in entry.ends():
                if name not in known:
                    message = f"names '{name}', which is neither a host nor a site of this list"
                    near = hat.nearest(name, sorted(known))
                    yield hat.Fault(("link", i, field), message, near, code="host-unknown")


@dataclass(frozen=True)
class HostList:
    """Hosts in the order of the list, and the network between them.

    Attributes
    ----------
    hosts
        In file order.
    network
        Links between any two of them.
    ssh_config
        Path of an ssh configuration; may be empty.
    source
        Path of its file; may be empty.
    """

    hosts: tuple[Host, ...]
    network: Network
    ssh_config: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {host.name: host for host in self.hosts})

    def __repr__(self) -> str:
        """Return the names of the first hosts."""
        listed = f"{counted(len(self.hosts), 'host')}: {some([host.name for host in self.hosts])}"
        return in_one_line(self, f"{listed}{f' ({self.source})' if self.source else ''}")

    def __iter__(self) -> Iterator[Host]:
        """Iterate over the hosts in file order."""
        return iter(self.hosts)

    def __len__(self) -> int:
        """Return the number of hosts."""
        return len(self.hosts)

    def __getitem__(self, name: str) -> Host:
        """Return the host with this name; `KeyError` if none has it."""
        by_name: dict[str, Host] = self.__dict__["_by_name"]
        return by_name[name]

    def __contains__(self, name: object) -> bool:
        """Whether a host has this name."""
        return name in self.__dict__["_by_name"]


def read_host_list(path: str | Path) -> HostList:
    """Return the host list in a file.

    Raises
    ------
    hat.DocumentError
        The file has problems; each with file, line and field: broken TOML, unknown fields, values out of range,
        two hosts of one name, a link to an unknown host or site.
    """
    return _host_list(hat.read(path, HostListDocument), str(path))


def _host_list(document: HostListDocument, source: str) -> HostList:
    links = {
        pair: Link(entry.latency, entry.bandwidth)
        for entry in document.link
        for pair in entry.pairs()
    }
    default = document.default_link
    network = Network(
        links,
        Link(default.latency, default.bandwidth) if default else None,
        {host.name: host.site for host in document.host},
    )
    return HostList(tuple(document.host), network, document.ssh_config, source)
