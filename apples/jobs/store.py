"""The records of this user's runs: one directory for each run in the state directory, each with a single writer.

``$XDG_STATE_HOME/apples/jobs/ID`` (0700) holds the state (`job.json`), the order (`order.json`), the plan, its
weather, the task, the events, the log and the result. The record of a job, a run that outlives its command, also
has its control socket (0600) and its commits. The only writer is the process that supervises the run: a job's
supervisor, or the command in the foreground. It holds the lock for its whole life. If a process gets the lock of a
run that is not over, the supervisor is dead. A record that cannot be read does not affect the others.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from apples.errors import LaunchError, UsageError
from apples.io import documents, record_folders
from apples.io.journal import parse
from apples.io.naming import naming
from apples.launch import job_processes

SCHEMA = "apples.job/1"
OVER = frozenset({"finished", "failed", "cancelled"})
VERIFYING = "verifying"
"""State of a run during the verification of its result, after its application has ended."""
ON_HOSTS = frozenset({"running", VERIFYING})
"""States of a run after its start and before its end."""
RUN_FOLDER = re.compile(r"apples-[a-z0-9_]{8}")
RECORD_NAME = re.compile(r"[0-9a-f]{1,8}")
"""Name of a run's folder (`apples.launch.processes`)."""
RESERVED_BYTES = 1 << 17
"""Reserved disk space for the last record and the result of a run with many hosts."""
CHECK_SECONDS = 5.0
"""Time limit for processes that check the lock of a job to release it."""
MAX_LOG_BYTES = 1 << 24
CUT = b"note: lines were removed here: the log keeps its beginning and its end\n"
START_SECONDS = 60.0
"""Time limit for a supervisor to write its process id into the lock that it holds."""
LOST = "its supervisor was killed; every process of the job is ended"
COMMAND_LOST = "its command was killed; every process of the run is ended"
GONE = "gone-"
"""Prefix of the name of a record during its removal."""

JOB, RUN, DEMO = "job", "run", "demo"
"""Kinds of records: a job, which outlives its command; a run in the foreground; a demo of several runs."""
SWEEP, MASTER_WORKER, PIPELINE = "parameter-sweep", "master-worker", "pipeline"
"""Kinds of records of other application models; their documents have their own schemas."""

Record = dict[str, Any]


class StoredJob:
    """The directory of one job, or of one run in the foreground.

    Attributes
    ----------
    id, folder
        Id of the record, and its directory.
    """

    def __init__(self, folder: Path) -> None:
        self.id = folder.name
        self.folder = folder

    # --------------------------------------------------------------------------- files
    @property
    def control_socket(self) -> Path:
        """The control socket of a running job."""
        return self.folder / "control"

    @property
    def log(self) -> Path:
        """Output of the program and of the supervisor."""
        return self.folder / "log"

    @property
    def result(self) -> Path:
        """The ``apples.run/1`` document of a finished job."""
        return self.folder / record_folders.RESULT

    @property
    def reserve(self) -> Path:
        """File that reserves disk space for the last record and the result."""
        return self.folder / "reserve"

    @property
    def commits(self) -> Path:
        """Directory of committed states."""
        return self.folder / "commits"

    @property
    def events(self) -> Path:
        """Events, one JSON object a line."""
        return self.folder / "events"

    @property
    def plan(self) -> Path:
        """The ``apples.plan/1`` document, written before the launch."""
        return self.folder / "plan.json"

    @property
    def run_note(self) -> Path:
        """File with the path of a malleable job's run folder, while that folder exists."""
        from apples.malleable.control.job_file import RUN_FILE  # noqa: PLC0415 - a list of runs has no use for it

        return self.folder / RUN_FILE

    @property
    def controlled(self) -> bool:
        """Whether this is a job, which the verbs for jobs control."""
        return self.commits.exists()

    def order(self) -> Record:
        """Return the order of the run."""
        return _read(self.folder / record_folders.ORDER)

    # -------------------------------------------------------------------------- record
    def record(self) -> Record:
        """Return the record; if the supervisor has died, the state is ``failed``."""
        record = _read(self.folder / "job.json")
        if record.get("state") not in OVER and not self.supervised():
            record = _read(self.folder / "job.json")  # it may have ended in between
            if record.get("state") not in OVER:
                lost = LOST if self.controlled else COMMAND_LOST
                record.update(state="failed", reason=lost, exit_code=4)
                if (
                    not self.controlled
                    and self.result.exists()
                    and record.get("verified") is not False
                ):
                    record.update(state="finished", reason="", exit_code=0)
        return record

    def summary(self, record: Record | None = None) -> Record:
        """Return the entry of the run in `runs` of ``apples.jobs/1``; `record` avoids another read of the file."""
        record = record or self.record()
        plain = (
            "blueprint",
            "iteration",
            "iterations",
            "predicted_seconds",
            "measured_seconds",
            "verified",
        )
        figures = {key: record.get(key) for key in plain}
        if "verified" not in record and (document := document_of(self.result)):
            execution = document.get("execution") or {}  # a record of an earlier version
            figures |= {
                key: execution.get(key) for key in ("predicted_seconds", "measured_seconds")
            }
            figures["verified"] = document.get("verified")
        return {
            "id": record["id"],
            "kind": record.get("kind") or JOB,
            "application": record.get("name") or "",
            "state": record["state"],
            "started": record.get("submitted"),
            "ended": record.get("ended"),
            "hosts": list(record.get("hosts", ())),
            "rows": list(record.get("rows", ())),
            **figures,
            "reason": record.get("reason") or "",
        }

    def write(self, record: Mapping[str, Any]) -> None:
        """Replace the record; it is on the disk when this returns."""
        documents.replace(self.folder / "job.json", json.dumps(record, indent=1, allow_nan=False))

    def write_result(self, document: Mapping[str, Any]) -> None:
        """Write the document of the run; on a full disk, use the reserved space (`reserve`)."""
        text = json.dumps(document, indent=1, allow_nan=False)
        self.to_the_last(lambda: documents.replace(self.result, text))

    def write_last(self, record: Mapping[str, Any]) -> None:
        """Replace the record of an ended job, and release the reserved space."""
        self.to_the_last(lambda: self.write(record))
        self.reserve.unlink(missing_ok=True)
        self.run_note.unlink(missing_ok=True)

    def never_begins(self, state: str, reason: str, code: int = LaunchError.exit_code) -> None:
        """Record that a run was not started and never will be."""
        self.write_last({**self.record(), "state": state, "reason": reason, "exit_code": code})

    def clear_up(self) -> None:
        """Remove the run's files outside this folder, after all its processes were killed."""
        note = self.run_note
        with suppress(FileNotFoundError):
            left = Path(note.read_text("utf-8", errors="replace"))
            if RUN_FOLDER.fullmatch(
                left.name
            ):  # a full disk may have truncated the path to that of another folder
                job_processes.remove_run(str(left), [])
            note.unlink()

    def begin_again(self, record: Mapping[str, Any], commit: Mapping[str, Any]) -> None:
        """Reset the record of an ended job for a restart from a commit, given by its manifest."""
        self.keep_reserve()
        news = {"state": "starting", "reason": "", "exit_code": None, "attempt": attempts(record) + 1,
                "iteration": commit["values"].get("iteration", 0)}  # fmt: skip
        ended = {"ended", "measured_seconds", "verified"}
        self.write({**{key: record[key] for key in record if key not in ended}, **news})
        self.control_socket.unlink(missing_ok=True)
        self.result.unlink(missing_ok=True)

    def keep_reserve(self) -> None:
        """Reserve disk space for the last record and the result."""
        try:
            with naming(self.reserve):
                self.reserve.write_bytes(bytes(RESERVED_BYTES))
        except OSError:
            self.reserve.unlink(missing_ok=True)
            raise

    def trim_log(self, max_bytes: int = MAX_LOG_BYTES) -> None:
        """Remove lines from the middle of a log of more than `max_bytes`; its first and last quarter stay.

        A log that cannot be read or written stays as it is.
        """
        with suppress(OSError):
            if self.log.stat().st_size <= max_bytes:
                return
            with self.log.open("r+b") as stream:
                head = stream.read(max_bytes // 4)
                start = head.rfind(b"\n") + 1
                stream.seek(-(max_bytes // 4), os.SEEK_END)
                tail = stream.read()
                stream.seek(start)
                stream.write(CUT + tail[tail.find(b"\n") + 1 :])
                stream.truncate()

    def to_the_last(self, write: Callable[[], object]) -> None:
        """Call `write`; if the disk is full, release the reserved space and call it again."""
        try:
            write()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self.reserve.unlink(missing_ok=True)
            write()

    # ---------------------------------------------------------------------- supervisor
    @contextmanager
    def locked(self) -> Iterator[int]:
        """Hold the job's lock; yield its descriptor, by which a new supervisor inherits the lock.

        A process that checks the lock (`supervised`) holds a shared lock for a moment; this waits for its release.

        Raises
        ------
        BlockingIOError
            The job has a supervisor, or other processes check the lock for all of `CHECK_SECONDS`.
        """
        handle = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            deadline = time.monotonic() + CHECK_SECONDS
            while not documents.lock(handle, 0.0):
                if self.supervised() or time.monotonic() >= deadline:
                    raise BlockingIOError(errno.EAGAIN, "the job has a supervisor", self.id)
                time.sleep(documents.RETRY_SECONDS)
            os.ftruncate(handle, 0)  # the process id in it is of an earlier supervisor
            yield handle
        finally:
            os.close(handle)

    @contextmanager
    def supervising(self, inherited: int | None = None) -> Iterator[None]:
        """Act as the job's supervisor: hold its lock, new or inherited, and write the process id into it."""
        with self.locked() if inherited is None else nullcontext(inherited) as handle:
            os.set_inheritable(handle, False)
            with naming(self.folder / "lock"):
                os.pwrite(handle, str(os.getpid()).encode(), 0)
            yield

    def supervised(self) -> bool:
        """Whether the supervisor is alive."""
        return not self.until_over(0.0)

    def unbegun(self) -> bool:
        """Return whether the record exists without a supervisor, because the starting process died."""
        record = document_of(self.folder / "job.json") or {}
        if record.get("state") != "starting" or self.supervised():
            return False
        try:
            return not (self.folder / "lock").stat().st_size
        except FileNotFoundError:
            return False

    def supervisor(self) -> int:
        """Return a descriptor of the supervisor's process, which the caller closes; -1 if the process is gone."""
        deadline = time.monotonic() + START_SECONDS
        while not (self.folder / "lock").stat().st_size and self.supervised():
            if time.monotonic() > deadline:
                return -1
            time.sleep(
                documents.RETRY_SECONDS
            )  # it has the lock and is about to write its process id
        try:
            number = int((self.folder / "lock").read_text("ascii") or 0)
            handle = os.pidfd_open(number) if number else -1
        except (OSError, ValueError):
            return -1
        if handle >= 0 and not self.supervised():  # another process may have the id now
            os.close(handle)
            return -1
        return handle

    def size(self) -> int:
        """Return the total bytes of the record's files."""
        files = (path for path in self.folder.rglob("*") if path.is_file())
        total = 0
        for path in files:
            with suppress(FileNotFoundError):
                total += path.stat().st_size
        return total

    def last_change(self) -> float:
        """Return the time of the last change of the record, in seconds since the epoch."""
        try:
            return (self.folder / "job.json").stat().st_mtime
        except FileNotFoundError:
            return self.folder.stat().st_mtime

    def until_over(self, seconds: float | None = None) -> bool:
        """Wait for the supervisor's end; return whether it ended within `seconds`. This writes nothing."""
        try:
            stream = (self.folder / "lock").open("rb")
        except FileNotFoundError:
            return True
        with stream:
            return documents.lock(stream.fileno(), seconds, shared=True)


def folder() -> Path:
    """Return the directory of all jobs."""
    return record_folders.root()


def create(
    order: Mapping[str, Any],
    name: str,
    kind: str = JOB,
    where: Path | None = None,
    identifier: str = "",
) -> StoredJob:
    """Create the record of a new job, or of another kind of run; it is on the disk when this returns.

    Parameters
    ----------
    where
        Directory of all records; default: `folder`.
    identifier
        The record's id, eight hexadecimal digits; empty: a random free id.

    Raises
    ------
    FileExistsError
        A record with this `identifier` exists; it is unchanged.
    OSError
        The record could not be written; its files are removed.
    """
    where = where or folder()
    while True:
        path = where / (identifier or secrets.token_hex(4))
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            if identifier:
                raise
            continue
        break
    try:
        return _filled(StoredJob(path), order, name, kind)
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise


def _filled(job: StoredJob, order: Mapping[str, Any], name: str, kind: str) -> StoredJob:
    """Write the first files of a record."""
    if kind == JOB:
        job.commits.mkdir(mode=0o700)
    for file in ("log", "lock"):
        path = job.folder / file
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.close(handle)
    documents.replace(job.folder / record_folders.ORDER, json.dumps(order, indent=1))
    job.keep_reserve()
    job.write({**first_record(job.id, name), "kind": kind})
    return job


def first_record(identifier: str, name: str) -> Record:
    """Return the record of a job that is starting."""
    return {
        "schema": SCHEMA, "id": identifier, "state": "starting", "hosts": [], "rows": [],
        "epoch": 0, "iteration": 0, "iterations": None, "last_resize": None, "name": name,
        "submitted": time.time(), "reason": "", "exit_code": None, "redistributions": [], "attempt": 1,
    }  # fmt: skip


def attempts(record: Mapping[str, Any]) -> int:
    """Return the number of starts of a record's job; 1 for a record of an earlier version."""
    return int(record.get("attempt", 1))


def records() -> list[StoredJob]:
    """Return every run and job, the oldest first."""
    return [StoredJob(path) for path in record_folders.folders()]


def jobs() -> list[StoredJob]:
    """Return every job, the oldest first."""
    return [one for one in records() if one.controlled]


def job(name: str) -> StoredJob:
    """Return the job of an id, or of a unique beginning of an id.

    Raises
    ------
    UsageError
        No id begins with `name`, or several do.
    """
    try:
        return _one(name, jobs(), "job", "apples jobs")
    except UsageError:
        others = [one for one in records() if name and one.id.startswith(name)]
        if len(others) == 1 and not others[0].controlled:
            raise UsageError(
                f"'{name}' is not a job but a run that ends with its command; see: apples report {name}",
                code="run-not-a-job",
                run=others[0].id,
            ) from None
        raise


def names_record(word: str) -> bool:
    """Return whether a word can be an id, or the beginning of an id, and is not a file."""
    return RECORD_NAME.fullmatch(word) is not None and not Path(word).exists()


def record(name: str) -> StoredJob:
    """Return the run or job of an id, or of a unique beginning of an id.

    Raises
    ------
    UsageError
        No id begins with `name`, or several do.
    """
    return _one(name, records(), "run", "apples jobs")


def _one(name: str, among: list[StoredJob], what: str, command: str) -> StoredJob:
    known = {one.id: one for one in among}
    return known[record_folders.unique(name, list(known), what, command)]


def prune(seconds: float, most_bytes: int, now: float) -> tuple[list[str], int]:
    """Remove records of ended runs: those older than `seconds`, then the oldest until all have `most_bytes`.

    A run with a supervisor stays, at any age.

    Returns
    -------
    Ids and total bytes of the removed records.
    """
    for leftover in folder().glob(f"{GONE}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    sizes = {one: one.size() for one in records()}
    kept, removed, freed = sum(sizes.values()), list[str](), 0
    for one, size in sizes.items():
        age = now - one.last_change()
        if age <= START_SECONDS and one.record()["state"] not in OVER:
            continue  # its supervisor is about to start
        if (age > seconds or kept > most_bytes) and _removed(one):
            kept, freed = kept - size, freed + size
            removed.append(one.id)
    return removed, freed


def _removed(one: StoredJob) -> bool:
    """Remove a record unless its run is active; return whether it was removed."""
    try:
        with one.locked():
            gone = one.folder.with_name(f"{GONE}{one.id}")
            one.folder.rename(gone)  # atomic: no other process sees a part of the record
    except BlockingIOError:
        return False
    shutil.rmtree(gone)
    return True


def document_of(path: Path) -> dict[str, Any] | None:
    """Return a document of a record; None if it is missing or damaged."""
    try:
        document = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def read_events(path: Path) -> list[Record]:
    """Return the events of a record, without damaged lines; empty if the file is missing."""
    try:
        events, _, _ = parse(path.read_bytes(), sealed=False)
    except OSError:
        return []
    return [event for event in events if isinstance(event.get("event"), str)]


def _read(path: Path) -> Record:
    """Return a document of a job's directory; for a damaged document, only the reason."""
    try:
        document = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        return {"schema": SCHEMA, "id": path.parent.name, "state": "failed", "hosts": [],
                "rows": [], "epoch": 0, "iteration": 0, "last_resize": None, "name": "",
                "reason": f"{path.name} cannot be read: {error}", "exit_code": 4}  # fmt: skip
    return document if isinstance(document, dict) else {}
