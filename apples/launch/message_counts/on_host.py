"""Counting the messages of ranks on another machine: the library there, and what its ranks have counted.

Standard library only: it travels with the supervisor of a run (`apples.launch.host_agent`). The files are those of
`apples.launch.message_counts.counter`.
"""

from __future__ import annotations

import binascii
import contextlib
import errno
import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

FOLDER, LIBRARY = "APPLES_COUNT_MESSAGES", "APPLES_COUNT_LIBRARY"
"""Variables of a rank: where its file goes, and what is loaded before its MPI library (`launch.rank_wrapper`)."""
COMPILER_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared")
COMPILE_SECONDS = 60.0
MAX_WORDS = 1 << 16
"""Bytes that are kept of what a compiler says."""
HEADER_BYTES, DESTINATION_BYTES = 112, 24
USED_AT = 40
"""Where the header of a rank's file says how many destinations it has."""
NAME_LETTERS = 16
"""Of a rank's file: hexadecimal digits, and nothing else in the folder of a run is of these alone."""
MAX_FILES, MAX_BYTES = 4096, (1 << 20) - 64


def mpi_library(python: str) -> str:
    """Return the MPI library that lies beside an interpreter; empty where none does."""
    place = os.path.join(os.path.dirname(os.path.dirname(python)), "lib", "libmpi.so.12")  # noqa: PTH118, PTH120 - pathlib is slow to load
    return os.path.realpath(place) if os.path.exists(place) else ""  # noqa: PTH110


def digest_of(path: str) -> str:
    """Return a digest of a file; empty where it cannot be read."""
    import hashlib  # noqa: PLC0415 - a supervisor starts sooner without, and few runs count

    found = hashlib.sha256()
    try:
        with open(path, "rb") as stream:  # noqa: PTH123 - as above
            while data := stream.read(1 << 20):
                found.update(data)
    except OSError:
        return ""
    return found.hexdigest()


def begin(carried: dict[str, Any], folder: str) -> Compilation | None:
    """Make the library by which ranks count into files of a run's folder, which go with it.

    The library that came along is taken where the MPI library is the same; else one is compiled with the MPI's own
    wrapper.

    Returns
    -------
    Compilation | None
        The compilation, which runs; None where the library is made.

    Raises
    ------
    OSError
        Neither is possible, and why in its text. Permanent.
    """
    own = mpi_library(sys.executable)
    if not (own and own == carried["mpi"] and digest_of(own) == carried["fits"]):
        return Compilation(carried["source"], folder)
    with open(variables(folder)[LIBRARY], "wb") as stream:  # noqa: PTH123
        stream.write(binascii.a2b_base64(carried["library"]))
    return None


def variables(folder: str) -> dict[str, str]:
    """Return the variables by which ranks count into files of a folder that has the library."""
    return {FOLDER: folder, LIBRARY: os.path.join(folder, "counting.so")}  # noqa: PTH118


class Compilation:
    """A compiler that makes the library in a folder.

    Attributes
    ----------
    errors
        The descriptor of its standard error, to be waited for and read by `read`.

    Raises
    ------
    OSError
        There is no compiler, or it cannot be started. Permanent.
    """

    def __init__(self, source: str, folder: str, seconds: float = COMPILE_SECONDS) -> None:
        wrapper = os.path.join(os.path.dirname(sys.executable), "mpicc")  # noqa: PTH118, PTH120
        if not os.access(wrapper, os.X_OK):
            raise OSError(
                errno.ENOENT,
                f"it has another MPI than this machine, and no mpicc beside {sys.executable}",
            )
        path = os.path.join(folder, "counting.c")  # noqa: PTH118
        with open(path, "w", encoding="utf-8") as stream:  # noqa: PTH123
            stream.write(source)
        import subprocess  # noqa: PLC0415 - as above

        self._wrapper, self._seconds = wrapper, seconds
        self._deadline = time.monotonic() + seconds
        self._text, self._ended = b"", False
        library = variables(folder)[LIBRARY]
        # Standard input is the connection to the agent; and a wrapper has children, which are to end with it.
        self._process = subprocess.Popen(
            [wrapper, *COMPILER_FLAGS, "-o", library, path, "-lpthread"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stderr is not None  # noqa: S101 - for the type checker: it is a pipe
        self.errors = self._process.stderr.fileno()

    @property
    def late(self) -> bool:
        """Whether it has taken more than its time."""
        return time.monotonic() > self._deadline

    def read(self) -> bool:
        """Read what it writes, of which the beginning is kept; return whether it has ended."""
        data = os.read(self.errors, MAX_WORDS)
        self._text += data[: MAX_WORDS - len(self._text)]
        self._ended = not data
        return self._ended

    def finish(self) -> None:
        """End it with its children.

        Raises
        ------
        OSError
            There is no library: why is in its text. Permanent.
        """
        if self._ended:
            self._process.wait()
        else:
            # Not reaped yet, so the number is its own.
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        assert self._process.stderr is not None  # noqa: S101 - as above
        self._process.stderr.close()
        if not self._ended:
            raise OSError(errno.ETIMEDOUT, f"{self._wrapper} took more than {self._seconds:g} s")
        if self._process.returncode:
            text = self._text.decode(errors="replace")
            first = next(
                (line for line in text.splitlines() if "error" in line or "not found" in line),
                text,
            )
            why = f"{self._wrapper} does not compile the counting library: {first[:200]}"
            raise OSError(errno.ENOEXEC, why)


def counted(folder: str) -> Iterator[bytes]:
    """Yield what each rank has counted by now: its file, as far as it is used."""
    found: list[str] = []
    with contextlib.suppress(OSError):
        found = os.listdir(folder)  # noqa: PTH208
    names = [name for name in found if len(name) == NAME_LETTERS and name.isalnum()]
    for name in names[:MAX_FILES]:
        with contextlib.suppress(OSError):
            path = os.path.join(folder, name)  # noqa: PTH118
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                head = os.pread(handle, HEADER_BYTES, 0)
                used = int.from_bytes(head[USED_AT : USED_AT + 4], sys.byteorder)
                size = HEADER_BYTES + used * DESTINATION_BYTES
                if size <= MAX_BYTES:
                    yield os.pread(handle, size, 0)
            finally:
                os.close(handle)
