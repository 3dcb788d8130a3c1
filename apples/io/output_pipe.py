"""Non-blocking writes from an event loop: `write_ready`, and an open file with a buffer."""

from __future__ import annotations

import os
from selectors import EVENT_WRITE, BaseSelector


def write_ready(descriptor: int, buffer: bytearray) -> None:
    """Write as much of a buffer as a non-blocking file accepts now, and delete that part from the buffer.

    Raises
    ------
    OSError
        The reader is gone.
    """
    try:
        while buffer:
            del buffer[: os.write(descriptor, buffer)]
    except BlockingIOError:
        return


class OutputPipe:
    """Writes to an open file without blocking; a buffer holds the bytes that the file does not accept yet.

    The caller bounds the buffer: while `waiting` is too large, it stops reading from the source of the data.

    Parameters
    ----------
    descriptor
        The open file, for example 1. It is opened a second time, because child processes share the first
        description and expect it to block.
    selector
        The selector of the event loop; the data of a key is a callback without arguments.

    Raises
    ------
    OSError
        The file cannot be opened a second time, for example because it is a socket. Permanent.
    """

    def __init__(self, descriptor: int, selector: BaseSelector) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC
        self._pipe = os.open(f"/proc/self/fd/{descriptor}", flags)
        self._selector = selector
        self._unsent = bytearray()
        self._awaits_room = False

    @property
    def waiting(self) -> int:
        """Number of bytes that were not written yet."""
        return len(self._unsent)

    def write(self, data: bytes) -> None:
        """Write data now, or as soon as the file accepts it."""
        self._unsent += data
        self._flush()

    def close(self) -> None:
        """Write the buffer, blocking until the reader takes it or is gone; then close the file."""
        os.set_blocking(self._pipe, True)
        self._flush()
        os.close(self._pipe)

    def _flush(self) -> None:
        try:
            write_ready(self._pipe, self._unsent)
        except OSError:
            self._unsent.clear()  # the reader is gone, and ends the job
        if bool(self._unsent) != self._awaits_room:
            self._awaits_room = bool(self._unsent)
            if self._awaits_room:
                self._selector.register(self._pipe, EVENT_WRITE, self._flush)
            else:
                self._selector.unregister(self._pipe)
