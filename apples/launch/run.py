"""One run of a program, seen through the application protocol: its events, its deadlines, its end.

The program's own ``done`` is the only success. A rank that ends before it, a launcher that dies, silence:
each ends the whole run with an error that says which. `Run` is the protocol with its deadlines, `RunExecution`
what an actuator hands back of it, `started` the start with a second try; the words for the end stand last.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from apples.errors import ApplesError, ApplicationError, DeadlineError, LaunchError
from apples.launch.actuator import Execution
from apples.launch.events import (
    LAUNCHER_FAULT,
    LAUNCHER_TALK,
    PROTOCOL,
    DoneEvent,
    ErrorEvent,
    Event,
    Outcome,
    Progress,
    Ready,
    Talk,
    parse,
    readable,
    to_stderr,
    word_of,
)
from apples.launch.hydra import LaunchCommand, RankGroup
from apples.launch.plan import SILENCE_SECONDS
from apples.launch.processes import GRACE_SECONDS, Processes, Source, job_name
from apples.launch.remote.connection import HostConnection

STARTUP_SECONDS = 120.0
PATIENCE_SECONDS = 2.0
"""From the first rank's end, before ``done``, to the end of all: time for its last words."""
FAREWELL_SECONDS = 5.0
"""From ``done`` to the end of all ranks; after it they are ended."""
KEPT_LINES, SHOWN_LINES = 20, 3
TIME_LIMIT_LINE = re.compile(r"apples: (?:[^:]*: )?(the time limit of [0-9.]+ minutes? ended it)")
"""A launcher's line about the time limit that ended its run."""


class LauncherFaultError(LaunchError):
    """The launcher lost itself before the program was ready. Transient: starting again helps."""


class Run:
    """A program that was started. Not for more than one thread at a time.

    Parameters
    ----------
    command
        What to start.
    rank_groups
        The ranks' hosts, in rank order; events about another host are refused.
    startup_seconds, silence_seconds
        From the start to ``ready``; the longest time without a line after it.
    talk
        Receives each line that is no event.
    managed, others
        Whether a job manager supervises the ranks, which may come and go: then only its own end counts. Hosts
        that may be reported beside those of `rank_groups`.
    connections
        As of `Processes`.
    limit_code
        The exit code by which the launcher, once it is asked to end, says that a time limit ended the run.
    """

    def __init__(
        self,
        command: LaunchCommand,
        rank_groups: Sequence[RankGroup],
        *,
        startup_seconds: float = STARTUP_SECONDS,
        silence_seconds: float = SILENCE_SECONDS,
        talk: Talk = to_stderr,
        job: str = "",
        cgroups: Sequence[Path] = (),
        prepare: Callable[[], None] = lambda: None,
        remote: Sequence[str] = (),
        grace: float = GRACE_SECONDS,
        managed: bool = False,
        others: Collection[str] = (),
        limit_code: int | None = None,
        connections: Sequence[HostConnection] = (),
    ) -> None:
        self.startup_seconds, self.silence_seconds = startup_seconds, silence_seconds
        self._managed, self._others, self._talk = managed, frozenset(others), talk
        self._limit_code = limit_code
        self._hosts = tuple(
            rank_group.host for rank_group in rank_groups for _ in range(rank_group.ranks)
        )
        self._program = short_name(rank_groups[0].program)
        self._last_lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._ended_ranks: list[int] = []
        self._lost_host = self._launcher_end = ""
        self._launcher_fault = self.cancelled = False
        self._failure: ErrorEvent | None = None
        self.ready_after: float | None = None
        self._pending: deque[tuple[Source, bytes]] = deque()
        self._started = self._last_line_at = time.monotonic()
        self._shortened: float | None = None
        self._processes = Processes(
            *(command, job or job_name()),
            cgroups=cgroups,
            prepare=prepare,
            remote=remote,
            grace=grace,
            connections=connections,
        )

    @property
    def directory(self) -> Path:
        """Where the run keeps its files until its end."""
        return self._processes.directory

    def until_ready(self) -> Ready:
        """Return the program's ``ready``.

        Raises
        ------
        LaunchError
            It did not come: the program cannot be started, ended, or took too long.
        ApplicationError
            The program refused its task or broke the protocol.
        """
        for event in self.events():
            if isinstance(event, Ready):
                return event
        raise ApplicationError("the program was done before it was ready")  # pragma: no cover

    def events(self) -> Iterator[Event]:
        """Yield the checked events up to and with ``done``; ends early only after `cancel`.

        Raises
        ------
        LaunchError, ApplicationError, DeadlineError
            As the module says; nothing of the run is left then.
        """
        try:
            while not self.cancelled:
                if not self._pending:
                    self._pending += self._processes.read(self._deadline - time.monotonic())
                while self._pending:
                    event = self._on_line(*self._pending.popleft())
                    if event is not None:
                        yield event
                    if isinstance(event, DoneEvent):
                        return
                self._enforce_deadline()
        except GeneratorExit:
            raise
        except BaseException:
            self.cancel()
            raise

    def finish(self) -> None:
        """Wait for the ranks of a run that is done, then end what has not ended."""
        deadline = time.monotonic() + FAREWELL_SECONDS
        while self._processes.running and (left := deadline - time.monotonic()) > 0:
            self._pass_on(self._processes.read(left))
        self._stop()

    def cancel(self) -> None:
        """End the run; when this returns no process of it is left. May be called again."""
        self.cancelled = True
        self._stop()

    def _stop(self) -> None:
        self._pass_on(self._processes.stop())
        for host in self._processes.uncertain_hosts:
            self._talk(f"warning: {host}: nobody knows whether processes of it are left there")

    def _on_line(self, source: Source, line: bytes) -> Event | None:
        """Take in one line; return the event it is, if it is one for the caller."""
        if source == "report":
            self._on_report(line.decode())
            return None
        self._last_line_at = time.monotonic()
        event = parse(line) if source == "output" else None
        if event is None:
            self._pass_on([(source, line)])
            return None
        self._check(event)
        if isinstance(event, ErrorEvent):
            self._failure = self._failure or event
            self._shorten_deadline(PATIENCE_SECONDS / 4)
            return None
        return event

    @property
    def _deadline(self) -> float:
        """When patience ends: for the last words, for the next sign of life, or for the first."""
        if self._shortened is not None:
            return self._shortened
        if self.ready_after is not None:
            return self._last_line_at + self.silence_seconds
        return self._started + self.startup_seconds

    def _on_report(self, line: str) -> None:
        kind, _, number = line.partition(" ")
        if kind == "rank" and not self._managed:
            self._ended_ranks.append(int(number))
            self._shorten_deadline(PATIENCE_SECONDS)
        elif kind == "lost":
            self._lost_host = self._lost_host or number
            self._shorten_deadline(PATIENCE_SECONDS / 4)
        elif kind == "exit":
            self._launcher_end = number

    def _check(self, event: Event) -> None:
        """Refuse an event that is not this run's."""
        if isinstance(event, Ready):
            self._check_ready(event)
        elif self.ready_after is None and not isinstance(event, ErrorEvent):
            raise ApplicationError(f"the program said '{word_of(event)}' before 'ready'")
        if isinstance(event, Progress | Outcome):
            for times in event.hosts:
                if times.host not in self._hosts and times.host not in self._others:
                    raise ApplicationError(
                        f"the program reports host '{readable(times.host)}', which is not in its task"
                    )

    def _check_ready(self, event: Ready) -> None:
        if self._managed and self.ready_after is not None:  # it lost a host and began again
            return
        if event.protocol != PROTOCOL:
            raise ApplicationError(
                f"the program speaks protocol {event.protocol}, this apples {PROTOCOL}"
            )
        if event.ranks != len(self._hosts):
            raise ApplicationError(
                f"the program runs {event.ranks} ranks, its task has {len(self._hosts)}"
            )
        self.ready_after = time.monotonic() - self._started
        self._processes.ready()

    def _shorten_deadline(self, seconds: float) -> None:
        self._shortened = min(self._deadline, time.monotonic() + seconds)

    def _pass_on(self, lines: Sequence[tuple[Source, bytes]]) -> None:
        """Pass talk on and keep the last of it for an error message."""
        for source, line in lines:
            text = line.decode(errors="replace")
            if source == "report":
                self._on_report(text)
            elif source == "output" and (event := _event(line)) is not None:
                if isinstance(event, ErrorEvent):
                    self._failure = self._failure or event
            else:
                self._launcher_fault |= LAUNCHER_FAULT in text
                if text.startswith(LAUNCHER_TALK):
                    continue
                if text.strip():
                    self._last_lines.append(readable(text))
                self._talk(text)

    def _enforce_deadline(self) -> None:
        """Fail the run if it ended or its time is up."""
        if self._processes.supervised and time.monotonic() < self._deadline:
            return
        timed_out = self._processes.supervised and self._shortened is None
        reason = self._end_reason()
        self.cancel()
        if self._limit_code is not None and self._launcher_end == str(self._limit_code):
            said = time_limit_said(
                self._last_lines
            )  # whatever the ranks said of it: it is what ended them
            self._last_lines.clear()
            self._fail(DeadlineError, f"{said} before {self._before}")
        if self._failure:
            self._last_lines.clear()  # its own account says it all
            rank = self._failure.rank
            where = "" if rank is None else f"{self._named(rank)}: "
            self._fail(ApplicationError, f"{where}{readable(self._failure.message)}")
        if timed_out and self.ready_after is not None:
            self._fail(DeadlineError, f"the program was silent for {self.silence_seconds:g} s")
        if timed_out:
            self._fail(LaunchError, f"no rank was ready within {self.startup_seconds:g} s")
        if self.ready_after is not None:
            self._fail(ApplicationError, reason)
        self._fail(LauncherFaultError if self._launcher_fault else LaunchError, reason)

    @property
    def _before(self) -> str:
        return "it was ready" if self.ready_after is None else "it said 'done'"

    def _end_reason(self) -> str:
        first = self._named(self._ended_ranks[0]) if self._ended_ranks else ""
        supervised = self._processes.supervised
        return end_reason(self._launcher_end, self._lost_host, first, supervised, self._before)

    def _named(self, rank: int) -> str:
        host = self._hosts[rank] if rank < len(self._hosts) else "?"
        return f"rank {rank} ({host})"

    def _fail(self, error: type[ApplesError], reason: str) -> NoReturn:
        words = " / ".join(list(self._last_lines)[-SHOWN_LINES:])
        more = f"; its last words: {words}" if words else ""
        raise error(f"{readable(self._program)}: {reason}{more}")


def _event(line: bytes) -> Event | None:
    try:
        return parse(line)
    except ApplicationError:
        return None


class RunExecution(Execution):
    """A run that said ``ready``. A context manager: leaving it ends the run.

    Attributes
    ----------
    warnings
        What is not as planned: one line each.
    """

    def __init__(self, run: Run, warnings: tuple[str, ...] = ()) -> None:
        self.warnings = warnings
        self._run = run
        self._outcome: Outcome | None = None
        self._failure: ApplesError | None = None
        self._over = False

    def monitor(self) -> Iterator[Progress]:
        """Yield progress until the run ends; to be called from one thread at a time."""
        if self._failure:
            raise self._failure
        if self._over:
            return
        try:
            yield from self._progress()
        except ApplesError as error:
            self._failure = error
            raise
        self._over = True
        if not self._run.cancelled:
            self._run.finish()

    def _progress(self) -> Iterator[Progress]:
        for event in self._run.events():
            if isinstance(event, Progress):
                yield event
            elif isinstance(event, Outcome):
                startup = self._run.ready_after
                self._outcome = replace(event, startup_seconds=startup or event.startup_seconds)

    def outcome(self) -> Outcome | None:
        """Return what was measured, waiting for the end; the same each time."""
        for _ in self.monitor():
            pass
        if self._run.cancelled:
            raise ApplicationError("the run was cancelled")
        if self._outcome is None:
            raise ApplicationError("the program said 'done' without a 'result'")
        return self._outcome

    def cancel(self) -> None:
        """End the run."""
        self._run.cancel()

    def __enter__(self) -> RunExecution:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the run, if it has not ended."""
        if not self._over:
            self.cancel()


def started(start: Callable[[], Run], talk: Talk) -> Run:
    """Return a run whose ranks are all ready; where the launcher lost itself, from a second start."""
    run = start()
    try:
        run.until_ready()
    except LauncherFaultError as fault:
        talk(f"warning: {fault}; starting once more")
        run = start()
        run.until_ready()
    return run


# ------------------------------------------------------------------ words for the end of a run
def end_reason(launcher_end: str, lost: str, first: str, supervised: bool, before: str) -> str:
    """Return why a run is over.

    Parameters
    ----------
    launcher_end
        Exit code of the launcher, or minus the signal that ended it; empty where nothing was heard of it.
    lost
        What is known of the first host that was lost; empty: none was.
    first
        Name of the first rank that ended; empty: none did.
    supervised
        Whether its supervisor was there to the end.
    before
        What it had not come to.

    Examples
    --------
    >>> end_reason("-9", "", "", True, "it said 'done'")
    "mpiexec was ended by signal 9 before it said 'done'"
    >>> end_reason("5", "", "rank 1 (bob)", True, "it was ready")
    'rank 1 (bob) ended before it was ready (exit code 5)'
    """
    if launcher_end.startswith("-"):
        return f"mpiexec was ended by signal {launcher_end[1:]} before {before}"
    if lost:
        return f"{readable(lost)} before {before}"
    if not launcher_end and not supervised:
        return f"the supervisor of the run was killed before {before}"
    code = f" (exit code {launcher_end})" if launcher_end else ""
    if first and launcher_end != "0":
        return f"{first} ended before {before}{code}"
    return f"the program ended before {before}{code}"


def short_name(program: Sequence[str]) -> str:
    """Return what a person calls a program: the script, not its interpreter.

    Examples
    --------
    >>> short_name(["/usr/bin/python3", "/opt/solver.py", "-v"])
    'solver.py'
    """
    scripts = [argument for argument in program if argument.endswith(".py")]
    return Path([*scripts, program[0]][0]).name


def time_limit_words(seconds: float | None) -> str:
    """Return the words of a launcher whose time limit ended the run.

    Examples
    --------
    >>> time_limit_words(60.0), time_limit_words(5400.0), time_limit_words(None)
    ('the time limit of 1 minute ended it', 'the time limit of 90 minutes ended it', 'its time limit ended it')
    """
    if seconds is None:
        return "its time limit ended it"
    minutes = f"{seconds / 60:g}"
    return f"the time limit of {minutes} minute{'' if minutes == '1' else 's'} ended it"


def time_limit_said(talk: Iterable[str]) -> str:
    """Return what a launcher said of the time limit that ended its run, from the last lines of all talk.

    Examples
    --------
    >>> time_limit_said(["fan on fire", "apples: job 7: the time limit of 90 minutes ended it"])
    'the time limit of 90 minutes ended it'
    >>> time_limit_said([])
    'its time limit ended it'
    """
    found = [match[1] for line in talk if (match := TIME_LIMIT_LINE.fullmatch(line))]
    return found[-1] if found else time_limit_words(None)
