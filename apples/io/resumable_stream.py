r"""Lines between two processes whose connection may end and be taken up again: none is lost, none comes twice.

As in the stream management of XMPP (XEP-0198): each end counts the lines it has sent and those it has heard, says
now and then how many it has heard, and keeps a line until the other end has said so. Whoever takes the stream up
on a new connection says how many it has heard, and is sent the rest. What is said so often that a lost one does no
harm (that one is alive, how many lines were heard) is not counted.

Nothing here reads or writes: `unsent` is to be written.

Examples
--------
>>> stream = ResumableStream(longest=100)
>>> stream.send(b"one\n"), stream.send(b"two\n"), bytes(stream.unsent)
(None, None, b'one\ntwo\n')
>>> stream.written(8), stream.acknowledged(1), stream.cut()
(None, None, None)
>>> stream.send(b"three\n"), bytes(stream.unsent)
(None, b'')
>>> stream.resume(1), bytes(stream.unsent)
(None, b'two\nthree\n')
>>> stream.acknowledged(4)
Traceback (most recent call last):
apples.io.json_lines.LineError: 4 lines heard of 3 that were sent
"""

from __future__ import annotations

from collections import deque

from apples.io.json_lines import LineError


class ResumableStream:
    """One end of such a stream.

    Parameters
    ----------
    longest
        Bytes of lines that are kept; with more than that it is `full`.
    keeping
        Whether the stream may be taken up again; else nothing is kept, and nobody need say what was heard.

    Attributes
    ----------
    heard
        Lines of the other end that were taken: whoever takes them counts them here.
    unsent
        What is to be written on the connection there is.
    kept
        Bytes of lines of which it is not known that they were heard.
    connected
        Whether there is a connection.
    """

    def __init__(self, longest: int, *, keeping: bool = True) -> None:
        self.heard = 0
        self.unsent = bytearray()  # to which one may add, and from whose front take, at no cost
        self._longest, self._keeping = longest, keeping
        self._kept: deque[bytes] = deque()
        self.kept = self._sent = 0
        self.connected = True

    @property
    def full(self) -> bool:
        """Whether more is kept than should be."""
        return self.kept > self._longest

    def send(self, line: bytes) -> None:
        """Send a line, its end included; where there is no connection it waits for one."""
        self._sent += 1
        if self._keeping:
            self._kept.append(line)
            self.kept += len(line)
        self.say(line)

    def say(self, line: bytes) -> None:
        """Send a line that is not counted: lost where there is no connection."""
        if self.connected:
            self.unsent += line

    def written(self, size: int) -> None:
        """Take in that so many bytes of `unsent` were written."""
        del self.unsent[:size]

    def acknowledged(self, heard: object) -> None:
        """Take in how many lines the other end says it has heard.

        Raises
        ------
        LineError
            It cannot have.
        """
        first = self._sent - len(self._kept)
        if not isinstance(heard, int) or not first <= heard <= self._sent:
            raise LineError(f"{heard!r:.20} lines heard of {self._sent} that were sent")
        for _ in range(heard - first):
            self.kept -= len(self._kept.popleft())

    def cut(self) -> None:
        """Take in that there is no connection now."""
        self.connected, self.unsent = False, bytearray()

    def resume(self, heard: object, first: bytes = b"") -> None:
        """Go on upon a new connection, at whose other end so many lines were heard.

        Parameters
        ----------
        first
            A line that is not counted, to go before all others.

        Raises
        ------
        LineError
            It cannot have heard so many.
        """
        self.acknowledged(heard)
        self.connected, self.unsent = True, bytearray(first + b"".join(self._kept))
