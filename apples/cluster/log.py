"""The log of a live scheduler: what it has decided is on the disk before anybody hears of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from apples.cluster.live_job import LiveJob
from apples.cluster.state import Record, SchedulerState, submitted_record
from apples.errors import LaunchError, unusable
from apples.io import documents
from apples.io.folder import Folder, check_private
from apples.io.journal import Journal, parse

SCHEMA: Final = "apples.scheduler-log/1"
JOURNAL: Final = "journal"
HISTORY: Final = "history-"
"""What the names of files begin with that have jobs which are over, a line each, as their last record."""
SPARE_LINES: Final = 2000
"""The log is written anew when it has more lines than twice its state's, and these."""


class SchedulerLog:
    """The journal in the directory of a scheduler, which holds the directory's lock.

    Raises
    ------
    LaunchError
        Another scheduler works on this directory.
    UsageError
        Others can write to it: they would choose what this user runs. Permanent.
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
        self._moving = False  # jobs went to the history since the state was last written whole

    @classmethod
    def open(cls, directory: Path) -> SchedulerLog:
        """Open the log of a directory, which is made if need be."""
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = Folder.open(directory, links=True)
            check_private(folder)
            return cls(folder)
        except OSError as error:
            raise unusable(str(directory), error) from None

    def recover(self) -> tuple[SchedulerState, list[str]]:
        """Return the state that the log has, and what is wrong with the log, one line each.

        Raises
        ------
        LaunchError
            It cannot be read, or is another program's.
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
        """Return the state that is on the disk now; nothing is changed.

        Raises
        ------
        LaunchError
            It cannot be read. Transient.
        """
        return read_state(self._folder)

    def commit(self, records: Sequence[Record], state: SchedulerState) -> None:
        """Have records be on the disk under one sync; where a file failed or jobs were moved, the whole state.

        Raises
        ------
        JournalError
            They are not. Transient: the next call writes the whole state.
        """
        if self.whole and self._journal.lines + len(records) <= self._least:
            self._journal.append(*records)
        else:
            self.rewrite(state)

    def rewrite(self, state: SchedulerState, *more: Record) -> None:
        """Have the log be this state, more records, and nothing else; all or nothing."""
        self._journal.rewrite([*state.records(), *more])
        self._moving = False
        self._least = 2 * self._journal.lines + SPARE_LINES

    def archive(self, jobs: Sequence[LiveJob]) -> None:
        """Have jobs that are over in a file of the history, named by the first of them; all or nothing.

        The next commit writes the whole state, also where this fails.
        """
        self._moving = True
        name = f"{HISTORY}{jobs[0].number:09d}.jsonl"
        history = Journal(self._folder, "", name)
        history.rewrite([submitted_record(job) for job in jobs])
        history.close()

    def history(self) -> list[LiveJob]:
        """Return the jobs of the history's files, as `read_history`."""
        return read_history(self._folder)

    @property
    def whole(self) -> bool:
        """Whether the last that was written is on the disk."""
        return self._journal.whole and not self._moving

    def close(self) -> None:
        """Give file and directory back, and with it the lock."""
        self._journal.close()
        self._folder.close()


def read_state(folder: Folder) -> SchedulerState:
    """Return the state that the log in a folder has, whoever works on it.

    Raises
    ------
    LaunchError
        It cannot be read. Transient.
    """
    try:
        records, _, _ = parse(folder.read(JOURNAL))
    except OSError as error:
        raise unusable(folder.name, error) from None
    return folded(records)[0]


def read_history(folder: Folder) -> list[LiveJob]:
    """Return the jobs of the history's files in a folder; a file or line that is damaged is left out."""
    found: dict[int, LiveJob] = {}
    for name in folder.names():
        if name.startswith(HISTORY):
            with contextlib.suppress(OSError):
                records, _, _ = parse(folder.read(name), sealed=False)
                found |= folded(records)[0].jobs
    return [found[number] for number in sorted(found)]


def folded(records: Iterable[Record]) -> tuple[SchedulerState, list[str]]:
    """Return the state that records make, and which of them cannot be read."""
    state, problems = SchedulerState(), list[str]()
    for record in records:
        try:
            state.apply(record)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            problems.append(f"a record that cannot be read: {type(error).__name__}: {error}"[:300])
    return state, problems
