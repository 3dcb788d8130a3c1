"""A member of a clique: a pure state machine. Events go in with the time, effects come out.

Phases of the token while it is here:

    (none) -- token --> ASKING -- majority of grants --> PROBING -- done or time up --> PASSING
                          |                                                               |
                          +-- TRIES without a majority --> PASSING -- `Received` --> (none)

Invariants, whatever the network does: a member probes only while it holds grants of more than half
of the members, and no longer than until ``_asker.until``; it answers a token of an older epoch with
`Stale` and follows one of a newer epoch at once; a turn that is overtaken by a newer token keeps its
grants until its probes have ended, for only then is the network quiet again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from hashlib import blake2b
from typing import Final

from nws.clique.grants import Asker, Granter, Smoothed, Timing
from nws.clique.messages import (
    CliqueToken,
    Epoch,
    Grant,
    GrantRequest,
    Message,
    Received,
    Release,
    Stale,
)

TRIES: Final = 3
"""How often a token is sent to a member before it is passed over."""


@dataclass(frozen=True, slots=True)
class SendMessage:
    """Send a message to a member; it may get lost."""

    to: str
    message: Message


@dataclass(frozen=True, slots=True)
class ProbePeers:
    """Probe these peers, one after the other, and be done by `until`; then say `probed`."""

    peers: tuple[str, ...]
    until: float


Effect = SendMessage | ProbePeers


class Phase(Enum):
    """The phase of a member that holds the token."""

    ASKING = "asking"
    PROBING = "probing"
    PASSING = "passing"


@dataclass(slots=True)
class _Turn:
    """The token while it is here."""

    token: CliqueToken
    phase: Phase
    deadline: float
    to: str = ""
    tries: int = 0
    sent: float = 0.0


class CliqueMember:
    """Passes the token round, leads when no other member does, and probes in its turn.

    The leader starts a cycle every period. The token visits every member that can be reached;
    each asks for the right to probe (`nws.clique.grants`), probes if it gets it, and passes the
    token on. A member that sees no token for too long leads a new epoch; of two leaders the one
    of the lower epoch gives up as soon as it hears of the higher.

    Sources: Wolski, Spring, Hayes 1999; NWS 2.x ``clique_protocol.c`` (token, leader, adaptive
    time-outs). The grants are ours: NWS 2.x relies on time-outs.

    Parameters
    ----------
    name, members
        This one, and all, itself included; every member must be given the same.
    period
        Seconds in which every member gets a turn.
    life
        Another text at every start of the process.
    now
        The time of its clock, which only goes forward, at the start.
    """

    def __init__(
        self, name: str, members: Sequence[str], period: float, life: str, now: float
    ) -> None:
        self.name = name
        self.ring = tuple(sorted(members))
        self.timing = Timing(period, len(self.ring))
        self.roster = blake2b(" ".join(self.ring).encode(), digest_size=8).hexdigest()
        self.epoch = Epoch(0, "")
        self.cycle = 0
        self.turns = 0
        self.unheard = 0
        self._life = life
        self._granter = Granter(self.roster, self.timing.turn, now)
        self._asker = Asker(self.ring)
        self._silence = Smoothed(self.timing.shortest_silence, self.timing.longest_silence)
        most = self.timing.turn / TRIES
        self._reply = {peer: Smoothed(most / 10, most) for peer in self.ring}
        self._seen: float | None = None
        self._lead_at = now + self.timing.turn + self._stagger
        self._next_cycle = float("inf")
        self._done = (Epoch(0, ""), 0)
        self._turn: _Turn | None = None
        self._probing = False

    @property
    def leads(self) -> bool:
        """Whether this member leads, as far as it knows."""
        return self.epoch.leader == self.name

    @property
    def wake_at(self) -> float:
        """When `tick` is due at the latest."""
        times = [self._next_cycle if self.leads else self._lead_at]
        if self._turn is not None:
            times.append(self._turn.deadline)
        if self._probing:
            times.append(self._asker.until)
        return min(times)

    def tick(self, now: float) -> list[Effect]:
        """Do what has become due."""
        effects: list[Effect] = []
        if self._probing and now >= self._asker.until:
            effects += self.probed(now)
        if self._turn is not None and now >= self._turn.deadline:
            effects += self._overdue(self._turn, now)
        if self.leads and now >= self._next_cycle:
            effects += self._begin_cycle(now)
        elif not self.leads and now >= self._lead_at:
            self.epoch = Epoch(self.epoch.counter + 1, self.name)
            self.cycle = 0
            effects += self._begin_cycle(now)
        return effects

    def receive(self, message: Message, now: float) -> list[Effect]:
        """Take in what another member says. Messages of other senders are ignored."""
        if message.sender not in self.ring or message.sender == self.name:
            return []
        effects: list[Effect] = []
        if isinstance(message, CliqueToken):
            effects = self._token(message, now)
        elif isinstance(message, Received):
            self._received(message, now)
        elif isinstance(message, Stale) and message.epoch > self.epoch:
            effects = self._adopt(message.epoch, now)
        elif isinstance(message, GrantRequest) and self._granter.ask(message, now):
            effects = [SendMessage(message.sender, Grant(self.name, message.number))]
        elif isinstance(message, Grant):
            effects = self._granted(message)
        elif isinstance(message, Release):
            self._granter.release(message)
        return effects

    def probed(self, now: float) -> list[Effect]:
        """Take in that the probes are over; they are when their time is, said or not."""
        if not self._probing:
            return []
        self._probing = False
        turn = self._turn
        if turn is None or turn.phase is not Phase.PROBING:
            return self._give_back()  # the token has gone another way meanwhile
        return self._give_back() + self._pass_on(turn.token, now)

    def _token(self, token: CliqueToken, now: float) -> list[Effect]:
        if token.epoch < self.epoch:
            return [SendMessage(token.sender, Stale(self.name, self.epoch))]
        effects = self._adopt(token.epoch, now) if token.epoch > self.epoch else []
        effects.append(SendMessage(token.sender, Received(self.name, token.epoch, token.cycle)))
        if token.cycle < self.cycle:
            return effects  # a late copy of an earlier cycle: answered, so that its sender stops
        self._note_token(token, now)
        if token.home and self.leads:
            return effects  # all have been visited; the next cycle begins by the clock
        if self._turn is not None and self._turn.token.cycle == token.cycle:
            return effects  # it was doubled on the way; the one that is here goes on
        if self._turn is not None:
            effects += self._give_back()
            self._turn = None
        if self._done == (token.epoch, token.cycle):  # this cycle's turn was had already
            return effects + self._pass_on(token, now)
        return effects + self._have_turn(token, now)

    def _note_token(self, token: CliqueToken, now: float) -> None:
        if token.cycle > self.cycle:
            if self._seen is not None:
                self._silence.learn(now - self._seen)
            self._seen = now
        self.cycle = token.cycle
        self._lead_at = now + self._silence.timeout + self._stagger

    def _adopt(self, epoch: Epoch, now: float) -> list[Effect]:
        """Follow a newer leader; a turn under the old one ends at once."""
        effects = [] if self._turn is None else self._give_back()
        self._turn = None
        self.epoch = epoch
        self.cycle = 0
        self._next_cycle = float("inf")
        self._lead_at = now + self._silence.timeout + self._stagger
        return effects

    def _begin_cycle(self, now: float) -> list[Effect]:
        effects = [] if self._turn is None else self._give_back()
        self.cycle += 1
        self._next_cycle = now + self.timing.period
        return effects + self._have_turn(
            CliqueToken(self.name, self.epoch, self.cycle, (), False), now
        )

    def _have_turn(self, token: CliqueToken, now: float) -> list[Effect]:
        """Ask all for the right to probe."""
        self._done = (token.epoch, token.cycle)
        if self._probing:  # a turn that was cut short by a newer token still uses its grants
            return self._pass_on(token, now)
        self._turn = _Turn(token, Phase.ASKING, now)
        self._asker.begin(self.name, self._life, self.roster, self.timing.turn, now)
        return self._ask(self._turn, now)

    def _ask(self, turn: _Turn, now: float) -> list[Effect]:
        """Ask those that have not granted: the question, the answer or a release may be late."""
        turn.tries += 1
        turn.deadline = now + self.timing.asking / TRIES
        question = self._asker.question
        if self._granter.ask(question, now):
            self._asker.granted(Grant(self.name, question.number))
        return [
            SendMessage(peer, question) for peer in self._peers if peer not in self._asker.granters
        ]

    def _granted(self, grant: Grant) -> list[Effect]:
        turn = self._turn
        if not self._asker.granted(grant) or turn is None or turn.phase is not Phase.ASKING:
            return []
        turn.phase, turn.deadline = Phase.PROBING, self._asker.until
        self._probing = True
        self.turns += 1
        first = self.turns % max(1, len(self._peers))
        return [ProbePeers(self._peers[first:] + self._peers[:first], self._asker.until)]

    def _overdue(self, turn: _Turn, now: float) -> list[Effect]:
        if turn.phase is Phase.ASKING and turn.tries < TRIES:
            return self._ask(turn, now)
        if turn.phase is Phase.ASKING:
            self.unheard += 1
        if turn.phase is not Phase.PASSING:
            return self._give_back() + self._pass_on(turn.token, now)
        if turn.tries < TRIES:
            return self._send_token(turn, now)
        passed_over = replace(turn.token, visited=(*turn.token.visited, turn.to))
        return self._pass_on(passed_over, now)

    def _give_back(self) -> list[Effect]:
        """Return the grants, so that others need not wait for their end; not while we probe."""
        if self._probing:
            return []
        release = self._asker.release()
        self._granter.release(release)
        return [SendMessage(peer, release) for peer in self._peers]

    def _pass_on(self, token: CliqueToken, now: float) -> list[Effect]:
        """Send the token to the next that has not been visited; after the last, home."""
        visited = tuple(dict.fromkeys((*token.visited, self.name)))
        place = self.ring.index(self.name)
        ahead = self.ring[place + 1 :] + self.ring[:place]
        to = next((peer for peer in ahead if peer not in visited), None)
        home = to is None
        if to is None and not self.leads and not token.home and token.epoch.leader in self.ring:
            to = token.epoch.leader
        if to is None:
            self._turn = None
            return []
        onward = CliqueToken(self.name, token.epoch, token.cycle, visited, home)
        self._turn = _Turn(onward, Phase.PASSING, now, to)
        return self._send_token(self._turn, now)

    def _send_token(self, turn: _Turn, now: float) -> list[Effect]:
        turn.tries += 1
        turn.sent = now
        turn.deadline = now + self._reply[turn.to].timeout
        return [SendMessage(turn.to, turn.token)]

    def _received(self, message: Received, now: float) -> None:
        turn = self._turn
        if (
            turn is not None
            and turn.phase is Phase.PASSING
            and message.sender == turn.to
            and (message.epoch, message.cycle) == (turn.token.epoch, turn.token.cycle)
        ):
            if turn.tries == 1:  # else it is not known which one is answered (Karn)
                self._reply[turn.to].learn(now - turn.sent)
            self._turn = None

    @property
    def _peers(self) -> tuple[str, ...]:
        return tuple(peer for peer in self.ring if peer != self.name)

    @property
    def _stagger(self) -> float:
        return self.timing.stagger(self.ring.index(self.name))
