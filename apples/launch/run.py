"""Follow one run of a program through the application protocol: its events, its time limits, its end.

Only the program's event ``done`` means success. If a rank ends before it, the launcher dies or the program is
silent for too long, the whole run ends with an error that names the reason (`apples.launch.endings`). `Run`
implements the protocol and its time limits. `RunExecution` is the `Execution` that an actuator returns. `started`
starts a run and tries a second time after a fault of the launcher.
"""

from __future__ import annotations

import math
import os
import re
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from apples.errors import ApplesError, ApplicationError, DeadlineError, LaunchError
from apples.launch.actuator import Execution
from apples.launch.endings import (
    NOT_READY,
    LastWords,
    end_fields,
    end_reason,
    first_to_end,
    short_name,
    time_limit_said,
)
from apples.launch.events import (
    LAUNCHER_FAULT,
    LAUNCHER_TALK,
    PROTOCOL,
    DoneEvent,
    ErrorEvent,
    Event,
    HostsChanged,
    HostsChanging,
    MessagesSent,
    Outcome,
    Progress,
    Ready,
    Resumed,
    RowDigests,
    Talk,
    parse,
    readable,
    to_stderr,
    word_of,
)
from apples.launch.hydra import MACHINE_FILE, LaunchCommand, RankGroup
from apples.launch.message_counts.arrays import ArrayMessages
from apples.launch.plan import SILENCE_SECONDS
from apples.launch.processes import GRACE_SECONDS, LAUNCHER, Processes, Source, job_name
from apples.launch.rank_ends import THIS_MACHINE, ExitCodes, with_memory
from apples.launch.remote.connection import HostConnection

STARTUP_SECONDS = 120.0
PATIENCE_SECONDS = 1.5
"""Time from the first rank's end without ``done`` to the end of the run, in which its last lines may arrive."""
FAREWELL_SECONDS = 5.0
"""Time limit for all ranks to end after ``done``; after it they are killed."""
READER_SECONDS = 0.05
"""Interval at which a draining thread checks whether it must end, while another thread reads."""
MAX_ROW_EVENTS = 2000
"""Maximum number of stored row digest events: a program may send them without end."""
MAX_EARLY = 1000
"""Maximum number of progress events that were read but not yet yielded."""
MAX_CHANGES = 1000
"""Maximum number of stored changes of hosts; the latest are kept."""


class LauncherFaultError(LaunchError):
    """The launcher lost its control connection before the program was ready. Transient: start again."""

    code = "launcher-fault"


class Run:
    """A started program. To be used by one thread at a time.

    Parameters
    ----------
    command
        The command to start.
    rank_groups
        The hosts of the ranks, in rank order; events about other hosts are rejected.
    startup_seconds
        Time limit from the start to ``ready``.
    silence_seconds
        Time limit from one output line to the next, after ``ready``.
    patience_seconds
        Time for the last lines of the ranks to arrive once a rank has ended.
    farewell_seconds
        Time limit for the ranks to end after ``done``.
    event_seconds
        Time limit from one event that `events` yields to the next, after ``ready``; other output does not extend
        it.
    talk
        Receives each output line that is not an event.
    most_lines
        Limit of the program's lines passed to `talk`.
    managed
        Whether a job manager supervises the ranks, which may come and go. Then only the manager's end ends the
        run.
    others
        Hosts that events may name besides those of `rank_groups`; None: any, because a scheduler chooses them
        later.
    resumes
        Whether the program resumes from a commit. It then sends no ``ready``; the manager's event replaces it.
    connections
        As in `Processes`.
    counted
        Receives the message counts of a rank on another machine, each time they arrive.
    limit_code
        Exit code of the launcher, after it was asked to end, which means that a time limit ended the run.
    """

    def __init__(
        self,
        command: LaunchCommand,
        rank_groups: Sequence[RankGroup],
        *,
        startup_seconds: float = STARTUP_SECONDS,
        silence_seconds: float = SILENCE_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
        farewell_seconds: float = FAREWELL_SECONDS,
        event_seconds: float = math.inf,
        talk: Talk = to_stderr,
        most_lines: float = math.inf,
        job: str = "",
        cgroups: Sequence[Path] = (),
        prepare: Callable[[], None] = lambda: None,
        grace: float = GRACE_SECONDS,
        managed: bool = False,
        others: Collection[str] | None = (),
        resumes: bool = False,
        limit_code: int | None = None,
        connections: Sequence[HostConnection] = (),
        counted: Callable[[bytes], None] = lambda _: None,
    ) -> None:
        self._counted = counted
        self.startup_seconds, self.silence_seconds = startup_seconds, silence_seconds
        self._patience_seconds, self._farewell_seconds = patience_seconds, farewell_seconds
        self._event_seconds = event_seconds
        self._managed, self._talk, self._lines_left = managed, talk, most_lines
        self._others = None if others is None else frozenset(others)
        self._resumes = resumes
        self._limit_code = limit_code
        self._hosts = tuple(
            rank_group.host for rank_group in rank_groups for _ in range(rank_group.ranks)
        )
        self._program = short_name(rank_groups[0].program)
        self._said, self._ranks = LastWords(len(self._hosts)), len(self._hosts)
        self._ended_ranks: dict[int, str] = {}
        self._exit_codes = ExitCodes([] if managed else machines(command, len(self._hosts)))
        self._lost_host = self._launcher_end = ""
        self._launcher_fault = self.cancelled = False
        self._failure: ErrorEvent | None = None
        self.ready_after: float | None = None
        self._pending: deque[tuple[Source, bytes]] = deque()
        self._early: deque[Event] = deque()
        self._broken: Exception | None = None
        self.changes: deque[HostsChanged] = deque(maxlen=MAX_CHANGES)
        self.array_messages = ArrayMessages()
        self._started = self._last_line_at = self._last_event_at = time.monotonic()
        self._shortened: float | None = None
        self._processes = Processes(
            *(command, job or job_name()),
            cgroups=cgroups,
            prepare=prepare,
            grace=grace,
            connections=connections,
            ranks=0 if managed else len(self._hosts),
        )

    @property
    def directory(self) -> Path:
        """Directory of the run's files, removed at its end."""
        return self._processes.directory

    def until_ready(self) -> Ready | None:
        """Wait for and return the program's event ``ready``; None if it resumes from a commit.

        Raises
        ------
        LaunchError
            The program could not be started, ended, or was not ready in time.
        ApplicationError
            The program rejected its task or violated the protocol.
        """
        for event in self.events():
            if isinstance(event, Ready):
                return event
            if self._resumes and self.ready_after is not None:
                self._early.append(event)
                return None
        raise ApplicationError(  # pragma: no cover
            "the program was done before it was ready", code="protocol-violated", event="done"
        )

    def events(self) -> Iterator[Event]:
        """Yield the validated events up to and including ``done``; end early only after `cancel`.

        Raises
        ------
        LaunchError, ApplicationError, DeadlineError
            The run failed (see the module's docstring); no process of it is left.
        """
        try:
            while not self.cancelled:
                if self._early:
                    event: Event | None = self._early.popleft()
                else:
                    event = self._next_event(self._deadline - time.monotonic())
                if event is not None:
                    yield event
                if isinstance(event, DoneEvent):
                    return
                if not (self._pending or self._early):
                    self._enforce_deadline()
        except GeneratorExit:
            raise
        except BaseException:
            self.cancel()
            raise

    def has_progress(self, seconds: float) -> bool:
        """Whether `events` would yield progress, end, or raise at once; wait for that at most `seconds`."""
        until = time.monotonic() + seconds
        while not (self.cancelled or self._broken):
            if any(isinstance(event, Progress | DoneEvent) for event in self._early):
                return True
            left = min(until, self._deadline) - time.monotonic()
            try:
                event = self._next_event(left)
            except Exception as error:  # noqa: BLE001 - `events` raises it
                self._broken = error
                break
            if event is not None:
                self._early.append(event)
            elif not self._processes.supervised or time.monotonic() >= self._deadline:
                break
            elif left <= 0:
                return False
        return True

    def fileno(self) -> int:
        """Return a file descriptor that is readable if `take_in` has output to read."""
        return self._processes.fileno()

    def take_in(self) -> bool:
        """Read available output without waiting, for `events` to yield; return whether more may arrive.

        Only the latest `MAX_EARLY` progress events that `events` has not yielded are kept.
        """
        if self.cancelled or self._broken:
            return False
        try:
            event = self._next_event(0.0)
        except Exception as error:  # noqa: BLE001 - `events` raises it
            self._broken = error
            return False
        if event is not None:
            self._early.append(event)
        if len(self._early) > MAX_EARLY:
            oldest = next((one for one in self._early if isinstance(one, Progress)), None)
            if oldest is not None:
                self._early.remove(oldest)
        return True

    def _next_event(self, seconds: float) -> Event | None:
        """Read lines up to the next event and return it; None if no event arrived within `seconds`."""
        if self._broken is not None:
            raise self._broken
        if not self._pending:
            self._pending += self._processes.read(seconds)
        while self._pending:
            event = self._on_line(*self._pending.popleft())
            if event is not None:
                self._last_event_at = time.monotonic()
                return event
        return None

    def finish(self) -> None:
        """Wait for the ranks of a completed run to end, at most `farewell_seconds`; then kill the rest."""
        self._pass_on_pending()
        deadline = time.monotonic() + self._farewell_seconds
        while self._processes.running and (left := deadline - time.monotonic()) > 0:
            self._pass_on(self._processes.read(left))
        self._stop()

    def cancel(self) -> None:
        """End the run. A normal return guarantees that none of its processes is left. May be called again."""
        self.cancelled = True
        self._stop()

    def _stop(self) -> None:
        self._pass_on_pending()
        self._pass_on(self._processes.stop())
        for host in self._processes.uncertain_hosts:
            self._talk(
                f"warning: {host}: could not verify that no process of the run is left there"
            )

    def _pass_on_pending(self) -> None:
        """Pass on the lines that arrived together with the last processed event."""
        pending, self._pending = self._pending, deque()
        self._pass_on(pending)

    def _on_line(self, source: Source, line: bytes) -> Event | None:
        """Process one line; return its event if it is for the caller, else None."""
        if source == "report":
            self._on_report(line.decode())
            return None
        if source == "messages":
            self._counted(line)
            return None
        self._last_line_at = time.monotonic()
        event = parse(line) if source in ("output", LAUNCHER) else None
        if event is None:
            self._pass_on([(source, line)])
            return None
        self._check(event)
        if isinstance(event, ErrorEvent):
            self._failure = self._failure or event
            self._shorten_deadline(self._patience_seconds / 4)
        elif isinstance(event, HostsChanged):
            if self._managed:
                self.changes.append(event)
        elif isinstance(event, HostsChanging):
            self._ranks = event.ranks if self._managed else self._ranks
        elif isinstance(event, MessagesSent):
            self.array_messages.hear(event)
        else:
            return event
        return None

    @property
    def _deadline(self) -> float:
        """The current deadline: for the last lines, for the next line or event, or for ``ready``."""
        if self._shortened is not None:
            return self._shortened
        if self.ready_after is not None:
            return min(self._silent_at, self._eventless_at)
        return self._started + self.startup_seconds

    @property
    def _patience(self) -> float:
        """Time limit from one line to the next, longer if fewer ranks than at the start share the work."""
        return self.silence_seconds * max(1.0, len(self._hosts) / max(1, self._ranks))

    @property
    def _silent_at(self) -> float:
        return self._last_line_at + self._patience

    @property
    def _eventless_at(self) -> float:
        return self._last_event_at + self._event_seconds

    def _on_report(self, line: str) -> None:
        kind, _, told = line.partition(" ")
        if kind == "rank" and not self._managed:
            rank, _, how = told.partition(" ")
            self._on_rank_end(int(rank), how)
        elif kind == "lost":
            self._lost_host = self._lost_host or told
            self._shorten_deadline(self._patience_seconds / 4)
        elif kind == "over" and not self._managed:
            for number, host in enumerate(self._hosts):
                if host == told and number not in self._ended_ranks:
                    self._on_rank_end(number)
        elif kind == "exit":
            self._launcher_end = told

    def _on_rank_end(self, rank: int, how: str = "") -> None:
        """Note that a rank ended, with `how` if the report has it; mpiexec prints the exit codes at its end."""
        self._ended_ranks[rank] = how or self._ended_ranks.get(rank, "")
        self._shorten_deadline(self._patience_seconds)

    def _how_it_ended(self, rank: int) -> str:
        """Return the end of a rank, from mpiexec's exit codes and the supervisor's report."""
        return with_memory(self._exit_codes.ends.get(rank, ""), self._ended_ranks.get(rank, ""))

    def _check(self, event: Event) -> None:
        """Raise ApplicationError for an event that violates the protocol or names a host of another run."""
        if isinstance(event, Ready):
            self._check_ready(event)
        elif self._resumes and isinstance(event, Resumed | Progress | Outcome):
            self._on_ready()  # an event of the program may arrive before that of its manager
        elif self.ready_after is None and not isinstance(
            event, ErrorEvent | HostsChanging | HostsChanged | Resumed | MessagesSent
        ):
            raise ApplicationError(
                f"the program reported '{word_of(event)}' before 'ready'",
                code="protocol-violated",
                event=word_of(event),
            )
        told: list[str] = []
        if isinstance(event, Progress | Outcome):
            told = [times.host for times in event.hosts]
        elif isinstance(event, HostsChanged) and self._managed:
            told = [host for host, _ in event.members]
        elif isinstance(event, MessagesSent):
            told = [host for host, _ in event.hosts]
        others = {*told} if self._others is None else self._others
        for host in told:
            if host not in self._hosts and host not in others:
                raise ApplicationError(
                    f"the program reports host '{readable(host)}', which is not in its task",
                    code="protocol-violated",
                    event=word_of(event),
                    host=readable(host),
                )

    def _check_ready(self, event: Ready) -> None:
        if self._managed and self.ready_after is not None:  # the job lost a host and restarted
            return
        if event.protocol != PROTOCOL:
            raise ApplicationError(
                f"the program uses protocol {event.protocol}, this version of apples {PROTOCOL}",
                code="protocol-version",
                value=event.protocol,
                known=[PROTOCOL],
            )
        if event.ranks != len(self._hosts):
            raise ApplicationError(
                f"the program runs {event.ranks} ranks, its task has {len(self._hosts)}",
                code="ranks-differ",
                value=event.ranks,
                bound=len(self._hosts),
            )
        self._on_ready()

    def _on_ready(self) -> None:
        """Note that the program is ready; later calls do nothing."""
        if self.ready_after is None:
            self.ready_after = time.monotonic() - self._started
            self._processes.ready()

    def _shorten_deadline(self, seconds: float) -> None:
        self._shortened = min(self._deadline, time.monotonic() + seconds)

    def _pass_on(self, lines: Iterable[tuple[Source, bytes]]) -> None:
        """Process the last lines of a run: pass output on, and keep its end for an error message."""
        for source, line in lines:
            if source == "messages":
                self._counted(line)
                continue
            text = line.decode(errors="replace")
            if source == "report":
                self._on_report(text)
            elif source in ("output", LAUNCHER) and (event := _event(line)) is not None:
                if isinstance(event, ErrorEvent):
                    self._failure = self._failure or event
                elif isinstance(event, MessagesSent):  # the final counts, after ``done``
                    self.array_messages.hear(event)
            else:
                self._pass_on_text(source, text)

    def _pass_on_text(self, source: Source, text: str) -> None:
        """Pass on a line that is not an event, unless it is blank, mpiexec's own, or above the line limit."""
        if not text.strip():  # an event begins with a newline
            return
        self._launcher_fault |= LAUNCHER_FAULT in text
        if source == LAUNCHER:
            if self._exit_codes.take(text):
                return
            source = "output"
        if text.startswith(LAUNCHER_TALK):
            return
        self._said.add(source, text)
        if self._lines_left > 0:
            self._talk(text)
        elif self._lines_left == 0:
            self._talk(f"note: more lines of {readable(self._program)} are not shown")
        self._lines_left -= 1

    def _enforce_deadline(self) -> None:
        """Raise the error of the run if it ended or its deadline has passed."""
        supervised = self._processes.supervised
        if supervised and time.monotonic() < self._deadline:
            return
        timed_out = supervised and self._shortened is None
        # Only ranks that ended before `cancel` can be the cause, because `cancel` ends all others. It also ends
        # mpiexec, which then prints the exit code of each rank.
        ended = tuple(self._ended_ranks)
        launcher_end, lost_host, failure = self._launcher_end, self._lost_host, self._failure
        self.cancel()
        # An error event that arrives only after `cancel` may be a consequence of it.
        if not supervised or not (ended or lost_host):
            failure = self._failure
        ends = {rank: self._how_it_ended(rank) for rank in ended}
        cause = first_to_end(ends, self._said.mpi_errors())
        if cause is None:
            cause = self._said.first_traceback()
        first = "" if cause is None else self._named(cause)
        how = self._how_it_ended(cause) if cause in ended else ""
        reason = end_reason(
            *(launcher_end, lost_host, first, how), supervised=supervised, before=self._before,
            launcher="the job manager" if self._managed else "mpiexec",
        )  # fmt: skip
        if self._limit_code is not None and self._launcher_end == str(self._limit_code):
            # The time limit ended the ranks, so their own errors are consequences.
            said = time_limit_said(self._said.lines())
            self._said.clear()
            minutes = re.search(r"[0-9.]+", said)
            limit = DeadlineError(
                f"{said} before {self._before}",
                code="time-limit",
                minutes=float(minutes[0]) if minutes else None,
            )
            self._fail(limit)
        if failure:
            self._fail_by_account(failure)
        if timed_out:
            self._fail_by_silence(cause)
        fields: dict[str, Any] = {
            "reason": reason.kind,
            "host": lost_host.partition(":")[0]
            if reason.kind == "host-lost"
            else self._host(cause),
            "rank": cause,
            **end_fields(how),
            "launcher_end": launcher_end or None,
        }
        if self.ready_after is not None:
            self._fail(ApplicationError(reason.text, code="program-failed", **fields), cause)
        if self._launcher_fault:
            self._fail(LauncherFaultError(reason.text, code="program-not-ready", **fields), cause)
        self._fail(LaunchError(reason.text, code="program-not-ready", **fields), cause)

    def _fail_by_silence(self, cause: int | None) -> NoReturn:
        """Raise the error of a program that wrote nothing for too long, or was not ready in time.

        A rank that raised an exception waits in MPI_Finalize for the others, and they wait for it. `cause` is the
        rank with a traceback at the end of its standard error, or None.
        """
        if self.ready_after is None:
            seconds = self.startup_seconds
            text = f"no rank was ready within {seconds:g} s"
            self._fail(LaunchError(text, code="startup-timeout", seconds=seconds), cause)
        seconds, how = self._patience, "was silent"
        if self._eventless_at < self._silent_at:
            seconds, how = self._event_seconds, "printed lines but no event"
        if cause is None:
            self._fail(
                DeadlineError(
                    f"the program {how} for {seconds:g} s", code="program-silent", seconds=seconds
                )
            )
        raised = ApplicationError(
            f"{self._named(cause)} raised an exception, then the program {how} for {seconds:g} s",
            code="program-failed",
            reason="rank-raised",
            host=self._host(cause),
            rank=cause,
            seconds=seconds,
        )
        self._fail(raised, cause)

    def _fail_by_account(self, failure: ErrorEvent) -> NoReturn:
        """Raise the error that the program reported in its event ``error``."""
        rank = failure.rank
        if rank is None or not self._said.end_in_traceback(rank):
            self._said.clear()  # the reported message is enough
        where = "" if rank is None else f"{self._named(rank)}: "
        text = f"{where}{readable(failure.message)}"
        fields: dict[str, Any] = {
            "reason": "program-error",
            "host": self._host(rank),
            "rank": rank,
            "text": readable(failure.message),
        }
        if failure.resources:
            self._fail(LaunchError(text, code="resources-missing", **fields), rank)
        error = ApplicationError(text, code=failure.code or "program-failed", **fields)
        self._fail(error, rank)

    @property
    def _before(self) -> str:
        return NOT_READY if self.ready_after is None else "it reported 'done'"

    def _host(self, rank: int | None) -> str | None:
        """Return the host of a rank; None for an unknown rank."""
        return None if rank is None or rank >= len(self._hosts) else self._hosts[rank]

    def _named(self, rank: int) -> str:
        return f"rank {rank} ({self._host(rank) or '?'})"

    def _fail(self, error: ApplesError, cause: int | None = None) -> NoReturn:
        """Raise the error with the program's name before its message and a rank's last lines after it."""
        words = self._said.of(cause)
        more = f"; its last words: {words}" if words else ""
        message = f"{readable(self._program)}: {error}{more}"
        fields = {**error.fields, "program": self._program, "last_words": words or None}
        raise type(error)(message, code=error.code, **fields)


def machines(command: LaunchCommand, ranks: int) -> list[tuple[str, int]]:
    """Return address and number of ranks of each of mpiexec's proxies, in rank order."""
    lines = command.files.get(MACHINE_FILE, f"{THIS_MACHINE}:{ranks}").split()
    split = [line.rpartition(":") for line in lines]
    return [(address, int(number)) for address, _, number in split if number.isdecimal()]


def _event(line: bytes) -> Event | None:
    try:
        return parse(line)
    except ApplicationError:
        return None


class RunExecution(Execution):
    """A run that is ready. A context manager: leaving it ends the run.

    Attributes
    ----------
    warnings
        Deviations from the plan, one line each.

    Parameters
    ----------
    queue_seconds
        Seconds that it waited in a queue; None if unknown or without a queue.
    on_end
        Called when all processes of the run have ended; possibly several times.
    """

    def __init__(
        self,
        run: Run,
        warnings: tuple[str, ...] = (),
        *,
        queue_seconds: float | None = None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self.warnings = warnings
        self._run, self._queue_seconds, self._on_end = run, queue_seconds, on_end
        self._outcome: Outcome | None = None
        self._row_digests: list[RowDigests] = []
        self._failure: ApplesError | None = None
        self._over = False
        self._reading = threading.RLock()
        self._draining = 0
        self._drain_lock = threading.Lock()
        self._drain_end = -1
        self._drainer: threading.Thread | None = None

    def monitor(self) -> Iterator[Progress]:
        """Yield progress until the run ends. To be used by one thread at a time."""
        if self._failure:
            raise self._failure
        if self._over:
            return
        try:
            yield from self._progress()
        except ApplesError as error:
            self._failure = error
            self._on_end()
            raise
        self._over = True
        if not self._run.cancelled:
            self._run.finish()
        self._on_end()

    def has_progress(self, seconds: float) -> bool:
        """Whether `monitor` would yield, end, or raise at once; wait for that at most `seconds`."""
        with self._reading:
            return self._over or bool(self._failure) or self._run.has_progress(seconds)

    @contextmanager
    def drained(self) -> Iterator[None]:
        """Read the program's output in a background thread; `monitor` yields the progress afterwards.

        Several threads may use this context at the same time.
        """
        with self._drain_lock:
            self._draining += 1
            if self._draining == 1:
                self._drain_end = os.eventfd(0)
                self._drainer = threading.Thread(
                    target=self._drain, args=(self._drain_end,), name="output", daemon=True
                )
                self._drainer.start()
        try:
            yield
        finally:
            with self._drain_lock:
                self._draining -= 1
                if self._draining == 0 and self._drainer is not None:
                    os.eventfd_write(self._drain_end, 1)
                    self._drainer.join()
                    os.close(self._drain_end)

    def _drain(self, end: int) -> None:
        """Read output whenever no other thread reads, until `end` is readable."""
        poll = select.poll()
        poll.register(end, select.POLLIN)
        poll.register(self._run.fileno(), select.POLLIN)
        more = True
        while more and end not in dict(poll.poll()):
            if self._reading.acquire(timeout=READER_SECONDS):
                try:
                    more = self._run.take_in()
                finally:
                    self._reading.release()

    def _progress(self) -> Iterator[Progress]:
        events = self._run.events()
        while True:
            with self._reading:
                event = next(events, None)
            if event is None:
                return
            if isinstance(event, Progress):
                yield event
            elif isinstance(event, RowDigests):
                if len(self._row_digests) < MAX_ROW_EVENTS:
                    self._row_digests.append(event)
            elif isinstance(event, Outcome):
                startup = self._run.ready_after
                self._outcome = replace(event, startup_seconds=startup or event.startup_seconds)

    def outcome(self) -> Outcome | None:
        """Wait for the end and return the measurements; the same object each time."""
        for _ in self.monitor():
            pass
        if self._run.cancelled:
            raise ApplicationError("the run was cancelled", code="run-cancelled")
        if self._outcome is None:
            raise ApplicationError(
                "the program reported 'done' without a 'result'", code="result-missing"
            )
        return self._outcome

    @property
    def has_result(self) -> bool:
        """Whether the program has reported its result; its ranks may still run."""
        return self._outcome is not None

    @property
    def directory(self) -> Path:
        """Directory of the run's files, removed at its end."""
        return self._run.directory

    @property
    def row_digests(self) -> Sequence[RowDigests]:
        """Digests of the rows of the result that the program reported."""
        return self._row_digests

    @property
    def changes(self) -> Sequence[HostsChanged]:
        """The latest changes of hosts that its job manager reported."""
        return self._run.changes

    @property
    def array_messages(self) -> ArrayMessages:
        """Message counts that the program has reported so far."""
        return self._run.array_messages

    @property
    def queue_seconds(self) -> float | None:
        """Seconds that the run waited in a queue; None if unknown or without a queue."""
        return self._queue_seconds

    def cancel(self) -> None:
        """End the run."""
        self._run.cancel()
        self._on_end()

    def __enter__(self) -> RunExecution:
        """Return this object."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the run, if it has not ended."""
        if not self._over:
            self.cancel()


def started(start: Callable[[], Run], talk: Talk) -> Run:
    """Start a run and return it when all ranks are ready; start a second time after a fault of the launcher."""
    run = start()
    try:
        run.until_ready()
    except LauncherFaultError as fault:
        talk(f"warning: {fault}; starting once more")
        run = start()
        run.until_ready()
    return run
