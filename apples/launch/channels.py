"""The agent's end of the connections to other hosts: pipes in the run's folder, frames in, words out."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from apples.launch.events import LINE_LIMIT
from apples.launch.lines import Lines
from apples.launch.supervisor import HELLO

LONGEST_FRAME = 1 << 20
LONGEST_HEAD = 64
MOST_BEFORE_HELLO = 1 << 16
"""Bytes a login may say before the supervisor does."""
KINDS = ("output", "error", "report", "beat")

RANK = re.compile(rb"rank [0-9]{1,9}")

Said = tuple[str, bytes]


@dataclass
class Channel:
    r"""What one remote supervisor says, as lines by source.

    Examples
    --------
    >>> channel = Channel("ada")
    >>> channel.feed(b"Welcome!\napples.supervisor/1\noutput 3\nhi\nreport 6\nrank 2")
    [('output', b'hi'), ('report', b'rank 2')]
    >>> channel.feed(b"report 5\nclear"), channel.cleared
    ([], True)
    """

    host: str
    cleared: bool = False
    heard: bool = False
    broken: str = ""
    _buffer: bytes = b""
    _lines: dict[str, Lines] = field(default_factory=dict)

    def feed(self, data: bytes) -> list[Said]:
        """Return the lines that `data` completes; what is no frame of a supervisor breaks the channel."""
        if self.broken:
            return []
        self._buffer += data
        if not self.heard:
            self._greet()
        return list(self._frames()) if self.heard else []

    def rest(self) -> list[Said]:
        """Return what had no end of line, when the connection is over."""
        return [(kind, line) for kind, lines in self._lines.items() for line in lines.rest()]

    def _greet(self) -> None:
        _, hello, rest = self._buffer.partition(HELLO)
        if hello:
            self.heard, self._buffer = True, rest
        elif len(self._buffer) > MOST_BEFORE_HELLO:
            self.broken = "it says too much before the supervisor does"

    def _frames(self) -> Iterator[Said]:
        while True:
            head, newline, rest = self._buffer.partition(b"\n")
            if not newline:
                if len(head) > LONGEST_HEAD:
                    self.broken = "what it says is no frame of a supervisor"
                return
            kind, _, size = head.decode("ascii", "replace").partition(" ")
            if kind not in KINDS or not size.isdecimal() or int(size) > LONGEST_FRAME:
                self.broken = "what it says is no frame of a supervisor"
                return
            if len(rest) < int(size):
                return
            body, self._buffer = rest[: int(size)], rest[int(size) :]
            yield from self._said(kind, body)

    def _said(self, kind: str, body: bytes) -> Iterator[Said]:
        if kind == "report":
            if body == b"clear":
                self.cleared = True
            elif RANK.fullmatch(body):
                yield kind, body
        elif kind != "beat":
            lines = self._lines.setdefault(kind, Lines(LINE_LIMIT))
            for line in lines.feed(body):
                yield kind, line


class Channels:
    """The connections of one run.

    Parameters
    ----------
    hosts
        Names, in the order of the launch file's numbers.
    """

    def __init__(self, hosts: Sequence[str]) -> None:
        self.channels = [Channel(host) for host in hosts]
        self._words: list[int] = []

    def open(self, folder: Path) -> Iterator[tuple[int, Channel]]:
        """Make the pipes; yield each one to listen to with its channel."""
        for number, channel in enumerate(self.channels):
            for name in (f"host-{number}", f"to-{number}"):
                os.mkfifo(folder / name, 0o600)
            self._words.append(os.open(folder / f"to-{number}", os.O_RDWR | os.O_NONBLOCK))
            yield os.open(folder / f"host-{number}", os.O_RDONLY | os.O_NONBLOCK), channel

    def say(self, word: str) -> None:
        """Say a word to every guard; one that is gone does not hear it."""
        for pipe in self._words:
            with contextlib.suppress(OSError):
                os.write(pipe, f"{word}\n".encode())

    def uncertain(self) -> list[str]:
        """Return, once, the hosts whose guard was heard and never said that nothing is left."""
        found = [one for one in self.channels if one.heard and not one.cleared]
        for one in found:
            one.cleared = True
        return [one.host for one in found]

    def close(self) -> None:
        """Close the pipes to the guards."""
        for pipe in self._words:
            os.close(pipe)
        self._words.clear()
