"""Messages between the master and its workers, and names that both and the agent use.

Standard library only: it is sent to the hosts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

MAX_MESSAGE_BYTES = 1 << 26
MAX_RESULT_BYTES = 1 << 20
MAX_UNITS_BYTES = 1 << 15
"""Bytes of the units in one message, unless a single unit has more. A worker starts the first units while the
others arrive."""
POLL_SECONDS = 0.25
"""Interval: the master feeds idle workers and reports progress, a worker looks for `LEAVE_FILE`."""
PORT_FILE, PROGRESS_FILE = "port", "progress"
"""Files in the master's folder: the port that it listens on, and its progress."""
LEAVE_FILE = "leave"
"""A file in a worker's folder: the worker leaves after its unit."""
EXIT_MASTER_LOST = 4
"""Exit code of a worker that lost the connection to its master."""
ALL_INTERFACES = "0.0.0.0"  # noqa: S104 - a secret is asked for

Message = dict[str, Any]


class ProgramFailedError(Exception):
    """The user's program broke its contract; the message is one line."""


def host_of(lane: str) -> str:
    """Return the host of a lane: the part of its name before ``#``."""
    return lane.partition("#")[0]


def digest(result: Any) -> str:
    """Return sixteen hexadecimal digits of the hash of a result."""
    text = json.dumps(result, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def pack(message: Message) -> bytes:
    """Return a message as JSON."""
    return json.dumps(message, allow_nan=False).encode()


def unpack(data: bytes) -> Message:
    """Return a message.

    Raises
    ------
    ValueError
        The data is not a JSON object, or has NaN or an infinity.
    """

    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        found = json.loads(data, parse_constant=refuse)
    except RecursionError as error:
        raise ValueError(str(error)) from None
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found


def units_of(program: Any, parameters: Mapping[str, Any]) -> Iterator[Any]:
    """Return the units that the user's program makes."""
    return iter(program.units(dict(parameters)))
