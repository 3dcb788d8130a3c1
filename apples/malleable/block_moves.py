"""Moves blocks between ranks, and tells every rank what each knows of its own blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from apples.malleable.packing import Packed
from apples.malleable.patience import wait

NOBODY = -1


def everywhere(
    comm: MPI.Intracomm, mine: Mapping[int, float], count: int, missing: float
) -> NDArray[np.float64]:
    """Return for each block the number its owner gave, `missing` where nobody did. Collective."""
    given = np.full(count, -np.inf)
    for number, value in mine.items():
        given[number] = value
    every = np.empty(count)
    wait(comm.Iallreduce(given, every, MPI.MAX).Test)
    every[np.isneginf(every)] = missing
    return every


def owners_now(comm: MPI.Intracomm, own: Sequence[int], count: int) -> tuple[int, ...]:
    """Return which rank says that it has each block; `NOBODY` where none does. Collective."""
    rank = comm.Get_rank()
    every = everywhere(comm, dict.fromkeys(own, float(rank)), count, float(NOBODY))
    return tuple(int(owner) for owner in every)


def exchange(
    comm: MPI.Intracomm, leaving: Mapping[int, Packed], old: Sequence[int], new: Sequence[int]
) -> dict[int, Packed]:
    """Send blocks that leave this rank and return those that come. Collective.

    Parameters
    ----------
    leaving
        The bytes of each block that `old` places here and `new` elsewhere.
    """
    rank, count = comm.Get_rank(), len(new)
    sizes = everywhere(comm, {n: len(b) for n, b in leaving.items()}, count, 0.0)
    coming = {
        number: np.empty(int(sizes[number]), dtype=np.uint8)
        for number in range(count)
        if new[number] == rank != old[number] != NOBODY
    }
    requests = [comm.Irecv([b, MPI.BYTE], old[n], 0) for n, b in coming.items()]
    requests += [comm.Isend([leaving[n], MPI.BYTE], new[n], 0) for n in sorted(leaving)]
    moving = sum(map(len, coming.values())) + sum(len(leaving[n]) for n in leaving)
    wait(lambda: MPI.Request.Testall(requests), moving)
    return coming
