"""Submits a job, passes on what it says, and sees to its end: the launcher of a run under Slurm.

``python -I -m apples.launch.slurm.follow BASE [ALLOCATION]`` in the folder of the run's files; they are
copied into a folder under `BASE`, which all hosts see. With an allocation the ranks are a step of it.
What the job itself wrote down is the truth; Slurm is asked only where that is silent.
"""

from __future__ import annotations

import contextlib
import os
import re
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
from apples.io.naming import naming
from apples.launch.endings import time_limit_words
from apples.launch.host_agent import OWN_ERRORS
from apples.launch.rank_wrapper import OUTPUT, TOLD
from apples.launch.slurm import cancel, client
from apples.launch.slurm.options import SCRIPT
from apples.launch.slurm.replies import SlurmJobState
from apples.ui.units import duration

LOOK_SECONDS = 0.05
"""How often the job's files are looked at."""
ASK_SECONDS, MOST_ASK_SECONDS = 0.5, 15.0
"""How often Slurm is asked: at first, and where nothing changes for long."""
START_SECONDS = 120.0
"""From Slurm's word that the job runs to its own first one."""
RECORD_SECONDS = 10.0
"""How long a job's last words may take to reach this machine when Slurm says it is over."""
GONE_SECONDS = 10.0
TIMED_OUT = 124
"""The exit code of this process where its time limit ended a job; a job's own one is never passed on as that."""
LABEL = re.compile(rb" *([0-9]{1,9}): ")
"""What ``srun --label`` puts before a rank's line."""
STATE_SECONDS = 5.0
"""How long Slurm may take to say so: whoever wants the job gone waits meanwhile."""
END = "end"
FAILED = 1


class AskedToEndError(Exception):
    """A signal asked this process to end."""


def main() -> int:
    """Follow one job from its submission to its end."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _asked)
    base, *allocation = sys.argv[1:]
    try:
        folder = Path(tempfile.mkdtemp(prefix=".apples-", dir=base))
    except OSError as error:
        _say(f"{base}: {error.strerror}")
        return FAILED
    try:
        for file in Path.cwd().iterdir():
            if file.is_file():
                with naming(folder / file.name):
                    shutil.copy(file, folder / file.name)
        job = SlurmStep(folder, allocation[0]) if allocation else SlurmJob(folder)
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
    except OSError as error:
        _say(f"{error.filename or folder}: {error.strerror or error}")
        return FAILED
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class SlurmJob:
    """What is followed; `end` leaves nothing of it.

    Parameters
    ----------
    allocation
        Number of the allocation it is a step of; empty: a job of its own.
    script
        Name of its script in the folder.
    """

    def __init__(self, folder: Path, allocation: str = "", script: str = SCRIPT) -> None:
        self.folder, self.allocation, self.script = folder, allocation, script
        self.name = _name(folder / script)
        self.number = int(allocation or 0)
        self._canceller = _start_canceller(self.name, allocation)

    def start(self) -> None:
        """Submit it."""
        self.number = client.submit(self.folder, self.script)

    def state(self) -> SlurmJobState:
        """Return what Slurm says."""
        return client.job_state(self.number)

    def last_state(self) -> SlurmJobState:
        """Return how it ended."""
        return client.job_end(self.number)

    def now(self) -> SlurmJobState:
        """Return what Slurm knows at this moment of the job whose time limit counts, ended or not."""
        return client.job_now(self.number, STATE_SECONDS) if self.number else SlurmJobState("")

    def end(self) -> None:
        """End what has not ended; when this returns Slurm does not list it any more."""
        cancel.cancel(self.name, self.allocation)
        deadline = time.monotonic() + GONE_SECONDS
        while self.listed() and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
        self._canceller.kill()
        self._canceller.communicate()

    def listed(self) -> bool:
        """Whether squeue still lists it."""
        return bool(client.run(["squeue", "--noheader", f"--name={self.name}"]).strip())


class SlurmStep(SlurmJob):
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

    def state(self) -> SlurmJobState:
        """Return whether its own script runs."""
        return SlurmJobState("RUNNING" if self._process.poll() is None else "COMPLETED")

    def last_state(self) -> SlurmJobState:
        """Return how its own script ended."""
        return SlurmJobState("COMPLETED", code=self._process.poll())

    def end(self) -> None:
        """End the script and its steps: the script first, or it would go on to the next one."""
        if hasattr(self, "_process"):
            self._process.kill()
            self._process.wait()
        super().end()

    def listed(self) -> bool:
        """Whether squeue still lists the step."""
        return bool(cancel.steps(client.run([*cancel.LIST_STEPS, self.allocation]), self.name))


def _name(script: Path) -> str:
    """Return the name that a script gives its job."""
    words = script.read_text(encoding="utf-8").split()
    return next(w.partition("=")[2] for w in words if w.startswith("--job-name="))


def _start_canceller(name: str, allocation: str) -> subprocess.Popen[bytes]:
    """Start what ends the job if this process is killed; it bears no mark of the run, and outlives it."""
    own = {k: v for k, v in os.environ.items() if k != "APPLES_JOB"}
    more = [allocation] if allocation else []
    words = [sys.executable, "-I", "-S", cancel.__file__, name, *more]
    return subprocess.Popen(words, stdin=subprocess.PIPE, env=own, start_new_session=True, cwd="/")


def _follow(folder: Path, job: SlurmJob) -> int:
    """Pass on what the job says until it is over; return its exit code."""
    tails = [
        Tail(folder / OUTPUT, 1),
        LabelledTail(folder / "talk", 1),
        LabelledTail(folder / "errors", 2, OWN_ERRORS),
    ]
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


def _judge_silence(job: SlurmJob) -> None:
    if _running_since and time.monotonic() - _running_since[0] > START_SECONDS:
        raise LaunchError(
            f"job {job.number} runs and said nothing for {START_SECONDS:g} s",
            code="job-silent",
            job=job.number,
            seconds=START_SECONDS,
        )


def _ask(job: SlurmJob) -> Iterator[SlurmJobState | None]:
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
            told = _once(waiting_words(job.number, state), told)
        elif state.running and not _running_since:
            _running_since.append(time.monotonic())
        yield None if state.waiting or state.running else state


def waiting_words(job: int, state: SlurmJobState) -> str:
    """Return what to say of a job that waits."""
    line = f"job {job} waits in the queue ({state.reason})"
    left = state.start - time.time()
    return f"{line}; expected to start in {duration(left)}" if state.start and left > 0 else line


def _once(line: str, told: str) -> str:
    """Say a line unless it says the same as the last one, but for the time that is left."""
    if line.partition(";")[0] != told.partition(";")[0]:
        _say(line)
    return line


def _without_record(folder: Path, tails: list[Tail], job: SlurmJob, state: SlurmJobState) -> int:
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


def _judged(code: int, job: SlurmJob, ask: Callable[[], SlurmJobState]) -> int:
    """Return the exit code of this process for that of the job; it is said whatever is asked of it now."""
    _deaf()
    return time_limit_judged(code, ask, lambda words: _say(f"job {job.number}: {words}"))


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


def own_code(code: int) -> int:
    """Return a job's own exit code as the follower passes it on.

    Examples
    --------
    >>> own_code(0), own_code(5), own_code(TIMED_OUT)
    (0, 5, 1)
    """
    return FAILED if code == TIMED_OUT else code


def time_limit_judged(
    code: int, ask: Callable[[], SlurmJobState], say: Callable[[str], None]
) -> int:
    """Return the exit code of a job that ended with `code`; `TIMED_OUT`, and say so, where its limit did it.

    When the limit comes, Slurm first notes it and then ends the ranks; what they say of their end is heard here
    before anybody is told why. So whoever asks after having heard them gets the true reason.

    Examples
    --------
    >>> time_limit_judged(143, lambda: SlurmJobState("TIMEOUT", limit=60.0), print)
    the time limit of 1 minute ended it
    124
    >>> time_limit_judged(5, lambda: SlurmJobState("RUNNING", limit=60.0), print)
    5
    """
    if code == 0:
        return 0
    state = ask()
    if not state.out_of_time:
        return own_code(code)
    say(time_limit_words(state.limit))
    return TIMED_OUT


# ------------------------------------------------------------------ the files a job writes, passed on as they grow
class Tail:
    """One file of the job, passed on line by line to a descriptor of this process."""

    def __init__(self, path: Path, out: int) -> None:
        self.path, self.out = path, out
        self.heard = False
        self._place, self._rest = 0, b""

    def pass_on(self, whole: bool = True) -> bool:
        """Pass on what is new, whole lines only; whether there was any."""
        try:
            with self.path.open("rb") as stream:  # opened anew: so network file systems look again
                stream.seek(self._place)
                data = stream.read(1 << 20)
        except FileNotFoundError:
            return False
        self._place += len(data)
        text = self._rest + data
        lines, newline, self._rest = text.rpartition(b"\n") if whole else (text, b"", b"")
        if lines or newline:
            self.heard = True
            self._say(lines + newline)
        return bool(data)

    def _say(self, text: bytes) -> None:
        write(self.out, text)


class LabelledTail(Tail):
    """What all ranks write to one stream, each line labelled by srun with its rank, passed on without the labels.

    What `apples.launch.rank_wrapper` tells of a rank goes to the supervisor, as under other launchers.

    Parameters
    ----------
    own
        How the pipe of one rank is called but for its number, where each has one that somebody listens to.
    """

    def __init__(self, path: Path, out: int, own: str = "") -> None:
        super().__init__(path, out)
        self._own = own
        self._pipes: dict[str, int] = {}

    def _say(self, text: bytes) -> None:
        for line in text.splitlines(keepends=True):
            label = LABEL.match(line)
            rest = line[label.end() :] if label else line
            if self._own and rest.startswith(TOLD.encode()):
                write(self._pipe("ranks"), rest[len(TOLD) :])
            elif self._own and label:
                write(self._pipe(f"{self._own}{int(label[1])}"), rest)
            else:
                write(self.out, rest)

    def _pipe(self, name: str) -> int:
        """Return the descriptor of a pipe of the run; that of all where nobody listens to it."""
        if name not in self._pipes:
            self._pipes[name] = self.out
            with contextlib.suppress(OSError):
                pipe = self._pipes[name] = os.open(name, os.O_WRONLY | os.O_NONBLOCK)
                os.set_blocking(pipe, True)
        return self._pipes[name]


def drain(tails: list[Tail]) -> None:
    """Pass on all that is left, an unfinished line too."""
    for tail in tails:
        while tail.pass_on():
            pass
        tail.pass_on(whole=False)


def write(out: int, data: bytes) -> None:
    """Write all of it."""
    left = memoryview(data)
    while left:
        left = left[os.write(out, left) :]


if __name__ == "__main__":
    sys.exit(main())
