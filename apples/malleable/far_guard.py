"""The guard of a job on another machine: ``python -I -m apples.malleable.far_guard``, over a connection.

It has no folder of the run there, so it makes its own; ranks write into its pipes; and what the anchor cannot
know of that machine, its interpreter's path, its MPI's, its network, its folders, it fills in itself.
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

from apples.malleable import guarded
from apples.malleable.guard import Guard, guard
from apples.remote import look


class FarGuard(Guard):
    """One host's guard, at the far end of a connection."""

    def __init__(self) -> None:
        super().__init__(tempfile.mkdtemp(prefix="apples-"))
        for name in ("output", "errors"):
            pipe = guarded.Relay(os.path.join(self.folder, name), partial(self._say, name))  # noqa: PTH118
            self.selector.register(pipe.handle, selectors.EVENT_READ, pipe.read)

    def _remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _miss_the_anchor(self) -> None:
        """Leave the parent alone: it is the connection's, the anchor is elsewhere."""

    def _start(self, order: dict[str, Any]) -> None:
        settle(order)
        if order["commits"] and not os.path.isdir(order["commits"]):  # noqa: PTH112 - as in `guard`
            self._say("blind", group=order["group"])
        super()._start(order)


def settle(order: dict[str, Any]) -> None:
    """Make this host's own of an order that was written elsewhere."""
    server = (os.environ.get("SSH_CONNECTION", "").split() + [""] * 4)[2]
    order["environment"] = {**look.network(server), **order["environment"]}
    order["argv"] = [own(word) for word in order["argv"]]
    launch = json.loads(order["files"]["launch"])
    directory = launch["directory"] = os.path.expanduser(launch["directory"] or "~")  # noqa: PTH111
    for entry in launch["hosts"]:
        files = set(entry.pop("programs"))
        entry["program"] = [
            look.located(word, directory) if word in files else own(word)
            for word in entry["program"]
        ]
    order["files"]["launch"] = json.dumps(launch)


def own(word: str) -> str:
    """Return what a word in braces stands for on this host: the interpreter, mpiexec, a module's file.

    Examples
    --------
    >>> own("{python}") == sys.executable, own("{apples.launch.bind}")[-22:], own("-n")
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


def main() -> int:
    """Guard until the connection ends."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _asked)
    return guard(FarGuard)


def _asked(number: int, frame: object) -> None:
    del number, frame
    raise EOFError


if __name__ == "__main__":
    sys.exit(main())
