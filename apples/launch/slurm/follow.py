"""Submits a job, passes on what it says, and sees to its end: the launcher of a run under Slurm.

``python -I -m apples.launch.slurm.follow BASE [ALLOCATION]`` in the folder of the run's files; they are
copied into a folder under `BASE`, which all hosts see. With an allocation the ranks are a step of it.
What the job itself wrote down is the truth; Slurm is asked only where that is silent.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from apples.errors import ApplesError, LaunchError
from apples.launch.slurm import cancel, client, deadline
from apples.launch.slurm.rank import OUTPUT
from apples.launch.slurm.replies import JobState
from apples.launch.slurm.script import SCRIPT
from apples.launch.slurm.tail import Tail, drain, write
from apples.units import duration

LOOK_SECONDS = 0.05
"""How often the job's files are looked at."""
ASK_SECONDS, MOST_ASK_SECONDS = 0.5, 15.0
"""How often Slurm is asked: at first, and where nothing changes for long."""
START_SECONDS = 120.0
"""From Slurm's word that the job runs to its own first one."""
RECORD_SECONDS = 10.0
"""How long a job's last words may take to reach this machine when Slurm says it is over."""
GONE_SECONDS = 10.0
END = "end"
FAILED = 1


class AskedToEndError(Exception):
    """Somebody asked this process to end."""


def main() -> int:
    """Follow one job from its submission to its end."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _asked)
    base, *allocation = sys.argv[1:]
    folder = Path(tempfile.mkdtemp(prefix=".apples-", dir=base))
    try:
        for file in Path.cwd().iterdir():
            if file.is_file():
                shutil.copy(file, folder / file.name)
        job = Step(folder, allocation[0]) if allocation else Job(folder)
        try:
            job.start()
            return _follow(folder, job)
        except AskedToEndError:
            return _judged(128 + signal.SIGTERM, job, job.now)
        finally:
            job.end()
    except AskedToEndError:
        return 128 + signal.SIGTERM
    except ApplesError as error:
        _say(str(error))
        return FAILED
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Job:
    """What is followed; `end` leaves nothing of it.

    Parameters
    ----------
    allocation
        Number of the allocation it is a step of; empty: a job of its own.
    """

    def __init__(self, folder: Path, allocation: str = "") -> None:
        self.folder, self.allocation = folder, allocation
        self.name = _name(folder)
        self.number = int(allocation or 0)
        self._guard = _guard(self.name, allocation)

    def start(self) -> None:
        """Submit it."""
        self.number = client.submit(self.folder, SCRIPT)

    def state(self) -> JobState:
        """Return what Slurm says."""
        return client.job_state(self.number)

    def last_state(self) -> JobState:
        """Return how it ended."""
        return client.job_end(self.number)

    def now(self) -> JobState:
        """Return what Slurm knows at this moment of the job whose time limit counts, ended or not."""
        return client.job_now(self.number, deadline.SECONDS) if self.number else JobState("")

    def end(self) -> None:
        """End what has not ended; when this returns Slurm does not list it any more."""
        cancel.cancel(self.name, self.allocation)
        deadline = time.monotonic() + GONE_SECONDS
        while self.listed() and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
        self._guard.kill()
        self._guard.wait()

    def listed(self) -> bool:
        """Whether squeue still lists it."""
        return bool(client.run(["squeue", "--noheader", f"--name={self.name}"]).strip())


class Step(Job):
    """A step of the allocation the agent runs in."""

    def start(self) -> None:
        """Start the script here."""
        with (
            (self.folder / "talk").open("wb") as talk,
            (self.folder / "errors").open("wb") as errors,
        ):
            self._process = subprocess.Popen(
                ["/bin/bash", SCRIPT],
                stdin=subprocess.DEVNULL,
                stdout=talk,
                stderr=errors,
                cwd=self.folder,
            )

    def state(self) -> JobState:
        """Return whether its own script runs."""
        return JobState("RUNNING" if self._process.poll() is None else "COMPLETED")

    def last_state(self) -> JobState:
        """Return how its own script ended."""
        return JobState("COMPLETED", code=self._process.poll())

    def end(self) -> None:
        """End the script and its steps: the script first, or it would go on to the next one."""
        if hasattr(self, "_process"):
            self._process.kill()
            self._process.wait()
        super().end()

    def listed(self) -> bool:
        """Whether squeue still lists the step."""
        return bool(cancel.steps(client.run([*cancel.LIST_STEPS, self.allocation]), self.name))


def _name(folder: Path) -> str:
    """Return the name that the script gives its job."""
    words = (folder / SCRIPT).read_text(encoding="utf-8").split()
    return next(w.partition("=")[2] for w in words if w.startswith("--job-name="))


def _guard(name: str, allocation: str) -> subprocess.Popen[bytes]:
    """Start what ends the job if this process is killed; it bears no mark of the run, and outlives it."""
    own = {k: v for k, v in os.environ.items() if k != "APPLES_JOB"}
    more = [allocation] if allocation else []
    words = [sys.executable, "-I", "-S", cancel.__file__, name, *more]
    return subprocess.Popen(words, stdin=subprocess.PIPE, env=own, start_new_session=True, cwd="/")


def _follow(folder: Path, job: Job) -> int:
    """Pass on what the job says until it is over; return its exit code."""
    tails = [Tail(folder / OUTPUT, 1), Tail(folder / "talk", 1), Tail(folder / "errors", 2)]
    asking = _ask(job)
    while True:
        if (folder / END).exists():
            drain(tails)
            return _judged(_recorded(folder), job, job.now)
        heard = sum(tail.pass_on() for tail in tails)  # all of them, each time
        if not heard:
            time.sleep(LOOK_SECONDS)
        over = next(asking)
        if over is not None:
            return _without_record(folder, tails, job, over)
        if not any(tail.heard for tail in tails):
            _judge_silence(job)


_running_since: list[float] = []


def _judge_silence(job: Job) -> None:
    if _running_since and time.monotonic() - _running_since[0] > START_SECONDS:
        raise LaunchError(f"job {job.number} runs and said nothing for {START_SECONDS:g} s")


def _ask(job: Job) -> Iterator[JobState | None]:
    """Yield None while the job waits or runs, else how Slurm says it is; asks only now and then."""
    pause, last, told = ASK_SECONDS, time.monotonic(), ""
    while True:
        if time.monotonic() - last < pause:
            yield None
            continue
        last, pause = time.monotonic(), min(MOST_ASK_SECONDS, pause * 1.3)
        try:
            state = job.state()
        except LaunchError as error:
            told = _once(f"job {job.number}: {error}", told)  # it may run on: its own record tells
            yield None
            continue
        if state.waiting and state.reason not in {"", "None"}:
            told = _once(_waiting(job, state), told)
        elif state.running and not _running_since:
            _running_since.append(time.monotonic())
        yield None if state.waiting or state.running else state


def _waiting(job: Job, state: JobState) -> str:
    line = f"job {job.number} waits in the queue ({state.reason})"
    left = state.start - time.time()
    return f"{line}; expected to start in {duration(left)}" if state.start and left > 0 else line


def _once(line: str, told: str) -> str:
    """Say a line unless it says the same as the last one, but for the time that is left."""
    if line.partition(";")[0] != told.partition(";")[0]:
        _say(line)
    return line


def _without_record(folder: Path, tails: list[Tail], job: Job, state: JobState) -> int:
    """Return the exit code of a job that Slurm says is over; its own record may still arrive."""
    deadline = time.monotonic() + RECORD_SECONDS
    end = job.last_state()
    while not (folder / END).exists() and time.monotonic() < deadline:
        if end.state and end.state not in {"COMPLETED", "COMPLETING"}:
            break  # it was ended and cannot have written one
        time.sleep(LOOK_SECONDS)
    drain(tails)
    if (folder / END).exists():
        return _judged(_recorded(folder), job, job.now)
    if not end.out_of_time:
        how = end.state or state.state or "Slurm does not know how"
        why = f" ({end.reason})" if end.reason else ""
        _say(f"job {job.number} was ended: {how}{why}")
    return _judged(end.code or FAILED, job, lambda: end)


def _recorded(folder: Path) -> int:
    """Return the exit code that the job wrote down."""
    return int((folder / END).read_text(encoding="ascii").strip() or FAILED)


def _judged(code: int, job: Job, ask: Callable[[], JobState]) -> int:
    """Return the exit code of this process for that of the job; it is said whatever is asked of it now."""
    _deaf()
    return deadline.judged(code, ask, lambda words: _say(f"job {job.number}: {words}"))


def _say(line: str) -> None:
    with contextlib.suppress(OSError):
        write(2, f"apples: {line}\n".encode())


def _asked(number: int, frame: object) -> NoReturn:
    del frame
    _deaf()
    raise AskedToEndError(number)


def _deaf() -> None:
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(main())
