"""The supervisor of a node that is another machine: ``python -I -m apples.malleable.node.remote_supervisor``.

It has no folder of the run there, so it makes its own; ranks write into its pipes; and what the anchor cannot
know of that machine, its interpreter's path, its MPI's, its network, its folders, it fills in itself. A login may
say something first: what counts begins after `supervisor.HELLO`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import selectors
import shutil
import signal
import sys
import tempfile
from functools import partial
from typing import Any

from apples.malleable.node import supervisor
from apples.malleable.node.supervisor import NodeSupervisor, serve
from apples.supervision.this_host import located, network


class RemoteNodeSupervisor(NodeSupervisor):
    """One host's guard, at the far end of a connection."""

    def __init__(self) -> None:
        super().__init__(tempfile.mkdtemp(prefix="apples-", dir="/tmp"))

    def _open(self) -> None:
        os.set_blocking(1, False)
        self.selector.register(_asked_to_end(), selectors.EVENT_READ, _end)
        for name in ("output", "errors"):
            pipe = supervisor.OutputPipe(os.path.join(self.folder, name), partial(self._say, name))  # noqa: PTH118
            self.selector.register(pipe.handle, selectors.EVENT_READ, pipe.read)
        super()._open()

    def _remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _miss_the_anchor(self) -> None:
        """Leave the parent alone: it is the connection's, the anchor is elsewhere."""

    def _start(self, order: dict[str, Any]) -> None:
        localize(order)
        if order["commits"] and not os.path.isdir(order["commits"]):  # noqa: PTH112 - as in `guard`
            self._say("blind", group=order["group"])
        super()._start(order)


def localize(order: dict[str, Any]) -> None:
    """Make this host's own of an order that was written elsewhere."""
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
    """Return what a word in braces stands for on this host: the interpreter, mpiexec, a module's file.

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


def _asked_to_end() -> int:
    """Return a pipe that can be read from when a signal asked this process to end.

    A signal that raised an error instead would find the guard anywhere, also in the middle of its clearing up.
    """
    asked, asking = os.pipe()
    os.set_blocking(asking, False)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: os.write(asking, b"."))
    return asked


def _end() -> None:
    raise EOFError


def main() -> int:
    """Guard until the connection ends."""
    os.write(1, supervisor.HELLO)
    code = serve(RemoteNodeSupervisor)
    for number in (signal.SIGTERM, signal.SIGHUP):  # it ends already, whoever asks once more
        signal.signal(number, signal.SIG_IGN)
    return code


if __name__ == "__main__":
    sys.exit(main())
