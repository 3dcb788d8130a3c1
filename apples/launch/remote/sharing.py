"""Logins that a user's jobs share: OpenSSH's own (``ControlMaster``), which end soon after their last use.

Each job looks at every host of its list, which is a login a host and job. The first of them leaves its connection
to a process of ssh's that ends after 15 seconds without use; jobs that look at the host meanwhile do so through
it. A job itself, rigid or malleable, runs over a login of its own, since the process that holds a shared login
ends all its sessions when it is killed. Where none can be shared (a long path, a full disk, a login that has as
many sessions as sshd allows, ten) each job logs in for itself.
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
"""Paths in which ssh expands nothing."""
MAX_FOLDER = 107 - len("/01234567-.0123456789abcdef") - 40
"""What leaves room in a socket's name for ours, for ssh's 40 letters of host, port and user, and for a suffix."""


def socket_name(reach: Reach) -> str:
    """Return where a shared login to a host is, or may be; empty where none can be shared, nor is there one.

    A changed configuration makes another login: it may name another machine, or another key.
    """
    if reach.allocation:
        return ""
    try:
        folder = _folder()
        found = [_facts(Path(one)) for one in (reach.config, Path.home() / ".ssh/config") if one]
    except (OSError, RuntimeError, UsageError):  # no folder, no home
        return ""
    return f"{folder}/{hashlib.sha256(repr(found).encode()).hexdigest()[:8]}-%C" if folder else ""


def _folder() -> Path | None:
    """Return this user's own folder for sockets, made if need be; None where none has a short enough name."""
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
    """Return the environment without the mark of a job: a login that is shared outlives the job that began it."""
    return {name: value for name, value in environment.items() if name != MARK}
