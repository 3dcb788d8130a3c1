"""One process at a time takes a lab up or down; a lock goes with the process that holds it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from apples.errors import LaunchError

PATIENCE_SECONDS = 5.0


@contextmanager
def held(folder: Path, patience: float = PATIENCE_SECONDS) -> Iterator[None]:
    """Hold the lock of a lab's directory while inside.

    Raises
    ------
    LaunchError
        Another process holds it all the time. Transient.
    FileNotFoundError
        There is no such directory.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        deadline = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise LaunchError(
                        f"lab '{folder.name}': another process is taking it up or down"
                    ) from None
                time.sleep(0.05)
        yield
    finally:
        os.close(descriptor)
