"""Whether a process waits inside the MPI library: seen from the functions that it is in, a few times.

From outside, a rank that waits for ever looks like one that computes: MPI's waiting is spinning. ptrace tells
them apart. It is asked only once another rank has left early, stops a process for some microseconds a look, and
needs no more rights than an ancestor has; where the kernel refuses, nothing is known. Standard library only.
"""

from __future__ import annotations

import bisect
import ctypes
import os
import struct
import time
from collections.abc import Iterable, Sequence

SEIZE, INTERRUPT, DETACH, GETREGSET, NT_PRSTATUS = 0x4206, 0x4207, 17, 0x4204, 1
WAIT_ALL, EVENT_STOP = 0x40000000, 128
REGISTERS = 64
PLACES = {"x86_64": (16, 19), "aarch64": (32, 31)}
"""Of the program counter and of the stack pointer among a process's registers, by machine."""
STACK_BYTES = 4096
# One look is not enough: a computing rank is inside MPI now and then. Processor time, page faults
# and the program counter alone do not differ, because waiting MPI spins in the C library's
# sched_yield.
LOOKS, LOOK_SECONDS = 8, 0.02
STOP_SECONDS = 0.5
"""How long a process may take to stop; one that the kernel holds does not."""
MPI_FILES = ("libmpi", "libmpich", "libucp", "libuct", "libucs", "libfabric", "libopen-", "libpsm")
SYSTEM_FILES = ("libc.", "libc-", "libpthread", "ld-linux", "[vdso]", "[vsyscall]")
"""What the MPI library calls while it waits, as everybody does."""


def waiting_in_mpi(processes: Iterable[int]) -> set[int]:
    """Return those of some processes that were inside the MPI library whenever they were looked at."""
    seen: dict[int, set[bool]] = {pid: set() for pid in processes}
    for look in range(LOOKS):
        time.sleep(LOOK_SECONDS if look else 0.0)
        for pid, found in seen.items():
            found.add(_of_mpi(pid, calling(pid)))
    return {pid for pid, found in seen.items() if found == {True}}


def calling(pid: int) -> list[int]:
    """Return the address that a process is at and the words on its stack, its callers among them, innermost first.

    Nothing where the kernel does not say.
    """
    places = PLACES.get(os.uname().machine)
    if places is None or _ptrace(SEIZE, pid, None, None) < 0:
        return []
    delivered = 0
    try:
        if _ptrace(INTERRUPT, pid, None, None) < 0:
            return []
        status = _stopped(pid)
        if status is None or not os.WIFSTOPPED(status):
            return []
        if status >> 16 != EVENT_STOP:  # a signal came first: it is not to be lost
            delivered = os.WSTOPSIG(status)
        registers = (ctypes.c_uint64 * REGISTERS)()
        span = (ctypes.c_uint64 * 2)(ctypes.addressof(registers), ctypes.sizeof(registers))
        if _ptrace(GETREGSET, pid, NT_PRSTATUS, ctypes.addressof(span)) < 0:
            return []
        counter, stack = (int(registers[place]) for place in places)
        return [counter, *_words(pid, stack)]
    finally:
        _ptrace(DETACH, pid, None, delivered)


def _ptrace(request: int, pid: int, address: int | None, data: int | None) -> int:
    call = ctypes.CDLL(None).ptrace
    call.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    call.restype = ctypes.c_long
    return int(call(request, pid, address, data))


def _stopped(pid: int) -> int | None:
    """Return the status of a process that was asked to stop; None where it does not within its time."""
    deadline = time.monotonic() + STOP_SECONDS
    while time.monotonic() < deadline:
        try:
            found, status = os.waitpid(pid, os.WNOHANG | WAIT_ALL)
        except ChildProcessError:
            return None
        if found:
            return status
        time.sleep(0.0001)
    return None


def _words(pid: int, address: int) -> Sequence[int]:
    """Return the words of a process's memory from an address on, as many as can be read."""
    try:
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
        try:
            data = os.pread(memory, STACK_BYTES, address)
        finally:
            os.close(memory)
    except (OSError, OverflowError):
        return ()
    return struct.unpack(f"{len(data) // 8}Q", data[: len(data) // 8 * 8])


def _of_mpi(pid: int, addresses: Sequence[int]) -> bool:
    """Whether the innermost code among some addresses, the system's left out, is the MPI library's."""
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as stream:  # noqa: PTH123
            areas = [line.split(maxsplit=5) for line in stream]
    except OSError:
        return False
    code = [area for area in areas if len(area) > 5 and "x" in area[1]]
    ends = [[int(end, 16) for end in area[0].split("-")] for area in code]
    starts = [start for start, _ in ends]
    for address in addresses:
        index = bisect.bisect_right(starts, address) - 1
        if index >= 0 and address < ends[index][1]:
            file = code[index][5].strip().rpartition("/")[2]
            if not file.startswith(SYSTEM_FILES):
                return file.startswith(MPI_FILES)
    return False
