"""Quotes values for the configuration files of ssh and Slurm; rejects values that these formats cannot express.

Names of hosts and sites are letters, digits and ``._-`` already. Paths and the user's login are not in the
lab file: they come from the location of the lab's directory and from the environment.
"""

from __future__ import annotations

import getpass
import re
from pathlib import Path

from apples.errors import UsageError
from apples.resources.host import USER_PATTERN

NEVER = re.compile('[\x00-\x1f\x7f"\ud800-\udfff]')
"""Characters that neither format permits inside quotation marks: line ends, the mark itself, no text."""
NEVER_SSH = re.compile(r"\\|\$\{")
"""Versions of ssh differ in the meaning of a backslash; ``${`` begins a variable of the environment."""


def for_ssh(path: Path, expanded: bool = True) -> str:
    """Return a path as a word of ssh's configuration files, with percent signs escaped.

    Raises
    ------
    UsageError
        The path has characters that these files cannot express.

    Examples
    --------
    >>> for_ssh(Path("/a #b/100%"))
    '"/a #b/100%%"'
    """
    text = _checked(path, "ssh", NEVER, NEVER_SSH)
    return '"' + (text.replace("%", "%%") if expanded else text) + '"'


def for_slurm(path: Path) -> str:
    r"""Return a path as a value of ``slurm.conf``: quoted for spaces; a backslash before ``#`` and itself.

    Raises
    ------
    UsageError
        The path has characters that the file cannot express.

    Examples
    --------
    >>> print(for_slurm(Path("/a b/#1")))
    "/a b/\#1"
    """
    text = _checked(path, "Slurm", NEVER)
    return '"' + re.sub(r"([\\#])", r"\\\1", text) + '"'


def login() -> str:
    """Return the name of the user that logs in on the lab's hosts.

    Raises
    ------
    UsageError
        The name that the environment gives cannot be a user's.
    """
    name = getpass.getuser()
    if not name or not re.fullmatch(USER_PATTERN, name):
        raise UsageError(
            f"user name {name!r}: not a valid name; set LOGNAME or USER",
            code="name-invalid",
            field="user",
            value=name,
        )
    return name


def require(folder: Path, *, ssh: bool, slurm: bool) -> None:
    """Reject a directory that the configuration of a lab cannot express, before anything is changed.

    Raises
    ------
    UsageError
        The directory cannot be named. Permanent until the lab is kept elsewhere.
    """
    login()
    if ssh:
        for_ssh(folder)
    if slurm:
        for_slurm(folder)


def _checked(path: Path, reader: str, *never: re.Pattern[str]) -> str:
    """Return the text of a path that has no forbidden character."""
    text = str(path)
    for pattern in never:
        if found := pattern.search(text):
            raise UsageError(
                f"{text!r}: {reader}'s configuration cannot name a path with {found[0]!r} in it:"
                " set XDG_STATE_HOME to another directory",
                code="path-unsupported",
                file=text,
                reader=reader,
                value=found[0],
            )
    return text
