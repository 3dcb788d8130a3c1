"""Logins that a user's jobs share to look at hosts: OpenSSH's own (``ControlMaster``), short-lived.

Each job looks at every host of its list, which is a login a host and job. The first of them leaves its connection
to a process of ssh's that ends after 15 seconds without use; whoever looks at the host meanwhile does so through
it. What a run lives on is never shared: it would end with somebody else's connection. Where none can be shared (a
long path, a full disk, a host that allows one session a login) each look logs in for itself.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from apples.launch.remote.ssh import Reach
from apples.storage import state
from apples.supervision.job_processes import MARK

FOLDER = "ssh"
PLAIN = re.compile(r"[A-Za-z0-9/._+-]+")
"""Paths in which ssh expands nothing."""
LONGEST_FOLDER = 107 - len("/01234567-.0123456789abcdef") - 40
"""What leaves room in a socket's name for ours, for ssh's 40 letters of host, port and user, and for a suffix."""
SSH_FAILED = 255
"""The exit code of an ssh that failed itself."""


def socket_name(reach: Reach) -> str:
    """Return where a shared login to a host is, or may be; empty where none can be shared.

    A changed configuration makes another login: it may name another machine, or another key.
    """
    try:
        folder = state.directory() / FOLDER
        folder.mkdir(mode=0o700, exist_ok=True)
        found = [_facts(Path(one)) for one in (reach.config, Path.home() / ".ssh/config") if one]
    except (OSError, RuntimeError):  # no folder, no home
        return ""
    if not PLAIN.fullmatch(str(folder)) or len(str(folder)) > LONGEST_FOLDER:
        return ""
    return f"{folder}/{hashlib.sha256(repr(found).encode()).hexdigest()[:8]}-%C"


def _facts(path: Path) -> tuple[object, ...]:
    try:
        there = path.stat()
    except OSError:
        return (str(path),)
    return str(path), there.st_ino, there.st_size, there.st_mtime_ns


def markless(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the mark of a job: a login that is shared outlives the job that began it."""
    return {name: value for name, value in environment.items() if name != MARK}
