"""The program manager's end of its supervisors: one on each host, one request at a time, never blocking.

`trial_migration` lets a supervisor on this machine move a sleeping program, which tests more than CRIU's own
check.
"""

from __future__ import annotations

import os
import selectors
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from apples.io.connection import call_ready
from apples.io.json_lines import LineError
from apples.launch import heartbeat
from apples.launch.host_spec import HostSpec
from apples.malleable.control.job_file import JobFile
from apples.malleable.migration.steps import SupervisorAnswer, SupervisorRequest, gone
from apples.malleable.node.connection import SupervisorConnection, run_command

MODULE = "apples.malleable.migration.on_host"


class ProgramSupervisorConnection(SupervisorConnection):
    """The connection to the supervisor on one host.

    Parameters
    ----------
    host_spec
        Specification of the host: its `python` runs the supervisor, its `reach` leads there.
    on_report, on_lost
        Called with the host and a report; called with the host and the reason if its supervisor is lost.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        job: str,
        host_spec: HostSpec,
        on_report: Callable[[str, dict[str, Any]], None],
        on_lost: Callable[[str, str], None],
    ) -> None:
        self.host, self._on_report, self._on_lost = host_spec.host, on_report, on_lost
        self._argv = [*(host_spec.reach or (host_spec.python,)), "-P", "-m", MODULE]
        self._argv += ["far"] if host_spec.reach else []
        super().__init__(selector, job, is_far=bool(host_spec.reach))

    def be_supervisor(self) -> None:
        """Execute the supervisor's interpreter, or the ssh that leads to it."""
        run_command(self._argv)

    def handle(self, report: dict[str, Any]) -> None:
        """Pass a report to `on_report`."""
        if report["report"] == "ended" and not isinstance(report.get("code"), int):
            raise LineError("the end of a program without its exit code")
        self._on_report(self.host, report)

    def on_end(self, why: str) -> None:
        """Pass the loss to `on_lost`."""
        self._on_lost(self.host, why)


class ProgramSupervisors:
    """All supervisors of one job, and the single request that waits for its answer.

    Parameters
    ----------
    answered
        Called with the answer to the request; with `gone` if no answer can arrive.
    ended
        Called with the host and the exit code when a program has ended.
    lost
        Called with the host and the reason when a supervisor is lost without a request in progress.
    """

    def __init__(
        self,
        job: JobFile,
        selector: selectors.BaseSelector,
        answered: Callable[[SupervisorAnswer], None],
        ended: Callable[[str, int], None],
        lost: Callable[[str, str], None],
    ) -> None:
        self._job, self._selector = job, selector
        self._answered, self._ended, self._lost = answered, ended, lost
        self._connections: dict[str, ProgramSupervisorConnection] = {}
        self.request: SupervisorRequest | None = None
        self._asked = heartbeat.Silence(time.monotonic())

    def ask(self, request: SupervisorRequest) -> None:
        """Send a request to the supervisor of its host; start the supervisor if it does not run."""
        self.request, self._asked = request, heartbeat.Silence(time.monotonic())
        if request.host not in self._connections:
            self._connections[request.host] = ProgramSupervisorConnection(
                self._selector,
                self._job.job,
                self._job.place(request.host),
                self._on_report,
                self._on_lost,
            )
        fields = dict(request.command)
        self._connections[request.host].order(fields.pop("order"), **fields)

    def check(self) -> None:
        """Treat silent supervisors and late answers as lost.

        Only the time in which this process ran counts: a suspended machine does not make an answer late.
        """
        now = time.monotonic()
        for connection in list(self._connections.values()):
            connection.check(now)
        if self.request is not None and self._asked.seconds(now) > self.request.seconds:
            late = (
                f"no answer to '{self.request.command['order']}' within {self.request.seconds:g} s"
            )
            self._connections[self.request.host].give_up(late)

    def dismiss(self, host: str) -> None:
        """Order the supervisor of a host to end its program, if any, and itself; do not wait."""
        if connection := self._connections.pop(host, None):
            connection.close()

    def process_of(self, host: str) -> int:
        """Return the pid of the supervisor on `host`; for another machine, the pid of the connection's process."""
        return self._connections[host].pid

    def close(self) -> None:
        """Dismiss all supervisors; return once they have ended, or were killed after the time limit."""
        self.request = None
        connections = list(self._connections.values())
        self._connections.clear()
        for connection in connections:
            connection.close()
        for connection in connections:
            connection.wait()

    def _on_report(self, host: str, report: dict[str, Any]) -> None:
        if report["report"] == "ended":
            self._ended(host, report["code"])
        elif self.request and self.request.host == host and "to" in report:
            self._answer(report)

    def _on_lost(self, host: str, why: str) -> None:
        del self._connections[host]
        if self.request and self.request.host == host:
            self._answer(gone(why))
        else:
            self._lost(host, why)

    def _answer(self, answer: SupervisorAnswer) -> None:
        self.request = None
        self._answered(answer)


TRIAL_SECONDS, TICK_SECONDS = 20.0, 0.1
SLEEP = (sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)")


def trial_migration() -> str:
    """Return the reason why a process cannot be moved on this machine; empty if it can."""
    here = HostSpec("here", 1, SLEEP, sys.executable, "", "")
    with tempfile.TemporaryDirectory(prefix="apples-") as folder, Trial(here) as trial:
        return trial.moved(Path(folder) / "checkpoint")


class Trial:
    """A supervisor on this machine that gets one order after another; each call waits for the answer."""

    def __init__(self, host_spec: HostSpec) -> None:
        self._selector = selectors.DefaultSelector()
        self._answers: list[dict[str, Any]] = []
        self._supervisor = ProgramSupervisorConnection(
            self._selector,
            "",
            host_spec,
            lambda _, report: self._answers.append(report),
            lambda _, why: self._answers.append({"to": "", "report": "gone", "reasons": [why]}),
        )

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *_: object) -> None:
        self._supervisor.close()
        self._supervisor.wait()
        self._selector.close()

    def moved(self, folder: Path) -> str:
        """Start a program, checkpoint it into a folder and restart it; return the reason of a failure."""
        seat: dict[str, Any] = {"cpus": [], "cgroup": ""}
        start = {"argv": list(SLEEP), "directory": "/", "environment": {}}
        start |= {"output": os.devnull, "errors": os.devnull}
        started = self._ask("start", "started", **start, **seat)
        checkpoint = {"folder": str(folder), "signal": 0, "signal_seconds": 0.0}
        written = started or self._ask("checkpoint", "written", **checkpoint)
        if written:
            return written
        known = {name: self._answers[-1][name] for name in ("pid", "stopped")}
        return self._ask("restart", "restarted", folder=str(folder), **known, **seat)

    def _ask(self, order: str, expected: str, **fields: object) -> str:
        """Send an order; return the reason if the answer is not the expected report, else empty."""
        self._supervisor.order(order, **fields)
        asked = heartbeat.Silence(time.monotonic())
        while asked.seconds(time.monotonic()) < TRIAL_SECONDS:
            call_ready(self._selector, TICK_SECONDS)
            self._supervisor.check(time.monotonic())
            if self._answers and self._answers[-1].get("to") in ("", order):
                answer = self._answers[-1]
                return "" if answer["report"] == expected else "; ".join(answer["reasons"])
        return f"no answer in {TRIAL_SECONDS:g} s"
