"""The log of a live scheduler: its decisions are on the disk before they leave it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from apples.cluster.history import JobHistory, Requests
from apples.cluster.live_job import LiveJob
from apples.cluster.state import Record, SchedulerState
from apples.errors import LaunchError, unusable
from apples.io import documents
from apples.io.folder import MAX_FILE_BYTES, Folder, check_private
from apples.io.journal import Journal, JournalError, parse

SCHEMA: Final = "apples.scheduler-log/1"
JOURNAL: Final = "journal"
HISTORY: Final = "history-"
"""Start of the names of files in which versions before 0.3 kept ended jobs, a line each."""
SPARE_LINES: Final = 2000
"""The log is rewritten when it has more lines than twice those of its state plus this number."""
MAX_BYTES: Final = 56 << 20
"""The log is rewritten above this size: a file of more than 64 MiB cannot be read."""


class SchedulerLog:
    """The journal in the directory of a scheduler, which holds the directory's lock.

    Raises
    ------
    LaunchError
        Another scheduler works on this directory.
    UsageError
        Other users can write to it, and could choose the programs that this user runs. Permanent.
    """

    def __init__(self, folder: Folder) -> None:
        if not documents.lock(folder.descriptor, 0.0):
            raise LaunchError(
                f"{folder.name}: another scheduler works on this directory",
                code="scheduler-running", file=folder.name,
            )  # fmt: skip
        self._folder = folder
        self._journal = Journal(folder, SCHEMA, JOURNAL)
        self._least = SPARE_LINES
        self.history = JobHistory(Path(folder.name))

    @classmethod
    def open(cls, directory: Path) -> SchedulerLog:
        """Open the log of a directory; create the directory if it does not exist."""
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = Folder.open(directory, links=True)
            check_private(folder)
            return cls(folder)
        except OSError as error:
            raise unusable(str(directory), error) from None

    def recover(self) -> tuple[SchedulerState, list[str]]:
        """Return the state in the log, and the defects of the log, one line each.

        Raises
        ------
        LaunchError
            The log cannot be read, or belongs to another program.
        """
        try:
            found = self._journal.recover()
        except OSError as error:
            raise unusable(self._folder.name, error) from None
        state, problems = folded(found.records)
        problems = [*found.problems, *problems]
        self._least = 2 * len(state.jobs) + SPARE_LINES
        return state, problems

    def read(self) -> SchedulerState:
        """Return the state that is on the disk now; change nothing.

        Raises
        ------
        LaunchError
            The log cannot be read. Transient.
        """
        return read_state(self._folder)

    def commit(self, records: Sequence[Record], state: SchedulerState) -> None:
        """Append records under one sync; after a failure, or if the log is too long, write the whole state.

        Raises
        ------
        JournalError
            Nothing was written. Transient: the next call writes the whole state.
        """
        fits = self._journal.lines + len(records) <= self._least
        if self.whole and fits and self._journal.bytes < MAX_BYTES:
            self._journal.append(*records)
        else:
            self.rewrite(state)

    def rewrite(self, state: SchedulerState, *more: Record) -> None:
        """Replace the log by the records of this state and more records, all or nothing."""
        self._journal.rewrite([*state.records(), *more])
        self._least = 2 * self._journal.lines + SPARE_LINES

    def archive(self, jobs: Sequence[LiveJob], name: str, wall: float, requests: Requests) -> None:
        """Store ended jobs in the history, as `JobHistory.add`."""
        self.history.add(jobs, name, wall, requests)

    def import_history(self, name: str, wall: float) -> list[str]:
        """Store the jobs of an earlier version's files in the history, then rename each file that was read.

        Return the failures, one line each.
        """
        found, files, problems = read_history(self._folder)
        if files:
            try:
                self.history.add(found, name, wall, {})
                for file in files:
                    self._folder.rename(file, f"{file}.imported")
            except (OSError, JournalError) as error:
                problems.append(f"{error}; the files {HISTORY}* are read at the next start")
        return problems

    @property
    def whole(self) -> bool:
        """Whether the last write reached the disk."""
        return self._journal.whole

    def close(self) -> None:
        """Close the files and release the lock of the directory."""
        self._journal.close()
        self.history.close()
        self._folder.close()


def read_state(folder: Folder) -> SchedulerState:
    """Return the state in the log of a folder, also while a scheduler works on it.

    Raises
    ------
    LaunchError
        The log cannot be read. Transient.
    """
    try:
        records, _, _ = parse(folder.read(JOURNAL))
    except OSError as error:
        raise unusable(folder.name, error) from None
    return folded(records)[0]


def read_history(folder: Folder) -> tuple[list[LiveJob], list[str], list[str]]:
    """Return the jobs in an earlier version's history files, the names of the files read, and the failures."""
    found, files, problems = dict[int, LiveJob](), list[str](), list[str]()
    for name in folder.names():
        if name.startswith(HISTORY) and name.endswith(".jsonl"):
            try:
                data = folder.read(name)
            except OSError as error:
                problems.append(
                    f"{folder.name}/{name}: {error.strerror or error}; its jobs are not in the history"
                )
                continue
            records, damaged, _ = parse(data, sealed=False)
            state, unknown = folded(records)
            problems += [f"{folder.name}/{name}.imported: {one}" for one in [*damaged, *unknown]]
            if len(data) >= MAX_FILE_BYTES:
                problems.append(
                    f"{folder.name}/{name}.imported: only its first {MAX_FILE_BYTES} bytes were read"
                )
            found |= state.jobs
            files.append(name)
    return [found[number] for number in sorted(found)], files, problems


def folded(records: Iterable[Record]) -> tuple[SchedulerState, list[str]]:
    """Apply records to an empty state; return it with a line for each invalid record."""
    state, problems = SchedulerState(), list[str]()
    for record in records:
        try:
            state.apply(record)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            problems.append(f"a record that cannot be read: {type(error).__name__}: {error}"[:300])
    return state, problems
