"""A careless peer of the job's own user: opens too many connections, repeats old lines, sends junk."""

from __future__ import annotations

import random

from adversaries.protocol.exchange import Exchange

from apples.malleable import MAX_SESSIONS


class CarelessPeer:
    """Floods, repeats and damages lines until `stop`."""

    def __init__(self, chance: random.Random, exchange: Exchange, stop: float) -> None:
        self.chance, self.exchange, self.clock = chance, exchange, exchange.clock
        self.stop = stop

    def act(self) -> None:
        """Take one step."""
        if self.clock.now >= self.stop:
            return
        dice = self.chance.randrange(3)
        if dice == 0:
            for _ in range(self.chance.randint(1, MAX_SESSIONS + 8)):
                self.exchange.opened(self.exchange.session(lambda _line: None))
        else:
            session = self.exchange.session(lambda _line: None)
            self.exchange.opened(session)
            line = self._old_line()
            self.exchange.received(session, line if dice == 1 else self._damaged(line))
        self.clock.after(self.chance.uniform(0.5, 8.0), self.act)

    def _old_line(self) -> bytes:
        return self.chance.choice(self.exchange.sent) if self.exchange.sent else b"{}"

    def _damaged(self, line: bytes) -> bytes:
        return line[: self.chance.randrange(len(line) - 1)]
