"""The keepers of a job as the anchor holds them: one a host, asked one thing at a time, never waited for."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from selectors import EVENT_READ, BaseSelector
from typing import Any

from apples.malleable.control.job_file import HostSpec, JobFile
from apples.malleable.migration.steps import GONE, SupervisorAnswer, SupervisorRequest

MODULE = "apples.malleable.migration.supervisor"
LINE_LIMIT = 1 << 20
END_SECONDS = 4.0
SILENCE_SECONDS = 4.0
"""Of a keeper: it says something every second."""


class SupervisorConnection:
    """The keeper on one host.

    Parameters
    ----------
    place
        Where: its `python` runs the keeper, there through its `reach`.
    """

    def __init__(self, place: HostSpec) -> None:
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


class ProgramSupervisors:
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
        answered: Callable[[SupervisorAnswer], None],
        ended: Callable[[int], None],
        lost: Callable[[str], None],
    ) -> None:
        self._job, self._selector = job, selector
        self._answered, self._ended, self._lost = answered, ended, lost
        self._pipes: dict[str, SupervisorConnection] = {}
        self.asked: SupervisorRequest | None = None
        self._until = 0.0

    def ask(self, ask: SupervisorRequest) -> None:
        """Ask a keeper, which is started if there is none on its host."""
        self.asked, self._until = ask, time.monotonic() + ask.seconds
        if ask.host not in self._pipes:
            try:
                pipe = SupervisorConnection(self._job.place(ask.host))
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

    def _hear(self, pipe: SupervisorConnection) -> None:
        answers = pipe.read()
        if answers is None:
            self._give_up(pipe)
            return
        for answer in answers:
            if answer["said"] == "ended":
                self._ended(int(answer["code"]))
            elif self.asked and self.asked.host == pipe.host and "to" in answer:
                self._take(answer)

    def _give_up(self, pipe: SupervisorConnection) -> None:
        pipe.process.kill()
        self.dismiss(pipe.host)
        if self.asked and self.asked.host == pipe.host:
            self._take(GONE)
        else:
            self._lost(pipe.host)

    def _take(self, answer: SupervisorAnswer) -> None:
        self.asked = None
        self._answered(answer)


TRIAL_SECONDS = 20.0
SLEEP = (sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)")


def trial_migration() -> str:
    """Return why a process cannot be moved on this machine, empty if it can."""
    with tempfile.TemporaryDirectory(prefix="apples-") as folder:
        try:
            keeper = SupervisorConnection(HostSpec("here", 1, SLEEP, sys.executable, "", ""))
        except OSError as error:
            return str(error)
        try:
            return _moved(keeper, Path(folder))
        finally:
            keeper.close()


def _moved(keeper: SupervisorConnection, folder: Path) -> str:
    seat: dict[str, Any] = {"cpus": [], "cgroup": ""}
    start = {
        "do": "start",
        "argv": list(SLEEP),
        "directory": "/",
        "environment": {},
        "output": os.devnull,
        "errors": os.devnull,
    }
    checkpoint = {"do": "checkpoint", "folder": str(folder / "checkpoint")}
    begun = _asked(keeper, {**start, **seat})
    if begun["said"] != "started":
        return _why(begun)
    written = _asked(keeper, {**checkpoint, "signal": 0, "signal_seconds": 0.0})
    if written["said"] != "written":
        return _why(written)
    known = {name: written[name] for name in ("pid", "stopped")}
    again = _asked(keeper, {"do": "restart", "folder": checkpoint["folder"], **known, **seat})
    return "" if again["said"] == "restarted" else _why(again)


def _asked(keeper: SupervisorConnection, command: dict[str, Any]) -> dict[str, Any]:
    keeper.tell(command)
    until = time.monotonic() + TRIAL_SECONDS
    while (left := until - time.monotonic()) > 0:
        select.select([keeper.file], [], [], left)
        answers = keeper.read()
        if answers is None:
            return {"said": "gone", "reasons": ["the keeper ended"]}
        for answer in answers:
            if answer.get("to") == command["do"]:
                return answer
    return {"said": "late", "reasons": [f"no answer in {TRIAL_SECONDS:g} s"]}


def _why(answer: dict[str, Any]) -> str:
    return "; ".join(map(str, answer["reasons"]))
