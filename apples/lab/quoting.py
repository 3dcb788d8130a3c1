"""What a lab writes into configuration files, as words of those who read them; what they cannot say is refused.

Names of hosts and sites are letters, digits and ``._-`` already. Paths and the user's login are not the
lab file's: they come from wherever the lab's directory is, and from the environment.
"""

from __future__ import annotations

import getpass
import re
from pathlib import Path

from apples.errors import UsageError
from apples.resources.host import USER_PATTERN

NEVER = re.compile('[\x00-\x1f\x7f"\ud800-\udfff]')
"""Nobody's files can say these inside quotation marks: line ends, the mark itself, what is no text."""
NEVER_SSH = re.compile(r"\\|\$\{")
"""Versions of ssh differ on what a backslash does; ``${`` names a variable of the environment."""


def for_ssh(path: Path, expanded: bool = True) -> str:
    """Return a path as a word of ssh's configuration files, where percent signs may mean something.

    Raises
    ------
    UsageError
        It has what those files cannot say.

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
        It has what that file cannot say.

    Examples
    --------
    >>> print(for_slurm(Path("/a b/#1")))
    "/a b/\#1"
    """
    text = _checked(path, "Slurm", NEVER)
    return '"' + re.sub(r"([\\#])", r"\\\1", text) + '"'


def login() -> str:
    """Return the name of the user, who is to log in on the lab's hosts.

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
    """Refuse a directory that the configuration of a lab could not name, before anything is changed.

    Raises
    ------
    UsageError
        In one line. Permanent until the lab is kept elsewhere.
    """
    login()
    if ssh:
        for_ssh(folder)
    if slurm:
        for_slurm(folder)


def _checked(path: Path, reader: str, *never: re.Pattern[str]) -> str:
    """Return the text of a path that has none of what is never to be there."""
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
