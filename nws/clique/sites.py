"""Which hosts probe each other: cliques by site, so that probing does not grow with N squared."""

from collections.abc import Mapping, Sequence
from typing import Final

BETWEEN: Final = "sites"
MOST_MEMBERS: Final = 12
"""Members of one clique; a larger site is split, and its parts' first members meet."""


def cliques_of(site_of: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the members of each clique, given the site of each host.

    One clique a site, ``site-NAME``; one between the sites, ``sites``, of the first host of each.
    A site of more than 12 hosts has parts, ``site-NAME.1`` and on, and ``site-NAME`` is of the
    first host of each part. So n hosts need about 12 n pairs, not n squared. A clique of one is
    none.

    Examples
    --------
    >>> cliques_of({"ada": "lab", "bob": "lab", "cyd": "attic"})
    {'site-lab': ('ada', 'bob'), 'sites': ('ada', 'cyd')}
    """
    by_site: dict[str, list[str]] = {}
    for host in sorted(site_of):
        by_site.setdefault(site_of[host], []).append(host)
    cliques: dict[str, tuple[str, ...]] = {}
    for site in sorted(by_site):
        _split(f"site-{site}", by_site[site], cliques)
    _split(BETWEEN, [hosts[0] for hosts in by_site.values()], cliques)
    return {name: members for name, members in cliques.items() if len(members) > 1}


def _split(name: str, hosts: Sequence[str], cliques: dict[str, tuple[str, ...]]) -> None:
    """Add the clique of `hosts`, in parts if they are too many."""
    if len(hosts) <= MOST_MEMBERS:
        cliques[name] = tuple(hosts)
        return
    parts = [hosts[i : i + MOST_MEMBERS] for i in range(0, len(hosts), MOST_MEMBERS)]
    for number, part in enumerate(parts, start=1):
        cliques[f"{name}.{number}"] = tuple(part)
    _split(name, [part[0] for part in parts], cliques)
