"""`PartMessages`: the messages that move parts of arrays between ranks.

A part that is contiguous at both ends is one message, directly from its old memory to its new memory. Any other
part is sent in pieces of some rows, a few at a time, through buffers that stay in the cache: MPICH sends strided
data at a fifth of the rate, and receives it through new memory for each message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import repeat

import numpy as np
from mpi4py import MPI

from apples.malleable.runtime.collectives import wait
from apples.malleable.runtime.row_memory import Bytes

PIECE_BYTES = 1 << 20
UNDER_WAY = 4
"""Number of pieces of a part that are in transfer at the same time."""


class PartMessages:
    """Messages of a communicator, which `finish` completes.

    Both ends pass the same part, each as a view of its own memory: a row of bytes for each row of the part.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self._comm = comm
        self._moves: list[Iterator[None]] = []
        self._bytes = 0

    def send(self, part: Bytes, other: int, tag: int, pitch: int) -> None:
        """Send a part of an array with `pitch` bytes in a whole row."""
        self._begin(_moves(self._comm.Isend, part, other, tag, pitch), part)

    def receive(self, part: Bytes, other: int, tag: int, pitch: int) -> None:
        """Receive a part of an array with `pitch` bytes in a whole row."""
        self._begin(_moves(self._comm.Irecv, part, other, tag, pitch, coming=True), part)

    def finish(self) -> None:
        """Wait until all parts were sent and received."""
        wait(self._done, self._bytes)

    def _begin(self, moves: Iterator[None], part: Bytes) -> None:
        self._bytes += part.size
        self._moves.append(moves)
        next(moves, None)

    def _done(self) -> bool:
        """Advance each transfer as far as possible; return whether all are complete."""
        self._moves = [one for one in self._moves if next(one, self) is not self]
        return not self._moves


def _moves(
    begin: Callable[..., MPI.Request],
    part: Bytes,
    other: int,
    tag: int,
    pitch: int,
    *,
    coming: bool = False,
) -> Iterator[None]:
    """Move a part piece by piece; yield while the oldest piece in transfer is incomplete."""
    under_way: deque[tuple[MPI.Request, Bytes, Bytes]] = deque()
    for piece in (*_pieces(part, pitch), *repeat(None, UNDER_WAY)):
        buffer = None
        if under_way and (piece is None or len(under_way) == UNDER_WAY):
            request, place, buffer = under_way.popleft()
            while not request.Test():
                yield
            if coming and buffer is not place:
                place[...] = buffer
        if piece is None:
            continue
        if piece.flags.c_contiguous:
            buffer = piece
        # Packed by NumPy, not by an MPI vector type: MPICH 5.0.2 sends a part in pieces at a fifth
        # of the rate of one piece.
        elif buffer is None or buffer.shape != piece.shape:
            buffer = np.empty(piece.shape, np.uint8)
        if not coming and buffer is not piece:
            buffer[...] = piece
        request = begin([buffer.reshape(-1), MPI.BYTE], other, tag)
        under_way.append((request, piece, buffer))


def _pieces(part: Bytes, pitch: int) -> list[Bytes]:
    """Return a part in pieces of whole rows; both ends compute the same pieces.

    Examples
    --------
    >>> [len(one) for one in _pieces(np.zeros((5, 1 << 19), np.uint8), 1 << 20)]
    [2, 2, 1]
    """
    rows, width = part.shape
    if not part.size or width == pitch:
        return [part] if part.size else []
    step = max(1, PIECE_BYTES // width)
    return [part[first : first + step] for first in range(0, rows, step)]
