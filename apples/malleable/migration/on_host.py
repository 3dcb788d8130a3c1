"""The supervisor of an unmodified program on one host: starts it, checkpoints it, restarts it, reports its end.

Run as ``python -m apples.malleable.migration.on_host``, with the word ``far`` on another machine than the
manager's. The orders of the program manager are ``look``, ``start``, ``inspect``, ``checkpoint`` and ``restart``.
One report answers each order and names it (``to``). Without an order it reports ``alive``, and ``ended`` with the
exit code of the program. The protocol is that of `apples.launch.hostd`.

The program dies with this process, by a parent-death signal, which a checkpoint preserves. The program's own
children are killed at the end of this process, or by the supervisor of the run.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from apples.launch import heartbeat
from apples.launch.hostd import HostAgent
from apples.launch.job_processes import kill_descendants, signal_at_parents_end
from apples.malleable.migration import criu, inspection
from apples.malleable.migration.criu import Criu, working_criu

CRIU_SECONDS = 600.0
STUCK_SECONDS = 2.0
"""Time after which a stopped criu process is killed."""
STEP_SECONDS = 0.002

Answer = dict[str, Any]


class CannotMove(Exception):  # noqa: N818 - no error: the program runs on
    """The program cannot be moved and runs on; the arguments are the reasons, `code` names the condition."""

    def __init__(self, *reasons: str, code: str = "program-not-movable") -> None:
        super().__init__(*reasons)
        self.code = code


class ProgramSupervisor(HostAgent):
    """Supervises one program for its manager.

    Attributes
    ----------
    pid
        Process id of the program; 0 if it does not run here.
    is_far
        Whether the manager is on another machine, so that after a cut of the network its end shows only as
        silence.
    """

    death_signal = signal.SIGKILL

    def __init__(self, *, is_far: bool = False) -> None:
        super().__init__()
        self.is_far, self._handles = is_far, False
        self.pid = 0
        self.criu: Criu | None = None

    def open(self) -> None:
        """Register the orders and the ends of child processes with the selector."""
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake)
        signal.signal(
            signal.SIGCHLD, lambda *_: None
        )  # only a signal with a handler writes to the wakeup fd
        self.selector.register(woken, selectors.EVENT_READ, lambda: self._on_child_exit(woken))
        super().open()

    def check(self) -> None:
        """Report ``alive``; end if a far manager is silent, because sshd does not notice a cut network."""
        super().check()
        if self.is_far and not self._handles:
            silent = self.silence.seconds(time.monotonic())
            if heartbeat.lost(silent, runs=True):
                raise EOFError

    def close(self) -> None:
        """Kill the program and its descendants; stop waiting for an unkillable process after `STUCK_SECONDS`."""
        kill_descendants(os.getpid(), seconds=STUCK_SECONDS)
        self.pid = 0

    def handle(self, order: dict[str, Any]) -> None:
        """Carry out an order and report the answer."""
        work: Mapping[str, Callable[[Mapping[str, Any]], Answer]] = {
            "look": self._look,
            "start": self._start,
            "inspect": self._inspect,
            "checkpoint": self._checkpoint,
            "restart": self._restart,
        }
        what = order["order"]
        if what == "ping":
            return
        self._handles = True
        try:
            answer = work[what](order)
        except CannotMove as reasons:
            answer = {"report": "refused", "reasons": list(reasons.args), "code": reasons.code}
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            answer = {"report": "failed", "reasons": [str(error)]}
        finally:
            self._handles = False
            self.silence.broken(
                time.monotonic()
            )  # the manager is not silent: no order was read meanwhile
        self.report(answer.pop("report"), **answer, to=what)

    def _on_child_exit(self, woken: int) -> None:
        os.read(woken, 4096)
        self._reap()

    def _reap(self) -> None:
        """Reap all children that have ended; report the end of the program itself."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self.pid:
                    self.pid = 0
                    self.report("ended", code=os.waitstatus_to_exitcode(ended[1]))

    # ------------------------------------------------------------- commands

    def _look(self, command: Mapping[str, Any]) -> Answer:
        """Check whether the program could be restarted here: CRIU, the folder, its files, its process ids."""
        reasons = [
            f"{path} is not there" for path in command["files"] if not os.path.lexists(path)
        ]
        if not Path(command["token"]).is_file():
            reasons = [f"the job's folder {Path(command['token']).parent} is not shared with it"]
        taken = [pid for pid in command["pids"] if Path(f"/proc/{pid}").exists()]
        if taken and command["kernel"] != inspection.kernel():
            reasons.append(f"the process number {taken[0]} is in use there")
        self.criu, missing = working_criu(self.check)
        if self.criu is None:
            reasons.append(missing)
        if reasons:
            raise CannotMove(*reasons, code="host-unfit")
        return {"report": "fit", "version": self.criu.origin if self.criu else ""}

    def _start(self, command: Mapping[str, Any]) -> Answer:
        self._take_place(command)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        output = os.open(command["output"], flags, 0o600)
        errors = os.open(command["errors"], flags, 0o600)
        try:
            process = subprocess.Popen(
                command["argv"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                cwd=command["directory"],
                env={**os.environ, **command["environment"]},
                start_new_session=True,  # CRIU restarts a session only from its leader
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - this process has one thread
            )
        finally:
            os.close(output)
            os.close(errors)
        self.pid = process.pid
        process.returncode = 0  # `_reap` reaps it, so subprocess must not
        return {"report": "started", "pid": process.pid}

    def _take_place(self, command: Mapping[str, Any]) -> None:
        """Move this process, and thereby its later children, to the host's CPUs and cgroup."""
        if command["cpus"]:
            os.sched_setaffinity(0, command["cpus"])
        if command["cgroup"]:
            Path(command["cgroup"]).write_text(str(os.getpid()))

    def _inspect(self, command: Mapping[str, Any]) -> Answer:
        """Report the paths and process ids that the program needs; reject a program that cannot move.

        Sockets in ``closing`` are no reason to reject.
        """
        closing = command.get("closing")
        found = inspection.inspect(self._running(), closing or ())
        if closing is not None and found.reasons:
            raise CannotMove(*found.reasons)
        seen = {"pids": found.pids, "files": sorted(found.files), "kernel": inspection.kernel()}
        return {"report": "seen", **seen}

    def _checkpoint(self, command: Mapping[str, Any]) -> Answer:
        """Signal the program, inspect it, and checkpoint it into the folder, which ends it on this host."""
        pid = self._running()
        begin = time.monotonic()
        stopped = self._signal(pid, command["signal"], begin + command["signal_seconds"])
        signalled = time.monotonic()
        try:
            self._demand_movable(pid)
            inspected = time.monotonic()
            self._dump(pid, command["folder"])
        except BaseException:
            self._continue(stopped)
            raise
        self.pid = 0
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
        size = sum(entry.stat().st_size for entry in os.scandir(command["folder"]))
        phases = {
            "signal": signalled - begin,
            "inspect": inspected - signalled,
            "checkpoint": time.monotonic() - inspected,
        }
        return {
            "report": "written",
            "pid": pid,
            "stopped": stopped,
            "phases": phases,
            "bytes": size,
        }

    def _demand_movable(self, pid: int) -> None:
        reasons = inspection.inspect(pid).reasons
        if reasons:
            raise CannotMove(*reasons)

    def _signal(self, root: int, number: int, deadline: float) -> list[int]:
        """Signal the processes that catch the signal; return those that then stopped themselves, ready to move."""
        told = [pid for pid in inspection.tree(root) if number and inspection.catches(pid, number)]
        for pid in told:
            os.kill(pid, number)
        while (
            told and time.monotonic() < deadline and any(inspection.state(p) != "T" for p in told)
        ):
            time.sleep(STEP_SECONDS)
        return [pid for pid in told if inspection.state(pid) == "T"]

    def _dump(self, pid: int, folder: str) -> None:
        os.mkdir(folder, 0o700)  # noqa: PTH102
        code, reason = self._run(self._found().dump(pid, folder), folder, criu.DUMP_LOG)
        if (
            code < 0
        ):  # killed in the middle, with its own code injected into the program: the program is unusable
            self.close()
            raise OSError(f"criu was killed (signal {-code}) inside the program, which was ended")
        if code:
            raise CannotMove(f"CRIU cannot checkpoint it: {reason}", code="checkpoint-failed")

    def _restart(self, command: Mapping[str, Any]) -> Answer:
        """Restore the program from the folder, on this host's CPUs."""
        self._take_place(command)
        begin = time.monotonic()
        folder, pid = command["folder"], command["pid"]
        code, reason = self._run(self._found().restore(folder), folder, criu.RESTORE_LOG)
        if code or not inspection.state(pid):
            self.close()
            raise CannotMove(f"CRIU cannot restart it: {reason}", code="restart-failed")
        self.pid = pid
        self._continue(command["stopped"])
        self._reap()
        return {"report": "restarted", "pid": pid, "seconds": time.monotonic() - begin}

    # --------------------------------------------------------------- innards

    def _running(self) -> int:
        if not self.pid:
            raise CannotMove("the program has ended", code="program-ended")
        return self.pid

    def _continue(self, stopped: list[int]) -> None:
        for pid in stopped:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGCONT)

    def _found(self) -> Criu:
        if self.criu is None:
            self.criu, missing = working_criu(self.check)
            if self.criu is None:
                raise CannotMove(missing, code="host-unfit")
        return self.criu

    def _run(self, command: list[str], folder: str, log: str) -> tuple[int, str]:
        """Run criu, with ``alive`` reports meanwhile; return its exit code and its first error."""
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - this process has one thread
        )
        deadline = time.monotonic() + CRIU_SECONDS
        moving = time.monotonic()
        while process.poll() is None:
            now = time.monotonic()
            moving = moving if inspection.state(process.pid) == "T" else now
            if now > deadline or now - moving > STUCK_SECONDS:
                process.kill()
            time.sleep(STEP_SECONDS)
            self.check()
        text = Path(folder, log)
        return process.returncode, criu.first_error(
            text.read_text(errors="replace") if text.exists() else ""
        )


def _die_with_parent() -> None:
    signal_at_parents_end(signal.SIGKILL)


if __name__ == "__main__":
    ProgramSupervisor(is_far=sys.argv[1:] == ["far"]).run()
