"""What the program says: one JSON object a line, each line one write."""

import errno
import json
import math
import os

PROTOCOL = 1
VERSION = "1"

STANDARD_OUTPUT = 1
LONGEST_MESSAGE = 2000


def emit(event: str, **fields: object) -> None:
    """Write one event to standard output.

    The line goes out in one ``os.write``, so that lines of ranks that share a pipe do not
    interleave as long as they are shorter than the pipe's atomic size (4096 bytes on Linux);
    only a ``progress`` over more than about thirty hosts is longer, and only rank 0 says that.
    """
    line = json.dumps({"event": event, **fields}, allow_nan=False) + "\n"
    rest = line.encode()
    while rest:
        rest = rest[os.write(STANDARD_OUTPUT, rest) :]


def emit_ready(ranks: int) -> None:
    """Say that all ranks have their data in place and their kernels compiled."""
    emit("ready", protocol=PROTOCOL, program="jacobi2d", version=VERSION, ranks=ranks)


def emit_error(message: str, rank: int, code: str = "", *, resources: bool = False) -> None:
    """Write an ``error`` event; the message is folded into one bounded line.

    `resources`: what failed is not this program but what it writes to or is kept in (`no_room`).
    """
    line = " ".join(message.split())[:LONGEST_MESSAGE]
    more = {"code": code} if code else {}
    emit("error", message=line, rank=rank, resources=resources, **more)


def no_room(error: BaseException) -> bool:
    """Whether a disk is full, or fails, or a memory is full, be it a GPU's."""
    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in full)


def finite_or_none(value: float) -> float | None:
    """Return the value, or None where JSON has no word for it (not yet known, overflow)."""
    return value if math.isfinite(value) else None
