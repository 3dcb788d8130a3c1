"""Collectives that leave the CPU to other processes while they wait: sums, documents to all ranks and from all.

`wait` returns fast if the other ranks arrive soon. Otherwise it yields the CPU, which they may share. Calls that
create communicators have no non-blocking form; they sleep in `throttle_mpi`.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

SPIN_SECONDS = 80e-6
YIELD_SECONDS = 5e-3
SLEEP_SHARE = 0.05
MAX_SLEEP_SECONDS = 1e-3
NAP_SECONDS = 20e-6
SLOW = 1e8
"""Bytes a second: slower links keep a socket's buffers full while a rank sleeps."""


def wait(done: Callable[[], bool], moving: int = 0) -> None:
    """Return when `done()` is true: spin, then yield, then sleep a twentieth of the wait so far.

    Parameters
    ----------
    moving
        Bytes that MPI moves meanwhile. Over TCP it moves them only in the calls of `done`, so `wait` does not
        sleep for the time that a slow link needs for them.

    In `throttle_mpi` this function sleeps where it would yield. A yield has no effect if each rank has a scheduler
    group of its own, as the sessions of a Linux machine have.

    The wait has no time limit. The node supervisor of a rank notices its end or stop, and ends this rank too.
    """
    if done():
        return
    start = time.perf_counter()
    patient = YIELD_SECONDS + moving / SLOW
    while not done():
        waited = time.perf_counter() - start
        if waited > patient:
            time.sleep(min(SLEEP_SHARE * waited, MAX_SLEEP_SECONDS))
        elif waited > SPIN_SECONDS and _throttled:
            time.sleep(NAP_SECONDS)
        elif waited > SPIN_SECONDS:
            os.sched_yield()


THROTTLE_VARIABLES = {
    b"MPIR_CVAR_CH4_PROGRESS_THROTTLE": 1,
    b"MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT": 64,
    b"MPIR_CVAR_ENABLE_HEAVY_YIELD": 1,
}
"""Control variables of MPICH (MPI 4.1, chapter 15.3): sleep after 64 polls without progress.

The last makes MPICH sleep where it would yield the CPU: it yields until a process to which it sends for the first
time has answered."""
SLICE_NANOSECONDS = 100_000
SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
"""Number of the system call by machine: neither Python nor every C library has the call."""

_throttled: list[bool] = []


@contextmanager
def throttle_mpi() -> Iterator[None]:
    """Make blocking MPI calls sleep while they wait. At all other times they poll without pause.

    With more ranks than CPUs, a rank that polls keeps another rank from its CPU for a time slice, at every step of
    a collective's tree. So time slices are short meanwhile, too. Libraries other than MPICH, and kernels before
    Linux 6.12, behave as before.
    """
    # Only during a change: an exchange of borders takes microseconds, and a sleep would delay it.
    before = set_variables(THROTTLE_VARIABLES)
    _slice(SLICE_NANOSECONDS)
    _throttled.append(True)
    try:
        yield
    finally:
        _throttled.pop()
        _slice(0)
        set_variables(before)


def _slice(nanoseconds: int) -> None:
    """Set the length of the calling thread's time slices; 0: the default length."""
    call = SCHED_SETATTR.get(os.uname().machine)
    if call is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return
    # struct sched_attr: size, policy, flags, nice, priority, runtime, deadline, period.
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    wanted = struct.pack("<IIQiIQQQ", 48, os.SCHED_OTHER, 0, nice, 0, nanoseconds, 0, 0)
    ctypes.CDLL(None).syscall(call, 0, wanted, 0)


def set_variables(values: Mapping[bytes, int]) -> dict[bytes, int]:
    """Set the control variables that the MPI library has; return their earlier values."""
    before = {}
    for name, value in values.items():
        library, handle = _control_variable(name)
        if library is None:
            continue
        value_before = ctypes.c_int()
        library.MPI_T_cvar_read(handle, ctypes.byref(value_before))
        library.MPI_T_cvar_write(handle, ctypes.byref(ctypes.c_int(value)))
        before[name] = value_before.value
    return before


@cache
def _control_variable(name: bytes) -> tuple[ctypes.CDLL | None, ctypes.c_void_p]:
    """Return the MPI library and its handle of a control variable; None if the library has no such variable."""
    library, index, count = _library(), ctypes.c_int(), ctypes.c_int()
    handle = ctypes.c_void_p()
    if library is None or library.MPI_T_cvar_get_index(name, ctypes.byref(index)):
        return None, handle
    library.MPI_T_cvar_handle_alloc(index, None, ctypes.byref(handle), ctypes.byref(count))
    return library, handle


@cache
def _library() -> ctypes.CDLL | None:
    """Return the MPI library that mpi4py has loaded, if it is MPICH."""
    with open("/proc/self/maps", encoding="utf-8") as stream:  # noqa: PTH123 - pathlib is slow to load
        paths = {line.split(maxsplit=5)[-1].rstrip("\n") for line in stream if "/libmpi" in line}
    if MPI.get_vendor()[0] != "MPICH" or not paths:
        return None
    library = ctypes.CDLL(min(paths))
    library.MPI_T_init_thread(MPI.THREAD_MULTIPLE, ctypes.byref(ctypes.c_int()))
    return library


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
    """Return for each block the value of its owner, `missing` for a block without one. Collective."""
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
