"""``nws check`` and ``nws backup``: the database of a service, which may be running meanwhile."""

from __future__ import annotations

from pathlib import Path

import nws
from apples.errors import LaunchError, UsageError, coded
from apples.io import state
from apples.ui.command_line import command, show
from apples.ui.parameters import FILE, argument, option
from apples.ui.units import amount

directory_option = option(
    "--directory", metavar="FOLDER", type=FILE, help="Directory of the service's data."
)


@command()
@directory_option
def check(directory: Path | None) -> int:
    """Check the database of a service for damage (SQLite's integrity check).

    Exit code 4 if it is damaged or cannot be read.

    Example: nws check
    """
    path = _database(directory)
    try:
        problems = nws.check_database(path)
    except nws.StorageError as error:
        raise LaunchError(str(error), **coded(error)) from None
    if problems:
        raise LaunchError(
            f"{path}: is damaged ({problems[0]}); stop the service and put a backup in its place",
            code="database-damaged",
            file=path,
        )
    show(f"{path}: no damage")
    return 0


@command()
@argument("file", type=FILE, help="New file of the copy.")
@directory_option
def backup(file: Path, directory: Path | None) -> int:
    """Copy the database of a service to a new file.

    To restore it: stop the service, and move the copy to DIRECTORY/weather.db in place of the files
    weather.db, weather.db-wal and weather.db-shm.

    Example: nws backup weather-monday.db
    """
    path = _database(directory)
    try:
        size = nws.backup_database(path, file)
    except nws.StorageError as error:
        raise LaunchError(str(error), **coded(error)) from None
    except FileExistsError:
        raise UsageError(
            f"{file}: exists; give a new file", code="file-exists", file=file
        ) from None
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}", code="file-unwritable", file=file) from None
    show(f"{file}: {amount(size)}")
    return 0


def _database(directory: Path | None) -> Path:
    """Return the database in a directory; UsageError if there is none."""
    path = (directory or state.directory() / "nws") / nws.DATABASE
    if not path.is_file():
        raise UsageError(
            f"{path}: the database of nws serve is missing (--directory)",
            code="file-missing",
            option="--directory",
            file=path,
        )
    return path
