"""The keepers of a job as the anchor holds them: one a host, asked one thing at a time, never waited for."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from selectors import EVENT_READ, BaseSelector
from typing import Any

from apples.malleable.job_file import JobFile, Place
from apples.malleable.programs.move import GONE, Answer, Ask

MODULE = "apples.malleable.programs.keeper"
LINE_LIMIT = 1 << 20
END_SECONDS = 4.0
SILENCE_SECONDS = 4.0
"""Of a keeper: it says something every second."""


class KeeperPipe:
    """The keeper on one host.

    Parameters
    ----------
    place
        Where: its `python` runs the keeper, there through its `reach`.
    """

    def __init__(self, place: Place) -> None:
        self.host = place.host
        self.process = subprocess.Popen(
            [*(place.reach or (place.python,)), "-P", "-m", MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        assert self.process.stdout is not None  # noqa: S101 - for the type checker
        self.file = self.process.stdout
        os.set_blocking(self.file.fileno(), False)
        self.heard = time.monotonic()
        self._pending = b""

    def tell(self, command: Mapping[str, Any]) -> None:
        """Send a command; a keeper that is gone is noticed by what is read."""
        assert self.process.stdin is not None  # noqa: S101 - for the type checker
        with contextlib.suppress(OSError):
            self.process.stdin.write(json.dumps(command).encode() + b"\n")

    def read(self) -> list[dict[str, Any]] | None:
        """Return what it said; None when it is gone, or said what no keeper says."""
        try:
            data = os.read(self.file.fileno(), 1 << 16)
        except BlockingIOError:
            return []
        except OSError:
            return None
        self.heard = time.monotonic()
        *lines, self._pending = (self._pending + data).split(b"\n")
        if not data or len(self._pending) > LINE_LIMIT:
            return None
        try:
            answers = [json.loads(line) for line in lines]
        except ValueError:
            return None
        said = all(isinstance(one, dict) and isinstance(one.get("said"), str) for one in answers)
        return answers if said else None

    def close(self, seconds: float = END_SECONDS) -> None:
        """Let it end its program and itself; kill it when it does not."""
        assert self.process.stdin is not None  # noqa: S101 - for the type checker
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.file.close()


class Keepers:
    """All keepers of one job, and the one answer that is waited for.

    Parameters
    ----------
    answered
        Takes the answer to what was asked; `GONE` where none will come.
    ended
        Takes the exit code of the program.
    lost
        Takes the host of a keeper that is gone without having been asked anything.
    """

    def __init__(
        self,
        job: JobFile,
        selector: BaseSelector,
        answered: Callable[[Answer], None],
        ended: Callable[[int], None],
        lost: Callable[[str], None],
    ) -> None:
        self._job, self._selector = job, selector
        self._answered, self._ended, self._lost = answered, ended, lost
        self._pipes: dict[str, KeeperPipe] = {}
        self.asked: Ask | None = None
        self._until = 0.0

    def ask(self, ask: Ask) -> None:
        """Ask a keeper, which is started if there is none on its host."""
        self.asked, self._until = ask, time.monotonic() + ask.seconds
        if ask.host not in self._pipes:
            try:
                pipe = KeeperPipe(self._job.place(ask.host))
            except OSError as error:
                self._take({"said": "failed", "reasons": [str(error)]})
                return
            self._pipes[ask.host] = pipe
            self._selector.register(pipe.file, EVENT_READ, lambda: self._hear(pipe))
        self._pipes[ask.host].tell(ask.command)

    def look_after(self) -> None:
        """Give up keepers that are silent, and answers that do not come."""
        now = time.monotonic()
        for host, pipe in list(self._pipes.items()):
            late = self.asked is not None and self.asked.host == host and now > self._until
            if late or now - pipe.heard > SILENCE_SECONDS:
                self._give_up(pipe)

    def dismiss(self, host: str) -> None:
        """Let a keeper end its program, if it has one, and itself."""
        pipe = self._pipes.pop(host, None)
        if pipe is not None:
            self._selector.unregister(pipe.file)
            pipe.close()

    def process_of(self, host: str) -> int:
        """Return the number of the keeper on `host`; of the way to it where it is elsewhere."""
        return self._pipes[host].process.pid

    def close(self) -> None:
        """Dismiss all."""
        self.asked = None
        for host in list(self._pipes):
            self.dismiss(host)

    def _hear(self, pipe: KeeperPipe) -> None:
        answers = pipe.read()
        if answers is None:
            self._give_up(pipe)
            return
        for answer in answers:
            if answer["said"] == "ended":
                self._ended(int(answer["code"]))
            elif self.asked and self.asked.host == pipe.host and "to" in answer:
                self._take(answer)

    def _give_up(self, pipe: KeeperPipe) -> None:
        pipe.process.kill()
        self.dismiss(pipe.host)
        if self.asked and self.asked.host == pipe.host:
            self._take(GONE)
        else:
            self._lost(pipe.host)

    def _take(self, answer: Answer) -> None:
        self.asked = None
        self._answered(answer)
