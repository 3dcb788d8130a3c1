"""Find the reason for the end of a run, and word it, with the last lines of the ranks.

A traceback is shortened to the last location in a file of the user and the exception.
"""

from __future__ import annotations

import re
import signal
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from apples.launch.events import readable
from apples.launch.rank_ends import signal_name

NOT_READY = "it was ready"
NO_PROTOCOL = (
    "the program ended with exit code 0 and never reported 'ready', so it does not use the apples protocol; use "
    "apples.program and check with: apples doctor --program TEMPLATE; run an unmodified program with: "
    "apples run-program -- CMD"
)
BY_LAUNCHERS = ("SIGTERM", "SIGKILL")
BROKEN_PIPE = str(-signal.SIGPIPE)
TIME_LIMIT_LINE = re.compile(r"apples: (?:[^:]*: )?(the time limit of [0-9.]+ minutes? ended it)")
"""A launcher's output line about the time limit that ended its run."""
KEPT_LINES, SHOWN_LINES = 40, 3
MAX_LINE = 1000
"""Maximum length of a stored line, in characters."""
TRACEBACK = "Traceback (most recent call last):"
MPI_ERROR = "mpi4py.MPI.Exception"
FRAME = re.compile(r'  File "(?P<file>[^"]+)", line \d+, in .+')
MARKS = re.compile(r"[\s^~]+")
"""Python's markers below a source line of a traceback."""
LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|^<frozen |^<string>$")
"""Paths of library files, as opposed to files of the user."""


def first_to_end(ended: Mapping[int, str], mpi_errors: Collection[int] = ()) -> int | None:
    """Return the rank that caused the end of a run: the first to end, unless its end may be a consequence.

    When a rank ends, the launcher ends the others by SIGTERM, and their reports may arrive first. A rank killed by
    a signal that no launcher sends is then the cause. A rank that waits for a lost rank ends with an MPI error,
    which may also be reported first. The cause is then a rank that ended by itself in another way.

    Parameters
    ----------
    ended
        Rank -> its end in words of `apples.launch.rank_ends`, in order of the reports.
    mpi_errors
        Ranks that ended with an MPI error.

    Examples
    --------
    >>> first_to_end({2: "killed by SIGTERM", 3: "killed by SIGSEGV"})
    3
    >>> first_to_end({2: "killed by SIGTERM", 0: "killed by SIGKILL", 1: "exit code 15"}), first_to_end({})
    (2, None)
    >>> ended = {3: "exit code 1", 0: "killed by SIGTERM", 1: "exit code 1"}
    >>> first_to_end(ended, mpi_errors={3}), first_to_end(ended, mpi_errors={1, 3})
    (1, 3)
    """
    first = next(iter(ended), None)
    if first in mpi_errors:
        by_themselves = (
            rank
            for rank, how in ended.items()
            if rank not in mpi_errors
            and how not in {"", "exit code 0"}
            and not how.endswith(BY_LAUNCHERS)
        )
        return next(by_themselves, first)
    if first is None or ended[first] != "killed by SIGTERM":
        return first
    return next(
        (
            rank
            for rank, how in ended.items()
            if how.startswith("killed") and not how.endswith(BY_LAUNCHERS)
        ),
        first,
    )


class EndReason(NamedTuple):
    """The reason for the end of a run.

    Attributes
    ----------
    text
        The reason in words, for the user.
    kind
        A stable name, for programs: ``launcher-killed``, ``supervisor-killed``, ``host-lost``, ``rank-killed``,
        ``rank-ended``, ``protocol-missing`` or ``program-ended``.
    """

    text: str
    kind: str


def end_reason(
    launcher_end: str,
    lost: str,
    first: str,
    how: str,
    *,
    supervised: bool,
    before: str,
    launcher: str = "mpiexec",
) -> EndReason:
    """Return the reason for the end of a run.

    Parameters
    ----------
    launcher_end
        Exit code of the launcher, or minus the signal that ended it; empty: unknown.
    lost
        Name of the first lost host and the reason of the loss; empty: no host was lost.
    first
        Name of the rank that caused the end (`first_to_end`); empty: unknown.
    how
        The end of that rank in words of `apples.launch.rank_ends`; empty: unknown.
    supervised
        Whether the supervisor ran to the end.
    before
        The event that the run did not reach, for example ``it was ready``.
    launcher
        Name of the launcher in the message.

    Examples
    --------
    >>> end_reason("-9", "", "", "", supervised=True, before="it was ready")
    EndReason(text='mpiexec was ended by SIGKILL before it was ready', kind='launcher-killed')
    >>> end_reason("", "bob: its connection ended", "", "", supervised=False, before="it was ready").text
    'the supervisor of the run was killed before it was ready'
    >>> end_reason("5", "", "rank 1 (bob)", "", supervised=True, before="it was ready").text
    'rank 1 (bob) ended before it was ready (exit code 5)'
    >>> end_reason("", "", "rank 1 (bob)", "killed by SIGSEGV", supervised=True, before="it was ready").text
    'rank 1 (bob) ended before it was ready: killed by SIGSEGV'

    If a host or a rank was lost, the loss is the reason, not the end of the launcher that follows:

    >>> end_reason("-9", "bob: its connection ended", "", "", supervised=True, before="it was ready").kind
    'host-lost'

    A launcher ends by SIGPIPE when it writes to a proxy that has ended. The reason is then the rank that ended
    first; if no rank is known to have ended, a rank ended before it registered.

    >>> how = "killed by SIGSEGV"
    >>> end_reason("-13", "", "rank 0 (ada)", how, supervised=False, before="it was ready")
    EndReason(text='rank 0 (ada) ended before it was ready: killed by SIGSEGV', kind='rank-killed')
    >>> end_reason("-13", "", "", "", supervised=True, before="it was ready")
    EndReason(text='the program ended before it was ready', kind='program-ended')
    """
    by_rank = first and how.startswith("killed") and not how.endswith(BY_LAUNCHERS)
    named = lost or by_rank or launcher_end == BROKEN_PIPE
    if launcher_end.startswith("-") and not named:
        name = signal_name(int(launcher_end[1:]))
        return EndReason(f"{launcher} was ended by {name} before {before}", "launcher-killed")
    if not launcher_end and not supervised:
        text = f"the supervisor of the run was killed before {before}"
        return EndReason(text, "supervisor-killed")
    if lost:
        return EndReason(f"{readable(lost)} before {before}", "host-lost")
    code = f" (exit code {launcher_end})" if launcher_end.isdigit() else ""
    if first and how.startswith("killed"):
        return EndReason(f"{first} ended before {before}: {readable(how)}", "rank-killed")
    if first and launcher_end != "0":
        after = f" ({readable(how)})" if how else code
        return EndReason(f"{first} ended before {before}{after}", "rank-ended")
    without_protocol = before == NOT_READY and launcher_end == "0"
    return (
        EndReason(NO_PROTOCOL, "protocol-missing")
        if without_protocol
        else EndReason(f"the program ended before {before}{code}", "program-ended")
    )


def end_fields(how: str) -> dict[str, str | int]:
    """Return the end of a rank as fields of an error: `end`, and `signal` or `exit_status` if known.

    Examples
    --------
    >>> end_fields("killed by SIGSEGV"), end_fields("exit code 3"), end_fields("")
    ({'end': 'killed by SIGSEGV', 'signal': 'SIGSEGV'}, {'end': 'exit code 3', 'exit_status': 3}, {})
    """
    fields: dict[str, str | int] = {"end": how} if how else {}
    if killed := re.match(r"killed by (SIG\w+)", how):
        fields["signal"] = killed[1]
    elif code := re.match(r"exit code (\d+)", how):
        fields["exit_status"] = int(code[1])
    return fields


def short_name(program: Sequence[str]) -> str:
    """Return the short name of a program for messages: its script if it has one, not the interpreter.

    Examples
    --------
    >>> short_name(["/usr/bin/python3", "/opt/solver.py", "-v"]), short_name(["{python}", "-m", "heat"])
    ('solver.py', 'python')
    """
    scripts = [argument for argument in program if argument.endswith(".py")]
    return Path([*scripts, program[0]][0]).name.strip("{}")


def time_limit_words(seconds: float | None) -> str:
    """Return the message that a time limit ended the run.

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
    """Return a launcher's message that a time limit ended the run, from the last output lines.

    Examples
    --------
    >>> time_limit_said(["fan on fire", "apples: job 7: the time limit of 90 minutes ended it"])
    'the time limit of 90 minutes ended it'
    >>> time_limit_said([])
    'its time limit ended it'
    """
    found = [match[1] for line in talk if (match := TIME_LIMIT_LINE.fullmatch(line))]
    return found[-1] if found else time_limit_words(None)


class LastWords:
    """The last lines of each rank's standard error, and the last lines of all sources together.

    Parameters
    ----------
    ranks
        Number of ranks; lines of higher rank numbers count only among all sources.

    Examples
    --------
    >>> words = LastWords(2)
    >>> words.add("error-1", "fan on fire")
    >>> words.add("output", "computing")
    >>> words.of(1), words.of(0), words.of(None)
    ('fan on fire', '', 'fan on fire / computing')
    """

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._all: deque[str] = deque(maxlen=KEPT_LINES)
        self._of: dict[int, deque[str]] = {}

    def add(self, source: str, text: str) -> None:
        """Keep a line."""
        if not text.strip():
            return
        kept = text[:MAX_LINE].rstrip()
        self._all.append(kept)
        _, _, rank = source.partition("-")
        if rank and int(rank) < self._ranks:
            self._of.setdefault(int(rank), deque(maxlen=KEPT_LINES)).append(kept)

    def clear(self) -> None:
        """Delete all lines."""
        self._all.clear()
        self._of.clear()

    def lines(self) -> list[str]:
        """Return the last lines of all sources, in printable form."""
        return [readable(line) for line in self._all]

    def of(self, rank: int | None) -> str:
        """Return a rank's last lines as one line; for None, or if no rank printed any, those of all sources."""
        lines = self._all if rank is None or not self._of else self._of.get(rank, ())
        shown = traceback_words(list(lines)) or list(lines)[-SHOWN_LINES:]
        return " / ".join(readable(line) for line in shown)

    def first_traceback(self) -> int | None:
        """Return the first rank that ended with an uncaught exception; None if no rank did."""
        return next((rank for rank in self._of if self.end_in_traceback(rank)), None)

    def mpi_errors(self) -> set[int]:
        """Return the ranks that ended with an uncaught mpi4py exception."""
        return {
            rank
            for rank, lines in self._of.items()
            if "".join(traceback_words(list(lines))[-1:]).startswith(MPI_ERROR)
        }

    def end_in_traceback(self, rank: int) -> bool:
        """Whether the last lines of a rank are an uncaught exception."""
        lines = list(self._of.get(rank, ()))
        shown = traceback_words(lines)
        return bool(shown) and shown[-1] == lines[-1].strip()


def traceback_words(lines: Sequence[str]) -> list[str]:
    r"""Return location, source line and exception of the last traceback in some lines; empty without one.

    Examples
    --------
    >>> traceback_words('''Traceback (most recent call last):
    ...   File "/home/ada/solver.py", line 8, in main
    ...     solve(rows)
    ...     ~~~~~^^^^^^
    ...   File "/usr/lib/python3/dist-packages/fast/solver.py", line 90, in solve
    ...     raise ValueError(row)
    ... ValueError: row 7 is bad'''.splitlines())
    ['File "/home/ada/solver.py", line 8, in main', 'solve(rows)', 'ValueError: row 7 is bad']
    >>> traceback_words(["fan on fire"])
    []
    """
    begun = [i for i, line in enumerate(lines) if line == TRACEBACK]
    frames: list[tuple[bool, list[str]]] = []
    for line in lines[begun[-1] + 1 if begun else 0 :]:
        frame = FRAME.fullmatch(line)
        if frame:
            frames.append((LIBRARY.search(frame["file"]) is None, [line.strip()]))
        elif frames and not line.startswith(" "):
            own = [words for users, words in frames if users] or [words for _, words in frames]
            return [*own[-1][:2], line.strip()]
        elif frames and not MARKS.fullmatch(line):
            frames[-1][1].append(line.strip())
    return []
