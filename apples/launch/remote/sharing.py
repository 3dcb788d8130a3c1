"""Logins that a user's jobs share for checks, by OpenSSH's ``ControlMaster``.

Each job checks every host of its list, which would need a login for each host and job. The first login leaves its
connection to an ssh process that ends after 15 seconds without use. Until then, other jobs check the host over
that connection. A job itself, rigid or malleable, runs over a separate login, because killing the process of a
shared login ends all its sessions. If a login cannot be shared (the path is too long, the disk is full, or it has
reached sshd's limit of ten sessions), each job logs in separately.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from apples.errors import UsageError
from apples.io import state
from apples.launch.job_processes import MARK
from apples.launch.remote.ssh import Reach

FOLDER = "ssh"
PLAIN = re.compile(r"[A-Za-z0-9/._+-]+")
"""Paths without characters that ssh expands."""
MAX_FOLDER = 107 - len("/01234567-.0123456789abcdef") - 40
"""Maximum length of the folder: a socket path of 107 bytes also has our name, ssh's 40 letters and a suffix."""


def socket_name(reach: Reach) -> str:
    """Return the socket path of a shared login to a host; empty if the login cannot be shared.

    A changed ssh configuration gives another path, because it may name another machine or another key.
    """
    if reach.allocation:
        return ""
    try:
        folder = _folder()
        found = [_facts(Path(one)) for one in (reach.config, Path.home() / ".ssh/config") if one]
    except (OSError, RuntimeError, UsageError):  # the folder or the home directory is missing
        return ""
    return f"{folder}/{hashlib.sha256(repr(found).encode()).hexdigest()[:8]}-%C" if folder else ""


def _folder() -> Path | None:
    """Return this user's private folder for sockets, created if needed; None if no usable path is short enough."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    for folder in (
        state.directory() / FOLDER,
        *([Path(runtime) / "apples-ssh"] if runtime else []),
    ):
        if PLAIN.fullmatch(str(folder)) and len(str(folder)) <= MAX_FOLDER:
            folder.mkdir(mode=0o700, exist_ok=True)
            there = folder.lstat()
            own = stat.S_ISDIR(there.st_mode) and there.st_uid == os.getuid()
            return folder if own and not there.st_mode & 0o077 else None
    return None


def _facts(path: Path) -> tuple[object, ...]:
    try:
        there = path.stat()
    except OSError:
        return (str(path),)
    return str(path), there.st_ino, there.st_size, there.st_mtime_ns


def markless(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the job tag: a shared login outlives the job that started it."""
    return {name: value for name, value in environment.items() if name != MARK}
