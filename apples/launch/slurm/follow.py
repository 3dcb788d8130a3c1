"""Follows a job of Slurm to its end: the launcher of a run under Slurm.

``python -I -m apples.launch.slurm.follow BASE [ALLOCATION]`` in the folder of the run's files submits their
script, from a copy of the folder under `BASE`, which all hosts see. It passes on the files that the job writes
there. With an allocation, the script is a step of it. The job's own record of its end decides; Slurm is asked only
where that is missing.

``python -I -m apples.launch.slurm.follow --held NAME COMMAND..`` runs another launcher on nodes that the job
`NAME` holds (`apples.launch.slurm.allocation`), and ends it with that job: nothing of a run stays on nodes that
are no longer ours.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
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
from apples.io.json_lines import LineBuffer
from apples.io.naming import naming
from apples.launch import job_processes
from apples.launch.endings import time_limit_words
from apples.launch.host_agent import OWN_ERRORS
from apples.launch.hostd import LINE_LIMIT
from apples.launch.rank_wrapper import OUTPUT
from apples.launch.slurm import cancel, client
from apples.launch.slurm.options import SCRIPT
from apples.launch.slurm.replies import SlurmJobState, task_ends
from apples.ui.units import duration

HELD = "--held"
LOOK_SECONDS, MAX_LOOK_SECONDS = 0.05, 1.0
"""Poll interval of the job's files, which are on a shared file system: after news, and where none comes."""
ASK_SECONDS, MAX_ASK_SECONDS = 0.5, 15.0
"""Poll interval of Slurm: at first, and where nothing changes for long."""
HELD_ASK_SECONDS = 3.0
"""Longest poll interval of the job that holds the nodes of a launcher."""
START_SECONDS = 120.0
"""From Slurm's report that the job runs to the job's first line."""
RECORD_SECONDS = 10.0
"""How long a job's last lines may take to reach this machine when Slurm reports that it is over."""
GONE_SECONDS = 10.0
"""How long Slurm may take to remove a cancelled job from its list."""
STATE_SECONDS = 5.0
"""How long Slurm may take to report whether the time limit ended the job: the end of the run waits for it."""
LAUNCHER_END_SECONDS = 1.0
"""How long a launcher may take to end after each signal."""
TIMED_OUT = 124
"""The exit code of this process where its time limit ended a job; a job's own one is never passed on as that."""
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LABEL = re.compile(rb" *([0-9]{1,9}): ")
"""What ``srun --label`` puts before a rank's line."""
END = "end"
"""The file in which the job notes its exit code."""
FAILED = 1


class AskedToEndError(Exception):
    """A signal asked this process to end."""


def main() -> int:
    """Follow one job to its end."""
    for number in ENDING:
        signal.signal(number, _ask_to_end)
    first, *rest = sys.argv[1:]
    try:
        if first == HELD:
            launcher = Launcher(rest[1:])
            return follow(SlurmJob(client.number_of(rest[0])), launcher, HELD_ASK_SECONDS)
        return _submit_and_follow(Path(first), *rest)
    except AskedToEndError:
        return 128 + signal.SIGTERM
    except ApplesError as error:
        _print(str(error))
    except OSError as error:
        _print(f"{error.filename or first}: {error.strerror or error}")
    return FAILED


def _submit_and_follow(base: Path, allocation: str = "") -> int:
    """Submit the script of this folder, or start it as a step, and follow it; leave nothing of it."""
    folder = Path(tempfile.mkdtemp(prefix=".apples-", dir=base))
    try:
        for file in Path.cwd().iterdir():
            if file.is_file():
                with naming(folder / file.name):
                    shutil.copy(file, folder / file.name)
        job = SlurmStep(folder, SCRIPT, allocation) if allocation else SubmittedJob(folder, SCRIPT)
        try:
            job.start()
            return follow(job, WrittenFiles(folder))
        finally:
            job.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ------------------------------------------------------------------ the jobs
class SlurmJob:
    """A job of Slurm, by its number."""

    def __init__(self, number: int) -> None:
        self.number = number

    def state(self) -> SlurmJobState:
        """Return its state as Slurm lists it."""
        return client.job_state(self.number)

    def last_state(self) -> SlurmJobState:
        """Return how it ended."""
        return client.job_end(self.number)

    def now(self) -> SlurmJobState:
        """Return at once what Slurm knows of the job whose time limit counts, ended or not."""
        return client.job_now(self.number, STATE_SECONDS) if self.number else SlurmJobState("")


class SubmittedJob(SlurmJob):
    """A job of our own, from a script in a folder. Ends by `end`, or with this process.

    Parameters
    ----------
    allocation
        Number of the allocation that it is a step of; empty: a job of its own.
    """

    def __init__(self, folder: Path, script: str, allocation: str = "") -> None:
        super().__init__(int(allocation or 0))
        self.folder, self.script, self.allocation = folder, script, allocation
        words = (folder / script).read_text(encoding="utf-8").split()
        self.name = next(w.partition("=")[2] for w in words if w.startswith("--job-name="))
        # The canceller ends the job if this process is killed. It has no tag of the run, and so outlives it.
        self._canceller = subprocess.Popen(
            [sys.executable, "-I", "-S", cancel.__file__, self.name, *filter(None, [allocation])],
            stdin=subprocess.PIPE,
            env={k: v for k, v in os.environ.items() if k != job_processes.MARK},
            start_new_session=True,
            cwd="/",
        )

    def start(self) -> None:
        """Submit it."""
        self.number = client.submit(self.folder, self.script)

    def end(self) -> None:
        """End it if it has not ended; when this returns, Slurm does not list it any more."""
        cancel.cancel(self.name, self.allocation)
        deadline, pauses = time.monotonic() + GONE_SECONDS, backoff(LOOK_SECONDS, MAX_LOOK_SECONDS)
        while self._listed() and time.monotonic() < deadline:
            time.sleep(next(pauses))
        self._canceller.kill()
        self._canceller.communicate()

    def _listed(self) -> bool:
        return bool(client.run(["squeue", "--noheader", f"--name={self.name}"]).strip())


class SlurmStep(SubmittedJob):
    """A step of the allocation that the agent runs in: its script runs here."""

    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the script here."""
        with (
            (self.folder / "talk").open("wb") as talk,
            (self.folder / "errors").open("wb") as errors,
        ):
            self._process = subprocess.Popen(
                ["/bin/bash", self.script],
                stdin=subprocess.DEVNULL,
                stdout=talk,
                stderr=errors,
                cwd=self.folder,
            )

    def state(self) -> SlurmJobState:
        """Return whether its script runs."""
        runs = self._process is not None and self._process.poll() is None
        return SlurmJobState("RUNNING" if runs else "COMPLETED")

    def last_state(self) -> SlurmJobState:
        """Return how its script ended."""
        return SlurmJobState("COMPLETED", code=self._process.poll() if self._process else None)

    def end(self) -> None:
        """End the script and its steps: the script first, or it would start the next one."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        super().end()

    def _listed(self) -> bool:
        return bool(cancel.steps(client.run([*cancel.LIST_STEPS, self.allocation]), self.name))


# ------------------------------------------------------------------ following one
def follow(
    job: SlurmJob, work: WrittenFiles | Launcher, longest_pause: float = MAX_ASK_SECONDS
) -> int:
    """Follow a job until it is over, or its files or launcher are; return the exit code of this process."""
    poll = StatePoll(job, _print, longest_pause)
    end: SlurmJobState | None = None
    try:
        while (code := work.step()) is None:
            state = poll.state()
            if state is not None and not (state.waiting or state.running):
                end = job.last_state()
                code = work.finish(end)
                if code is None and not end.out_of_time:
                    _print(f"job {job.number} was ended: {how_it_ended(end, state)}")
                break
            if work.silent and poll.run_seconds() > START_SECONDS:
                raise LaunchError(
                    f"job {job.number} runs and wrote nothing for {START_SECONDS:g} s",
                    code="job-silent",
                    job=job.number,
                    seconds=START_SECONDS,
                )
    except AskedToEndError:
        work.end(signal.SIGTERM, signal.SIGKILL)
        code = 128 + signal.SIGTERM
    _ignore_signals()
    if code == 0:
        return 0
    if code is not None or end is None:
        end = job.now()
    return time_limit_judged(
        code or end.code or FAILED, end, lambda words: _print(f"job {job.number}: {words}")
    )


class StatePoll:
    """Asks Slurm for a job's state with backoff; reports a line for each new reason why the job waits."""

    def __init__(
        self, job: SlurmJob, report: Callable[[str], None], longest_pause: float = MAX_ASK_SECONDS
    ) -> None:
        self._job, self._report = job, report
        self._pauses = backoff(ASK_SECONDS, longest_pause)
        self._due = time.monotonic() + next(self._pauses)
        self._reported = ""
        self._running_since: float | None = None

    def state(self) -> SlurmJobState | None:
        """Return the job's state; None where it is not time to ask, or Slurm does not answer."""
        if time.monotonic() < self._due:
            return None
        self._due = time.monotonic() + next(self._pauses)
        try:
            state = self._job.state()
        except LaunchError as error:  # the controller is busy: the job may run on
            self._report_once(f"job {self._job.number}: {error}")
            return None
        if state.waiting and state.reason not in {"", "None"}:
            self._report_once(waiting_words(self._job.number, state))
        elif state.running and self._running_since is None:
            self._running_since = time.monotonic()
        return state

    def wait(self) -> SlurmJobState | None:
        """Return the job's state when it is time to ask; None where Slurm does not answer."""
        time.sleep(max(0.0, self._due - time.monotonic()))
        return self.state()

    def run_seconds(self) -> float:
        """Return the seconds since the job was first seen to run; 0 if it was not."""
        return 0.0 if self._running_since is None else time.monotonic() - self._running_since

    def _report_once(self, line: str) -> None:
        """Report a line unless it differs from the last one in the time that is left only."""
        if line.partition(";")[0] != self._reported.partition(";")[0]:
            self._report(line)
        self._reported = line


def backoff(first: float, most: float) -> Iterator[float]:
    """Yield the seconds between polls: each pause a third longer than the one before, up to `most`.

    Examples
    --------
    >>> pauses = backoff(0.5, 1.0)
    >>> [round(next(pauses), 2) for _ in range(4)]
    [0.5, 0.65, 0.85, 1.0]
    """
    while True:
        yield first
        first = min(most, first * 1.3)


def waiting_words(job: int, state: SlurmJobState) -> str:
    """Return the line about a job that waits."""
    line = f"job {job} waits in the queue ({state.reason})"
    left = state.start - time.time()
    return f"{line}; expected to start in {duration(left)}" if state.start and left > 0 else line


def how_it_ended(end: SlurmJobState, listed: SlurmJobState) -> str:
    """Return in words how a job ended; from how it was listed where Slurm does not know its end."""
    how = end.state or listed.state or "Slurm does not know how"
    return f"{how} ({end.reason})" if end.reason else how


def time_limit_judged(code: int, state: SlurmJobState, report: Callable[[str], None]) -> int:
    """Return the exit code of a job that failed with `code`; `TIMED_OUT` and a report if its time limit ended it.

    When the limit comes, Slurm first notes it and then ends the ranks. So Slurm knows it as soon as the end of a
    rank is known here.

    Examples
    --------
    >>> time_limit_judged(143, SlurmJobState("TIMEOUT", limit=60.0), print)
    the time limit of 1 minute ended it
    124
    >>> time_limit_judged(5, SlurmJobState("RUNNING", limit=60.0), print)
    5
    >>> time_limit_judged(TIMED_OUT, SlurmJobState("RUNNING"), print)
    1
    """
    if not state.out_of_time:
        return FAILED if code == TIMED_OUT else code
    report(time_limit_words(state.limit))
    return TIMED_OUT


def _print(line: str) -> None:
    with contextlib.suppress(OSError):
        write(2, f"apples: {line}\n".encode())


def _ask_to_end(number: int, frame: object) -> NoReturn:
    del frame
    _ignore_signals()
    raise AskedToEndError(number)


def _ignore_signals() -> None:
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


# ------------------------------------------------------------------ a launcher on the nodes of a job
class Launcher:
    """Another launcher, as a child of this process, that the kernel kills when this process ends."""

    silent = False

    def __init__(self, argv: list[str]) -> None:
        parent, self._pid = os.getpid(), os.fork()
        if self._pid == 0:
            job_processes.exec_launcher(argv, parent)
        self._handle = os.pidfd_open(self._pid)

    def step(self) -> int | None:
        """Return its exit code if it ends within a poll interval of Slurm's."""
        if not select.select([self._handle], [], [], ASK_SECONDS)[0]:
            return None
        code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return code if code >= 0 else 128 - code

    def finish(self, _: SlurmJobState) -> None:
        """Kill it before its ranks report the end of the job as their failure."""
        self.end(signal.SIGKILL)

    def end(self, *numbers: signal.Signals) -> None:
        """Send it signals until it ends."""
        for number in numbers:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)
            if select.select([self._handle], [], [], LAUNCHER_END_SECONDS)[0]:
                return


# ------------------------------------------------------------------ the files a job writes, passed on as they grow
class WrittenFiles:
    """The files that a job writes, passed on as they grow, and its record of its end."""

    def __init__(self, folder: Path) -> None:
        self._record = folder / END
        self._tails = [
            Tail(folder / OUTPUT, 1),
            LabelledTail(folder / "talk", 1),
            LabelledTail(folder / "errors", 2, OWN_ERRORS),
        ]
        self._pauses = backoff(LOOK_SECONDS, MAX_LOOK_SECONDS)

    @property
    def silent(self) -> bool:
        """Whether nothing was passed on yet."""
        return not any(tail.passed_on for tail in self._tails)

    def step(self) -> int | None:
        """Pass on what is new, or wait; return the exit code that the job noted, if it did."""
        if self._record.exists():
            self._drain()
            return int(self._record.read_text(encoding="ascii").strip() or FAILED)
        if sum(tail.pass_on() for tail in self._tails):  # all of them, each time
            self._pauses = backoff(LOOK_SECONDS, MAX_LOOK_SECONDS)
        else:
            time.sleep(next(self._pauses))
        return None

    def finish(self, end: SlurmJobState) -> int | None:
        """Wait for the record of a job that came to its own end; pass on the rest of its files."""
        deadline = time.monotonic() + RECORD_SECONDS
        own_end = not end.state or end.state in {
            "COMPLETED",
            "COMPLETING",
        }  # else it was ended, without a record
        while own_end and time.monotonic() < deadline:
            if (code := self.step()) is not None:
                return code
        self._drain()
        return self.step() if self._record.exists() else None

    def end(self, *_: signal.Signals) -> None:
        """Do nothing: the job itself is ended."""

    def _drain(self) -> None:
        """Pass on all that is left, an unfinished line too."""
        for tail in self._tails:
            while tail.pass_on():
                pass
            tail.finish()


class Tail:
    """One file of the job, passed on line by line to a descriptor of this process.

    Of a line longer than `LINE_LIMIT` bytes the first `LINE_LIMIT` + 1 are passed on, as by other launchers.
    """

    label_bytes = 0
    """Maximum number of bytes before the program's own part of a line."""

    def __init__(self, path: Path, out: int) -> None:
        self.path, self.out = path, out
        self.passed_on = False
        self._offset = 0
        self._lines = LineBuffer(LINE_LIMIT + self.label_bytes, truncating=True)

    def pass_on(self) -> bool:
        """Pass on the whole lines that are new; return whether the file has grown."""
        try:
            with self.path.open("rb") as stream:  # opened anew: so network file systems look again
                stream.seek(self._offset)
                data = stream.read(1 << 20)
        except FileNotFoundError:
            return False
        self._offset += len(data)
        if lines := self._lines.feed(data):
            self.passed_on = True
            self._write([line + b"\n" for line in lines])
        return bool(data)

    def finish(self) -> None:
        """Pass on the last line, which has no end."""
        if rest := self._lines.rest():
            self._write([rest])

    def _write(self, lines: list[bytes]) -> None:
        write(self.out, b"".join(lines))


class LabelledTail(Tail):
    """What all ranks write to one stream, each line labelled by srun with its rank, passed on without the labels.

    What srun itself prints about the end of a task goes to the run's supervisor too, as a report of that rank.

    Parameters
    ----------
    own
        Name of the pipe of each rank, without its number; empty: ranks have none.
    """

    label_bytes = 16

    def __init__(self, path: Path, out: int, own: str = "") -> None:
        super().__init__(path, out)
        self._own = own
        self._pipes: dict[str, int] = {}

    def _write(self, lines: list[bytes]) -> None:
        for line in lines:
            label = LABEL.match(line)
            rest = line[label.end() :] if label else line
            if self._own and label:
                write(self._pipe(f"{self._own}{int(label[1])}"), rest)
                continue
            write(self.out, rest)
            if self._own and (ranks := self._pipe("ranks")) != self.out:
                for rank, how in task_ends(line.decode(errors="replace").rstrip("\n")).items():
                    write(ranks, f"{rank} {how}\n".encode())

    def _pipe(self, name: str) -> int:
        """Return the descriptor of a pipe of the run; that of all ranks where the pipe has no reader."""
        if name not in self._pipes:
            self._pipes[name] = self.out
            with contextlib.suppress(OSError):
                pipe = self._pipes[name] = os.open(name, os.O_WRONLY | os.O_NONBLOCK)
                os.set_blocking(pipe, True)
        return self._pipes[name]


def write(out: int, data: bytes) -> None:
    """Write all of it."""
    left = memoryview(data)
    while left:
        left = left[os.write(out, left) :]


if __name__ == "__main__":
    sys.exit(main())
