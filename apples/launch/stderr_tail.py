"""What the ranks of a run said last, kept for the line that says why it failed.

A traceback is cut to what a user looks for: the last place in a file of their own, and the exception.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence

from apples.launch.events import readable

KEPT_LINES, SHOWN_LINES = 40, 3
LONGEST_LINE = 1000
"""Characters of a line that are kept."""
TRACEBACK = "Traceback (most recent call last):"
FRAME = re.compile(r'  File "(?P<file>[^"]+)", line \d+, in .+')
MARKS = re.compile(r"[\s^~]+")
"""What Python writes below a source line to show the place in it."""
LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|^<frozen |^<string>$")
"""Files that are hardly the user's own."""


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
