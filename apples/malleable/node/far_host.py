"""A node supervisor on another machine: localizes a ``start`` order, ends supervisors of earlier starts.

Standard library only.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import signal
import sys
from typing import Any

from apples.launch.job_processes import marked, read
from apples.launch.this_host import locate_programs, ssh_network, with_python

MODULE = "apples.malleable.node.supervisor"
"""Module of a node supervisor, as in the command line of its process."""
END_SECONDS = 5.0
"""Time limit for the supervisor of an earlier start to end its processes."""


def localize(order: dict[str, Any]) -> None:
    """Fill the values of this host into a ``start`` order: its network, interpreter, MPI and folders."""
    order["environment"] = {**ssh_network(), **order["environment"]}
    order["argv"] = [local_word(word) for word in order["argv"]]
    launch = json.loads(order["files"]["launch"])
    locate_programs(launch, launch["directory"], local_word)
    order["files"]["launch"] = json.dumps(launch)


def local_word(word: str) -> str:
    """Return the path on this host for a word in braces: the interpreter, mpiexec, or a module's file.

    Examples
    --------
    >>> local_word("{python}") == sys.executable, local_word("-n")
    (True, '-n')
    >>> local_word("{apples.launch.rank_wrapper}")[-30:]
    '/apples/launch/rank_wrapper.py'
    """
    if word == "{mpiexec}":
        return os.path.join(os.path.dirname(sys.executable), "mpiexec")  # noqa: PTH118, PTH120
    if word.startswith("{apples.") and word.endswith("}"):
        spec = importlib.util.find_spec(word[1:-1])
        return (spec and spec.origin) or word
    return with_python(word)


def end_earlier_attempts(job: str, attempt: int) -> None:
    """End the supervisors of earlier starts of the job on this host, with their ranks, which may still compute."""
    earlier = {pid for pid in marked(job) if 0 < _attempt_of(pid) < attempt}
    for pid in earlier:
        with contextlib.suppress(OSError):
            handle = os.pidfd_open(pid)
            try:
                if 0 < _attempt_of(pid) < attempt:  # another process may have this pid by now
                    signal.pidfd_send_signal(handle, signal.SIGTERM)
                    select.select([handle], [], [], END_SECONDS)
            finally:
                os.close(handle)


def _attempt_of(pid: int) -> int:
    """Return the number of the job's start that a process supervises; 0 if it is not a node supervisor."""
    words = read(f"/proc/{pid}/cmdline").decode(errors="replace").rstrip("\0").split("\0")
    return int(words[-1]) if MODULE in words[:-1] and words[-1].isdecimal() else 0
