"""The supervisor of a node that is another machine: ``python -I -m apples.malleable.node.remote_supervisor``.

It differs from a node supervisor of this machine in five things. It makes a folder of its own, because the run's
is elsewhere. The ranks and their launcher write into pipes of that folder, and it sends their lines to the manager
as reports. It
fills into the ``start`` order what only its machine knows. A login may print something before it does: what
counts begins after `supervisor.HELLO`. And it may outlive its connection.

For that, orders and reports are counted on both sides (`apples.io.resumable_stream`); ``ping`` and ``alive``
are not, and say how many were ``heard``. After the order ``hold`` (with a secret) the end of its input is no end:
for `peer.HOLD_SECONDS` after the manager's last word its ranks compute on, and it waits in its folder for a
`successor` who knows the secret. Then it ends everything, as it does at the order ``dismiss``. Its reports beside
a node supervisor's: ``output``, ``errors`` (a line of a rank), ``no_commits`` (the directory of commits is not
there), ``waiting`` (path: where it waits; login: by which connection it was reached), ``resumed`` (heard: first
upon a new connection).
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import selectors
import signal
import socket
import sys
import tempfile
import time
from functools import partial
from typing import Any

from apples.io.credentials import peer_credentials
from apples.io.json_lines import LineBuffer, LineError, encode
from apples.io.resumable_stream import ResumableStream
from apples.launch import heartbeat as peer
from apples.launch.job_processes import marked, read, remove_run
from apples.launch.this_host import located, network
from apples.malleable.node.supervisor import (
    HELLO,
    LINE_LIMIT,
    NodeSupervisor,
)

MODULE = "apples.malleable.node.remote_supervisor"
"""This one, as it stands in the command line of its process."""
DOOR = "successor"
"""A socket in its folder."""
KEPT_BYTES = 4 << 20
"""Of reports that the manager has not heard: with more than that no rank's output is read, and at sixteen times
as much the manager counts as lost."""
END_SECONDS = 5.0
"""For a supervisor of an attempt before to end what it has here."""


class RemoteNodeSupervisor(NodeSupervisor):
    """A node supervisor at the far end of a connection.

    Attributes
    ----------
    stream
        What goes over the connections to the manager, one after the other.
    secret
        What a successor must know; empty: this process ends with its connection.
    in_sight
        Whether there is a connection.
    """

    def __init__(self) -> None:
        super().__init__(tempfile.mkdtemp(prefix="apples-", dir="/tmp"))
        self.stream = ResumableStream(KEPT_BYTES)
        self.secret, self.in_sight = "", True
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._login: socket.socket | None = None  # it ends, with its login, when this is closed
        self._pipes: dict[int, Any] = {}  # that ranks write to, and what reads them
        self._paused = self._stuck = self._released = False
        self._try = 0  # the number of the successor that was taken last

    def open(self) -> None:
        """Begin to listen, also to the ranks' output and to signals."""
        os.set_blocking(1, False)
        self.selector.register(_signalled(), selectors.EVENT_READ, _end)
        for name in ("output", "errors"):
            path = os.path.join(self.folder, name)  # noqa: PTH118 - as in `supervisor`
            os.mkfifo(path, 0o600)
            pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)
            lines = LineBuffer(LINE_LIMIT, truncating=True)
            self._pipes[pipe] = partial(self._forward, name, pipe, lines)
            self.selector.register(pipe, selectors.EVENT_READ, self._pipes[pipe])
        # The login's standard error is no place for the launcher's words: a launcher that writes there after the
        # connection has ended dies of it, and its ranks with it.
        errors = os.path.join(self.folder, "errors")  # noqa: PTH118 - likewise
        self.launcher_talk = os.open(errors, os.O_WRONLY)
        super().open()

    def check(self) -> None:
        """Look at what is supervised, and whether the connection takes what there is to say."""
        super().check()
        if self._released and not self.stream.kept:
            raise EOFError
        self._flush()
        if self.in_sight and not self.stream.connected:
            self._lose_sight()
        stuck = bool(self.stream.unsent)
        if stuck != self._stuck:
            self._stuck = stuck
            if stuck:
                self.selector.register(1, selectors.EVENT_WRITE, self._flush)
            else:
                self.selector.unregister(1)
        if self.stream.full != self._paused:
            self._paused = self.stream.full
            for pipe, forward in self._pipes.items():
                if self._paused:
                    self.selector.unregister(pipe)
                else:
                    self.selector.register(pipe, selectors.EVENT_READ, forward)

    # --------------------------------------------------------------- the line to the manager

    def report(self, event: str, **fields: object) -> None:
        """Send a report to the manager, or keep it until there is a connection; waits for nobody.

        Raises
        ------
        EOFError
            The manager has heard nothing of far too much.
        """
        self.last_report = time.monotonic()
        with self._reporting:
            if event != "alive":
                self.stream.send(encode({"report": event, **fields}))
            elif not self.stream.unsent:
                self.stream.say(encode({"report": event, "heard": self.stream.heard}))
            if self.stream.kept > 16 * KEPT_BYTES:
                raise EOFError
            self._write()

    def _flush(self) -> None:
        with self._reporting:
            self._write()

    def _write(self) -> None:
        try:
            while self.stream.unsent:
                self.stream.written(os.write(1, self.stream.unsent))
        except BlockingIOError:
            pass
        except OSError:
            self.stream.cut()  # the loop notices

    def on_input_end(self) -> None:
        """Wait for a successor, or end where none can come."""
        if not self.secret:
            raise EOFError
        self._lose_sight()

    def on_release(self) -> None:
        """End, but not before the manager has heard all there is to say."""
        self._released = True

    def handle(self, order: dict[str, Any]) -> None:
        """Carry out one order of the manager."""
        what = order["order"]
        if what == "ping":
            self.stream.acknowledged(order["heard"])
            return
        self.stream.heard += 1
        if what == "hold":
            self._wait_for_successors(order["secret"])
        elif what == "dismiss":
            raise EOFError
        else:
            super().handle(order)

    def manager_lost(self, silent: float) -> bool:
        """Return whether nobody is to be waited for any more."""
        return super().manager_lost(silent) and not (self.secret and silent <= peer.HOLD_SECONDS)

    def manager_there(self) -> bool | None:
        """Return what is known of the manager beside what it says: whether the machine it is on answers."""
        if not self.in_sight:
            return False
        return peer.login_connection(os.environ.get("SSH_CONNECTION", ""))

    def on_manager_silent(self) -> None:
        """Leave the parent alone: it serves the connection, and the manager is on another machine."""

    # --------------------------------------------------------------- one connection after the other

    def _wait_for_successors(self, secret: str) -> None:
        """Outlive this connection from now on."""
        path = os.path.join(self.folder, DOOR)  # noqa: PTH118 - as in `supervisor`
        self.secret = secret
        self._door.bind(path)
        self._door.listen(8)
        self.selector.register(self._door, selectors.EVENT_READ, self._admit)
        self.report("waiting", path=path, login=os.environ.get("SSH_CONNECTION", ""))

    def _lose_sight(self) -> None:
        """Let go of the connection, so that its login can end."""
        self.in_sight = False
        with self._reporting:
            self.stream.cut()
            if self._stuck:
                self.selector.unregister(1)
                self._stuck = False
            self.selector.unregister(0)
            nothing = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(nothing, number)
            os.close(nothing)
        self._leave_login()
        self._lines = LineBuffer(self._lines.longest)

    def _leave_login(self) -> None:
        if self._login is not None:
            self._login.close()
            self._login = None

    def _admit(self) -> None:
        """Take a successor's connection in place of the one there is, or was."""
        channel, _ = self._door.accept()
        channel.settimeout(1.0)
        handles: list[int] = []
        try:
            data, handles, _, _ = socket.recv_fds(channel, LINE_LIMIT, 8)
            if peer_credentials(channel)[1] != os.getuid() or len(handles) != 3:
                raise LineError("no successor")
            self._take_up(json.loads(data), handles)
        except (OSError, ValueError, KeyError, TypeError):  # whoever it is: not the manager's
            channel.close()
        else:
            self._login = channel
        finally:
            for handle in handles:
                os.close(handle)

    def _take_up(self, told: dict[str, Any], handles: list[int]) -> None:
        import hmac  # noqa: PLC0415 - most supervisors never need it

        if not hmac.compare_digest(str(told["secret"]).encode(), self.secret.encode()):
            raise ValueError("another secret")
        # The manager has given up every try before its last one, and would not see the connection of one that
        # comes late.
        if told["number"] <= self._try:
            raise ValueError("a try that was given up")
        # Before anything of the old connection is given up.
        self.stream.acknowledged(told["heard"])
        self._try = told["number"]
        login = str(told["login"])
        if self.in_sight:
            self._lose_sight()
        os.environ["SSH_CONNECTION"] = login
        with self._reporting:
            for number, handle in enumerate(handles):
                os.dup2(handle, number)
            os.set_blocking(1, False)
            first = encode({"report": "resumed", "heard": self.stream.heard})
            self.stream.resume(told["heard"], first)
        self.in_sight = True
        self.selector.register(0, selectors.EVENT_READ, self._read_orders)
        self.silence.broken(time.monotonic())
        self._flush()

    # --------------------------------------------------------------- this host

    def start(self, order: dict[str, Any]) -> None:
        """Start the group as this host can."""
        localize(order)
        if order["commits"] and not os.path.isdir(order["commits"]):  # noqa: PTH112
            self.report("no_commits", group=order["group"])
        super().start(order)

    def remove_files(self) -> None:
        """Remove its folder."""
        remove_run(self.folder, [])

    def _forward(self, name: str, pipe: int, lines: LineBuffer) -> None:
        for line in lines.feed(os.read(pipe, 1 << 16)):
            self.report(name, line=line.decode(errors="replace"))


def localize(order: dict[str, Any]) -> None:
    """Fill into a ``start`` order what only this host knows: its network, interpreter, MPI and folders."""
    server = (os.environ.get("SSH_CONNECTION", "").split() + [""] * 4)[2]
    order["environment"] = {**network(server), **order["environment"]}
    for words in ("argv", "interpreter"):
        order[words] = [local_word(word) for word in order.get(words, ())]
    launch = json.loads(order["files"]["launch"])
    directory = launch["directory"] = os.path.expanduser(launch["directory"] or "~")  # noqa: PTH111
    for entry in launch["hosts"]:
        files = set(entry.pop("programs"))
        entry["program"] = [
            located(word, directory) if word in files else local_word(word)
            for word in entry["program"]
        ]
    order["files"]["launch"] = json.dumps(launch)


def local_word(word: str) -> str:
    """Return the path that a word in braces stands for on this host: interpreter, mpiexec, a module's file.

    Examples
    --------
    >>> local_word("{python}") == sys.executable, local_word("-n")
    (True, '-n')
    >>> local_word("{apples.launch.rank_wrapper}")[-30:]
    '/apples/launch/rank_wrapper.py'
    """
    if word == "{python}":
        return sys.executable
    if word == "{mpiexec}":
        return os.path.join(os.path.dirname(sys.executable), "mpiexec")  # noqa: PTH118, PTH120
    if word.startswith("{apples.") and word.endswith("}"):
        found = importlib.util.find_spec(word[1:-1])
        return (found and found.origin) or word
    return word


def _signalled() -> int:
    """Return a pipe that becomes readable when a signal asks this process to end.

    A signal handler that raised an error instead would interrupt it anywhere, also while it cleans up.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: os.write(writing, b"."))
    return reading


def _end() -> None:
    raise EOFError


def end_attempts_before(job: str, attempt: int) -> None:
    """End what supervisors of attempts before this one still hold on this host, which may compute on unseen."""
    found = {pid for pid in marked(job) if 0 < _attempt_of(pid) < attempt}
    for pid in found:
        with contextlib.suppress(OSError):
            handle = os.pidfd_open(pid)
            try:
                if 0 < _attempt_of(pid) < attempt:  # its number may be another's by now
                    signal.pidfd_send_signal(handle, signal.SIGTERM)
                    select.select([handle], [], [], END_SECONDS)
            finally:
                os.close(handle)


def _attempt_of(pid: int) -> int:
    """Return which attempt to run its job a process supervises; 0 where it is no such supervisor."""
    words = read(f"/proc/{pid}/cmdline").decode(errors="replace").rstrip("\0").split("\0")
    return int(words[-1]) if MODULE in words[:-1] and words[-1].isdecimal() else 0


def hold_login(supervisor: int) -> int:
    """Be what the login ends with: return 0 when the supervisor, a child, has ended by itself, 1 if it was killed.

    How a command ended that was killed ssh does not say; by this the manager knows it from a lost connection.
    """
    for number in (0, 1):
        os.dup2(os.open(os.devnull, os.O_RDWR), number)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda asked, _: os.kill(supervisor, asked))
    status = os.waitid(os.P_PID, supervisor, os.WEXITED | os.WNOWAIT)  # its number stays its own
    return 0 if status and status.si_code == os.CLD_EXITED and status.si_status == 0 else 1


def main() -> int:
    """Supervise until the manager is gone: ``APPLES_JOB=JOB ATTEMPT``, where a job is supervised."""
    os.write(1, HELLO)
    for number in (signal.SIGTERM, signal.SIGHUP):  # until who is to be asked can be
        signal.signal(number, signal.SIG_IGN)
    # The login's process stays as the supervisor's parent: its exit code separates a dead supervisor
    # from a lost connection.
    if (supervisor := os.fork()) > 0:
        os._exit(hold_login(supervisor))  # at once: of two losses the first to be known counts
    if len(sys.argv) == 3 and int(sys.argv[2]) > 1:
        end_attempts_before(sys.argv[1].partition("=")[2], int(sys.argv[2]))
    RemoteNodeSupervisor().run()
    for number in (signal.SIGTERM, signal.SIGHUP):  # it is ending: further requests change nothing
        signal.signal(number, signal.SIG_IGN)
    return 0


if __name__ == "__main__":
    sys.exit(main())
