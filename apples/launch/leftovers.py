"""Processes of a run that outlived its watchdog: found by the mark in their environment, and killed."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

from apples.launch import watchdog

MARK = "APPLES_JOB"


def leftovers(job: str) -> list[int]:
    """Return the processes that were started with this job's mark, zombies not counted."""
    mark = f"{MARK}={job}".encode()
    return [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and _bears(p, mark)]


def clear(job: str, seconds: float) -> bool:
    """Kill what is left of a job; whether nothing was left within `seconds`."""
    deadline = time.monotonic() + seconds
    while left := leftovers(job):
        for pid in left:
            _kill(pid, job)
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def sweep(told: dict[str, Any]) -> int:
    """Kill what is left of a job on this host and remove its folder; 0 when nothing is left."""
    cleared = clear(told["job"], told["seconds"])
    watchdog.remove(told["folder"], [])
    return 0 if cleared else 1


def _bears(process: Path, mark: bytes) -> bool:
    try:
        return mark in (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _kill(pid: int, job: str) -> None:
    with contextlib.suppress(OSError):
        pidfd = os.pidfd_open(pid)
        try:
            if _bears(Path(f"/proc/{pid}"), f"{MARK}={job}".encode()):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)
