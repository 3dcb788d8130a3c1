"""Short names of UNIX sockets in folders with long paths. Standard library only: it is sent to other hosts."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def socket_name(path: str | os.PathLike[str]) -> Iterator[str]:
    """Yield a short name for `path` with which a UNIX socket can bind or connect; it is valid in the block.

    The kernel accepts at most 107 bytes. The name leads through an open descriptor of the folder, so only this
    process can use it: give `path` to other processes. The file's own name may have 80 bytes.

    Raises
    ------
    OSError
        The folder is missing or not accessible.

    Examples
    --------
    >>> import socket, tempfile
    >>> with tempfile.TemporaryDirectory(suffix="-long" * 30) as folder, socket.socket(socket.AF_UNIX) as listener:
    ...     with socket_name(f"{folder}/control") as name:
    ...         listener.bind(name)
    ...     os.listdir(folder)
    ['control']
    """
    folder = os.open(os.path.dirname(path) or ".", os.O_PATH | os.O_DIRECTORY)  # noqa: PTH120 - pathlib is slow to load
    try:
        yield f"/proc/self/fd/{folder}/{os.path.basename(path)}"  # noqa: PTH119 - as above
    finally:
        os.close(folder)
