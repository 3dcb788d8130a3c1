"""The connections of the simulation: lines arrive in order and once, until a connection is cut."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from adversaries.protocol.network import Clockwork, SimulatedNetwork, Thunk

from apples.malleable import CloseSession, Responder, ResponderEffect, SendToSession

Hear = Callable[[bytes], None]


class Exchange:
    """Connects a responder with the peers that open sessions.

    A connection is cut with everything on its way. One that its peer closes still delivers what was sent: the job
    reads it from the kernel's buffer, maybe after lines of the peer's next connection.

    Attributes
    ----------
    sent
        Every line that was ever sent to the job.
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
        self.sent: list[bytes] = []
        self.count = 0
        self._note = note
        self._ends: dict[int, tuple[Hear, Thunk]] = {}
        self._cut: set[int] = set()
        self._last: dict[tuple[int, str], float] = {}

    def session(self, heard: Hear, hung_up: Thunk = lambda: None) -> int:
        """Return a new session, not open yet, with what is to be done when its peer hears or is left."""
        self.count += 1
        self._ends[self.count] = (heard, hung_up)
        return self.count

    def connect(self, session: int) -> None:
        """Open a session over the network."""
        self._carry(session, ">", lambda: self.opened(session))

    def hang_up(self, session: int) -> None:
        """End a session from its peer's side; 0 is none."""
        if session:
            self._carry(session, ">", lambda: self.responder.closed(session))

    def to_job(self, session: int, line: bytes) -> None:
        """Send a line to the job over the network."""
        self.sent.append(line)
        self._carry(session, ">", lambda: self.received(session, line))

    def opened(self, session: int) -> None:
        """Have the job see a connection now."""
        self.carry_out(self.responder.opened(session))

    def received(self, session: int, line: bytes) -> None:
        """Have the job hear a line now."""
        self.carry_out(self.responder.received(session, line))

    def carry_out(self, effects: list[ResponderEffect]) -> None:
        """Do what the job's end wants done."""
        for effect in effects:
            if isinstance(effect, SendToSession):
                line = effect.line
                self._note(
                    "reply", effect.session, len(line), hashlib.sha256(line).hexdigest()[:16]
                )
                self._deliver(effect.session, line)
            elif isinstance(effect, CloseSession):
                self._note("close", effect.session, effect.why)
                self._carry(effect.session, "<", self._ends[effect.session][1])

    def _deliver(self, session: int, line: bytes) -> None:
        self._carry(session, "<", lambda: self._ends[session][0](line))

    def _carry(self, session: int, direction: str, deliver: Thunk) -> None:
        """Deliver after all that was sent before, unless the connection is cut meanwhile."""
        if session in self._cut:
            return
        if self.network.fails(direction):
            self._cut.add(session)
            self.clock.after(self.network.latency(), self._ends[session][1])
            self.clock.after(self.network.latency(), lambda: self.responder.closed(session))
            return
        now, before = self.clock.now, self._last.get((session, direction), 0.0)
        at = self._last[session, direction] = max(now + self.network.latency(), before + 1e-6)
        self.clock.after(at - now, lambda: session in self._cut or deliver())
