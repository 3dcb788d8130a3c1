"""Guards one host's part of a run, over the ssh connection that started it.

Travels with the connection and runs with standard library only (`apples.launch.remote.shipping`). Standard output
is frames, `KIND LENGTH` and so many bytes: what ranks wrote (`output`, `error`) and what became of them
(`report`). Standard input is the agent's: its end, or the word `end`, ends every process of the run here.
The launcher's proxy is a child that dies with this process, the ranks die with the proxy.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
from typing import Any

from apples.launch.remote.look import located, network
from apples.launch.watchdog import PR_SET_CHILD_SUBREAPER, Watchdog, become

HELLO = b"apples.guard/1\n"
MARK = "APPLES_JOB"
BEAT_MILLISECONDS = 10_000
"""A word now and then: a network that is cut is noticed by whoever has sent something."""
CHUNK = 1 << 16
FIFOS = {"output": "output", "errors": "error"}


class Guard(Watchdog):
    """The watchdog of one host: its launcher is the proxy, its reports go over the connection."""

    def __init__(self, told: dict[str, Any]) -> None:
        super().__init__(told["directory"], -1, 0)
        self.told = told
        self.pipes: dict[int, str] = {}

    def guard(self) -> int:
        """Start the proxy and guard it to its end or the agent's."""
        os.umask(0o077)
        os.write(1, HELLO)
        os.mkdir(self.directory, 0o700)  # noqa: PTH102 - pathlib is slow to load
        try:
            self._furnish()
            self._start_proxy()
            self._watch()
        finally:
            self._clear()
        return self.status or 0

    def _furnish(self) -> None:
        """Write the files of the run and make its pipes."""
        self._point_at_the_network()
        for name, text in self.told["files"].items():
            with open(os.path.join(self.directory, name), "w", encoding="utf-8") as stream:  # noqa: PTH118, PTH123
                stream.write(text)
        os.symlink(sys.executable, os.path.join(self.directory, "python"))  # noqa: PTH118, PTH211
        for name in ("ranks", *FIFOS):
            path = os.path.join(self.directory, name)  # noqa: PTH118
            os.mkfifo(path, 0o600)
            pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)
            if name == "ranks":
                self.listener = pipe
            else:
                self.pipes[pipe] = FIFOS[name]

    def _point_at_the_network(self) -> None:
        """Keep MPI on the interface that the agent reaches this host by, and find the program."""
        server = (os.environ.get("SSH_CONNECTION", "").split() + [""] * 4)[2]
        directory = os.path.expanduser(self.told["home"] or "~")  # noqa: PTH111
        launch = self.told["launch"]
        launch["directory"] = directory
        for entry in launch["hosts"]:
            entry["environment"] = {**network(server), **entry["environment"]}
            files = set(entry.pop("programs"))
            entry["program"] = [
                located(word, directory) if word in files else word for word in entry["program"]
            ]
        self.told["files"]["launch.json"] = json.dumps(launch)

    def _start_proxy(self) -> None:
        os.environ[MARK] = self.told["job"]
        proxy = os.path.join(os.path.dirname(sys.executable), "hydra_pmi_proxy")  # noqa: PTH118, PTH120
        guard = os.getpid()
        self.launcher = os.fork()
        if self.launcher == 0:
            os.dup2(2, 1)  # standard output is frames
            become([proxy, *self.told["proxy"]], guard)

    def _watch(self) -> None:
        """Pass on what is said until the proxy ends or the agent is gone."""
        proxy = os.pidfd_open(self.launcher)
        for pipe in (0, self.listener, proxy, *self.pipes):
            self.poll.register(pipe, select.POLLIN)
        while True:
            ready = [pipe for pipe, _ in self.poll.poll(BEAT_MILLISECONDS)]
            if not ready:
                self._say("beat", b"")
            if not all(self._serve(pipe) for pipe in ready if pipe != proxy):
                return
            if proxy in ready:
                self._reap_launcher()
                for pipe in self.pipes:
                    while self._pass_on(pipe):
                        pass
                return

    def _serve(self, pipe: int) -> bool:
        """Do what a pipe that is ready asks for; False when the agent is gone or wants the run gone."""
        if pipe == 0:
            return self._hear()
        if pipe in self.pipes:
            self._pass_on(pipe)
        elif pipe == self.listener:
            self._admit()
        elif pipe in self.ranks:
            self._mourn(pipe)
        return True

    def _pass_on(self, pipe: int) -> bool:
        """Pass on what a pipe holds; False when it holds nothing."""
        try:
            data = os.read(pipe, CHUNK)
        except BlockingIOError:
            return False
        self._say(self.pipes[pipe], data)
        return True

    def _report(self, line: str) -> None:
        with contextlib.suppress(OSError):
            self._say("report", line.encode())

    def _say(self, kind: str, data: bytes) -> None:
        """Write a frame; a connection that is gone ends this process' watch by the error."""
        left = memoryview(f"{kind} {len(data)}\n".encode() + data)
        while left:
            left = left[os.write(1, left) :]


def main(told: dict[str, Any]) -> int:
    """Guard a run; whatever happens, nothing of it is left."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _asked)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        return Guard(told).guard()
    except OSError as error:
        sys.stderr.write(f"apples: {error.filename or 'the connection'}: {error.strerror}\n")
        return 1


def _asked(number: int, frame: object) -> None:
    del frame
    raise OSError(0, f"ended by signal {number}")
