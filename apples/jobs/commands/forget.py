"""``apples forget --all``: remove the user's state directory and cache."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import psutil

from apples import jobs as service
from apples.errors import LaunchError, UsageError
from apples.io import state
from apples.jobs.commands.jobs import GOING
from apples.ui.command_line import command, show_answer
from apples.ui.options import json_option
from apples.ui.parameters import option
from apples.ui.units import amount

MAX_NAMED = 5


@command()
@option("--all", "everything", is_flag=True, help="Remove all of it; required.")
@option("--dry-run", is_flag=True, help="List the files and folders; remove nothing.")
@json_option
def forget(everything: bool, dry_run: bool, json: bool) -> int:
    """Remove the records of all runs and jobs, all measurements, learned speeds, logs and compiled code.

    These are the state directory and the cache of the user. Run folders and apples.toml in other folders stay.
    While a job runs, a lab is up or a process uses a file of them, nothing is removed. To remove only the learned
    state of an application, use: apples calibrate --forget NAME

    Example: apples forget --all --dry-run; apples forget --all
    """
    if not (everything or dry_run):
        raise UsageError(
            "forget: give --all to remove the state directory and the cache, or --dry-run to list them",
            code="option-missing",
            options=["--all", "--dry-run"],
        )
    folders = (state.user_folder("state"), state.user_folder("cache"))
    roots = [folder for folder in folders if folder.is_dir()]
    found = {str(path): _size(path) for root in roots for path in sorted(root.iterdir())}
    total = sum(found.values())
    if not dry_run:
        _require_unused(roots)
        for name in found:
            _remove(Path(name))
        for root in roots:
            with contextlib.suppress(OSError):  # a process made a file in it meanwhile
                root.rmdir()
    document = {"schema": "apples.forget/1", "paths": list(found), "removed": not dry_run}
    lines = [f"{amount(size):>9}  {name}" for name, size in found.items()]
    done = f"{'would remove' if dry_run else 'removed'} {amount(total)}"
    show_answer(document | {"bytes": total}, "\n".join([*lines, done]), json)
    return 0


def _require_unused(roots: Iterable[Path]) -> None:
    """Raise `LaunchError` if a job runs, a lab is up, or a process has a file below `roots` open."""
    for run in service.list_runs():
        if run["state"] in GOING:
            raise LaunchError(
                f"job {run['id']} is {run['state']}: it is not over; end it with: apples cancel {run['id']}",
                code="job-running",
                job=run["id"],
                value=run["state"],
            )
    labs = state.user_folder("state") / "labs"
    for lab in sorted(labs.iterdir()) if labs.is_dir() else ():
        raise LaunchError(
            f"lab {lab.name} is up; take it down with: apples lab down {lab.name}",
            code="state-in-use",
            file=lab,
        )
    # The kernel reports real paths; a folder or an entry of it may be a symbolic link to another disk.
    places = {path.resolve() for root in roots for path in (root, *root.iterdir())}
    users = [f"{pid} ({name})" for pid, name in _users(places)]
    if users:
        more = f" and {len(users) - MAX_NAMED} more" if len(users) > MAX_NAMED else ""
        raise LaunchError(
            f"{', '.join(map(str, roots))}: in use by process {', '.join(users[:MAX_NAMED])}{more}; end it first",
            code="state-in-use",
            file=next(iter(roots)),
            processes=users,
        )


def _users(places: Collection[Path]) -> Iterator[tuple[int, str]]:
    """Yield the number and name of every other process that uses one of `places` or a file below."""
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        with contextlib.suppress(psutil.Error):
            files = [process.cwd(), *(file.path for file in process.open_files())]
            files += [here.path for here in process.memory_maps()]
            if any(Path(file).is_relative_to(place) for file in files for place in places):
                yield process.pid, process.name()


def _size(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder; a symbolic link is not followed."""
    size = 0
    for one in [path, *path.rglob("*")] if path.is_dir() and not path.is_symlink() else [path]:
        with contextlib.suppress(FileNotFoundError):  # a running job removed it meanwhile
            size += one.lstat().st_size if one.is_symlink() or not one.is_dir() else 0
    return size


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
