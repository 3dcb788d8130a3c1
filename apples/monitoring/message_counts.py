"""Which rank sends which how much: counted in a running MPI program that knows nothing of it.

A library (`count_messages.c`) is compiled with the MPI's own wrapper when it is first wanted, and loaded into
every rank before the MPI library. Each rank keeps its counts in a file that it shares with whoever looks, also
while it runs: a message costs two additions, and reading costs the rank nothing.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import mmap
import os
import shutil
import struct
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from apples.errors import LaunchError, UsageError
from apples.storage import state
from apples.supervision.counting import COMPILER_FLAGS, FOLDER, LIBRARY, digest_of, mpi_library
from apples.units import counted

SOURCE = Path(__file__).with_name("count_messages.c")
COMPILE_SECONDS = 120.0
MAGIC = 0x31474E49544E5543
HEADER = struct.Struct("=QQQQIIII64s")
DESTINATION = struct.Struct("=QQQ")
WORLD_BITS = 24
SEPARATORS = " :\t\n"
"""What ends a name in LD_PRELOAD; nothing quotes it."""
MOST_FILES = 4096
MOST_BYTES = 1 << 26
"""Of the file of a rank's counts."""
MOST_READ = 1 << 23
"""Of a file that ``--messages`` names: a run of 256 ranks takes 4 MB, and what is hostile 250 MB of memory."""
MOST_RANKS_SHOWN = 256
"""Ranks up to which their own matrix is a part of the document: beyond it is more than anybody reads."""

MOST_COUNT = 1 << 62
"""No rank sends as many bytes, or messages."""

NUMBERS = b"0123456789+-.#"
"""With one of these a file of rows of numbers begins."""

Bytes = bytes
"""Beside an attribute of that name."""
Matrix = tuple[tuple[int, ...], ...]


class CountedRank(NamedTuple):
    """A rank of a program: of a job that was resized there is one for each world it had on a host.

    Attributes
    ----------
    host
        Where it runs, or ran.
    world
        Number of its MPI_COMM_WORLD: in the order of the plan's hosts, and on one host as they began.
    rank
        In that world.
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
        Who they are, in the order of worlds and ranks.
    bytes, messages
        Row: from; column: to.
    missed
        Messages whose receiver is not known: of worlds that met in another way than by a merge.
    source
        How it is known: ``declared``, ``arrays`` or ``counted``.
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
        """Return what ranks in a row send each other that exchange borders with the next and the one before.

        Parameters
        ----------
        ranks
            The hosts in the order of their ranks, each with how many it has.
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
                text = file.read(MOST_READ + 1)
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
        r"""Return the messages of a run, from its document (``apples.run/1``) or from rows of numbers of bytes.

        Raises
        ------
        UsageError
            It is neither, the run was moved or its ranks were too many to be listed, or the document has no matrix
            of its ranks. Permanent.

        Examples
        --------
        >>> MessageMatrix.parse(b"0,8 # from rank 0\n8 0", Path("talk.txt")).bytes
        ((0, 8), (8, 0))
        """
        if len(text) > MOST_READ:
            raise UsageError(
                f"--messages: {path}: is longer than {MOST_READ} bytes",
                code="file-too-large",
                option="--messages",
                file=path,
                bound=MOST_READ,
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
                f"--messages: {path}: the run was moved: its ranks are not those of one plan",
                code="run-moved",
                option="--messages",
                file=path,
            )
        return cls.of_messages(execution.get("messages"), path)

    @classmethod
    def _rows(cls, text: str, path: Path) -> MessageMatrix:
        rows: dict[int, tuple[int, ...]] = {}
        for line, content in enumerate(io.StringIO(text, newline=None), 1):
            words = content.partition("#")[0].replace(",", " ").split(None, MOST_RANKS_SHOWN)
            if len(words) > MOST_RANKS_SHOWN or (words and len(rows) == MOST_RANKS_SHOWN):
                raise UsageError(
                    f"--messages: {path}:{line}: is of more than {MOST_RANKS_SHOWN} ranks",
                    code="too-many-ranks",
                    option="--messages",
                    file=path,
                    line=line,
                    bound=MOST_RANKS_SHOWN,
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
            It has no ranks, or no matrix of them. Permanent.
        """
        if not isinstance(found, dict) or not isinstance(found.get("ranks"), list):
            raise UsageError(
                f"--messages: {path}: execution.messages names no ranks; run it with --count-messages",
                code="field-missing",
                option="--messages",
                file=path,
                field="execution.messages.ranks",
            )
        named = found["ranks"][: MOST_RANKS_SHOWN + 1]
        if not 0 < len(named) <= MOST_RANKS_SHOWN:
            raise UsageError(
                f"--messages: {path}: execution.messages.ranks must be 1 to {MOST_RANKS_SHOWN} ranks",
                code="value-range",
                option="--messages",
                file=path,
                field="execution.messages.ranks",
                bound=MOST_RANKS_SHOWN,
            )
        try:
            ranks = tuple(
                CountedRank(str(one["host"]), int(one["world"]), int(one["rank"])) for one in named
            )
        except (TypeError, KeyError, ValueError, OverflowError):
            raise UsageError(
                f"--messages: {path}: execution.messages.ranks must each say host, world and rank",
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
        """Return a matrix of ranks as one of hosts: between the ranks of a host in the diagonal.

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

    def document(self) -> dict[str, Any]:
        """Return ``execution.messages`` of ``apples.run/1``."""
        shown = len(self.ranks) <= MOST_RANKS_SHOWN
        return {
            "source": self.source,
            "hosts": list(self.hosts),
            "bytes": [list(row) for row in self.by_host(self.bytes)],
            "messages": [list(row) for row in self.by_host(self.messages)],
            "missed": self.missed,
            "ranks": [one._asdict() for one in self.ranks] if shown else None,
            "rank_bytes": [list(row) for row in self.bytes] if shown else None,
            "rank_messages": [list(row) for row in self.messages] if shown else None,
        }


def _count(word: str, path: Path, line: int) -> int:
    """Return a number of bytes of a row, to a whole one; `UsageError` where it is none."""
    try:
        count = round(float(word))
    except (ValueError, OverflowError):
        count = -1
    if not 0 <= count < MOST_COUNT:
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
    """Return a square of counts of a document; `UsageError` where it is none."""
    rows: Any = found.get(name)
    lengths = (
        [len(row) if isinstance(row, list) else -1 for row in rows]
        if isinstance(rows, list)
        else []
    )
    if lengths != [size] * size or any(
        type(n) is not int or not 0 <= n < MOST_COUNT for row in rows for n in row
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


@dataclass(frozen=True, slots=True)
class MessageCounts:
    """Where the ranks of a program count, and with what.

    Attributes
    ----------
    folder
        For their files; there already.
    library
        Which counts; see `counting_library`.
    """

    folder: Path
    library: Path

    @classmethod
    def into(cls, folder: Path | None = None) -> MessageCounts:
        """Return counts in a folder, made if need be, or in a temporary one; `discard` them when they were read.

        Raises
        ------
        LaunchError
            As of `counting_library`.
        """
        library = counting_library()
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="apples-messages-"))
        folder.mkdir(mode=0o700, exist_ok=True)
        return cls(folder, library)

    def carried(self) -> Mapping[str, str]:
        """Return by what another machine is to count: the library, the MPI that it fits, and its source."""
        mpi = mpi_library(sys.executable)
        return {
            "library": base64.b64encode(self.library.read_bytes()).decode(),
            "mpi": mpi,
            "fits": digest_of(mpi),
            "source": SOURCE.read_text("utf-8"),
        }

    def take(self, data: Bytes) -> None:
        """Keep what a rank of another machine has counted, in the place of what it had before.

        What is no file of a rank is passed over, and so is one more where there are very many.
        """
        if not HEADER.size <= len(data) <= MOST_BYTES:
            return
        magic, identity = struct.unpack_from("=QQ", data)
        path = self.folder / f"{identity:016x}"
        if magic != MAGIC:
            return
        fresh = self.folder / f".{path.name}"
        # Of a full disk: it counts, and nobody reads it. Or the run is over, and the folder with it.
        with contextlib.suppress(OSError):
            if not path.exists() and sum(1 for _ in self.folder.iterdir()) >= MOST_FILES:
                return
            fresh.write_bytes(data)
            fresh.replace(path)

    def discard(self) -> None:
        """Remove the files of the ranks."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def environment(self) -> Mapping[str, str]:
        """Return the variables that a rank counts by."""
        return {FOLDER: str(self.folder), LIBRARY: str(self.library)}

    def read(self, hosts: Sequence[str] = ()) -> MessageMatrix:
        """Return what was counted by now; may be called while the program runs.

        Parameters
        ----------
        hosts
            In which order the hosts of one world come; else in that of their first ranks.
        """
        tables = dict(self._tables())
        begun = {world: number for number, world in enumerate(_in_order(tables, hosts))}
        order = sorted(tables, key=lambda one: (begun[one >> WORLD_BITS], one))
        place = {identity: number for number, identity in enumerate(order)}
        size = len(order)
        sent = [[0] * size for _ in order]
        messages = [[0] * size for _ in order]
        missed = 0
        for identity, table in tables.items():
            missed += table.missed
            for other, count, amount in table.to:
                if other in place:
                    messages[place[identity]][place[other]] += count
                    sent[place[identity]][place[other]] += amount
                else:
                    missed += count
        ranks = tuple(
            CountedRank(tables[one].host, begun[one >> WORLD_BITS], tables[one].rank)
            for one in order
        )
        return MessageMatrix(ranks, tuple(map(tuple, sent)), tuple(map(tuple, messages)), missed)

    def _tables(self) -> Iterator[tuple[int, _Table]]:
        """Yield what each rank has counted; what is no such file is left out."""
        for path in sorted(self.folder.iterdir())[:MOST_FILES]:
            try:
                found = _read(path)
            except (OSError, ValueError, struct.error):
                continue
            if found is not None:
                yield found.identity, found


class _Table(NamedTuple):
    identity: int
    missed: int
    rank: int
    host: str
    began: int
    to: tuple[tuple[int, int, int], ...]


def _read(path: Path) -> _Table | None:
    """Return what is in a rank's file; None where it is none, or is not ready."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        about = os.fstat(handle)
        if not HEADER.size <= about.st_size <= MOST_BYTES:
            return None
        with mmap.mmap(handle, 0, prot=mmap.PROT_READ) as view:
            magic, identity, missed, began, rank, size, used, room, host = HEADER.unpack_from(view)
            end = HEADER.size + used * DESTINATION.size
            fits = used <= room and end <= about.st_size
            if magic != MAGIC or rank >= size or f"{identity:016x}" != path.name or not fits:
                return None
            to = tuple(DESTINATION.iter_unpack(view[HEADER.size : end]))
    finally:
        os.close(handle)
    name = host.partition(b"\0")[0].decode(errors="replace")
    return _Table(identity, missed, rank, name, began, to)


def _in_order(tables: Mapping[int, _Table], hosts: Sequence[str]) -> list[int]:
    """Return the worlds: those of hosts that were named first, in that order, then as they began."""
    first: dict[int, tuple[int, int]] = {}
    for identity, table in sorted(tables.items()):
        place = hosts.index(table.host) if table.host in hosts else len(hosts)
        first.setdefault(identity >> WORLD_BITS, (place, table.began))
    return sorted(first, key=lambda world: (first[world], world))


def counting_library() -> Path:
    """Return the library that counts, compiled with the wrapper beside this interpreter if it is not there yet.

    Raises
    ------
    LaunchError
        There is no such wrapper or no compiler, or it does not compile. Permanent.
    """
    wrapper = next(
        (
            place / "mpicc"
            for place in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts")))
            if os.access(place / "mpicc", os.X_OK)
        ),
        None,
    )
    if wrapper is None:
        raise LaunchError(
            f"--count-messages: no mpicc beside {sys.executable}: install the 'mpich' wheel there",
            code="mpi-missing",
            option="--count-messages",
            tool="mpicc",
        )
    source = SOURCE.read_bytes()
    key = hashlib.sha256(source + str(wrapper.resolve()).encode() + _version(wrapper)).hexdigest()
    folder = state.directory() / "libraries"
    if any(letter in str(folder) for letter in SEPARATORS):
        raise LaunchError(
            f"--count-messages: the loader takes a space or colon in '{folder}' for the end of a name: "
            "set XDG_STATE_HOME to a path without",
            code="directory-unusable",
            option="--count-messages",
            file=folder,
        )
    made = folder / f"count-messages-{key[:16]}.so"
    if made.is_file():
        return made
    folder.mkdir(mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="apples-", dir=folder) as work:
        fresh = Path(work, made.name)
        # The wrapper links the MPI library: mpi4py loads that library locally, where the profiling
        # names would not be found.
        command = [str(wrapper), *COMPILER_FLAGS, "-o", str(fresh)]
        try:
            ran = subprocess.run(
                [*command, str(SOURCE), "-lpthread"],
                capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise LaunchError(
                f"--count-messages: the counting library cannot be compiled: {error}",
                code="library-not-built",
                option="--count-messages",
            ) from None
        if ran.returncode:
            said = ran.stderr.splitlines()
            first = next((one for one in said if "error" in one or "not found" in one), "")
            raise LaunchError(
                f"--count-messages: {wrapper} does not compile the counting library: "
                f"{(first or ran.stderr)[:300]}",
                code="library-not-built",
                option="--count-messages",
                tool=str(wrapper),
                value=ran.returncode,
            )
        fresh.replace(made)
    return made


def _version(wrapper: Path) -> bytes:
    """Return something that differs where the MPI behind a wrapper does: its header's size and time."""
    header = wrapper.parent.parent / "include" / "mpi.h"
    try:
        about = header.stat()
    except OSError:
        return b""
    return f"{about.st_size} {about.st_mtime_ns}".encode()
