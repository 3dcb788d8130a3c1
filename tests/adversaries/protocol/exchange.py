"""The connections of the simulation: who hears what the job says, and the lines on their way."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from adversaries.protocol.network import Clockwork, SimulatedNetwork, Thunk

from apples.malleable import CloseSession, Responder, ResponderEffect, SendToSession

Hear = Callable[[bytes], None]


class Exchange:
    """Connects a responder with whoever opens a session.

    Attributes
    ----------
    heard
        Every line that was ever sent: what an adversary who listens has.
    count
        How many sessions there were.
    """

    def __init__(
        self,
        clock: Clockwork,
        network: SimulatedNetwork,
        responder: Responder,
        note: Callable[..., None],
    ) -> None:
        self.clock, self.network, self.responder = clock, network, responder
        self.heard: list[bytes] = []
        self.count = 0
        self._note = note
        self._ends: dict[int, tuple[Hear, Thunk]] = {}

    def session(self, heard: Hear, hung_up: Thunk = lambda: None) -> int:
        """Return a new session, not open yet, with what is to be done when its peer hears or is left."""
        self.count += 1
        self._ends[self.count] = (heard, hung_up)
        return self.count

    def connect(self, session: int) -> None:
        """Open a session over the network."""
        self.network.carry(">", lambda: self.opened(session))

    def hang_up(self, session: int) -> None:
        """End a session from its peer's side; 0 is none."""
        if session:
            self.network.carry(">", lambda: self.responder.closed(session))

    def to_job(self, session: int, line: bytes) -> None:
        """Send a line to the job over the network."""
        self.heard.append(line)
        self.network.carry(">", lambda: self.received(session, line))

    def opened(self, session: int) -> None:
        """Have the job see a connection now."""
        self.carry_out(self.responder.opened(session, self.clock.now))

    def received(self, session: int, line: bytes) -> None:
        """Have the job hear a line now."""
        self.carry_out(self.responder.received(session, line, self.clock.now))

    def carry_out(self, effects: list[ResponderEffect]) -> None:
        """Do what the job's end wants done."""
        for effect in effects:
            if isinstance(effect, SendToSession):
                line = effect.line
                self.heard.append(line)
                self._note(
                    "reply", effect.session, len(line), hashlib.sha256(line).hexdigest()[:16]
                )
                self._deliver(self._ends[effect.session][0], line)
            elif isinstance(effect, CloseSession):
                self._note("close", effect.session, effect.why)
                self.network.carry("<", self._ends[effect.session][1])

    def _deliver(self, hear: Hear, line: bytes) -> None:
        self.network.carry("<", lambda: hear(line))
