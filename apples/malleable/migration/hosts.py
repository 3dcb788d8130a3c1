"""The program manager's end of its supervisors: one a host, asked one thing at a time, never waited for.

`trial_migration` asks one of this machine to move a sleeping program, which tells more than CRIU's own check.
"""

from __future__ import annotations

import contextlib
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

from apples.io.json_lines import LineBuffer, LineError, decode, encode
from apples.launch import heartbeat as peer
from apples.launch.host_spec import HostSpec
from apples.malleable.control.job_file import JobFile
from apples.malleable.migration.steps import GONE, SupervisorAnswer, SupervisorRequest

MODULE = "apples.malleable.migration.on_host"
LINE_LIMIT = 1 << 20
END_SECONDS = 4.0


class SupervisorConnection:
    """The connection to the supervisor on one host.

    Parameters
    ----------
    place
        Where: its `python` runs the supervisor, there through its `reach`.
    """

    def __init__(self, place: HostSpec) -> None:
        self.host, self._elsewhere = place.host, bool(place.reach)
        self.process = subprocess.Popen(
            [*(place.reach or (place.python,)), "-P", "-m", MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        assert self.process.stdout is not None  # noqa: S101 - for the type checker
        self.file = self.process.stdout
        os.set_blocking(self.file.fileno(), False)
        self._silence = peer.Silence(time.monotonic())
        self._lines = LineBuffer(LINE_LIMIT)

    def send(self, order: Mapping[str, Any]) -> None:
        """Send an order; whether the supervisor is gone is noticed when it is read."""
        assert self.process.stdin is not None  # noqa: S101 - for the type checker
        with contextlib.suppress(OSError):
            self.process.stdin.write(encode(order))

    def read(self) -> list[dict[str, Any]] | None:
        """Return the reports that came; None when the supervisor is gone, or sent what is no report."""
        try:
            data = os.read(self.file.fileno(), 1 << 16)
        except BlockingIOError:
            return []
        except OSError:
            return None
        self._silence.broken(time.monotonic())
        try:
            reports = [decode(line, LINE_LIMIT) for line in self._lines.feed(data)]
        except LineError:
            return None
        complete = all(isinstance(one.get("report"), str) for one in reports)
        return reports if data and complete else None

    def lost(self, now: float) -> bool:
        """Return whether the supervisor, which reports something every second, has been silent for too long."""
        silent = self._silence.seconds(now)
        if silent <= peer.SILENCE_SECONDS:
            return False
        return peer.lost(silent, peer.started(self.process.pid, elsewhere=self._elsewhere))

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
    """All supervisors of one job, and the one request whose answer is awaited.

    Parameters
    ----------
    answered
        Takes the answer to what was asked; `GONE` where none will come.
    ended
        Takes the host whose program has ended, and its exit code.
    lost
        Takes the host of a supervisor that is gone without having been asked anything.
    """

    def __init__(
        self,
        job: JobFile,
        selector: BaseSelector,
        answered: Callable[[SupervisorAnswer], None],
        ended: Callable[[str, int], None],
        lost: Callable[[str], None],
    ) -> None:
        self._job, self._selector = job, selector
        self._answered, self._ended, self._lost = answered, ended, lost
        self._pipes: dict[str, SupervisorConnection] = {}
        self.asked: SupervisorRequest | None = None
        self._until = 0.0

    def ask(self, ask: SupervisorRequest) -> None:
        """Send a request to the supervisor of its host, which is started if there is none."""
        self.asked, self._until = ask, time.monotonic() + ask.seconds
        if ask.host not in self._pipes:
            try:
                pipe = SupervisorConnection(self._job.place(ask.host))
            except OSError as error:
                self._take({"report": "failed", "reasons": [str(error)]})
                return
            self._pipes[ask.host] = pipe
            self._selector.register(pipe.file, EVENT_READ, lambda: self._on_readable(pipe))
        self._pipes[ask.host].send(ask.command)

    def check(self) -> None:
        """Give up supervisors that are silent, and answers that are late."""
        now = time.monotonic()
        for host, pipe in list(self._pipes.items()):
            late = self.asked is not None and self.asked.host == host and now > self._until
            if late or pipe.lost(now):
                self._give_up(pipe)

    def dismiss(self, host: str) -> None:
        """Let the supervisor of a host end its program, if it has one, and itself."""
        pipe = self._pipes.pop(host, None)
        if pipe is not None:
            self._selector.unregister(pipe.file)
            pipe.close()

    def process_of(self, host: str) -> int:
        """Return the process number of the supervisor on `host`; of the connection to it where it is elsewhere."""
        return self._pipes[host].process.pid

    def close(self) -> None:
        """Dismiss all."""
        self.asked = None
        for host in list(self._pipes):
            self.dismiss(host)

    def _on_readable(self, pipe: SupervisorConnection) -> None:
        answers = pipe.read()
        if answers is None:
            self._give_up(pipe)
            return
        for answer in answers:
            if answer["report"] == "ended":
                self._ended(pipe.host, int(answer["code"]))
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
            supervisor = SupervisorConnection(HostSpec("here", 1, SLEEP, sys.executable, "", ""))
        except OSError as error:
            return str(error)
        try:
            return _moved(supervisor, Path(folder))
        finally:
            supervisor.close()


def _moved(supervisor: SupervisorConnection, folder: Path) -> str:
    seat: dict[str, Any] = {"cpus": [], "cgroup": ""}
    start = {
        "order": "start",
        "argv": list(SLEEP),
        "directory": "/",
        "environment": {},
        "output": os.devnull,
        "errors": os.devnull,
    }
    checkpoint = {"order": "checkpoint", "folder": str(folder / "checkpoint")}
    begun = _answer_to(supervisor, {**start, **seat})
    if begun["report"] != "started":
        return _why(begun)
    written = _answer_to(supervisor, {**checkpoint, "signal": 0, "signal_seconds": 0.0})
    if written["report"] != "written":
        return _why(written)
    known = {name: written[name] for name in ("pid", "stopped")}
    again = _answer_to(
        supervisor, {"order": "restart", "folder": checkpoint["folder"], **known, **seat}
    )
    return "" if again["report"] == "restarted" else _why(again)


def _answer_to(supervisor: SupervisorConnection, command: dict[str, Any]) -> dict[str, Any]:
    supervisor.send(command)
    until = time.monotonic() + TRIAL_SECONDS
    while (left := until - time.monotonic()) > 0:
        select.select([supervisor.file], [], [], left)
        answers = supervisor.read()
        if answers is None:
            return {"report": "gone", "reasons": ["the supervisor ended"]}
        for answer in answers:
            if answer.get("to") == command["order"]:
                return answer
    return {"report": "late", "reasons": [f"no answer in {TRIAL_SECONDS:g} s"]}


def _why(answer: dict[str, Any]) -> str:
    return "; ".join(map(str, answer["reasons"]))
