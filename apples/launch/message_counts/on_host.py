"""Count the messages of ranks on another machine: install the library there, and read the counts of its ranks.

Standard library only: it is sent with the supervisor of a run (`apples.launch.host_agent`). The file format is
that of `apples.launch.message_counts.counter`.
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
"""Variables of a rank: folder of its file, and the library to load before MPI (`launch.rank_wrapper`)."""
COMPILER_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared")
COMPILE_SECONDS = 60.0
MAX_WORDS = 1 << 16
"""Maximum bytes of a compiler's output that are kept."""
HEADER_BYTES, DESTINATION_BYTES = 112, 24
USED_AT = 40
"""Offset of the number of destinations in the header of a rank's file."""
NAME_LETTERS = 16
"""Length of the name of a rank's file, which has only hexadecimal digits; no other file of a run is so named."""
MAX_FILES, MAX_BYTES = 4096, (1 << 20) - 64


def mpi_library(python: str) -> str:
    """Return the path of the MPI library installed with an interpreter; empty if it is missing."""
    place = os.path.join(os.path.dirname(os.path.dirname(python)), "lib", "libmpi.so.12")  # noqa: PTH118, PTH120 - pathlib is slow to load
    return os.path.realpath(place) if os.path.exists(place) else ""  # noqa: PTH110


def digest_of(path: str) -> str:
    """Return the SHA-256 digest of a file; empty if it cannot be read."""
    import hashlib  # noqa: PLC0415 - slows the start of a supervisor, and few runs count

    found = hashlib.sha256()
    try:
        with open(path, "rb") as stream:  # noqa: PTH123 - as above
            while data := stream.read(1 << 20):
                found.update(data)
    except OSError:
        return ""
    return found.hexdigest()


def begin(carried: dict[str, Any], folder: str) -> Compilation | None:
    """Install the counting library in a run's folder; ranks write their counts to files there.

    If this host has the same MPI library as the agent, the library sent by the agent is used. Otherwise the
    library is compiled with MPI's own compiler wrapper.

    Returns
    -------
    Compilation | None
        The running compilation; None if the library is installed.

    Raises
    ------
    OSError
        Neither is possible; the message has the reason. Permanent.
    """
    own = mpi_library(sys.executable)
    if not (own and own == carried["mpi"] and digest_of(own) == carried["fits"]):
        return Compilation(carried["source"], folder)
    with open(variables(folder)[LIBRARY], "wb") as stream:  # noqa: PTH123
        stream.write(binascii.a2b_base64(carried["library"]))
    return None


def variables(folder: str) -> dict[str, str]:
    """Return the variables that make ranks count, for a folder with the library and their files."""
    return {FOLDER: folder, LIBRARY: os.path.join(folder, "counting.so")}  # noqa: PTH118


class Compilation:
    """A compiler process that builds the library in a folder.

    Attributes
    ----------
    errors
        File descriptor of its standard error. When it is readable, call `read`.

    Raises
    ------
    OSError
        The compiler is missing or cannot be started. Permanent.
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
        # No standard input: that is the connection to the agent. A new session: the wrapper's children must end
        # with it.
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
        """Whether the compiler exceeded its time limit."""
        return time.monotonic() > self._deadline

    def read(self) -> bool:
        """Read the compiler's output, keep its first `MAX_WORDS` bytes, and return whether it ended."""
        data = os.read(self.errors, MAX_WORDS)
        self._text += data[: MAX_WORDS - len(self._text)]
        self._ended = not data
        return self._ended

    def finish(self) -> None:
        """End the compiler and its children.

        Raises
        ------
        OSError
            The library was not built; the message has the reason. Permanent.
        """
        if self._ended:
            self._process.wait()
        else:
            # Not reaped yet, so the process id cannot be reused.
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
    """Yield the current counts of each rank: the used part of its file."""
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
