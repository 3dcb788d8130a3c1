"""A name of a UNIX socket that is short enough for the kernel. Standard library only: other hosts get it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def socket_name(path: str | os.PathLike[str]) -> Iterator[str]:
    """Yield a name to bind or connect a UNIX socket by, valid in the block, however long its folder's path is.

    The kernel takes at most 107 bytes. The name leads through an open descriptor of the folder, which only this
    process can use: other processes are to get `path`, never the name. The file's own name may have 80 bytes.

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
