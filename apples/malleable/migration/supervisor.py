"""The parent of an unmodified program on one host: starts it, checkpoints it, restarts it, mourns it.

Run as ``python -m apples.malleable.migration.supervisor`` on the host. Commands come as JSON lines on standard
input, answers go out the same way on standard output; both are pipes of the anchor, over ssh where the host is
elsewhere. The end of the input ends the program: whoever held it is gone or done. The program dies with the
keeper (parent-death signal, which a checkpoint keeps), its own children by the keeper's last act or by the
watchdog of the run.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from apples.malleable.migration import criu, inspection
from apples.malleable.migration.criu import Criu, working_criu

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
ALIVE_SECONDS = 1.0
"""How often at least something is said."""
CRIU_SECONDS = 600.0
STUCK_SECONDS = 2.0
"""How long a criu may stay stopped (by somebody's signal) before it is given up."""
STEP_SECONDS = 0.02

Answer = dict[str, Any]


class CannotMove(Exception):  # noqa: N818 - no error: the program runs on
    """The program cannot be moved: every reason."""


class ProgramSupervisor:
    """Serves one anchor."""

    def __init__(self) -> None:
        self.pid = 0
        self.criu: Criu | None = None
        self.said = time.monotonic()
        self.libc = ctypes.CDLL(None)

    def serve(self) -> None:
        """Carry out commands until the input ends."""
        self.libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        self.libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        pending = b""
        try:
            while True:
                ready, _, _ = select.select([0, woken], [], [], ALIVE_SECONDS)
                if woken in ready:
                    os.read(woken, 4096)
                    self._reap()
                if 0 in ready:
                    data = os.read(0, 1 << 16)
                    if not data:
                        return
                    *lines, pending = (pending + data).split(b"\n")
                    for line in lines:
                        self._do(json.loads(line))
                self._alive()
        finally:
            self.end()

    def _do(self, command: Mapping[str, Any]) -> None:
        work: Mapping[str, Callable[[Mapping[str, Any]], Answer]] = {
            "look": self._look,
            "start": self._start,
            "inspect": self._inspect,
            "checkpoint": self._checkpoint,
            "restart": self._restart,
        }
        try:
            answer = work[command["do"]](command)
        except CannotMove as refusal:
            answer = {"said": "refused", "reasons": list(refusal.args)}
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            answer = {"said": "failed", "reasons": [str(error)]}
        self._say({**answer, "to": command["do"]})

    def _say(self, answer: Answer) -> None:
        self.said = time.monotonic()
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()

    def _alive(self) -> None:
        if time.monotonic() - self.said >= ALIVE_SECONDS:
            self._say({"said": "alive"})

    def _reap(self) -> None:
        """Report the end of the program; what else ended below it is only buried."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self.pid:
                    self.pid = 0
                    code = os.waitstatus_to_exitcode(ended[1])
                    self._say({"said": "ended", "code": code})

    def end(self) -> None:
        """Kill the program and all that it started; none is left when this returns."""
        deadline = time.monotonic() + STUCK_SECONDS
        while (left := inspection.tree(os.getpid())[1:]) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            time.sleep(STEP_SECONDS / 10)
        self.pid = 0

    # ------------------------------------------------------------- commands

    def _look(self, command: Mapping[str, Any]) -> Answer:
        """Say whether the program could be restarted here: CRIU, the folder, its files, its numbers."""
        reasons = [
            f"{path} is not there" for path in command["files"] if not os.path.lexists(path)
        ]
        if not Path(command["token"]).is_file():
            reasons = [f"the job's folder {Path(command['token']).parent} is not shared with it"]
        taken = [pid for pid in command["pids"] if Path(f"/proc/{pid}").exists()]
        if taken and command["kernel"] != inspection.kernel():
            reasons.append(f"the process number {taken[0]} is in use there")
        self.criu, missing = working_criu(self._alive)
        if self.criu is None:
            reasons.append(missing)
        if reasons:
            raise CannotMove(*reasons)
        return {"said": "fit", "version": self.criu.origin if self.criu else ""}

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
                preexec_fn=self._die_with_parent,  # noqa: PLW1509 - this process has one thread
            )
        finally:
            os.close(output)
            os.close(errors)
        self.pid = process.pid
        process.returncode = 0  # its end is awaited by `_reap`, not by subprocess
        return {"said": "started", "pid": process.pid}

    def _die_with_parent(self) -> None:
        self.libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)

    def _take_place(self, command: Mapping[str, Any]) -> None:
        """Put this process, and so all that it starts, on the host's CPUs and into its cgroup."""
        if command["cpus"]:
            os.sched_setaffinity(0, command["cpus"])
        if command["cgroup"]:
            Path(command["cgroup"]).write_text(str(os.getpid()))

    def _inspect(self, _: Mapping[str, Any]) -> Answer:
        found = inspection.inspect(self._running())
        seen = {"pids": found.pids, "files": sorted(found.files), "kernel": inspection.kernel()}
        return {"said": "seen", **seen}

    def _checkpoint(self, command: Mapping[str, Any]) -> Answer:
        """Signal the program, look whether it can be moved, and write it into the folder; it is gone then."""
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
        return {"said": "written", "pid": pid, "stopped": stopped, "phases": phases, "bytes": size}

    def _demand_movable(self, pid: int) -> None:
        reasons = inspection.inspect(pid).reasons
        if reasons:
            raise CannotMove(*reasons)

    def _signal(self, root: int, number: int, deadline: float) -> list[int]:
        """Signal the processes that catch it, and return those that stopped themselves when they were ready."""
        told = [pid for pid in inspection.tree(root) if number and inspection.catches(pid, number)]
        for pid in told:
            os.kill(pid, number)
        while (
            told and time.monotonic() < deadline and any(inspection.state(p) != "T" for p in told)
        ):
            time.sleep(STEP_SECONDS / 10)
        return [pid for pid in told if inspection.state(pid) == "T"]

    def _dump(self, pid: int, folder: str) -> None:
        os.mkdir(folder, 0o700)  # noqa: PTH102
        code, reason = self._run(self._found().dump(pid, folder), folder, criu.DUMP_LOG)
        if (
            code < 0
        ):  # in the middle, with code of its own inside the program: it is not what it was
            self.end()
            raise OSError(f"criu was killed (signal {-code}) inside the program, which was ended")
        if code:
            raise CannotMove(f"CRIU cannot checkpoint it: {reason}")

    def _restart(self, command: Mapping[str, Any]) -> Answer:
        """Make the program again from the folder, on this host's CPUs."""
        self._take_place(command)
        begin = time.monotonic()
        folder, pid = command["folder"], command["pid"]
        code, reason = self._run(self._found().restore(folder), folder, criu.RESTORE_LOG)
        if code or not inspection.state(pid):
            self.end()
            raise CannotMove(f"CRIU cannot restart it: {reason}")
        self.pid = pid
        self._continue(command["stopped"])
        self._reap()
        return {"said": "restarted", "pid": pid, "seconds": time.monotonic() - begin}

    # --------------------------------------------------------------- innards

    def _running(self) -> int:
        if not self.pid:
            raise CannotMove("the program has ended")
        return self.pid

    def _continue(self, stopped: list[int]) -> None:
        for pid in stopped:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGCONT)

    def _found(self) -> Criu:
        if self.criu is None:
            self.criu, missing = working_criu(self._alive)
            if self.criu is None:
                raise CannotMove(missing)
        return self.criu

    def _run(self, command: list[str], folder: str, log: str) -> tuple[int, str]:
        """Run criu, saying now and then that this process lives; return its code and its first error."""
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=self._die_with_parent,  # noqa: PLW1509 - this process has one thread
        )
        deadline = time.monotonic() + CRIU_SECONDS
        moving = time.monotonic()
        while process.poll() is None:
            now = time.monotonic()
            moving = moving if inspection.state(process.pid) == "T" else now
            if now > deadline or now - moving > STUCK_SECONDS:
                process.kill()
            time.sleep(STEP_SECONDS / 10)
            self._alive()
        text = Path(folder, log)
        return process.returncode, criu.first_error(
            text.read_text(errors="replace") if text.exists() else ""
        )


def main() -> None:
    """Serve the anchor on this process's standard input and output."""
    ProgramSupervisor().serve()


if __name__ == "__main__":
    main()
