"""The manager's end of the connection to a supervisor: a local process that takes orders and sends reports.

If the host is this machine, the process here is the supervisor, a fork of the manager. Elsewhere it is the ssh or
srun that leads to the host. Nothing here blocks: orders wait in a buffer, and reports are read when the selector
reports them. All processes of the job on the host end with the connection (`apples.launch.hostd`).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
import warnings
from collections.abc import Sequence
from selectors import EVENT_READ, EVENT_WRITE, BaseSelector
from typing import Any, NoReturn

from apples.io.json_lines import LineError, encode
from apples.io.output_pipe import write_ready
from apples.launch import heartbeat
from apples.launch.hostd import HostReports
from apples.launch.job_processes import MARK, as_child, close_inherited, exec_program

FIRST_REPORT_SECONDS = 12.0
"""Additional time for the first report of a supervisor."""
RETRY_SECONDS = 0.5
"""Interval of retries to start the process."""
PING_SECONDS = 1.0
"""Interval of pings, by which the supervisor notices that the manager runs."""
REAP_SECONDS = 5.0
"""Time limit for the local process to end by itself after the connection is closed; then it is killed."""
CHUNK = 1 << 16

SUPERVISOR_ENDED = "its supervisor ended"
CONNECTION_ENDED = "its supervisor, or the connection to it, ended"
SUPERVISOR_SILENT = "its supervisor does not answer"
GREETING_TOO_LONG = "its login prints too much before the supervisor does"
REPORT_INVALID = "it sent an invalid supervisor report"
"""Reasons for the loss of a host."""


class SupervisorConnection:
    """The connection to one supervisor.

    A subclass implements `be_supervisor`, `handle` and `on_end`. The constructor starts the process, which runs
    `be_supervisor`; if there can be no more processes, `check` tries again for `FIRST_REPORT_SECONDS`.

    Parameters
    ----------
    job
        Name of the job, by which its processes are found; empty: no job.
    is_far
        Whether the supervisor is on another machine.

    Attributes
    ----------
    pid
        The local process; 0 until it has started.
    gone
        Whether the connection has ended: the supervisor counts as lost, and no report is handled any more.
    reported
        Whether the supervisor has sent a report.
    last_report_at
        Time of its last report, by `time.monotonic`.
    spawn_error
        Reason why the process could not be started yet; empty once it has started.
    """

    def __init__(self, selector: BaseSelector, job: str, *, is_far: bool) -> None:
        self.is_far, self._job, self._selector = is_far, job, selector
        self.pid = 0
        self.gone = self.reported = self._dismissed = False
        self.spawn_error = ""
        self._opened = self._pinged = self._tried = self.last_report_at = time.monotonic()
        self._silence = heartbeat.Silence(self._opened)
        self._reports = HostReports()
        self._unsent = bytearray()
        self._input = self._output = -1
        self._awaits_room = False
        self._reaper: threading.Thread | None = None
        self._spawn()

    # ------------------------------------------------------------- for subclasses

    def be_supervisor(self) -> int | None:
        """Run the supervisor in the child, or execute the command that leads to it; return the exit code."""
        raise NotImplementedError

    def handle(self, report: dict[str, Any]) -> None:
        """Handle a report.

        Raises
        ------
        LineError
            The report is invalid for this kind of supervisor, which then counts as lost.
        """
        raise NotImplementedError

    def on_end(self, why: str) -> None:
        """Handle the loss of the supervisor: called at most once, and not after `kill` or `close`."""
        raise NotImplementedError

    # ------------------------------------------------------------- for users

    def order(self, name: str, **fields: object) -> None:
        """Send an order, or buffer it until the supervisor reads."""
        self._unsent += encode({"order": name, **fields})
        self._flush()

    def dismiss(self) -> None:
        """Close the supervisor's input once all orders are written; it then ends with all its processes."""
        self._dismissed = True
        self._flush()

    def kill(self) -> None:
        """Kill the supervisor and thereby all its processes on its host; do not wait for their end."""
        if self.gone:
            return
        if self.is_far and self.reported:
            self.dismiss()  # after a kill of the ssh, sshd decides when the far supervisor notices the end
        elif self._output >= 0:
            os.kill(self.pid, signal.SIGKILL)  # not reaped, so the pid cannot be reused
        self.close()

    def close(self) -> None:
        """Close the connection, by which the supervisor ends; do not wait.

        A thread reaps the local process, and kills it after `REAP_SECONDS`.
        """
        self.gone = True
        if self._output < 0:
            return
        self._close_input()
        self._selector.unregister(self._output)
        os.close(self._output)
        self._output = -1
        # In a thread of its own, because the manager's loop must not block. If no thread can be started,
        # the run's supervisor ends and reaps the process.
        reaper = threading.Thread(target=_reap, args=(self.pid,), daemon=True)
        with contextlib.suppress(RuntimeError):
            reaper.start()
            self._reaper = reaper

    def give_up(self, why: str) -> None:
        """Kill the supervisor and report its loss, unless the connection has ended."""
        if not self.gone:
            self.kill()
            self.on_end(why)

    def check(self, now: float) -> None:
        """Retry the start of the process; send a ping; treat a supervisor that is silent for too long as lost."""
        if self.gone:
            return
        if self.spawn_error:
            if now - self._opened > FIRST_REPORT_SECONDS:
                self.give_up(f"no process can be started for it: {self.spawn_error}")
            elif now - self._tried >= RETRY_SECONDS:
                self._spawn()
            return
        if now - self._pinged > PING_SECONDS:
            self._pinged = now
            if not self._unsent:  # buffered orders serve as a ping
                self.order("ping")
        silent = self._silence.seconds(now) - (0.0 if self.reported else FIRST_REPORT_SECONDS)
        if silent > heartbeat.SILENCE_SECONDS and heartbeat.lost(silent, runs=self.runs):
            self.give_up(SUPERVISOR_SILENT)

    @property
    def runs(self) -> bool:
        """Whether the local process runs, and is not stopped."""
        return heartbeat.process_runs(self.pid)

    def wait(self) -> None:
        """Wait for the end of the local process after `close`, at most `REAP_SECONDS`."""
        if self._reaper is not None:
            self._reaper.join()

    # ------------------------------------------------------------- the process and its pipes

    def _spawn(self) -> None:
        """Start the process, or set `spawn_error`."""
        self._tried = time.monotonic()
        try:
            orders, self._input, self._output, reports = _pipes()
        except OSError as error:
            self.spawn_error = error.strerror or str(error)
            return
        try:
            with warnings.catch_warnings():
                # Python 3.12 warns of forks in a process with threads; the manager's only reap supervisors.
                warnings.simplefilter("ignore")
                self.pid = os.fork()
        except OSError as error:
            self.spawn_error = error.strerror or str(error)
            for pipe in (orders, self._input, self._output, reports):
                os.close(pipe)
            self._input = self._output = -1
            return
        if self.pid == 0:
            as_child(lambda: self._be_child(orders, reports))
        os.close(orders)
        os.close(reports)
        self.spawn_error = ""
        os.set_blocking(self._input, False)
        os.set_blocking(self._output, False)
        self._selector.register(self._output, EVENT_READ, self._read)
        self._flush()

    def _be_child(self, orders: int, reports: int) -> int | None:
        os.setsid()
        os.dup2(orders, 0)
        os.dup2(reports, 1)
        if self._job:
            os.environ[MARK] = self._job
        return self.be_supervisor()

    def _flush(self) -> None:
        """Write as many buffered bytes as the pipe takes now; the selector reports when it takes more."""
        if self._input < 0:
            return
        try:
            write_ready(self._input, self._unsent)
        except OSError:
            self._unsent.clear()  # the supervisor is gone: the end of its reports shows it
        if self._dismissed and not self._unsent:
            self._close_input()
        elif bool(self._unsent) != self._awaits_room:
            self._awaits_room = bool(self._unsent)
            if self._awaits_room:
                self._selector.register(self._input, EVENT_WRITE, self._flush)
            else:
                self._selector.unregister(self._input)

    def _close_input(self) -> None:
        """Close the pipe of the orders, if it is open."""
        if self._awaits_room:
            self._awaits_room = False
            self._selector.unregister(self._input)
        if self._input >= 0:
            os.close(self._input)
            self._input = -1

    def _read(self) -> None:
        data = os.read(self._output, CHUNK)
        if not data:
            self.close()
            self.on_end(CONNECTION_ENDED if self.is_far else SUPERVISOR_ENDED)
            return
        try:
            reports = self._reports.feed(data)
            if not self._reports.heard:
                return
            self.last_report_at, self.reported = time.monotonic(), True
            self._silence.broken(self.last_report_at)
            for report in reports:
                if not self.gone:
                    self.handle(report)
        except LineError:
            self.give_up(REPORT_INVALID if self._reports.heard else GREETING_TOO_LONG)


def run_command(argv: Sequence[str]) -> NoReturn:
    """Replace the child of a connection by a command."""
    close_inherited()
    exec_program(list(argv))


def _pipes() -> tuple[int, int, int, int]:
    """Return both ends of two pipes, each its reading end first."""
    orders = os.pipe()
    try:
        reports = os.pipe()
    except OSError:
        for pipe in orders:
            os.close(pipe)
        raise
    return (*orders, *reports)


def _reap(pid: int) -> None:
    """Wait for the end of a child, and kill it after the time limit."""
    handle = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        if not poll.poll(REAP_SECONDS * 1000):
            os.kill(pid, signal.SIGKILL)  # not reaped, so the pid cannot be reused
    finally:
        os.close(handle)
    os.waitpid(pid, 0)
