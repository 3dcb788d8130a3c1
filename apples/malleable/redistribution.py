"""Moves rows between ranks: messages out of and into the arrays themselves, no copy, no pickle."""

from __future__ import annotations

from collections.abc import Sequence

from mpi4py import MPI

from apples.malleable.patience import wait
from apples.malleable.row_array import RowArray
from apples.malleable.strips import Range, transfers


def redistribute(
    comm: MPI.Intracomm, arrays: Sequence[RowArray], old: Sequence[Range], new: Sequence[Range]
) -> int:
    """Give every rank of `comm` its new strip; return the bytes this rank received. Collective.

    Parameters
    ----------
    old, new
        Each rank's strip before and after; empty for one that joins or leaves.
    """
    rank = comm.Get_rank()
    requests: list[MPI.Request] = []
    received = sent = 0
    for tag, array in enumerate(arrays):
        plan = transfers(rank, [array.owned(s) for s in old], [array.needed(s) for s in new])
        for other, rows in plan.receives:
            part = array.padded(rows)
            received += part.nbytes
            requests.append(comm.Irecv(_plain(part), other, tag))
        for other, rows in plan.sends:
            part = array.padded(rows)
            sent += part.nbytes
            requests.append(comm.Isend(_plain(part), other, tag))
    wait(lambda: MPI.Request.Testall(requests), received + sent)
    for array in arrays:
        array.settle(new[rank])
    return received


def _plain(part: object) -> object:
    """Return rows as bytes MPI can name, whatever their element type."""
    return [part.reshape(-1).view("u1"), MPI.BYTE]  # type: ignore[attr-defined]  # a contiguous NumPy array
