"""Takes a lab down: ends and removes everything that its journal names, at whichever step its start stopped."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from apples.errors import LaunchError
from apples.lab import cgroups, record
from apples.lab.execution import run
from apples.lab.journal import FILE as JOURNAL
from apples.lab.journal import LabJournal, held
from apples.launch.job_processes import all_processes, environment_of

END_SECONDS = 60.0
"""Time limit for the end of a host's processes: a killed process needs CPU time of the host's quota to end."""


def down(folder: Path) -> None:
    """Take the lab in `folder` down; the machine is as it was when this returns.

    May be called again, and for a lab that was killed at any step of coming up or going down.

    Raises
    ------
    LaunchError
        Another process takes it up or down at this moment; or a step cannot be undone: the message names it,
        and the journal stays for the next attempt.
    """
    with contextlib.suppress(FileNotFoundError), held(folder):
        undo(folder)
    with contextlib.suppress(OSError):
        record.labs().rmdir()


def undo(folder: Path) -> None:
    """Undo the steps of a lab, newest first; the caller holds the lab's lock."""
    steps = list(LabJournal(folder).steps())
    _end(steps)
    left = [f"{kind} {name}" for kind, name in steps if not _undone(kind, name)]
    if left:
        raise LaunchError(
            f"lab '{folder.name}': cannot be removed: {', '.join(left)}",
            code="lab-not-removed",
            lab=folder.name,
            failures=left,
        )
    _forget(folder)


def _forget(folder: Path) -> None:
    """Remove the lab's own directory, the journal last: commands find a lab by its journal."""
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != JOURNAL:
            entry.unlink()
    shutil.rmtree(folder)


def _end(steps: list[tuple[str, str]]) -> None:
    """Kill the processes of the lab until all have ended."""
    marks = {name for kind, name in steps if kind == "processes"}
    groups = [Path(name) for kind, name in steps if kind == "cgroup"]
    deadline = time.monotonic() + END_SECONDS
    while alive := set(_marked(marks)) | {pid for path in groups for pid in cgroups.members(path)}:
        for pid in alive - {os.getpid()}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise LaunchError(
                f"processes that cannot be killed: {sorted(alive)}",
                code="processes-left",
                value=sorted(alive),
            )
        time.sleep(0.01)


def _marked(marks: set[str]) -> Iterator[int]:
    """Yield the processes that have a lab's tag, and all processes on its hosts."""
    wanted = {f"{record.MARK}={mark}".encode() for mark in marks}
    for pid in all_processes():
        if wanted & environment_of(pid):
            yield pid


def _undone(kind: str, name: str) -> bool:
    """Undo one step; return whether it is undone completely."""
    if kind == "cgroup":
        return cgroups.remove(Path(name))
    if kind == "link":
        return _removed_link(name)
    if kind == "directory":
        shutil.rmtree(name, ignore_errors=True)
        return not Path(name).exists()
    if kind == "delegated":
        control, _, controller = name.rpartition(":")
        with contextlib.suppress(
            OSError
        ):  # another program uses the controller meanwhile, and keeps it
            Path(control).write_text(f"-{controller}")
    return True


def _removed_link(name: str) -> bool:
    """Remove an interface of this machine. The kernel removes it a little later if its other end is gone."""
    deadline = time.monotonic() + END_SECONDS
    interface = Path("/sys/class/net") / name
    while interface.exists():
        with contextlib.suppress(LaunchError):
            run(["ip", "link", "delete", name])
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01 if interface.exists() else 0)
    return True
