"""Which pairs of hosts probe each other, and when: cliques by site, and turns where one asker plans all.

Probing within sites, and between one host of each, does not grow with the square of the hosts. A
service grants the hosts turns (`nws.clique.turns`); an agent that starts all probes itself hands
them out with `ProbeTurns`, so that none share a link.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

BETWEEN: Final = "sites"
MAX_MEMBERS: Final = 12
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
    if len(hosts) <= MAX_MEMBERS:
        cliques[name] = tuple(hosts)
        return
    parts = [hosts[i : i + MAX_MEMBERS] for i in range(0, len(hosts), MAX_MEMBERS)]
    for number, part in enumerate(parts, start=1):
        cliques[f"{name}.{number}"] = tuple(part)
    _split(name, [part[0] for part in parts], cliques)


Pair = tuple[str, str]
LINKS_BETWEEN_SITES: Final = ""
"""Stands for all that lies between sites."""


class ProbeTurns:
    """Hands out ordered pairs of hosts, each once, so that no two probes that run at once share a link.

    A probe has its two hosts for itself, and one between sites all that lies between any. Disjoint pairs of one
    site run at once: a site is taken for a switched network. Where hosts are parts of one machine, which copies
    the bytes of all their probes, no more than `most` probes touch it at once. Pairs of hosts with
    many probes come first: this is edge colouring by list scheduling, at most twice the minimum of rounds.

    Parameters
    ----------
    site_of
        Host -> site.
    wanted
        The pairs; default: those of the cliques.
    machine_of, most
        Host -> the machine it is a part of, where that is known; probes that may touch one machine at once.

    Examples
    --------
    >>> turns = ProbeTurns({"ada": "lab", "bob": "lab", "cyd": "attic"})
    >>> turns.begin()
    [('ada', 'bob')]
    >>> turns.done(("ada", "bob"))
    >>> turns.begin(), turns.left
    ([('bob', 'ada')], 2)
    """

    def __init__(
        self,
        site_of: Mapping[str, str],
        wanted: Iterable[Pair] | None = None,
        machine_of: Mapping[str, str] | None = None,
        most: int = 1,
    ) -> None:
        self._site_of = dict(site_of)
        self._machine_of = dict(machine_of or {})
        self._most = most
        waiting = clique_pairs(site_of) if wanted is None else list(dict.fromkeys(wanted))
        degree = Counter(host for pair in waiting for host in pair)
        self._waiting = sorted(waiting, key=lambda pair: -degree[pair[0]] - degree[pair[1]])
        self._running: dict[Pair, frozenset[str]] = {}

    @property
    def left(self) -> int:
        """How many have not begun."""
        return len(self._waiting)

    def begin(self) -> list[Pair]:
        """Return the pairs that may be probed from now on, until each is `done`."""
        held = {one for needs in self._running.values() for one in needs}
        busy = Counter(machine for pair in self._running for machine in self._machines(pair))
        begun: list[Pair] = []
        for pair in self._waiting:
            needs, machines = self._needs(pair), self._machines(pair)
            if held.isdisjoint(needs) and all(busy[one] < self._most for one in machines):
                self._running[pair] = needs
                held |= needs
                busy.update(machines)
                begun.append(pair)
        self._waiting = [pair for pair in self._waiting if pair not in self._running]
        return begun

    def done(self, pair: Pair) -> None:
        """Take note that a probe is over."""
        del self._running[pair]

    def again(self, pair: Pair) -> None:
        """Put a pair to the end of those that wait."""
        self._waiting.append(pair)

    def _needs(self, pair: Pair) -> frozenset[str]:
        held = frozenset(f"host {host}" for host in pair)
        apart = self._site_of[pair[0]] != self._site_of[pair[1]]
        return held | {LINKS_BETWEEN_SITES} if apart else held

    def _machines(self, pair: Pair) -> set[str]:
        return {self._machine_of[host] for host in pair if host in self._machine_of}


def clique_pairs(site_of: Mapping[str, str]) -> list[Pair]:
    """Return every ordered pair of hosts that meet in a clique, once."""
    return pairs(cliques_of(site_of))


def pairs(cliques: Mapping[str, Sequence[str]]) -> list[Pair]:
    """Return every ordered pair of each clique, once."""
    found = {
        (source, target): None
        for members in cliques.values()
        for source in members
        for target in members
        if source != target
    }
    return list(found)
