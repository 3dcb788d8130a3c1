"""Guards what a job runs on one host, whatever happens to the anchor, the launcher or a rank.

Run by path as ``python -I -S guard.py FOLDER``; standard library only. (On other machines: `far_guard`.)
It is the parent of the group's mpiexec and the subreaper of all below it. Its standard input and output are
the wire to the anchor, JSON lines; every rank has a socket to it. It reports a rank that ended or was
stopped, and keeps the memory that ranks hand it (commit copies outlive their ranks, not their host). When
its input ends, or the anchor is silent for too long, it ends everything and itself.

Words of the anchor: ``start`` (group, ranks, argv, files, environment, commits), ``tell`` (message to the
ranks), ``end``, ``ping``. Words to it: ``alive``, ``said`` (rank, message), ``lost`` (why), ``empty`` (no
process of the group is left); of a far guard also ``output``, ``errors`` (line), and ``blind`` (the directory
of committed states is not there).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import selectors
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

# Started by path without site packages, on any host: it finds its neighbour itself.
sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))  # noqa: PTH100, PTH120
from apples.malleable import guarded
from apples.malleable.kept_memory import Memories

PR_SET_CHILD_SUBREAPER = 36
TURN_SECONDS = 0.25
"""How often it looks at its processes and says that it is alive."""
STOPPED_SECONDS = 1.0
"""A process that was stopped for so long counts as lost."""
SILENCE_SECONDS = 3.0
"""Of the anchor, which speaks every second."""


class Guard:
    """One host's guard."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.selector = selectors.DefaultSelector()
        self.ranks: dict[socket.socket, dict[str, Any]] = {}
        self.launcher = 0
        self.group = 0
        self.launcher_handle = -1
        self.lost = False  # the group is, and it was said
        self.ending = False  # the anchor wants its end
        self.ended = False  # a rank left of its own accord
        self.stopped: dict[int, float] = {}
        self.heard = time.monotonic()
        self.said = 0.0
        self.awaited = 0  # ranks that have not come yet
        self.seen: set[int] = set()
        self.started: set[int] = set()
        self.input = b""
        self.files: set[str] = set()
        self.memories = Memories()
        self.path = os.path.join(self.folder, f"guard-{os.getpid()}")  # noqa: PTH118 - pathlib is slow to load
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def run(self) -> None:
        """Guard until the anchor is gone or says so."""
        try:
            self._open()
            while True:
                for key, _ in self.selector.select(TURN_SECONDS):
                    key.data()
                self._look()
        except EOFError:
            pass
        finally:
            guarded.clear(os.getpid())
            guarded.sweep(self.started)
            self._remove()

    def _open(self) -> None:
        """Begin to listen: to ranks and to the anchor."""
        self.listener.bind(self.path)
        self.listener.listen(1024)
        self.selector.register(self.listener, selectors.EVENT_READ, self._admit)
        self.selector.register(0, selectors.EVENT_READ, self._read)

    def _remove(self) -> None:
        """Remove what it wrote."""
        for path in (self.path, *self.files):
            with contextlib.suppress(OSError):
                os.unlink(path)  # noqa: PTH108

    def _say(self, word: str, **fields: object) -> None:
        line = json.dumps({"say": word, **fields}) + "\n"
        rest = line.encode()
        try:
            while rest:
                if not select.select([], [1], [], SILENCE_SECONDS)[1]:
                    raise EOFError  # nobody takes it: the way to the anchor is cut
                rest = rest[os.write(1, rest) :]
        except OSError:
            raise EOFError from None

    def _read(self) -> None:
        data = os.read(0, 1 << 16)
        if not data:
            raise EOFError
        self.heard = time.monotonic()
        *lines, self.input = (self.input + data).split(b"\n")
        for line in lines:
            self._obey(json.loads(line))

    def _obey(self, order: dict[str, Any]) -> None:
        word = order["do"]
        if word == "start":
            self._start(order)
        elif word == "tell":
            for channel, rank in list(self.ranks.items()):
                if order.get("rank") in (None, rank["rank"]):
                    self._tell(channel, order["message"])
        elif word == "end":
            self.ending = True
            if self.launcher:
                guarded.end(self.launcher)
            guarded.clear(os.getpid(), spare=self.launcher)

    def _start(self, order: dict[str, Any]) -> None:
        """Start the group: its files, then its launcher."""
        self.group, self.lost, self.ending, self.ended = order["group"], False, False, False
        self.awaited, self.seen = order["ranks"], set()
        for name, text in order["files"].items():
            path = os.path.join(self.folder, f"{name}-{os.getpid()}.json")  # noqa: PTH118
            with open(path, "w", encoding="utf-8") as stream:  # noqa: PTH123 - pathlib is slow to load
                stream.write(text)
            os.environ[f"APPLES_{name.upper()}"] = path
            self.files.add(path)
        argv = [os.environ["APPLES_LAUNCH"] if a == "{launch}" else a for a in order["argv"]]
        environment = {**os.environ, **order["environment"], "APPLES_MALLEABLE": self.path}
        guard = os.getpid()
        self.launcher = os.fork()
        if self.launcher == 0:
            guarded.become(argv, environment, guard)
        self.launcher_handle = os.pidfd_open(self.launcher)
        self.selector.register(self.launcher_handle, selectors.EVENT_READ, self._mourn)

    def _admit(self) -> None:
        channel, _ = self.listener.accept()
        pid, uid, _ = struct.unpack(
            "3i", channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        )
        if uid != os.getuid():
            channel.close()
            return
        channel.setblocking(False)
        self.ranks[channel] = {"rank": -1, "pid": pid, "leaving": False}
        self.selector.register(channel, selectors.EVENT_READ, lambda: self._listen(channel))

    def _listen(self, channel: socket.socket) -> None:
        """Take one message of a rank, or its end."""
        rank = self.ranks.get(channel)
        if rank is None:
            return  # its end was taken already
        try:
            data, handles, _, _ = socket.recv_fds(channel, guarded.LINE_LIMIT, 8)
        except BlockingIOError:
            return
        except OSError:
            data, handles = b"", []
        if not data:
            self.selector.unregister(channel)
            channel.close()
            del self.ranks[channel]
            if not rank["leaving"]:
                self._lose(f"rank {rank['rank']} (process {rank['pid']}) ended")
            return
        message = json.loads(data)
        self._understand(channel, rank, message, handles)

    def _understand(
        self,
        channel: socket.socket,
        rank: dict[str, Any],
        message: dict[str, Any],
        handles: list[int],
    ) -> None:
        """Take a rank's message: some are for the guard, the anchor hears the others."""
        word = message["say"]
        if word == "hello":
            rank["rank"] = message["rank"]
            self.awaited -= 1
            self.started.add(rank["pid"])
            if not self.awaited:
                guarded.unname(self.started)
        elif word == "leaving":
            rank["leaving"] = self.ended = True
        if word == "keep":
            self.memories.keep(message, handles[0])
        elif word == "memories":
            self.memories.give(channel)
        else:
            self._say("said", group=self.group, rank=rank["rank"], message=message)

    def _tell(self, channel: socket.socket, message: object) -> None:
        with contextlib.suppress(OSError):
            channel.send(json.dumps(message).encode())

    def _look(self) -> None:
        """See who ended or was stopped; say that this guard is alive."""
        now = time.monotonic()
        if now - self.heard > SILENCE_SECONDS:
            self._miss_the_anchor()
            raise EOFError
        if self.group and not self.launcher:
            self._empty()
        if now - self.said < TURN_SECONDS:
            return
        self.said = now
        states = {pid: guarded.state(pid) for pid in self._watched()}
        self.stopped = {p: self.stopped.get(p, now) for p, s in states.items() if s in "Tt"}
        for pid, since in self.stopped.items():
            if now - since > STOPPED_SECONDS:
                self._lose(f"process {pid} was stopped")
        self._say("alive")

    def _miss_the_anchor(self) -> None:
        """End an anchor that was stopped: it ends nothing by itself, and nobody hears of it."""
        if guarded.state(os.getppid()) in "Tt":
            guarded.end(os.getppid())

    def _watched(self) -> set[int]:
        """Return the launcher, the ranks, and what is between them."""
        found = {self.launcher} - {0}
        if self.launcher and self.awaited > 0:
            found |= self._newborn()
        for rank in self.ranks.values():
            pid = rank["pid"]
            while pid not in {*found, 0, 1, os.getpid()}:
                found.add(pid)
                pid = guarded.parent(pid)
        return found

    def _newborn(self) -> set[int]:
        """Return the processes that are to be ranks; one that ends before it came is lost."""
        proxies, ranks = guarded.below_launcher(self.launcher)
        if self.seen - ranks:
            self._lose(f"process {min(self.seen - ranks)} ended before its first safe point")
        self.seen = ranks
        return proxies | ranks

    def _mourn(self) -> None:
        """Take the end of the launcher."""
        self.selector.unregister(self.launcher_handle)
        os.close(self.launcher_handle)
        _, status = os.waitpid(self.launcher, 0)
        self.launcher = 0
        for channel in list(self.ranks):  # what the ranks said last
            while channel in self.ranks and select.select([channel], [], [], 0)[0]:
                self._listen(channel)
        if not self.ended or not all(rank["leaving"] for rank in self.ranks.values()):
            self._lose(f"mpiexec ended ({os.waitstatus_to_exitcode(status)})")
        self._empty()

    def _empty(self) -> None:
        """Say that nothing is left of the group; what outlived its launcher has no business here."""
        guarded.clear(os.getpid())
        guarded.sweep(self.started)
        for channel in list(self.ranks):
            self.selector.unregister(channel)
            channel.close()
        self.ranks.clear()
        self._say("empty", group=self.group)
        self.group = 0

    def _lose(self, why: str) -> None:
        if self.lost or self.ending or not self.group:
            return
        self.lost = True
        self._say("lost", group=self.group, why=why)


def serve(make: Callable[[], Guard]) -> int:
    """Prepare this process to be a guard, and guard."""
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    prctl(
        guarded.PR_SET_PDEATHSIG, int(signal.SIGCONT), 0, 0, 0
    )  # a stopped guard must hear of the end too
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    make().run()
    return 0


if __name__ == "__main__":
    sys.exit(serve(lambda: Guard(sys.argv[1])))
