"""Counting the messages of ranks on another machine: the library there, and what its ranks have counted.

Standard library only: it travels with the supervisor of a run (`apples.launch.host_agent`). The files are those of
`apples.launch.message_counts.counter`.
"""

from __future__ import annotations

import binascii
import contextlib
import errno
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

FOLDER, LIBRARY = "APPLES_COUNT_MESSAGES", "APPLES_COUNT_LIBRARY"
"""Variables of a rank: where its file goes, and what is loaded before its MPI library (`launch.rank_wrapper`)."""
COMPILER_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared")
COMPILE_SECONDS = 60.0
MOST_WORDS = 1 << 16
"""Bytes that are kept of what a compiler says."""
HEADER_BYTES, DESTINATION_BYTES = 112, 24
USED_AT = 40
"""Where the header of a rank's file says how many destinations it has."""
NAME_LETTERS = 16
"""Of a rank's file: hexadecimal digits, and nothing else in the folder of a run is of these alone."""
MOST_FILES, MOST_BYTES = 4096, (1 << 20) - 64


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


class NotWanted(Exception):  # noqa: N818 - it says no fault
    """The run is not wanted any more. Permanent."""


def begin(
    carried: dict[str, Any],
    folder: str,
    orders: int,
    wanted: Callable[[], bool],
    seconds: float = COMPILE_SECONDS,
) -> dict[str, str]:
    """Return the variables by which ranks count into files of a run's folder, which go with it.

    The library that came along is taken where the MPI library is the same; else one is compiled with the MPI's own
    wrapper.

    Parameters
    ----------
    orders, wanted
        What is listened to meanwhile; and what reads there, and returns whether the run is still wanted.
    seconds
        How long the compiler may take.

    Raises
    ------
    OSError
        Neither is possible, and why in its text. Permanent.
    NotWanted
        The run was given up meanwhile. Nothing that was started is left.
    """
    library = os.path.join(folder, "counting.so")  # noqa: PTH118
    own = mpi_library(sys.executable)
    if own and own == carried["mpi"] and digest_of(own) == carried["fits"]:
        with open(library, "wb") as stream:  # noqa: PTH123
            stream.write(binascii.a2b_base64(carried["library"]))
    else:
        _compile(carried["source"], library, folder, orders, wanted, seconds)
    return {FOLDER: folder, LIBRARY: library}


def _compile(
    source: str,
    library: str,
    folder: str,
    orders: int,
    wanted: Callable[[], bool],
    seconds: float,
) -> None:
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

    argv = [wrapper, *COMPILER_FLAGS, "-o", library, path, "-lpthread"]
    # Standard input is the connection to the agent; and a wrapper has children, which are to end with it.
    ran = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    assert ran.stderr is not None  # noqa: S101 - for the type checker: it is a pipe
    try:
        text = _words_of(ran.pid, ran.stderr.fileno(), orders, wanted, seconds)
    except TimeoutError:
        raise OSError(errno.ETIMEDOUT, f"{wrapper} took more than {seconds:g} s") from None
    finally:
        # One that has ended was not reaped yet, so the number is its own; its children may be left.
        with contextlib.suppress(OSError):
            os.killpg(ran.pid, signal.SIGKILL)
        ran.stderr.close()
        ran.wait()
    if ran.returncode:
        first = next(
            (one for one in text.splitlines() if "error" in one or "not found" in one), text
        )
        why = f"{wrapper} does not compile the counting library: {first[:200]}"
        raise OSError(errno.ENOEXEC, why)


def _words_of(
    process: int, words: int, orders: int, wanted: Callable[[], bool], seconds: float
) -> str:
    """Return what a child writes to a pipe until it ends; it is not reaped.

    Raises
    ------
    TimeoutError
        It has not ended in time.
    NotWanted
        As for `begin`.
    """
    deadline = time.monotonic() + seconds
    text, end, poll = b"", os.pidfd_open(process), select.poll()
    try:
        for one in (end, words, orders):
            poll.register(one, select.POLLIN)
        while ready := [one for one, _ in poll.poll(max(0.0, deadline - time.monotonic()) * 1000)]:
            if orders in ready and not wanted():
                raise NotWanted
            if words in ready:
                data = os.read(words, MOST_WORDS)
                text += data[: MOST_WORDS - len(text)]
                if not data:
                    poll.unregister(words)
            elif end in ready:  # and all that it wrote was read
                return text.decode(errors="replace")
        raise TimeoutError
    finally:
        os.close(end)


def counted(folder: str) -> Iterator[bytes]:
    """Yield what each rank has counted by now: its file, as far as it is used."""
    found: list[str] = []
    with contextlib.suppress(OSError):
        found = os.listdir(folder)  # noqa: PTH208
    names = [name for name in found if len(name) == NAME_LETTERS and name.isalnum()]
    for name in names[:MOST_FILES]:
        with contextlib.suppress(OSError):
            path = os.path.join(folder, name)  # noqa: PTH118
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                head = os.pread(handle, HEADER_BYTES, 0)
                used = int.from_bytes(head[USED_AT : USED_AT + 4], sys.byteorder)
                size = HEADER_BYTES + used * DESTINATION_BYTES
                if size <= MOST_BYTES:
                    yield os.pread(handle, size, 0)
            finally:
                os.close(handle)
