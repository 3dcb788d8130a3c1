"""The supervisor of a node that is another machine: ``python -I -m apples.malleable.node.remote_supervisor``.

It differs from a node supervisor of this machine in four things. It makes a folder of its own, because the run's
is elsewhere. The ranks write into pipes of that folder, and it sends their lines to the manager as reports. It
fills into the ``start`` order what only its machine knows. And a login may print something before it does: what
counts begins after `supervisor.HELLO`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import selectors
import signal
import sys
import tempfile
from functools import partial
from typing import Any

from apples.malleable.node.supervisor import HELLO, LINE_LIMIT, NodeSupervisor
from apples.supervision import peer
from apples.supervision.job_processes import remove_run
from apples.supervision.this_host import located, network
from apples.wire.json_lines import LineBuffer


class RemoteNodeSupervisor(NodeSupervisor):
    """A node supervisor at the far end of a connection."""

    def __init__(self) -> None:
        super().__init__(tempfile.mkdtemp(prefix="apples-", dir="/tmp"))

    def open(self) -> None:
        """Begin to listen, also to the ranks' output and to signals."""
        os.set_blocking(1, False)
        self.selector.register(_signalled(), selectors.EVENT_READ, _end)
        for name in ("output", "errors"):
            path = os.path.join(self.folder, name)  # noqa: PTH118 - as in `supervisor`
            os.mkfifo(path, 0o600)
            pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)
            lines = LineBuffer(LINE_LIMIT, truncating=True)
            forward = partial(self._forward, name, pipe, lines)
            self.selector.register(pipe, selectors.EVENT_READ, forward)
        super().open()

    def start(self, order: dict[str, Any]) -> None:
        """Start the group as this host can."""
        localize(order)
        if order["commits"] and not os.path.isdir(order["commits"]):  # noqa: PTH112
            self.report("no_commits", group=order["group"])
        super().start(order)

    def manager_there(self) -> bool | None:
        """Return what is known of the manager beside what it says: whether the machine it is on answers."""
        return peer.login_connection(os.environ.get("SSH_CONNECTION", ""))

    def on_manager_silent(self) -> None:
        """Leave the parent alone: it serves the connection, and the manager is on another machine."""

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
    order["argv"] = [local_word(word) for word in order["argv"]]
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
    >>> local_word("{python}") == sys.executable, local_word("{apples.launch.bind}")[-22:], local_word("-n")
    (True, '/apples/launch/bind.py', '-n')
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


def main() -> None:
    """Supervise until the connection ends."""
    os.write(1, HELLO)
    RemoteNodeSupervisor().run()
    for number in (signal.SIGTERM, signal.SIGHUP):  # it is ending: further requests change nothing
        signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    main()
