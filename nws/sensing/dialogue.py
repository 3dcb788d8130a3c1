"""The asker's side of the talk with a sensor process; bytes come and go by whatever carries them."""

from typing import Any, Final

from nws.sensing.wire import LONGEST_LINE, Reply, ask, decode

MOST_BEFORE_GREETING: Final = 1 << 16
"""Bytes that a login may say before the sensor process does."""


class Dialogue:
    r"""Numbers questions, and takes replies out of a stream.

    Examples
    --------
    >>> talk = Dialogue()
    >>> number, line = talk.ask("sense", host="ada", rounds=1)
    >>> greeting = b'{"schema":"nws.stdio/1","id":0,"now":5.0,"measurements":[],"failures":[]}\n'
    >>> [reply.id for reply in talk.feed(b"Welcome to ada!\n" + greeting)], talk.greeted
    ([0], True)
    """

    def __init__(self) -> None:
        self.greeted = False
        self._number = 0
        self._buffer = b""
        self._skipped = 0

    def ask(self, do: str, /, **what: Any) -> tuple[int, bytes]:
        """Return the number of a question and its line."""
        self._number += 1
        return self._number, ask(self._number, do, **what)

    def feed(self, data: bytes) -> list[Reply]:
        """Return the replies that `data` completes.

        Raises
        ------
        ValueError
            Permanent: the other side is no sensor process of this version.
        """
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        if len(self._buffer) > LONGEST_LINE:
            raise ValueError(f"a line of more than {LONGEST_LINE} bytes")
        return [reply for line in lines if (reply := self._reply(line)) is not None]

    def _reply(self, line: bytes) -> Reply | None:
        try:
            reply = decode(line)
        except ValueError:
            self._skipped += len(line) + 1
            if self.greeted or self._skipped > MOST_BEFORE_GREETING:
                raise
            return None
        self.greeted = True
        return reply
