"""How a run that did not say ``done`` ended: the words for it, from what was heard. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from apples.launch.events import readable

LIMIT = re.compile(r"apples: (?:[^:]*: )?(the time limit of [0-9.]+ minutes? ended it)")
"""A launcher's line about the time limit that ended its run."""


def reason(launcher_end: str, lost: str, first: str, guarded: bool, before: str) -> str:
    """Return why a run is over.

    Parameters
    ----------
    launcher_end
        Exit code of the launcher, or minus the signal that ended it; empty where it was not heard of.
    lost
        What is known of the first host that was lost; empty: none was.
    first
        Name of the first rank that ended; empty: none did.
    guarded
        Whether its watchdog was there to the end.
    before
        What it had not come to.

    Examples
    --------
    >>> reason("-9", "", "", True, "it said 'done'")
    "mpiexec was ended by signal 9 before it said 'done'"
    >>> reason("5", "", "rank 1 (bob)", True, "it was ready")
    'rank 1 (bob) ended before it was ready (exit code 5)'
    """
    if launcher_end.startswith("-"):
        return f"mpiexec was ended by signal {launcher_end[1:]} before {before}"
    if lost:
        return f"{readable(lost)} before {before}"
    if not launcher_end and not guarded:
        return f"the watchdog of the run was killed before {before}"
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


def limit_words(seconds: float | None) -> str:
    """Return the words of a launcher whose time limit ended the run.

    Examples
    --------
    >>> limit_words(60.0), limit_words(5400.0), limit_words(None)
    ('the time limit of 1 minute ended it', 'the time limit of 90 minutes ended it', 'its time limit ended it')
    """
    if seconds is None:
        return "its time limit ended it"
    minutes = f"{seconds / 60:g}"
    return f"the time limit of {minutes} minute{'' if minutes == '1' else 's'} ended it"


def limit(talk: Iterable[str]) -> str:
    """Return what a launcher said of the time limit that ended its run, from the last lines of all talk.

    Examples
    --------
    >>> limit(["fan on fire", "apples: job 7: the time limit of 90 minutes ended it"])
    'the time limit of 90 minutes ended it'
    >>> limit([])
    'its time limit ended it'
    """
    found = [match[1] for line in talk if (match := LIMIT.fullmatch(line))]
    return found[-1] if found else limit_words(None)
