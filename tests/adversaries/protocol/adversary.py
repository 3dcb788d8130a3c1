"""The adversary of the simulation: reads every line and sends any line, but does not know the secret."""

from __future__ import annotations

import random

from adversaries.protocol.exchange import Exchange

from apples.malleable import (
    UNAUTHENTICATED_SESSIONS,
    CommandRequest,
    HostShare,
    Requester,
    ResizeCommand,
    SendLine,
    canonical,
)


class Adversary:
    """Floods, replays, changes lines and pretends, until `stop`."""

    def __init__(self, chance: random.Random, exchange: Exchange, stop: float) -> None:
        self.chance, self.exchange, self.clock = chance, exchange, exchange.clock
        self.stop = stop

    def attack(self) -> None:
        """Take one step as an adversary who reads and sends any line, but does not know the secret."""
        if self.clock.now >= self.stop:
            return
        dice = self.chance.randrange(4)
        if dice == 0:
            self._flood()
        elif dice == 1:
            self.exchange.received(self._someone(), self._old_line())
        elif dice == 2:
            line = (
                self._forged() if self.chance.random() < 0.3 else self._changed(self._old_line())
            )
            self.exchange.received(self._someone(), line)
        else:
            self._impersonate()
        self.clock.after(self.chance.uniform(0.5, 8.0), self.attack)

    def _someone(self) -> int:
        """Return a session: a known agent's, or any there ever was."""
        known = [n for n, s in self.exchange.responder.sessions.items() if s.opener is not None]
        return self.chance.choice([*known, self.chance.randint(1, max(1, self.exchange.count))])

    def _forged(self) -> bytes:
        """Return a command nobody asked for, under a seal that is none."""
        request = CommandRequest(
            self.chance.randbytes(8).hex(),
            ResizeCommand(self.exchange.responder.ledger.epoch + 1, (HostShare("ada"),)),
        )
        return canonical({"n": 999, "mac": "0" * 64, "body": request.body()})

    def _old_line(self) -> bytes:
        return self.chance.choice(self.exchange.heard) if self.exchange.heard else b"{}"

    def _changed(self, line: bytes) -> bytes:
        """Return a line with a byte changed, or cut short, or with its number counted up."""
        if self.chance.random() < 0.5:
            return line.replace(b'"n":', b'"n":1', 1)
        place = self.chance.randrange(len(line))
        return line[:place] + bytes([self.chance.randrange(256)]) + line[place + 1 :]

    def _flood(self) -> None:
        """Open many connections at once and leave them."""
        for _ in range(self.chance.randint(1, UNAUTHENTICATED_SESSIONS + 8)):
            self.exchange.opened(self.exchange.session(lambda _line: None))

    def _impersonate(self) -> None:
        """Open a session with a wrong secret, or with another session's answer, then command."""
        epoch = self.exchange.responder.ledger.epoch + 1
        wrong = CommandRequest(
            self.chance.randbytes(8).hex(), ResizeCommand(epoch, (HostShare("ada"),))
        )
        guess = self.chance.randbytes(32)
        adversary = Requester("job1", guess, wrong, self.clock.now + 9.0, self.chance.randbytes)
        adversary.start(self.clock.now)
        session = self.exchange.session(lambda line: self._as_adversary(session, adversary, line))
        self.exchange.opened(session)
        self.clock.after(0.5, lambda: self.exchange.received(session, self._old_line()))

    def _as_adversary(self, session: int, adversary: Requester, line: bytes) -> None:
        for effect in adversary.received(line, self.clock.now):
            if isinstance(effect, SendLine):
                self.exchange.to_job(session, effect.line)
