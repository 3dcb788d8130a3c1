"""A master with its workers as a job of a scheduler, which assigns and withdraws its hosts.

The scheduler commands it through `apples.malleable.control`, as any job: a command names all hosts of the job.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection
from selectors import DefaultSelector
from threading import Event, Lock, Thread

from apples.applications.documents import MasterWorkerDocument
from apples.applications.master_worker.host_provider import HostProvider, RunStatus
from apples.applications.master_worker.planning import (
    MasterWorkerResult,
    MasterWorkerSpec,
    plan_master_worker,
)
from apples.applications.master_worker.running import run_master_worker
from apples.errors import LaunchError, failure_of
from apples.io.connection import call_ready
from apples.jobs.recorder import RunRecorder, known_of
from apples.jobs.spec import UnitsSpec
from apples.jobs.store import StoredJob
from apples.launch.events import Talk
from apples.malleable.control.command import (
    HostRows,
    JobEnded,
    ManagerStatus,
    ResizeCommand,
    ResizeDone,
    ResizeRefused,
)
from apples.malleable.control.requests import HostLimits
from apples.malleable.control.server import ControlServer
from apples.resources import read_host_list

TICK_SECONDS = 0.1


def run_job(
    spec: UnitsSpec, job: StoredJob, recorder: RunRecorder, running: Callable[[], None], talk: Talk
) -> MasterWorkerDocument:
    """Run a job to its end, in its supervisor's process; record and return its document.

    Raises as `run_master_worker` and `MasterWorkerResult.check`.

    Parameters
    ----------
    running
        Called when the plan is recorded, before anything is started.
    talk
        Receives the lines of the log.
    """

    def began(planned: MasterWorkerResult) -> None:
        document = planned.document()
        recorder.began(document, **known_of(document), iterations=planned.units)
        running()

    known = [host.name for host in read_host_list(spec.hosts)]
    given = CommandedHosts(job, recorder, known, spec.on, evolving=spec.evolving)
    ended = JobEnded("cancelled")  # replaced if the run ends by itself
    try:
        result = run_master_worker(_asked(spec), talk, began, given)
        document = result.document()
        recorder.record_result(document, **known_of(document))
        result.check()
        ended = JobEnded("finished")
    except Exception as error:
        ended = JobEnded("failed", failure_of(error).message)
        raise
    finally:
        given.close(ended)
    return document


def estimate_job(spec: UnitsSpec) -> float:
    """Return the predicted seconds of a job on its assigned hosts."""
    result = plan_master_worker(_asked(spec))
    return result.units / result.choice.rate


def _asked(spec: UnitsSpec) -> MasterWorkerSpec:
    """Return a job's specification as that of a run in the foreground."""
    return MasterWorkerSpec(
        spec.file, spec.hosts, spec.settings, spec.weather, spec.verify, on=spec.on,
        actuator=spec.actuator, content=spec.contents.get("units"),
    )  # fmt: skip


class CommandedHosts(HostProvider):
    """Records the status of a run for its scheduler, and passes the scheduler's commands to the run.

    Commands arrive at the job's control server, which runs in a thread of its own: it answers status requests also
    while the run starts workers.

    Parameters
    ----------
    known, given
        Names of the hosts that the run may use, and of its first hosts.
    evolving
        Report the number of hosts that the run needs; else only the number that it can use.
    """

    def __init__(
        self,
        job: StoredJob,
        recorder: RunRecorder,
        known: Collection[str],
        given: tuple[str, ...],
        *,
        evolving: bool,
    ) -> None:
        self._recorder, self._evolving = recorder, evolving
        limits = HostLimits(1, len(known), frozenset(known))
        self._server = ControlServer(job.id, limits, job.control_socket)
        self._selector, self._over, self._lock = DefaultSelector(), Event(), Lock()
        self._run_status = RunStatus("", given, 0, 0)
        self._epoch = 0
        self._command: ResizeCommand | None = None
        self._begun = 0.0
        self._answer: ResizeDone | ResizeRefused | None = None
        self._broken = ""
        self._server.attach(self._selector, self._status)
        self._thread = Thread(target=self._serve, name="control", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------------ from the run
    def report(self, status: RunStatus) -> None:
        """Record the hosts, the progress, the speed of each host, and the number of requested hosts.

        Raises
        ------
        LaunchError
            The scheduler's commands cannot reach the run any more, so it would keep its hosts for ever.
        """
        if self._broken:
            raise LaunchError(
                f"the connection for the scheduler's commands is lost: {self._broken}",
                code="control-lost",
                reason=self._broken,
            )
        self._run_status = status
        hosts, asks = list(status.hosts), status.asks
        if asks is not None and not self._evolving:
            asks = 1, asks[1]
        speeds = {host: rate for host, rate in status.rates.items() if rate > 0}
        self._recorder.note(
            hosts=hosts, rows=[0] * len(hosts), epoch=self._epoch, iteration=status.done,
            iterations=status.count, anchor=status.master, asks=asks and list(asks),
            measured={"rows": speeds, "compute_seconds": dict.fromkeys(speeds, 1.0)},
        )  # fmt: skip

    def order(self) -> tuple[str, ...]:
        """Return the hosts of the command that is not answered yet; empty without such a command."""
        with self._lock:
            if self._command is None or self._answer is not None:
                return ()
            return tuple(share.host for share in self._command.hosts)

    def answer(self, status: RunStatus, refusal: str = "") -> None:
        """Record the outcome of the current command, then send it to the sender of the command."""
        with self._lock:
            command = self._command
        if command is None:
            return
        self._epoch = command.epoch
        self.report(status)
        seconds = time.monotonic() - self._begun
        done = ResizeDone(command.epoch, self._status().members, seconds, {"wait": seconds})
        with self._lock:
            self._answer = ResizeRefused(command.epoch, refusal) if refusal else done

    def close(self, ended: JobEnded) -> None:
        """Send the end of the run to waiting clients, and close the control server."""
        self._over.set()
        self._thread.join()
        self._server.notify(ended)
        self._server.close()
        self._selector.close()

    # ------------------------------------------------------------------------ in the thread
    def _serve(self) -> None:
        try:
            self._heed_commands()
        except Exception as error:  # noqa: BLE001 - whatever it is, the run's own thread ends it
            self._broken = failure_of(error).message

    def _heed_commands(self) -> None:
        while not self._over.is_set():
            call_ready(self._selector, TICK_SECONDS)
            if self._server.cancelled():
                os.kill(os.getpid(), signal.SIGTERM)
                return
            with self._lock:
                if self._answer is not None:
                    self._server.notify(self._answer)
                    self._answer = self._command = None
                elif self._command is None:
                    self._command, self._begun = self._server.poll(), time.monotonic()

    def _status(self) -> ManagerStatus:
        now = self._run_status
        members = tuple(HostRows(host, 0, 0) for host in now.hosts)
        return ManagerStatus("running", members, self._epoch, now.done)
