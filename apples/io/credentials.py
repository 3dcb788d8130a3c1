"""Who is at the other end of a UNIX socket, by the kernel's word."""

from __future__ import annotations

import socket
import struct


def peer_credentials(connection: socket.socket) -> tuple[int, int]:
    """Return the process and the user at the other end: of a listening socket, who listened there last.

    Raises
    ------
    OSError
        The kernel does not say.

    Examples
    --------
    >>> import os, socket
    >>> ours, theirs = socket.socketpair()
    >>> with ours, theirs:
    ...     peer_credentials(ours) == (os.getpid(), os.geteuid())
    True
    """
    size = struct.calcsize("3i")
    process, user, _ = struct.unpack(
        "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    )
    return process, user
