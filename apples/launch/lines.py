"""Bytes of a pipe cut into lines, with bounded memory whatever the program writes."""

from __future__ import annotations


class Lines:
    r"""Cuts what it is fed into lines of at most `limit` + 1 bytes; the rest of a longer one is dropped.

    Examples
    --------
    >>> lines = Lines(limit=3)
    >>> lines.feed(b"ab\nabcdefg"), lines.feed(b"hi\ncd"), lines.rest()
    ([b'ab'], [b'abcd'], [b'cd'])
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._partial = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes, without their ends."""
        first, *more = data.split(b"\n")
        pieces = [self._partial + first, *more]
        self._partial = pieces.pop()[: self.limit + 1]
        return [piece[: self.limit + 1].removesuffix(b"\r") for piece in pieces]

    def rest(self) -> list[bytes]:
        """Return the last line if it had no line feed; the carriage return of half a line end is no text."""
        last, self._partial = self._partial.removesuffix(b"\r"), b""
        return [last] if last else []
