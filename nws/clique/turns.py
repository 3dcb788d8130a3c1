"""Whose turn it is to probe where one asker knows of all probes: none that meet on a link run together."""

from collections.abc import Mapping, Sequence
from typing import Final

from nws.clique.sites import cliques_of

Pair = tuple[str, str]
BETWEEN: Final = ""
"""Stands for all that lies between sites."""


class Turns:
    """Hands out the ordered pairs of the cliques, each once.

    A probe has its two hosts and the networks of their sites for itself, and one between sites all
    that lies between any: so no two probes ever share a link, whatever the sites are made of.

    Parameters
    ----------
    site_of
        Host -> site.

    Examples
    --------
    >>> turns = Turns({"ada": "lab", "bob": "lab", "cyd": "attic"})
    >>> turns.begin()
    [('ada', 'bob')]
    >>> turns.done(("ada", "bob"))
    >>> turns.begin(), turns.left
    ([('bob', 'ada')], 2)
    """

    def __init__(self, site_of: Mapping[str, str]) -> None:
        self._site_of = dict(site_of)
        self._waiting = pairs(cliques_of(site_of))
        self._running: dict[Pair, frozenset[str]] = {}

    @property
    def left(self) -> int:
        """How many have not begun."""
        return len(self._waiting)

    def begin(self) -> list[Pair]:
        """Return the pairs that may be probed from now on, until each is `done`."""
        begun = []
        for pair in list(self._waiting):
            needs = self._needs(pair)
            if all(needs.isdisjoint(held) for held in self._running.values()):
                self._waiting.remove(pair)
                self._running[pair] = needs
                begun.append(pair)
        return begun

    def done(self, pair: Pair) -> None:
        """Take note that a probe is over."""
        del self._running[pair]

    def again(self, pair: Pair) -> None:
        """Put a pair to the end of those that wait."""
        self._waiting.append(pair)

    def _needs(self, pair: Pair) -> frozenset[str]:
        sites = {self._site_of[host] for host in pair}
        held = {f"host {host}" for host in pair} | {f"site {site}" for site in sites}
        return frozenset(held | {BETWEEN} if len(sites) > 1 else held)


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
