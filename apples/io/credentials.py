"""The process and the user at the other end of a UNIX socket, as the kernel reports them."""

from __future__ import annotations

import socket
import struct


def peer_credentials(connection: socket.socket) -> tuple[int, int]:
    """Return the process id and the user id of the peer.

    For a socket that this process connected, the peer is the last process that called listen(2) on the other end.

    Raises
    ------
    OSError
        The kernel does not report the peer.

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
