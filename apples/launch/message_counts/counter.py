"""Count the messages between the ranks of an unmodified MPI program.

A library (`count_messages.c`) is compiled with MPI's own compiler wrapper on first use, and loaded into every rank
before the MPI library. Each rank keeps its counts in a memory-mapped file that other processes may read at any
time. A message costs two additions, and reading costs the rank nothing.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
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
from typing import NamedTuple

from apples.errors import LaunchError
from apples.io import state
from apples.launch.message_counts.on_host import (
    COMPILER_FLAGS,
    FOLDER,
    LIBRARY,
    digest_of,
    mpi_library,
)
from apples.topology.message_matrix import CountedRank, MessageMatrix

SOURCE = Path(__file__).with_name("count_messages.c")
COMPILE_SECONDS = 120.0
MAGIC = 0x31474E49544E5543
HEADER = struct.Struct("=QQQQIIII64s")
DESTINATION = struct.Struct("=QQQ")
WORLD_BITS = 24
SEPARATORS = " :\t\n"
"""Characters that end a name in LD_PRELOAD; they cannot be quoted."""
MAX_FILES = 4096
MAX_BYTES = 1 << 26
"""Maximum size of a rank's file of counts."""


@dataclass(frozen=True, slots=True)
class MessageCounts:
    """The files in which the ranks of a program count their messages, and the library that counts.

    Attributes
    ----------
    folder
        Existing folder of the ranks' files.
    library
        The counting library (`counting_library`).
    """

    folder: Path
    library: Path

    @classmethod
    def into(cls, folder: Path | None = None) -> MessageCounts:
        """Return counts in a folder, which is created if needed; None: a temporary folder.

        Call `discard` after the last `read`.

        Raises
        ------
        LaunchError
            As in `counting_library`.
        """
        library = counting_library()
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="apples-messages-"))
        folder.mkdir(mode=0o700, exist_ok=True)
        return cls(folder, library)

    def carried(self) -> Mapping[str, str]:
        """Return the data for counting on another machine: the library, its MPI library, and its source."""
        mpi = mpi_library(sys.executable)
        return {
            "library": base64.b64encode(self.library.read_bytes()).decode(),
            "mpi": mpi,
            "fits": digest_of(mpi),
            "source": SOURCE.read_text("utf-8"),
        }

    def take(self, data: bytes) -> None:
        """Store the counts of a rank on another machine; they replace its earlier counts.

        Data that is not a rank's file is ignored, and so is a new rank above `MAX_FILES` files.
        """
        if not HEADER.size <= len(data) <= MAX_BYTES:
            return
        magic, identity = struct.unpack_from("=QQ", data)
        path = self.folder / f"{identity:016x}"
        if magic != MAGIC:
            return
        fresh = self.folder / f".{path.name}"
        # The disk may be full; the run goes on without these counts. Or the run is over and its folder is gone.
        with contextlib.suppress(OSError):
            if not path.exists() and sum(1 for _ in self.folder.iterdir()) >= MAX_FILES:
                return
            fresh.write_bytes(data)
            fresh.replace(path)

    def discard(self) -> None:
        """Remove the files of the ranks."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def environment(self) -> Mapping[str, str]:
        """Return the environment variables that make a rank count."""
        return {FOLDER: str(self.folder), LIBRARY: str(self.library)}

    def read(self, hosts: Sequence[str] = ()) -> MessageMatrix:
        """Return the counts so far; may be called while the program runs.

        Parameters
        ----------
        hosts
            Order of hosts in the matrix: the worlds of these hosts come first, then all others by their start.
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
        """Yield the identity and counts of each rank; other files are skipped."""
        for path in sorted(self.folder.iterdir())[:MAX_FILES]:
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
    """Return the contents of a rank's file; None if it is another file, or is not ready."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        about = os.fstat(handle)
        if not HEADER.size <= about.st_size <= MAX_BYTES:
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
    """Return the worlds in order: first the worlds of `hosts`, in that order, then by start time."""
    first: dict[int, tuple[int, int]] = {}
    for identity, table in sorted(tables.items()):
        place = hosts.index(table.host) if table.host in hosts else len(hosts)
        first.setdefault(identity >> WORLD_BITS, (place, table.began))
    return sorted(first, key=lambda world: (first[world], world))


def counting_library() -> Path:
    """Return the path of the counting library; compile it first if needed, with the ``mpicc`` of this interpreter.

    Raises
    ------
    LaunchError
        ``mpicc`` or the compiler is missing, or the compilation failed. Permanent.
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
        # The wrapper links the MPI library. mpi4py loads MPI with local symbols (RTLD_LOCAL), so the profiling
        # names would not be found otherwise.
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
    """Return an identifier of the MPI version of a compiler wrapper: size and time of its header file."""
    header = wrapper.parent.parent / "include" / "mpi.h"
    try:
        about = header.stat()
    except OSError:
        return b""
    return f"{about.st_size} {about.st_mtime_ns}".encode()
