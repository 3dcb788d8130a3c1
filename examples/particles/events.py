"""What the program says: one JSON object a line, each line one write."""

import json
import os

PROTOCOL = 1
VERSION = "1"
STANDARD_OUTPUT = 1
LONGEST_MESSAGE = 2000


def emit(event: str, **fields: object) -> None:
    """Write one event to standard output, in one piece as long as a pipe keeps pieces whole."""
    rest = (json.dumps({"event": event, **fields}, allow_nan=False) + "\n").encode()
    while rest:
        rest = rest[os.write(STANDARD_OUTPUT, rest) :]


def emit_ready(ranks: int) -> None:
    """Say that all ranks have their cells."""
    emit("ready", protocol=PROTOCOL, program="particles", version=VERSION, ranks=ranks)


def emit_error(message: str, rank: int, code: str = "", *, resources: bool = False) -> None:
    """Write an ``error`` event, folded into one bounded line; `resources`: a disk is full, or fails."""
    line = " ".join(message.split())[:LONGEST_MESSAGE]
    more = {"code": code} if code else {}
    emit("error", message=line, rank=rank, resources=resources, **more)
