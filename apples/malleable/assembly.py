"""Joining the worlds of several hosts, and parting again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from mpi4py import MPI

from apples.malleable.patience import wait


@dataclass(frozen=True, slots=True)
class Seat:
    """Who a rank of a merged communicator is: the index of its host, its rank there, its rank before or -1."""

    host: int
    rank: int
    before: int


def admit(comm: MPI.Intracomm, groups: int, invite: Callable[[str], object]) -> MPI.Intracomm:
    """Return `comm` merged with `groups` groups, one after another. Collective.

    Each group that joined takes part in admitting the next. Ranks of `comm` keep their numbers. `comm`
    itself stays as it is.

    Parameters
    ----------
    invite
        Called by rank 0 with the port the next group is to connect to. One at a time: two groups at one
        port crash MPICH 5.0.2.
    """
    merged = comm
    for left in range(groups, 0, -1):
        merged = _accept(merged, comm, invite)
        share(merged, left - 1)
    return merged


def _accept(
    merged: MPI.Intracomm, kept: MPI.Intracomm, invite: Callable[[str], object] | None
) -> MPI.Intracomm:
    port = ""
    if merged.Get_rank() == 0 and invite is not None:
        port = MPI.Open_port()
        invite(port)
    found = _merge(merged.Accept(port, MPI.INFO_NULL, 0), merged, kept)
    if port:
        MPI.Close_port(port)
    return found


def connect(world: MPI.Intracomm, port: str) -> MPI.Intracomm:
    """Return the communicator of all, from the side of a group that joins. Collective over the group."""
    merged = _merge(world.Connect(port, MPI.INFO_NULL, 0), world, world, new=True)
    for _ in range(share(merged, None)):
        merged = _accept(merged, world, None)
        share(merged, None)
    return merged


def _merge(
    inter: MPI.Intercomm, used: MPI.Intracomm, kept: MPI.Intracomm, new: bool = False
) -> MPI.Intracomm:
    merged = inter.Merge(new)
    inter.Disconnect()
    if used != kept:
        used.Disconnect()
    return merged


def seats(comm: MPI.Intracomm, seat: Seat) -> list[Seat]:
    """Return who every rank is. Collective."""
    mine = np.array([seat.host, seat.rank, seat.before], np.int64)
    every = np.empty((comm.Get_size(), 3), np.int64)
    wait(comm.Iallgather(mine, every).Test)
    return [Seat(*map(int, row)) for row in every]


def share(comm: MPI.Intracomm, document: Any) -> Any:
    """Return the JSON document of rank 0 on every rank. Collective."""
    size = np.zeros(1, np.int64)
    text = np.empty(0, np.uint8)
    if comm.Get_rank() == 0:
        text = np.frombuffer(json.dumps(document).encode(), np.uint8).copy()
        size[0] = len(text)
    wait(comm.Ibcast(size, 0).Test)
    if comm.Get_rank() != 0:
        text = np.empty(int(size[0]), np.uint8)
    wait(comm.Ibcast(text, 0).Test)
    return json.loads(text.tobytes())


def collect(comm: MPI.Intracomm, document: Any) -> list[Any]:
    """Return the JSON documents of all ranks, in rank order. Collective."""
    mine = np.frombuffer(json.dumps(document).encode(), np.uint8).copy()
    sizes = np.empty(comm.Get_size(), np.int64)
    comm.Allgather(np.array([len(mine)], np.int64), sizes)
    starts = np.concatenate(([0], np.cumsum(sizes)))
    every = np.empty(int(starts[-1]), np.uint8)
    comm.Allgatherv(mine, [every, sizes.tolist(), starts[:-1].tolist(), MPI.BYTE])
    texts = [every[begin:end].tobytes() for begin, end in pairwise(starts)]
    return [json.loads(text) for text in texts]
