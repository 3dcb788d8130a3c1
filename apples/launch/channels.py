"""The agent's end of the connections to other hosts: pipes in the run's folder, frames in, words out."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from apples.io.json_lines import Greeting, LineBuffer, LineError
from apples.launch.events import LINE_LIMIT
from apples.launch.host_agent import HELLO
from apples.launch.remote.connection import HostConnection

LONGEST_FRAME = 1 << 20
LONGEST_HEAD = 64
MOST_BEFORE_HELLO = 1 << 16
"""Bytes a login may say before the supervisor does."""
KIND = re.compile(r"output|report|beat|messages|error(-[0-9]{1,9})?")
MOST_KINDS = 1024
"""No supervisor sends of more ranks apart."""

RANK = re.compile(rb"rank [0-9]{1,9}( (waits|goes on|in MPI|works|ended [ -~]{1,200}))?")

SourcedLine = tuple[str, bytes]


@dataclass
class SupervisorChannel:
    r"""What one remote supervisor says, as lines by source.

    Examples
    --------
    >>> channel = SupervisorChannel("ada")
    >>> channel.feed(b"Welcome!\napples.supervisor/1\noutput 3\nhi\nreport 6\nrank 2")
    [('output', b'hi'), ('report', b'rank 2')]
    >>> channel.feed(b"report 5\nclear"), channel.cleared
    ([], True)
    """

    host: str
    cleared: bool = False
    ended: bool = False
    broken: str = ""
    _greeting: Greeting = field(default_factory=lambda: Greeting(HELLO, MOST_BEFORE_HELLO))
    _buffer: bytes = b""
    _lines: dict[str, LineBuffer] = field(default_factory=dict)

    @property
    def heard(self) -> bool:
        """Whether the supervisor has said anything: then it must also say that nothing is left."""
        return self._greeting.heard

    def feed(self, data: bytes) -> list[SourcedLine]:
        """Return the lines that `data` completes; what is no frame of a supervisor breaks the channel."""
        if self.broken:
            return []
        try:
            self._buffer += self._greeting.skip(data)
        except LineError:
            self.broken = "it says too much before the supervisor does"
            return []
        return list(self._frames())

    def rest(self) -> list[SourcedLine]:
        """Return what had no end of line, when the connection is over."""
        return [(kind, line) for kind, lines in self._lines.items() if (line := lines.rest())]

    def _frames(self) -> Iterator[SourcedLine]:
        while True:
            head, newline, rest = self._buffer.partition(b"\n")
            if not newline:
                if len(head) > LONGEST_HEAD:
                    self.broken = "what it says is no frame of a supervisor"
                return
            kind, _, size = head.decode("ascii", "replace").partition(" ")
            known = kind in self._lines or len(self._lines) < MOST_KINDS
            if (
                not known
                or not KIND.fullmatch(kind)
                or not size.isdecimal()
                or int(size) > LONGEST_FRAME
            ):
                self.broken = "what it says is no frame of a supervisor"
                return
            if len(rest) < int(size):
                return
            body, self._buffer = rest[: int(size)], rest[int(size) :]
            yield from self._lines_of(kind, body)

    def _lines_of(self, kind: str, body: bytes) -> Iterator[SourcedLine]:
        if kind == "report":
            if body == b"clear":
                self.cleared = True
            elif RANK.fullmatch(body):
                yield kind, body
        elif kind == "messages":
            yield kind, body
        elif kind != "beat":
            lines = self._lines.setdefault(kind, LineBuffer(LINE_LIMIT, truncating=True))
            for line in lines.feed(body):
                yield kind, line


class SupervisorChannels:
    """The connections of one run.

    Parameters
    ----------
    hosts
        Names, in the order of the launch file's numbers.
    connections
        One to each host, that the supervisors are started through; default: hydra starts an ssh for each.
    """

    def __init__(self, hosts: Sequence[str], connections: Sequence[HostConnection] = ()) -> None:
        self.channels = [SupervisorChannel(host) for host in hosts]
        self._connections = connections
        self._pipes: list[int] = []

    def open(self, folder: Path) -> Iterator[tuple[int, SupervisorChannel]]:
        """Make the pipes; yield each one to listen to with its channel."""
        for channel, connection in zip(self.channels, self._connections, strict=False):
            self._pipes.append(os.dup(connection.fileno_of_input()))
            yield os.dup(connection.output.fileno()), channel
        for number, channel in enumerate(self.channels if not self._connections else ()):
            for name in (f"host-{number}", f"to-{number}"):
                os.mkfifo(folder / name, 0o600)
            self._pipes.append(os.open(folder / f"to-{number}", os.O_RDWR | os.O_NONBLOCK))
            yield os.open(folder / f"host-{number}", os.O_RDONLY | os.O_NONBLOCK), channel

    def send(self, word: str) -> None:
        """Say a word to every supervisor; one that is gone does not hear it."""
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                os.write(pipe, f"{word}\n".encode())

    @property
    def over(self) -> bool:
        """Whether every supervisor said that nothing is left, or is gone."""
        return all(one.cleared or one.ended for one in self.channels)

    def uncertain(self) -> list[str]:
        """Return, once, the hosts whose supervisor was heard and never said that nothing is left."""
        found = [one for one in self.channels if one.heard and not one.cleared]
        for one in found:
            one.cleared = True
        return [one.host for one in found]

    def close(self) -> None:
        """Close the pipes to the supervisors."""
        for pipe in self._pipes:
            os.close(pipe)
        self._pipes.clear()
