"""`MessageMatrix`: messages and bytes from each rank to each: declared, of exchanged arrays, or counted.

`--messages` names a file with a matrix: the document of a run, or rows of numbers.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast, overload

from apples.errors import UsageError, coded
from apples.ui.units import counted

if TYPE_CHECKING:
    from apples.topology import documents

MAX_READ = 1 << 23
"""Bytes of a ``--messages`` file. A run of 256 ranks has 4 MB; a hostile file of 8 MB takes 250 MB of memory."""
MAX_RANKS_SHOWN = 256
"""Ranks up to which the document includes the matrix of ranks; a larger matrix is unreadable."""

MAX_COUNT = 1 << 62
"""Upper bound of the bytes, or messages, of a rank."""

NUMBERS = b"0123456789+-.#"
"""First characters of a file with rows of numbers."""

Bytes = bytes
"""`bytes`, where an attribute of that name hides it."""
Matrix = tuple[tuple[int, ...], ...]


class CountedRank(NamedTuple):
    """A rank of a program. A job that was resized has a rank for each world it had on a host.

    Attributes
    ----------
    host
        Its host.
    world
        Number of its MPI_COMM_WORLD, in the order of the plan's hosts and, on one host, of their start.
    rank
        Number in that world.
    """

    host: str
    world: int
    rank: int


@dataclass(frozen=True, slots=True)
class MessageMatrix:
    """Messages and bytes from each rank to each.

    Attributes
    ----------
    ranks
        The ranks, in the order of worlds and rank numbers.
    bytes, messages
        Row: sender; column: receiver.
    missed
        Messages with an unknown receiver: of worlds that were not connected by a merge.
    source
        Origin of the numbers: ``declared``, ``arrays`` or ``counted``.
    """

    ranks: tuple[CountedRank, ...]
    bytes: Matrix
    messages: Matrix
    missed: int = 0
    source: str = "counted"

    @classmethod
    def declared(
        cls, ranks: Sequence[tuple[str, int]], sent: float, messages: float
    ) -> MessageMatrix:
        """Return the messages of ranks in a row that exchange borders with their two neighbours.

        Parameters
        ----------
        ranks
            The hosts in the order of their ranks, each with its number of ranks.
        sent, messages
            Bytes and messages of each border in each direction.

        Examples
        --------
        >>> MessageMatrix.declared([("ada", 2), ("bob", 1)], 8.0, 2.0).bytes
        ((0, 8, 0), (8, 0, 8), (0, 8, 0))
        """
        hosts = [host for host, count in ranks for _ in range(count)]
        everyone = tuple(CountedRank(host, 0, rank) for rank, host in enumerate(hosts))

        def chain(value: float) -> Matrix:
            places = range(len(hosts))
            return tuple(tuple(round(value) * (abs(a - b) == 1) for b in places) for a in places)

        return cls(everyone, chain(sent), chain(messages), source="declared")

    @classmethod
    def of_run(cls, path: Path) -> MessageMatrix:
        """Return the messages of a run, from a file, as `parse` does."""
        try:
            with path.open("rb") as file:
                text = file.read(MAX_READ + 1)
        except OSError as error:
            raise UsageError(
                f"--messages: {path}: {error.strerror}",
                code="file-missing" if isinstance(error, FileNotFoundError) else "file-unreadable",
                option="--messages",
                file=path,
            ) from None
        return cls.parse(text, path)

    @classmethod
    def parse(cls, text: Bytes, path: Path) -> MessageMatrix:
        r"""Return the messages of a run, from its document (``apples.run/1``) or from rows of byte counts.

        Raises
        ------
        UsageError
            The text is neither, the run was moved, its ranks were too many to be listed, or the document has no
            matrix of its ranks. Permanent.

        Examples
        --------
        >>> MessageMatrix.parse(b"0,8 # from rank 0\n8 0", Path("talk.txt")).bytes
        ((0, 8), (8, 0))
        """
        if len(text) > MAX_READ:
            raise UsageError(
                f"--messages: {path}: is longer than {MAX_READ} bytes",
                code="file-too-large",
                option="--messages",
                file=path,
                bound=MAX_READ,
            )
        if (first := text.lstrip()[:1]) and first in NUMBERS:
            return cls._rows(text.decode(errors="replace"), path)
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            document = None
        execution = document.get("execution") if isinstance(document, dict) else None
        if not isinstance(execution, dict):
            raise UsageError(
                f"--messages: {path}: is no document of a run (apples run --json), nor rows of numbers",
                code="file-invalid",
                option="--messages",
                file=path,
            )
        if execution.get("moved"):
            raise UsageError(
                f"--messages: {path}: the run changed its hosts, so its ranks belong to several plans",
                code="run-moved",
                option="--messages",
                file=path,
            )
        return cls.of_messages(execution.get("messages"), path)

    @classmethod
    def _rows(cls, text: str, path: Path) -> MessageMatrix:
        rows: dict[int, tuple[int, ...]] = {}
        for line, content in enumerate(io.StringIO(text, newline=None), 1):
            words = content.partition("#")[0].replace(",", " ").split(None, MAX_RANKS_SHOWN)
            if len(words) > MAX_RANKS_SHOWN or (words and len(rows) == MAX_RANKS_SHOWN):
                raise UsageError(
                    f"--messages: {path}:{line}: is of more than {MAX_RANKS_SHOWN} ranks",
                    code="too-many-ranks",
                    option="--messages",
                    file=path,
                    line=line,
                    bound=MAX_RANKS_SHOWN,
                )
            if words:
                rows[line] = tuple(_count(word, path, line) for word in words)
        if not rows:
            raise UsageError(
                f"--messages: {path}: has no row of numbers",
                code="file-empty",
                option="--messages",
                file=path,
            )
        for line, row in rows.items():
            if len(row) != len(rows):
                raise UsageError(
                    f"--messages: {path}:{line}: has {counted(len(row), 'number')}, and the file "
                    f"{counted(len(rows), 'row')}: must be as many",
                    code="matrix-size-invalid",
                    option="--messages",
                    file=path,
                    line=line,
                    value=len(row),
                    needed=len(rows),
                )
        ranks = tuple(CountedRank("", 0, rank) for rank in range(len(rows)))
        return cls(ranks, tuple(rows.values()), ((0,) * len(rows),) * len(rows), source="declared")

    @classmethod
    def of_messages(cls, found: Any, path: Path) -> MessageMatrix:
        """Return the matrix of a document's ``execution.messages``; `path` names the file in an error.

        Raises
        ------
        UsageError
            It has no ranks, or no matrix of the ranks. Permanent.
        """
        if not isinstance(found, dict) or not isinstance(found.get("ranks"), list):
            raise UsageError(
                f"--messages: {path}: execution.messages names no ranks; run it with --count-messages",
                code="field-missing",
                option="--messages",
                file=path,
                field="execution.messages.ranks",
            )
        named = found["ranks"][: MAX_RANKS_SHOWN + 1]
        if not 0 < len(named) <= MAX_RANKS_SHOWN:
            raise UsageError(
                f"--messages: {path}: execution.messages.ranks must be 1 to {MAX_RANKS_SHOWN} ranks",
                code="value-range",
                option="--messages",
                file=path,
                field="execution.messages.ranks",
                bound=MAX_RANKS_SHOWN,
            )
        try:
            ranks = tuple(
                CountedRank(str(one["host"]), int(one["world"]), int(one["rank"])) for one in named
            )
        except (TypeError, KeyError, ValueError, OverflowError):
            raise UsageError(
                f"--messages: {path}: each of execution.messages.ranks must have host, world and rank",
                code="value-invalid",
                option="--messages",
                file=path,
                field="execution.messages.ranks",
            ) from None
        matrices = [
            _matrix(found, name, len(ranks), path) for name in ("rank_bytes", "rank_messages")
        ]
        return cls(ranks, matrices[0], matrices[1], source=str(found.get("source"))[:16])

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts, each once, in the order of their ranks."""
        return tuple(dict.fromkeys(one.host for one in self.ranks))

    def by_host(self, matrix: Matrix) -> Matrix:
        """Return a matrix of ranks as a matrix of hosts; the diagonal holds the traffic inside a host.

        Examples
        --------
        >>> two = (CountedRank("ada", 0, 0), CountedRank("ada", 0, 1), CountedRank("bob", 0, 2))
        >>> both = MessageMatrix(two, ((0, 1, 0), (2, 0, 4), (0, 8, 0)), ((0,) * 3,) * 3)
        >>> both.by_host(both.bytes)
        ((3, 4), (8, 0))
        """
        place = {host: number for number, host in enumerate(self.hosts)}
        sums = [[0] * len(place) for _ in place]
        for one, row in zip(self.ranks, matrix, strict=True):
            for other, value in zip(self.ranks, row, strict=True):
                sums[place[one.host]][place[other.host]] += value
        return tuple(map(tuple, sums))

    def document(self) -> documents.Messages:
        """Return ``execution.messages`` of ``apples.run/1``."""
        shown = len(self.ranks) <= MAX_RANKS_SHOWN
        return {
            "source": cast('Literal["declared", "arrays", "counted"]', self.source),
            "hosts": list(self.hosts),
            "bytes": [list(row) for row in self.by_host(self.bytes)],
            "messages": [list(row) for row in self.by_host(self.messages)],
            "missed": self.missed,
            "ranks": [
                {"host": one.host, "world": one.world, "rank": one.rank} for one in self.ranks
            ]
            if shown
            else None,
            "rank_bytes": [list(row) for row in self.bytes] if shown else None,
            "rank_messages": [list(row) for row in self.messages] if shown else None,
        }


def _count(word: str, path: Path, line: int) -> int:
    """Return a byte count of a row, rounded to an integer; `UsageError` for an invalid number."""
    try:
        count = round(float(word))
    except (ValueError, OverflowError):
        count = -1
    if not 0 <= count < MAX_COUNT:
        raise UsageError(
            f"--messages: {path}:{line}: must be a number of bytes (is {word[:40]!r})",
            code="value-invalid",
            option="--messages",
            file=path,
            line=line,
            value=word[:40],
        )
    return count


def _matrix(found: Mapping[str, Any], name: str, size: int, path: Path) -> Matrix:
    """Return a square matrix of counts of a document; `UsageError` for another value."""
    rows: Any = found.get(name)
    lengths = (
        [len(row) if isinstance(row, list) else -1 for row in rows]
        if isinstance(rows, list)
        else []
    )
    if lengths != [size] * size or any(
        type(n) is not int or not 0 <= n < MAX_COUNT for row in rows for n in row
    ):
        raise UsageError(
            f"--messages: {path}: execution.messages.{name} must be {size} x {size} counts",
            code="matrix-size-invalid" if lengths != [size] * size else "value-invalid",
            option="--messages",
            file=path,
            field=f"execution.messages.{name}",
            needed=size,
        )
    return tuple(map(tuple, rows))


@overload
def messages_of(run: str) -> Path: ...


@overload
def messages_of(run: str | None) -> Path | None: ...


def messages_of(run: str | None) -> Path | None:
    """Return the path of a run's document that ``--messages`` names: a file, or the result of a record.

    Raises
    ------
    UsageError
        No such file or record exists, or it cannot be read.
    """
    if run is None:
        return None
    try:
        if Path(run).is_file():
            return Path(run)
    except OSError as error:
        raise UsageError(
            f"--messages: {run[:200]}: {error.strerror}",
            code="file-unreadable",
            option="--messages",
            file=run[:200],
        ) from None
    from apples.io import record_folders  # noqa: PLC0415 - for the id of a record only

    try:
        return record_folders.named(run) / record_folders.RESULT
    except UsageError as error:
        raise UsageError(
            f"--messages: no file of that name, and {error}",
            **{**coded(error), "option": "--messages"},
        ) from None
