"""Connections to the SQLite database of a service: opened, checked, copied; and its errors."""

import errno
import os
import secrets
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from nws.errors import CodedError

DATABASE: Final = "weather.db"
APPLICATION: Final = 0x4E575331
"""``PRAGMA application_id`` of our databases: "NWS1"."""
VERSION: Final = 1
PAGE_BYTES: Final = 1024
"""A round of a sensor changes one page of each of its series: small pages make a small log."""
CHECKPOINT_PAGES: Final = 16_384
BUSY_SECONDS: Final = 10.0
SCHEMA: Final = """
CREATE TABLE series (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, created REAL NOT NULL, folded REAL
);
CREATE TABLE samples (
  series INTEGER NOT NULL, time REAL NOT NULL, value REAL NOT NULL, position INTEGER NOT NULL,
  PRIMARY KEY (series, time)
) WITHOUT ROWID;
CREATE TABLE slots (
  series INTEGER NOT NULL, step REAL NOT NULL, start REAL NOT NULL, count INTEGER NOT NULL,
  mean REAL NOT NULL, low REAL NOT NULL, high REAL NOT NULL, PRIMARY KEY (series, step, start)
) WITHOUT ROWID;
CREATE TABLE states (
  series INTEGER PRIMARY KEY, position INTEGER NOT NULL, profile TEXT NOT NULL, saved REAL NOT NULL,
  state BLOB NOT NULL
);
"""


REPLACED: Final = "database-replaced"
WRITE_ERRORS: Final = frozenset(
    {"SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_FSYNC", "SQLITE_IOERR_TRUNCATE"}
)


class StorageError(CodedError):
    """The database failed, and nothing was acknowledged.

    Code ``disk-full`` and ``disk-failed`` are transient: the next commit opens the database again.
    ``database-replaced`` lasts until the service starts again;
    ``database-damaged``, ``database-newer`` and ``database-unwritable`` last until the operator acts.
    """

    code = "disk-failed"

    @property
    def full(self) -> bool:
        """Whether the file system is full."""
        return self.code == "disk-full"


def opened(path: Path) -> sqlite3.Connection:
    """Return a connection that writes to a database, made if need be for its owner alone.

    Raises
    ------
    OSError, sqlite3.Error, StorageError
        It cannot be opened; it is of a newer version, or not ours.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        tables = _check_format(path, connection)
        if not tables:
            connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # makes the log
        connection.execute(f"PRAGMA journal_size_limit={4 * CHECKPOINT_PAGES * PAGE_BYTES}")
        if not tables:
            connection.executescript(
                f"BEGIN IMMEDIATE; {SCHEMA} PRAGMA application_id={APPLICATION}; "
                f"PRAGMA user_version={VERSION}; COMMIT;"
            )
    except BaseException:
        connection.close()
        raise
    return connection


def _check_format(path: Path, connection: sqlite3.Connection) -> int:
    """Return how many tables a database has; StorageError if it is not ours or of a newer version."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and application != APPLICATION:
        raise StorageError(
            f"{path}: is not a database of nws serve; give another --directory",
            code="database-foreign",
            file=str(path),
        )
    if version > VERSION:
        raise StorageError(
            f"{path}: was written by a newer version (format {version}, this one reads "
            f"{VERSION}); install that version, or give another --directory",
            code="database-newer",
            file=str(path),
            value=version,
            bound=VERSION,
        )
    return int(tables)


Identities = tuple[tuple[int, int] | None, ...]


def identities(path: Path) -> Identities:
    """Return device and inode of a database and of its write-ahead log; None for a missing file."""
    found: list[tuple[int, int] | None] = []
    for each in (path, path.with_name(f"{path.name}-wal")):
        try:
            status = each.stat()
        except FileNotFoundError:
            found.append(None)
        else:
            found.append((status.st_dev, status.st_ino))
    return tuple(found)


def check_identities(path: Path, expected: Identities) -> None:
    """Raise StorageError if a file of an open database went, or became another."""
    if identities(path) != expected:
        raise StorageError(
            f"{path}: it or its write-ahead log was removed or replaced while the service runs; "
            "nothing more is stored: start the service again",
            code=REPLACED,
            file=str(path),
        )


def reader(path: Path) -> sqlite3.Connection:
    """Return a connection that only reads; sqlite3.Error if the database is missing."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro",
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        uri=True,
    )
    connection.execute("PRAGMA query_only=1")
    return connection


def storage_error(path: Path, error: Exception) -> StorageError:
    """Return the error of a database with its code and remedy."""
    if isinstance(error, StorageError):
        return error
    name = str(getattr(error, "sqlite_errorname", ""))
    reason = getattr(error, "strerror", None) or str(error)
    if name.startswith("SQLITE_FULL"):
        return StorageError(f"{path}: the disk is full", code="disk-full", file=str(path))
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) or isinstance(
        error, ValueError | TypeError
    ):
        return StorageError(
            f"{path}: is damaged ({reason}); stop the service, put a backup in its place, or move "
            "it aside to begin anew",
            code="database-damaged",
            file=str(path),
        )
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")) or isinstance(
        error, OSError
    ):
        return StorageError(
            f"{path}: cannot be written ({reason}); give its owner the right to write to the "
            "directory and its files",
            code="database-unwritable",
            file=str(path),
        )
    return StorageError(f"{path}: {reason}", code="disk-failed", file=str(path))


def check_database(path: Path) -> list[str]:
    """Return the damage that SQLite finds in a database (``PRAGMA integrity_check``), a line each.

    Raises
    ------
    StorageError
        The file is missing, no database, without tables, of a newer version, or not ours.
    """
    try:
        with closing(reader(path)) as connection:
            if not _check_format(path, connection):
                raise StorageError(
                    f"{path}: is damaged (it has no tables); put a backup in its place, or move it "
                    "aside to begin anew",
                    code="database-damaged",
                    file=str(path),
                )
            lines = [line for (line,) in connection.execute("PRAGMA integrity_check(20)")]
    except sqlite3.Error as error:
        raise storage_error(path, error) from error
    return [] if lines == ["ok"] else lines


def backup_database(path: Path, target: Path) -> int:
    """Copy a database, which may be in use, to a new file of its owner; return the file's bytes.

    The copy has the commits before its begin. It gets its name at the end; until then it is
    ``.backup-*`` in the same directory.

    Raises
    ------
    StorageError
        The database cannot be read.
    OSError
        `target` exists, or cannot be written.
    """
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    partial = target.with_name(f".backup-{secrets.token_hex(8)}")
    _claim(partial)
    try:
        with closing(reader(path)) as source, closing(sqlite3.connect(partial)) as copy:
            source.backup(copy, pages=-1)  # in steps it begins anew whenever the service commits
        size = partial.stat().st_size
        _claim(target)  # not a link: some file systems have none
        partial.replace(target)
    except sqlite3.Error as error:
        if error.sqlite_errorname in WRITE_ERRORS:  # the source is only read
            number = errno.ENOSPC if error.sqlite_errorname == "SQLITE_FULL" else errno.EIO
            raise OSError(number, os.strerror(number), str(target)) from error
        raise storage_error(path, error) from error
    finally:
        partial.unlink(missing_ok=True)
    return size


def _claim(path: Path) -> None:
    """Make an empty file of its owner; FileExistsError if it exists."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
