"""Why a run is over: whose end is the reason, and the words for it, which end with what the ranks said last.

A traceback is cut to what a user looks for: the last place in a file of their own, and the exception.
"""

from __future__ import annotations

import re
import signal
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from apples.launch.events import readable
from apples.launch.rank_wrapper import signal_name

LEFT = "left"
"""What became of a rank that waits in MPI_Finalize while it is needed."""
BY_LAUNCHERS = ("SIGTERM", "SIGKILL")
BROKEN_PIPE = str(-signal.SIGPIPE)
TIME_LIMIT_LINE = re.compile(r"apples: (?:[^:]*: )?(the time limit of [0-9.]+ minutes? ended it)")
"""A launcher's line about the time limit that ended its run."""
KEPT_LINES, SHOWN_LINES = 40, 3
LONGEST_LINE = 1000
"""Characters of a line that are kept."""
TRACEBACK = "Traceback (most recent call last):"
FRAME = re.compile(r'  File "(?P<file>[^"]+)", line \d+, in .+')
MARKS = re.compile(r"[\s^~]+")
"""What Python writes below a source line to show the place in it."""
LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|^<frozen |^<string>$")
"""Files that are hardly the user's own."""


def first_to_end(ended: Mapping[int, str], otherwise: int | None = None) -> int | None:
    """Return the rank whose end is the reason: the first heard of, unless the launcher may have ended that one.

    A launcher ends all ranks by SIGTERM when one has ended, and word of that one may come later than theirs. What
    no launcher does to a rank is then the reason.

    Examples
    --------
    >>> first_to_end({2: "killed by SIGTERM", 3: "killed by SIGSEGV"})
    3
    >>> first_to_end({2: "killed by SIGTERM", 0: "killed by SIGKILL", 1: "exit code 15"}), first_to_end({})
    (2, None)
    """
    first = next(iter(ended), otherwise)
    if first is None or ended.get(first) != "killed by SIGTERM":
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
    """Why a run is over.

    Attributes
    ----------
    text
        For the user.
    kind
        For programs: ``launcher-killed``, ``supervisor-killed``, ``host-lost``, ``rank-killed``, ``rank-left``,
        ``rank-ended`` or ``program-ended``.
    """

    text: str
    kind: str


def end_reason(
    launcher_end: str, lost: str, first: str, how: str, *, supervised: bool, before: str
) -> EndReason:
    """Return why a run is over.

    Parameters
    ----------
    launcher_end
        Exit code of the launcher, or minus the signal that ended it; empty where nothing was heard of it.
    lost
        What is known of the first host that was lost; empty: none was.
    first
        Name of the first rank that ended or left; empty: none did.
    how
        What became of it, in the words of `apples.launch.rank_wrapper`; empty where nobody knows.
    supervised
        Whether its supervisor was there to the end.
    before
        What it had not come to.

    Examples
    --------
    >>> end_reason("-9", "", "", "", supervised=True, before="it said 'done'")
    EndReason(text="mpiexec was ended by SIGKILL before it said 'done'", kind='launcher-killed')
    >>> end_reason("", "bob: its connection ended", "", "", supervised=False, before="it was ready").text
    'the supervisor of the run was killed before it was ready'
    >>> end_reason("5", "", "rank 1 (bob)", "", supervised=True, before="it was ready").text
    'rank 1 (bob) ended before it was ready (exit code 5)'
    >>> end_reason("", "", "rank 1 (bob)", "killed by SIGSEGV", supervised=True, before="it was ready").text
    'rank 1 (bob) ended before it was ready: killed by SIGSEGV'

    A launcher ends by SIGPIPE when it writes to a proxy that has gone: whatever ended first is the reason.

    >>> how = "killed by SIGSEGV"
    >>> end_reason("-13", "", "rank 0 (ada)", how, supervised=False, before="it was ready")
    EndReason(text='rank 0 (ada) ended before it was ready: killed by SIGSEGV', kind='rank-killed')
    """
    if launcher_end.startswith("-") and not (launcher_end == BROKEN_PIPE and (lost or first)):
        name = signal_name(int(launcher_end[1:]))
        return EndReason(f"mpiexec was ended by {name} before {before}", "launcher-killed")
    if not launcher_end and not supervised:
        text = f"the supervisor of the run was killed before {before}"
        return EndReason(text, "supervisor-killed")
    if lost:
        return EndReason(f"{readable(lost)} before {before}", "host-lost")
    code = f" (exit code {launcher_end})" if launcher_end.isdigit() else ""
    if first and how.startswith("killed"):
        return EndReason(f"{first} ended before {before}: {readable(how)}", "rank-killed")
    if first and (how == LEFT or launcher_end != "0"):
        verb, after = (
            ("left", "") if how == LEFT else ("ended", f" ({readable(how)})" if how else code)
        )
        return EndReason(f"{first} {verb} before {before}{after}", f"rank-{verb}")
    return EndReason(f"the program ended before {before}{code}", "program-ended")


def end_fields(how: str) -> dict[str, str | int]:
    """Return how a rank ended as fields of an error: `end`, and `signal` or `exit_status` if it has one.

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


class LastWords:
    """The last lines of each rank's standard error, and of everything that is known of no rank.

    Parameters
    ----------
    ranks
        How many there are; a source that names another rank is no source of this run.

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
        kept = text[:LONGEST_LINE].rstrip()
        self._all.append(kept)
        _, _, rank = source.partition("-")
        if rank and int(rank) < self._ranks:
            self._of.setdefault(int(rank), deque(maxlen=KEPT_LINES)).append(kept)

    def clear(self) -> None:
        """Forget them."""
        self._all.clear()
        self._of.clear()

    def lines(self) -> list[str]:
        """Return the last lines of all, printable."""
        return [readable(line) for line in self._all]

    def of(self, rank: int | None) -> str:
        """Return a rank's last words on one line; those of all where no rank is known to have said any."""
        lines = self._all if rank is None or not self._of else self._of.get(rank, ())
        shown = traceback_words(list(lines)) or list(lines)[-SHOWN_LINES:]
        return " / ".join(readable(line) for line in shown)

    def first_traceback(self) -> int | None:
        """Return the rank that was first to end in an exception that nobody caught; None where none did."""
        return next((rank for rank in self._of if self.end_in_traceback(rank)), None)

    def end_in_traceback(self, rank: int) -> bool:
        """Whether the last that a rank said was an exception that nobody caught."""
        lines = list(self._of.get(rank, ()))
        shown = traceback_words(lines)
        return bool(shown) and shown[-1] == lines[-1].strip()


def traceback_words(lines: Sequence[str]) -> list[str]:
    r"""Return place, source line and exception of the last traceback in some lines; nothing where there is none.

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
