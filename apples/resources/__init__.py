"""What there is to run on: hosts, the links between them, and the list a user writes down.

Read in this order: `host` (one `Host`; a `ResourceSet` is an ordered tuple of them: strip neighbours),
`network` (`Link`, and `Network`, which answers for any pair without storing pairs), `host_list` (the
TOML file, checked).
"""

from apples.resources.host import (
    LEAST,
    MOST,
    Cpus,
    Host,
    Memory,
    Name,
    PositiveNumber,
    ResourceSet,
    names,
)
from apples.resources.host_list import HostList, HostListDocument, read_host_list
from apples.resources.network import Link, Network

__all__ = [
    "LEAST",
    "MOST",
    "Cpus",
    "Host",
    "HostList",
    "HostListDocument",
    "Link",
    "Memory",
    "Name",
    "Network",
    "PositiveNumber",
    "ResourceSet",
    "names",
    "read_host_list",
]
