"""The ranks of an unmodified MPI program: their MPI library, and the orders and answers in shared files.

The library (`movable_mpi.c`) replaces the MPI library with which the program was linked. It can close its sockets
while no message is in flight and open them again on another host, so that each rank can be checkpointed like any
sequential program. It communicates with the job's manager only by files in a folder that all hosts share.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("movable_mpi.c")
LIBRARY = "libmpi.so.12"
"""Name of the MPI library in programs with MPICH's binary interface."""
OUTSIDE = "outside_mpi.c"
RANKS_FOLDER = "mpi"
"""Subfolder of the job's folder that its ranks share."""
COMPILE_SECONDS = 120.0
FUNCTION = re.compile(r"^(?:int|double|MPI_\w+) (MPI_\w+)\(", re.MULTILINE)
DEFINED = re.compile(r"\b(?:API|double) (MPI_\w+)\(")
TWICE = re.compile(r"\bAPI NAMED\((MPI_\w+), S\)")
MADE = re.compile(r"^(?:EXTENT|COUNTING)\((MPI_\w+),", re.MULTILINE)


class NoLibrary(Exception):  # noqa: N818 - nothing is wrong with the program
    """The library cannot be built here; the argument is the reason, `code` names the condition."""

    def __init__(self, message: str, code: str = "library-not-built") -> None:
        super().__init__(message)
        self.code = code


def movable_functions() -> frozenset[str]:
    """Return the names of the MPI functions that a movable program may call."""
    source = SOURCE.read_text(encoding="utf-8")
    twice = {name + suffix for name in TWICE.findall(source) for suffix in ("", "_c")}
    return frozenset(DEFINED.findall(source)) | frozenset(MADE.findall(source)) | twice


def include_folder() -> Path:
    """Return the folder of MPICH's header.

    Raises
    ------
    NoLibrary
        The header is missing in the installations of mpicc and of this interpreter.
    """
    wrapper = shutil.which("mpicc")
    places = [Path(sys.prefix), *([Path(wrapper).resolve().parent.parent] if wrapper else [])]
    for place in places:
        if (place / "include/mpi_proto.h").is_file():
            return place / "include"
    searched = ", ".join(str(place / "include") for place in places)
    raise NoLibrary(f"no header of MPICH (mpi.h, mpi_proto.h) in {searched}", "mpi-header-missing")


def build_library(folder: Path, include: Path | None = None) -> Path:
    """Compile the library into `folder`, with a stub for each unsupported function; return its path.

    Raises
    ------
    NoLibrary
        The C compiler or MPICH's header is missing, or the library does not compile.
    """
    include = include or include_folder()
    functions = set(FUNCTION.findall((include / "mpi_proto.h").read_text(encoding="utf-8")))
    outside = sorted(functions - movable_functions())
    stub = 'int {0}(void) {{ return apples_outside("{0}"); }}\n'
    with tempfile.TemporaryDirectory(prefix="apples-") as work:
        stubs, made = Path(work, OUTSIDE), Path(work, LIBRARY)
        stubs.write_text(
            "int apples_outside(const char *);\n" + "".join(stub.format(name) for name in outside),
            encoding="utf-8",
        )
        # The program and its libraries load a library of this name, and so get this one.
        flags = ["-std=gnu11", "-O2", "-fPIC", "-shared", f"-Wl,-soname,{LIBRARY}"]
        command = ["cc", *flags, f"-I{include}", "-o", str(made), str(SOURCE), str(stubs)]
        try:
            ran = subprocess.run(
                command, capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NoLibrary(
                f"the MPI library for movable programs cannot be compiled: {error}"
            ) from None
        if ran.returncode:
            first = next((one for one in ran.stderr.splitlines() if "error" in one), ran.stderr)
            raise NoLibrary(
                f"the MPI library for movable programs does not compile: {first[:300]}"
            )
        shutil.copy(made, folder / LIBRARY)
    return folder / LIBRARY


def functions_outside(program: str, directory: Path) -> list[str]:
    """Return the unsupported MPI functions in a compiled program, which make it unmovable.

    For a script the list is empty: its interpreter loads MPI later.
    """
    found = shutil.which(
        program, path=f"{directory}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    )
    if found is None or shutil.which("nm") is None:
        return []
    command = ["nm", "--dynamic", "--undefined-only", "--format=just-symbols", found]
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False
    )
    wanted = {line.partition("@")[0] for line in ran.stdout.splitlines()}
    called = {name for name in wanted if re.match(r"P?MPI_[A-Z]", name)}
    return sorted(called - movable_functions())


class RankFolder:
    """The files through which the ranks of a program get orders and report (`movable_mpi.c`).

    Attributes
    ----------
    folder
        Folder on a file system that all hosts share; only the user may read it.
    ranks
        Number of ranks.
    epoch
        Number of reconnections of the ranks.
    """

    def __init__(self, folder: Path, ranks: int) -> None:
        self.folder, self.ranks = folder, ranks
        self.epoch = self._tries = 0

    def open(self, addresses: Sequence[str]) -> None:
        """Prepare the folder for ranks at these addresses, in rank order."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._write("key", secrets.token_hex(16))
        self.go(addresses)

    def environment(self, rank: int) -> dict[str, str]:
        """Return the environment by which a rank finds the folder and the library."""
        return {
            "APPLES_MPI": str(self.folder),
            "APPLES_MPI_RANK": str(rank),
            "APPLES_MPI_SIZE": str(self.ranks),
            "LD_PRELOAD": str(self.folder / LIBRARY),
        }

    def order(self, word: str) -> None:
        """Order all ranks to be ``ready``, or ranks that are ready to ``stop``."""
        self._tries += word == "ready"
        self._write("order", f"{self.epoch + 1} {self._tries} {word}\n")
        self.epoch += word == "stop"  # the ranks need a new connection from here on

    def withdraw(self) -> None:
        """Withdraw the order to be ready."""
        (self.folder / "order").unlink(missing_ok=True)

    def go(self, addresses: Sequence[str]) -> None:
        """Order the ranks to reconnect at these addresses, in rank order."""
        self._write(f"go.{self.epoch}", "".join(f"{one}\n" for one in addresses))

    def ready(self) -> dict[int, list[int]]:
        """Return the ranks that are ready, with the file descriptors of their sockets."""
        return {
            rank: [int(word) for word in text.split()]
            for rank, text in self._said(f"ready.{self._tries}").items()
        }

    def stopped(self) -> dict[int, list[int]]:
        """Return the ranks that have closed all sockets, each with an empty list."""
        return {rank: [] for rank in self._said(f"stopped.{self.epoch}")}

    def connected(self) -> dict[int, list[int]]:
        """Return the ranks that have reconnected to all others, each with an empty list."""
        return {rank: [] for rank in self._said(f"connected.{self.epoch}")}

    def _said(self, name: str) -> dict[int, str]:
        return dict(self._texts(name))

    def _texts(self, name: str) -> Iterator[tuple[int, str]]:
        for rank in range(self.ranks):
            try:
                yield rank, (self.folder / f"{name}.{rank}").read_text(encoding="ascii")
            except FileNotFoundError:
                continue

    def _write(self, name: str, text: str) -> None:
        """Write a file atomically."""
        fresh = self.folder / f"{name}.new"
        fresh.write_text(text, encoding="ascii")
        fresh.replace(self.folder / name)


WORDS = {
    "ready": "made no MPI call in",
    "stop": "did not stop in",
    "go": "did not connect to the others in",
}


class AwaitedRanks:
    """The answer to a request to all ranks: available once each has answered, or after the time limit.

    Parameters
    ----------
    word
        The awaited state of all ranks: ``ready``, stopped (``stop``), or connected (``go``).
    """

    def __init__(self, ranks: RankFolder, word: str, seconds: float) -> None:
        self._ranks, self._word, self._seconds = ranks, word, seconds
        self._begun = time.monotonic()

    def answer(self) -> dict[str, Any] | None:
        """Return the answer, in the form of a supervisor's; None until it is available."""
        said = {
            "ready": self._ranks.ready,
            "stop": self._ranks.stopped,
            "go": self._ranks.connected,
        }[self._word]()
        passed = time.monotonic() - self._begun
        missing = [rank for rank in range(self._ranks.ranks) if rank not in said]
        if not missing:
            return {"report": self._word, "seconds": passed, "sockets": said}
        if passed <= self._seconds:
            return None
        late = ", ".join(f"rank {rank}" for rank in missing)
        return {"report": "late", "reasons": [f"{late} {WORDS[self._word]} {self._seconds:g} s"]}
