"""Probe turns as leases: the service grants them, a sensor probes links only while it holds one.

Both sides are pure state machines. `TurnTable` is the service's side, `HeldTurn` the sensor's.

A holder counts its turn from before it asked, by its own clock; the service counts from the grant, which is
later, by its own clock, and adds a margin. So a holder has stopped before the service grants the next turn,
however late the answer came. The rates of the two clocks may differ by `DRIFT` each. A service that starts
knows no turn of the service before it, so it grants none until the longest turn must have ended.
"""

import math
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

MIN_TURN_SECONDS: Final = 2.0
MAX_TURN_SECONDS: Final = 20.0
DRIFT: Final = 0.01
"""Largest relative error of a clock's rate."""
MARGIN_SECONDS: Final = 1.0
"""Time of the holder between its last look at the clock and the end of a probe."""
MIN_WAIT_SECONDS: Final = 1.0
MAX_WAIT_SECONDS: Final = 10.0
GRACE_SECONDS: Final = 5.0
"""After its wait, a sensor that does not ask within this time loses its place in the queue."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The right of a host to probe its links to some peers.

    Attributes
    ----------
    id
        The name by which the holder ends the turn; it cannot be guessed.
    clique
        The clique of the host and its peers.
    peers
        The peers, least recently probed first.
    seconds
        Length of the turn, from before the holder asked.
    """

    id: str
    clique: str
    host: str
    peers: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class HeldTurn:
    """A turn by the clock of its holder.

    Examples
    --------
    >>> held = HeldTurn.of("id", seconds=10.0, asked=100.0)
    >>> round(held.left(now=103.0), 3), held.left(now=110.0) < 0
    (6.9, True)
    """

    id: str
    until: float

    @classmethod
    def of(cls, turn: str, seconds: float, asked: float) -> "HeldTurn":
        """Return the turn for which the holder sent its request at `asked`, or later."""
        return cls(turn, asked + seconds * (1 - DRIFT))

    def left(self, now: float) -> float:
        """Return the seconds in which a probe may still run."""
        return self.until - now


@dataclass(frozen=True, slots=True)
class _Granted:
    turn: Turn
    needs: frozenset[tuple[str, str]]
    until: float


class TurnTable:
    """Grants turns: one at a time in a clique, and no host takes part in two.

    Every member of a clique has a turn each period. Due turns are granted in the order of their last grant: a
    newer turn gets no host that an older turn waits for. Only hosts that ask count.

    Parameters
    ----------
    period
        Seconds from one turn of a member to its next.
    now
        The start of the service, by the clock of all calls; it only goes forward.
    name
        Returns the id of a new turn.

    Examples
    --------
    >>> table = TurnTable(period=60.0, now=0.0, name=lambda: "first")
    >>> lab = {"site-lab": ("ada", "bob")}
    >>> table.ask("ada", lab, now=5.0) > 0  # a service that was just started waits
    True
    >>> table.ask("ada", lab, now=30.0)
    Turn(id='first', clique='site-lab', host='ada', peers=('bob',), seconds=15.0)
    >>> table.ask("bob", lab, now=31.0), table.end("first", ["bob"], now=32.0)
    (1.0, True)
    >>> table.ask("bob", lab, now=32.0).peers
    ('ada',)
    """

    def __init__(
        self, period: float, now: float, name: Callable[[], str] = lambda: secrets.token_hex(16)
    ) -> None:
        self._period = period
        self._name = name
        self._first = now + _held_for(MAX_TURN_SECONDS)
        self._granted: dict[str, _Granted] = {}
        self._waiting: dict[str, float] = {}
        self._turned: dict[tuple[str, str], float] = {}
        self._probed: dict[tuple[str, str], float] = {}

    def ask(
        self,
        host: str,
        cliques: Mapping[str, Collection[str]],
        now: float,
        may_probe: Callable[[str, str], bool] = lambda *_: True,
    ) -> Turn | float:
        """Return a turn, or the seconds after which `host` should ask again.

        Parameters
        ----------
        cliques
            The members of each clique now.
        may_probe
            Whether a host can reach the address of a peer.
        """
        self._forget(cliques, now)
        held = {name for granted in self._granted.values() for name in granted.needs}
        own = [granted.until for granted in self._granted.values() if granted.turn.host == host]
        if own or now < self._first:
            # A host has one turn at a time: the answer to its earlier request may be lost.
            return _wait(max([*own, self._first]) - now)
        self._waiting[host] = math.inf
        ahead = 0
        for _, clique, member in self._due(cliques, now):
            needs = frozenset({("clique", clique), *(("host", m) for m in cliques[clique])})
            peers = self._peers(member, cliques[clique], may_probe)
            if not peers:
                continue
            if member == host and held.isdisjoint(needs):
                return self._grant(host, clique, peers, needs, now)
            ahead += not held.isdisjoint(needs)
            held |= needs
        mine = [clique for clique, members in cliques.items() if host in members]
        due = min((self._turned.get((c, host), -math.inf) for c in mine), default=math.inf)
        wait = _wait(max(due + self._period - now, ahead / 2))
        self._waiting[host] = now + wait + GRACE_SECONDS
        return wait

    def end(self, turn: str, probed: Collection[str], now: float) -> bool:
        """End a turn after its probes, and note the probed peers; return whether it still ran."""
        granted = self._granted.pop(turn, None)
        if granted is None or granted.until <= now:
            return False
        for peer in {*probed} & {*granted.turn.peers}:
            self._probed[granted.turn.host, peer] = now
        return True

    def _grant(
        self,
        host: str,
        clique: str,
        peers: tuple[str, ...],
        needs: frozenset[tuple[str, str]],
        now: float,
    ) -> Turn:
        share = self._period / (2 * (len(peers) + 1))
        seconds = min(MAX_TURN_SECONDS, max(MIN_TURN_SECONDS, share))
        turn = Turn(self._name(), clique, host, peers, seconds)
        self._granted[turn.id] = _Granted(turn, needs, now + _held_for(seconds))
        self._turned[clique, host] = now
        self._waiting.pop(host, None)
        return turn

    def _due(
        self, cliques: Mapping[str, Collection[str]], now: float
    ) -> list[tuple[float, str, str]]:
        """Return the turns that are due of the hosts that ask, least recently granted first."""
        turns = (
            (self._turned.get((clique, member), -math.inf), clique, member)
            for clique, members in cliques.items()
            for member in members
            if member in self._waiting
        )
        return sorted(turn for turn in turns if turn[0] + self._period <= now)

    def _peers(
        self, host: str, members: Collection[str], may_probe: Callable[[str, str], bool]
    ) -> tuple[str, ...]:
        peers = (peer for peer in members if peer != host and may_probe(host, peer))
        return tuple(sorted(peers, key=lambda peer: self._probed.get((host, peer), -math.inf)))

    def _forget(self, cliques: Mapping[str, Collection[str]], now: float) -> None:
        """Drop the turns that ended, the hosts that ask no more, and members that left."""
        self._granted = {k: one for k, one in self._granted.items() if one.until > now}
        self._waiting = {host: until for host, until in self._waiting.items() if until >= now}
        members = sum(map(len, cliques.values()))
        if len(self._turned) > 2 * members:
            self._turned = {
                (clique, host): at
                for (clique, host), at in self._turned.items()
                if host in cliques.get(clique, ())
            }
        if len(self._probed) > sum(2 * len(each) ** 2 for each in cliques.values()):
            hosts = {host for each in cliques.values() for host in each}
            self._probed = {
                pair: at for pair, at in self._probed.items() if hosts.issuperset(pair)
            }


def _held_for(seconds: float) -> float:
    """Return the seconds for which the service reserves a turn of `seconds` for its holder."""
    return seconds * (1 + DRIFT) + MARGIN_SECONDS


def _wait(seconds: float) -> float:
    return min(MAX_WAIT_SECONDS, max(MIN_WAIT_SECONDS, seconds))
