"""Collectives that leave the CPU to others while they wait: sums, documents to all ranks and from all.

`wait` is quick when the other ranks are near; when they are not, it gives them the CPU, which they may share.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

SPIN_SECONDS = 80e-6
YIELD_SECONDS = 5e-3
SHARE = 0.05
LONGEST_SECONDS = 1e-3
SLOW = 1e8
"""Bytes a second: slower links keep a socket's buffers full while we sleep."""


def wait(done: Callable[[], bool], moving: int = 0) -> None:
    """Return when `done()` is true: spin, then yield, then sleep a twentieth of the wait so far.

    Parameters
    ----------
    moving
        Bytes that MPI moves meanwhile. Over TCP it moves them in the calls of `done` alone, so no sleep
        comes between for as long as a link that a sleep would slow down needs for them.

    There is no limit here: a rank that is gone or stopped is noticed by its node supervisor, and this one is ended
    too.
    """
    if done():
        return
    start = time.perf_counter()
    patient = YIELD_SECONDS + moving / SLOW
    while not done():
        waited = time.perf_counter() - start
        if waited > patient:
            time.sleep(min(SHARE * waited, LONGEST_SECONDS))
        elif waited > SPIN_SECONDS:
            os.sched_yield()


def broadcast_document(comm: MPI.Intracomm, document: Any) -> Any:
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


def gather_documents(comm: MPI.Intracomm, document: Any) -> list[Any]:
    """Return the JSON documents of all ranks, in rank order. Collective."""
    mine = np.frombuffer(json.dumps(document).encode(), np.uint8).copy()
    sizes = np.empty(comm.Get_size(), np.int64)
    comm.Allgather(np.array([len(mine)], np.int64), sizes)
    starts = np.concatenate(([0], np.cumsum(sizes)))
    every = np.empty(int(starts[-1]), np.uint8)
    comm.Allgatherv(mine, [every, sizes.tolist(), starts[:-1].tolist(), MPI.BYTE])
    texts = [every[begin:end].tobytes() for begin, end in pairwise(starts)]
    return [json.loads(text) for text in texts]


def combine_by_number(
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


def total(comm: MPI.Intracomm, mine: int) -> int:
    """Return the sum over all ranks. Collective."""
    given, taken = np.array([mine], np.int64), np.empty(1, np.int64)
    wait(comm.Iallreduce(given, taken).Test)
    return int(taken[0])
