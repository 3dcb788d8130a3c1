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

LINE_LIMIT = 1 << 20
HELLO = b"apples.far_guard/1\n"
"""What a guard at the far end of a connection says first."""
REPORT_FIELDS = {
    "output": ("line",),
    "errors": ("line",),
    "said": ("rank", "message"),
    "lost": ("why",),
}
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
TURN_SECONDS = 0.25
"""How often it looks at its processes and says that it is alive."""
STOPPED_SECONDS = 1.0
"""A process that was stopped for so long counts as lost."""
SILENCE_SECONDS = 3.0
"""Of the anchor, which speaks every second."""
KEPT_COMMITS = 2
"""Commits that are kept."""
SHARED_MEMORY_FOLDER = "/dev/shm"  # noqa: S108 - where MPI puts the memory its ranks share, and leaves it when they are killed


def exec_launcher(argv: list[str], environment: dict[str, str], guard: int) -> None:
    """Turn this child into the launcher, which dies with the guard; in a group that hydra may kill."""
    try:
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(2, 1)
        if os.getppid() == guard:
            os.execve(argv[0], argv, environment)  # noqa: S606 - an argument list, no shell
    except OSError as error:
        sys.stderr.write(f"apples: cannot start {argv[0]}: {error.strerror}\n")
        sys.stderr.flush()
    finally:
        os._exit(127)


def descendants(ancestor: int) -> list[int]:
    """Return every descendant of a process, parents first."""
    below: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib is slow to load
        if name.isdigit():
            below.setdefault(parent_of(int(name)), []).append(int(name))
    found, waiting = [], [ancestor]
    while waiting:
        mine = below.get(waiting.pop(), [])
        found += mine
        waiting += mine
    return found


def proxies_and_ranks(launcher: int) -> tuple[set[int], set[int]]:
    """Return a launcher's proxies and their ranks."""
    below: dict[int, set[int]] = {}
    for pid in descendants(launcher):
        below.setdefault(parent_of(pid), set()).add(pid)
    proxies = below.get(launcher, set())
    return proxies, {rank for proxy in proxies for rank in below.get(proxy, ())}


def parent_of(pid: int) -> int:
    """Return the parent of a process; 0 when it is gone."""
    fields = _stat(pid).split()
    return int(fields[1]) if fields else 0


def state_of(pid: int) -> str:
    """Return the letter of a process's state; X when it is gone."""
    return _stat(pid)[:1].decode() or "X"


def _stat(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:  # noqa: PTH123 - pathlib is slow to load
            return stream.read().rpartition(b") ")[2]
    except OSError:
        return b""


def kill_process(pid: int) -> None:
    """Kill a descendant of this process."""
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def kill_descendants(ancestor: int, spare: int = 0) -> None:
    """Kill and reap all descendants until none is left but `spare`, which is only waited for elsewhere."""
    while found := [pid for pid in descendants(ancestor) if pid != spare]:
        for pid in found:
            kill_process(pid)
        for pid in found:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.002)


def unlink_shared_memory(pids: set[int]) -> None:
    """Take the names off the memory that all ranks have mapped now: nobody needs them any more."""
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/maps") as stream:  # noqa: PTH123
            names = {
                line.split()[-1] for line in stream if f"{SHARED_MEMORY_FOLDER}/mpich_shm_" in line
            }
            for name in names:
                os.unlink(name)  # noqa: PTH108


def remove_shared_memory(pids: set[int]) -> None:
    """Remove the memory files of ranks that are gone: they are named by process."""
    for name in os.listdir(SHARED_MEMORY_FOLDER):  # noqa: PTH208
        if name.split(":")[0] in {str(pid) for pid in pids}:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(SHARED_MEMORY_FOLDER, name))  # noqa: PTH108, PTH118


def parse_report(line: bytes) -> dict[str, Any] | None:
    """Return what a guard says in a line; None where no guard says such a thing."""
    try:
        said = json.loads(line)
    except ValueError:
        return None
    if not isinstance(said, dict) or "say" not in said:
        return None
    complete = all(name in said for name in REPORT_FIELDS.get(said["say"], ()))
    return said if complete else None


class OutputPipe:
    """A pipe of a path that the ranks write to, where the agent's own cannot be reached.

    Parameters
    ----------
    say
        Called with ``line=`` for each line.
    """

    def __init__(self, path: str, say: Callable[..., None]) -> None:
        os.mkfifo(path, 0o600)
        self.handle = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._say, self._rest = say, b""

    def read(self) -> None:
        """Pass on the lines that came."""
        *lines, rest = (self._rest + os.read(self.handle, 1 << 16)).split(b"\n")
        self._rest = rest[:LINE_LIMIT]
        for line in lines:
            self._say(line=line.decode(errors="replace"))


class CheckpointMemory:
    """Labels and handles of memory, by the number of the commit."""

    def __init__(self) -> None:
        self._kept: dict[int, list[tuple[dict[str, Any], int]]] = {}

    def keep(self, label: dict[str, Any], handle: int) -> None:
        """Keep one rank's memory; that of older commits goes."""
        self._kept.setdefault(label["epoch"], []).append((label, handle))
        for number in sorted(self._kept)[:-KEPT_COMMITS]:
            for _, old in self._kept.pop(number):
                os.close(old)

    def give(self, channel: socket.socket) -> None:
        """Give a rank all that is kept."""
        kept = [one for labels in self._kept.values() for one in labels]
        with contextlib.suppress(OSError):
            channel.send(json.dumps({"count": len(kept)}).encode())
            for label, handle in kept:
                socket.send_fds(channel, [json.dumps(label).encode()], [handle])


class NodeSupervisor:
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
        self.memories = CheckpointMemory()
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
            kill_descendants(os.getpid())
            remove_shared_memory(self.started)
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
                kill_process(self.launcher)
            kill_descendants(os.getpid(), spare=self.launcher)

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
            exec_launcher(argv, environment, guard)
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
            data, handles, _, _ = socket.recv_fds(channel, LINE_LIMIT, 8)
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
                unlink_shared_memory(self.started)
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
        states = {pid: state_of(pid) for pid in self._watched()}
        self.stopped = {p: self.stopped.get(p, now) for p, s in states.items() if s in "Tt"}
        for pid, since in self.stopped.items():
            if now - since > STOPPED_SECONDS:
                self._lose(f"process {pid} was stopped")
        self._say("alive")

    def _miss_the_anchor(self) -> None:
        """End an anchor that was stopped: it ends nothing by itself, and nobody hears of it."""
        if state_of(os.getppid()) in "Tt":
            kill_process(os.getppid())

    def _watched(self) -> set[int]:
        """Return the launcher, the ranks, and what is between them."""
        found = {self.launcher} - {0}
        if self.launcher and self.awaited > 0:
            found |= self._newborn()
        for rank in self.ranks.values():
            pid = rank["pid"]
            while pid not in {*found, 0, 1, os.getpid()}:
                found.add(pid)
                pid = parent_of(pid)
        return found

    def _newborn(self) -> set[int]:
        """Return the processes that are to be ranks; one that ends before it came is lost."""
        proxies, ranks = proxies_and_ranks(self.launcher)
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
        kill_descendants(os.getpid())
        remove_shared_memory(self.started)
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


def serve(make: Callable[[], NodeSupervisor]) -> int:
    """Prepare this process to be a guard, and guard."""
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    prctl(
        PR_SET_PDEATHSIG, int(signal.SIGCONT), 0, 0, 0
    )  # a stopped guard must hear of the end too
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    make().run()
    return 0


if __name__ == "__main__":
    sys.exit(serve(lambda: NodeSupervisor(sys.argv[1])))
