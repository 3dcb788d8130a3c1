"""Follow a Slurm job to its end: the launcher of a run under Slurm.

``python -I -m apples.launch.slurm.follow BASE [ALLOCATION]``, started in the folder of the run's files, copies the
folder to `BASE`, a directory that all hosts share, and submits the script in it. It passes on the contents of the
files that the job writes there. With an allocation, the script runs as a step of it. The exit code comes from the
job's own record of its end; Slurm is queried only if the record is missing.

``python -I -m apples.launch.slurm.follow --held NAME COMMAND..`` runs another launcher on nodes that the job
`NAME` holds (`apples.launch.slurm.allocation`), and ends the launcher with that job, so that no process of a run
stays on nodes that are no longer allocated.
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
"""Shortest and longest poll interval of the job's files, which are on a shared file system."""
ASK_SECONDS, MAX_ASK_SECONDS = 0.5, 15.0
"""Shortest and longest poll interval of Slurm."""
HELD_ASK_SECONDS = 3.0
"""Longest poll interval of the job that holds the nodes of a launcher."""
START_SECONDS = 120.0
"""Time limit from Slurm's report that the job runs to the job's first line."""
RECORD_SECONDS = 10.0
"""Time limit for a job's last lines to reach this machine after Slurm reports that it is over."""
GONE_SECONDS = 10.0
"""Time limit for Slurm to remove a cancelled job from its list."""
STATE_SECONDS = 5.0
"""Time limit for Slurm to report whether the time limit ended the job; the end of the run waits for it."""
LAUNCHER_END_SECONDS = 1.0
"""Time limit for a launcher to end after each signal."""
TIMED_OUT = 124
"""Exit code of this process if the time limit ended a job. The same exit code of a job becomes `FAILED`."""
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LABEL = re.compile(rb" *([0-9]{1,9}): ")
"""The label that ``srun --label`` puts before a rank's line."""
END = "end"
"""The file in which the job records its exit code."""
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
    """Submit the script of this folder, or start it as a step, and follow it; then end it and remove its files."""
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
    """A Slurm job, identified by its number."""

    def __init__(self, number: int) -> None:
        self.number = number

    def state(self) -> SlurmJobState:
        """Return its state in Slurm's list of jobs."""
        return client.job_state(self.number)

    def last_state(self) -> SlurmJobState:
        """Return its final state."""
        return client.job_end(self.number)

    def now(self) -> SlurmJobState:
        """Return the controller's state of the job that has the time limit, running or ended."""
        return client.job_now(self.number, STATE_SECONDS) if self.number else SlurmJobState("")


class SubmittedJob(SlurmJob):
    """A job that this process submits, from a script in a folder. Ends by `end`, or with this process.

    Parameters
    ----------
    allocation
        Number of the allocation in which the script runs as a step; empty: submit a job.
    """

    def __init__(self, folder: Path, script: str, allocation: str = "") -> None:
        super().__init__(int(allocation or 0))
        self.folder, self.script, self.allocation = folder, script, allocation
        words = (folder / script).read_text(encoding="utf-8").split()
        self.name = next(w.partition("=")[2] for w in words if w.startswith("--job-name="))
        # The canceller ends the job if this process is killed. It has no job tag, so that it survives the run.
        self._canceller = subprocess.Popen(
            [sys.executable, "-I", "-S", cancel.__file__, self.name, *filter(None, [allocation])],
            stdin=subprocess.PIPE,
            env={k: v for k, v in os.environ.items() if k != job_processes.MARK},
            start_new_session=True,
            cwd="/",
        )

    def start(self) -> None:
        """Submit the job."""
        self.number = client.submit(self.folder, self.script)

    def end(self) -> None:
        """End the job if it still runs; wait at most `GONE_SECONDS` until Slurm does not list it any more."""
        cancel.cancel(self.name, self.allocation)
        deadline, pauses = time.monotonic() + GONE_SECONDS, backoff(LOOK_SECONDS, MAX_LOOK_SECONDS)
        while self._listed() and time.monotonic() < deadline:
            time.sleep(next(pauses))
        self._canceller.kill()
        self._canceller.communicate()

    def _listed(self) -> bool:
        return bool(client.run(["squeue", "--noheader", f"--name={self.name}"]).strip())


class SlurmStep(SubmittedJob):
    """A step of the agent's allocation; its script runs on this machine."""

    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the script on this machine."""
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
        """Return the state by whether the script still runs."""
        runs = self._process is not None and self._process.poll() is None
        return SlurmJobState("RUNNING" if runs else "COMPLETED")

    def last_state(self) -> SlurmJobState:
        """Return the exit code of the script as a final state."""
        return SlurmJobState("COMPLETED", code=self._process.poll() if self._process else None)

    def end(self) -> None:
        """End the script and its steps; the script first, since it would start the next step."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        super().end()

    def _listed(self) -> bool:
        return bool(cancel.steps(client.run([*cancel.LIST_STEPS, self.allocation]), self.name))


# ------------------------------------------------------------------ following a job
def follow(
    job: SlurmJob, work: WrittenFiles | Launcher, longest_pause: float = MAX_ASK_SECONDS
) -> int:
    """Follow a job until the job or its launcher ends; return the exit code of this process."""
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
    """Polls a job's state with backoff; reports a line for each new reason why the job waits."""

    def __init__(
        self, job: SlurmJob, report: Callable[[str], None], longest_pause: float = MAX_ASK_SECONDS
    ) -> None:
        self._job, self._report = job, report
        self._pauses = backoff(ASK_SECONDS, longest_pause)
        self._due = time.monotonic() + next(self._pauses)
        self._reported = ""
        self._running_since: float | None = None

    def state(self) -> SlurmJobState | None:
        """Return the job's state; None if the next poll is not due or Slurm does not answer."""
        if time.monotonic() < self._due:
            return None
        self._due = time.monotonic() + next(self._pauses)
        try:
            state = self._job.state()
        except LaunchError as error:  # the controller may be busy, and the job still runs
            self._report_once(f"job {self._job.number}: {error}")
            return None
        if state.waiting and state.reason not in {"", "None"}:
            self._report_once(waiting_words(self._job.number, state))
        elif state.running and self._running_since is None:
            self._running_since = time.monotonic()
        return state

    def wait(self) -> SlurmJobState | None:
        """Wait for the next poll and return the job's state; None if Slurm does not answer."""
        time.sleep(max(0.0, self._due - time.monotonic()))
        return self.state()

    def run_seconds(self) -> float:
        """Return the seconds since a poll first showed the job running; 0 if none did."""
        return 0.0 if self._running_since is None else time.monotonic() - self._running_since

    def _report_once(self, line: str) -> None:
        """Report a line unless it differs from the last one only in the expected start."""
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
    """Return the line about a waiting job."""
    line = f"job {job} waits in the queue ({state.reason})"
    left = state.start - time.time()
    return f"{line}; expected to start in {duration(left)}" if state.start and left > 0 else line


def how_it_ended(end: SlurmJobState, listed: SlurmJobState) -> str:
    """Return words for the end of a job, from its final state, or if that is unknown from its listed state."""
    how = end.state or listed.state or "Slurm does not know how"
    return f"{how} ({end.reason})" if end.reason else how


def time_limit_judged(code: int, state: SlurmJobState, report: Callable[[str], None]) -> int:
    """Return the exit code of a job that failed with `code`; if its time limit ended it, report that.

    The exit code is then `TIMED_OUT`. At the time limit, Slurm records the timeout before it ends the ranks. So
    when this process notices the end of a rank, Slurm already reports the timeout.

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
    """Another launcher, as a child of this process; the kernel kills it when this process ends."""

    silent = False

    def __init__(self, argv: list[str]) -> None:
        parent, self._pid = os.getpid(), os.fork()
        if self._pid == 0:
            job_processes.exec_launcher(argv, parent)
        self._handle = os.pidfd_open(self._pid)

    def step(self) -> int | None:
        """Wait at most `ASK_SECONDS` for its end; return its exit code, None if it still runs."""
        if not select.select([self._handle], [], [], ASK_SECONDS)[0]:
            return None
        code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return code if code >= 0 else 128 - code

    def finish(self, _: SlurmJobState) -> None:
        """Kill it, before its ranks report the end of the job as an error of their own."""
        self.end(signal.SIGKILL)

    def end(self, *numbers: signal.Signals) -> None:
        """Send it these signals in order until it ends."""
        for number in numbers:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)
            if select.select([self._handle], [], [], LAUNCHER_END_SECONDS)[0]:
                return


# ------------------------------------------------------------------ the files a job writes, passed on as they grow
class WrittenFiles:
    """Passes on the files that a job writes as they grow, and reads its record of its end."""

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
        """Whether no output was passed on yet."""
        return not any(tail.passed_on for tail in self._tails)

    def step(self) -> int | None:
        """Pass on new output, or wait if none is there; return the exit code that the job recorded, else None."""
        if self._record.exists():
            self._drain()
            return int(self._record.read_text(encoding="ascii").strip() or FAILED)
        if sum(tail.pass_on() for tail in self._tails):  # any() would not read all files
            self._pauses = backoff(LOOK_SECONDS, MAX_LOOK_SECONDS)
        else:
            time.sleep(next(self._pauses))
        return None

    def finish(self, end: SlurmJobState) -> int | None:
        """If the job ended by itself, wait for its record; pass on the rest of its files."""
        deadline = time.monotonic() + RECORD_SECONDS
        # A job that Slurm ended leaves no record.
        own_end = not end.state or end.state in {"COMPLETED", "COMPLETING"}
        while own_end and time.monotonic() < deadline:
            if (code := self.step()) is not None:
                return code
        self._drain()
        return self.step() if self._record.exists() else None

    def end(self, *_: signal.Signals) -> None:
        """Do nothing: the caller ends the job itself."""

    def _drain(self) -> None:
        """Pass on the rest of all files, including unfinished lines."""
        for tail in self._tails:
            while tail.pass_on():
                pass
            tail.finish()


class Tail:
    """Passes one file of the job on, line by line, to a file descriptor of this process.

    Only the first `LINE_LIMIT` + 1 bytes of a longer line are passed on, as with other launchers.
    """

    label_bytes = 0
    """Maximum number of bytes before the program's own part of a line."""

    def __init__(self, path: Path, out: int) -> None:
        self.path, self.out = path, out
        self.passed_on = False
        self._offset = 0
        self._lines = LineBuffer(LINE_LIMIT + self.label_bytes, truncating=True)

    def pass_on(self) -> bool:
        """Pass on the new complete lines; return whether the file has grown."""
        try:
            with self.path.open("rb") as stream:  # a new open makes network file systems reread it
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
        """Pass on the last line if it has no newline."""
        if rest := self._lines.rest():
            self._write([rest])

    def _write(self, lines: list[bytes]) -> None:
        write(self.out, b"".join(lines))


class LabelledTail(Tail):
    """Passes on the output of all ranks, in which srun labels each line with its rank; removes the labels.

    srun's own lines about the end of a task also go to the run's supervisor, as a report of that rank.

    Parameters
    ----------
    own
        Name prefix of the pipe of each rank, before its number; empty: ranks have no own pipes.
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
        """Return the descriptor of a pipe of the run; if it has no reader, the common output descriptor."""
        if name not in self._pipes:
            self._pipes[name] = self.out
            with contextlib.suppress(OSError):
                pipe = self._pipes[name] = os.open(name, os.O_WRONLY | os.O_NONBLOCK)
                os.set_blocking(pipe, True)
        return self._pipes[name]


def write(out: int, data: bytes) -> None:
    """Write all of `data` to a file descriptor."""
    left = memoryview(data)
    while left:
        left = left[os.write(out, left) :]


if __name__ == "__main__":
    sys.exit(main())
