"""The path in each error of a full or read-only disk. Standard library only: the module is sent to other hosts."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Add `path` to each OSError of the block without a path: write(2) errors have none, unlike open(2) errors.

    Examples
    --------
    >>> with naming("/home/ada/result"):
    ...     raise OSError(28, "No space left on device")
    Traceback (most recent call last):
    OSError: [Errno 28] No space left on device: '/home/ada/result'
    """
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = os.fspath(path)
        raise
