"""The execution plug-in: allocate, bind, deallocate around one command.

The command's process asks to be bound before it becomes the command, so everything it starts is inside from
the first instruction on. The allocation ends with the process that asked for it, however that ends: the
daemon watches it.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from apples.errors import InfeasibleError, LaunchError
from apples.topology import starter
from apples.topology.allocator import fit
from apples.topology.cpus import CpuSet
from apples.topology.daemon.client import JOB_VARIABLE, SOCKET_VARIABLE, TopologyClient
from apples.topology.isolation.affinity import MARK
from apples.topology.isolation.backend import CpuContainer, Guarantee, IsolationBackend
from apples.topology.machine import Topology
from apples.topology.requirement import CpusetOption, Requirement, Satisfiability, Unsatisfied

CPUS_VARIABLE: Final = "APPLES_TOPOLOGY_CPUS"
ALONE: Final = "topologyd-00000000-"
"""What the names of containers begin with that no daemon knows."""
KILL_SECONDS: Final = 2.0
FORWARDED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


@dataclass(frozen=True, slots=True)
class BoundJob:
    """Where a command runs.

    Attributes
    ----------
    job, container
        Its name and that of its container.
    cpus, mems
        What it may use.
    prefer
        Memory nodes it is to prefer; empty: the kernel's own choice.
    guarantee
        What keeps it there.
    number
        Of the allocation; 0: no daemon gave it.
    """

    job: str
    container: str
    cpus: CpuSet
    mems: CpuSet
    prefer: CpuSet
    guarantee: str
    number: int = 0


def job_name() -> str:
    """Return a fresh name for a job."""
    return f"exec-{os.getpid()}-{secrets.token_hex(4)}"


def allocate(place: Path, job: str, count: int, requirement: str = "", **more: Any) -> BoundJob:
    """Have the daemon at a socket choose CPUs and make a container.

    Raises
    ------
    ApplesError
        The daemon's refusal: never (exit code 3) or not now (4), with the reason.
    """
    with TopologyClient(place) as client:
        answer = client.ask("allocate", job=job, count=count, requirement=requirement, **more)
    return BoundJob(
        job,
        answer["pen"],
        CpuSet.parse(answer["cpus"]),
        CpuSet.parse(answer["mems"]),
        CpuSet.parse(answer["prefer"]),
        str(answer.get("guarantee", Guarantee.NONE.value)),
        answer["number"],
    )


def run_allocated(place: Path, bound: BoundJob, command: Sequence[str]) -> int:
    """Run a command in an allocation, end the allocation, and return the command's exit code.

    The connection is a new one: the daemon may have been started again, and it closes connections that are idle.
    """
    try:
        words = [*_STARTER, str(place), bound.job, *command]
        return run(words, environment(bound, {SOCKET_VARIABLE: str(place)}))
    finally:
        with TopologyClient(place) as client:
            client.ask("deallocate", job=bound.job, number=bound.number)


def container_alone(
    requirement: Requirement, isolation: IsolationBackend, topology: Topology
) -> tuple[CpuContainer, CpuSet]:
    """Return the container of a command that runs without a daemon, and the memory nodes it prefers.

    Raises
    ------
    InfeasibleError
        This machine can never hold it. Permanent.
    LaunchError
        Its CPUs are taken just now. Transient.
    """
    free, mems = isolation.universe()
    for cpus in isolation.sets().values():
        free -= cpus
    found = fit(topology, free, requirement)
    if isinstance(found, Unsatisfied):
        kind = InfeasibleError if found.verdict is Satisfiability.NEVER else LaunchError
        raise kind(f"{found.verdict}: {found.reason} [{found.key}]")
    near, options = found.memory & mems, requirement.options
    mandatory = CpusetOption.MEMORY_MANDATORY in options and near
    wanted = CpusetOption.MEMORY_LOCAL in options or requirement.memory is not None
    container = CpuContainer(
        f"{ALONE}{job_name()}-1",
        found.cpus,
        near if mandatory else mems,
        CpusetOption.EXCLUSIVE in options,
    )
    return container, near if wanted else CpuSet()


def run_alone(
    isolation: IsolationBackend, container: CpuContainer, prefer: CpuSet, command: Sequence[str]
) -> int:
    """Run a command in a container that is made for it here, without a daemon; return its exit code.

    Raises
    ------
    IsolationError
        The kernel refuses the container.
    LaunchError
        The container cannot be emptied afterwards.
    """
    for left in (
        isolation.names()
    ):  # empty containers of commands that were killed together with their guard
        if left.startswith(ALONE) and not isolation.processes(left):
            isolation.remove(left)
    guarantee = isolation.fit(container)
    bound = BoundJob(
        container.name, container.name, container.cpus, container.mems, prefer, guarantee.value
    )
    reading, writing = os.pipe()

    def admit(process: int) -> None:
        isolation.admit(container.name, process)
        os.write(writing, f"{prefer}\n".encode())

    try:
        words = [*_STARTER, f"-{reading}", container.name, *command]
        return run(words, environment(bound, {}), go=reading, admit=admit)
    finally:
        os.close(reading)
        os.close(writing)
        _empty(isolation, container.name)


def run(
    words: Sequence[str],
    more: Mapping[str, str],
    *,
    go: int | None = None,
    admit: Callable[[int], None] = lambda _: None,
) -> int:
    """Run a starter to its end, signals passed on; return the exit code a shell would.

    A signal of a process (``kill``) is passed on. One of the terminal (Ctrl-C) is not: the kernel sends it to the
    whole foreground group, so the command has it already, and mpiexec aborts at a second one.
    """
    watched = {*FORWARDED, signal.SIGCHLD}
    if go is not None:
        os.set_inheritable(go, True)
    handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would take the exit code
    before = signal.pthread_sigmask(
        signal.SIG_BLOCK, watched
    )  # none is lost before the command runs
    ignored = (signal.SIGPIPE, signal.SIGXFSZ)  # by Python; a command would inherit that
    try:
        process = os.posix_spawnp(
            words[0], list(words), {**os.environ, **more}, setsigmask=before, setsigdef=ignored
        )
        try:
            admit(process)
        except BaseException:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            raise
        return _ended(process, watched)
    finally:
        while signal.sigtimedwait(watched, 0):  # what came with the end, of the terminal for one
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGCHLD, handler)


def _ended(process: int, watched: Collection[int]) -> int:
    """Wait for a process, passing signals on; return the exit code a shell would."""
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return 128 - code if code < 0 else code
        arrived = signal.sigwaitinfo(watched)
        if (
            arrived.si_signo != signal.SIGCHLD and arrived.si_code <= 0
        ):  # of a process, not the kernel
            os.kill(process, arrived.si_signo)


def environment(bound: BoundJob, more: Mapping[str, str]) -> dict[str, str]:
    """Return what a job's processes find in their environment; what the user set stays."""
    found = {
        JOB_VARIABLE: bound.job,
        MARK: bound.container,
        CPUS_VARIABLE: str(bound.cpus),
        **more,
    }
    if "OMP_NUM_THREADS" not in os.environ:
        found["OMP_NUM_THREADS"] = str(len(bound.cpus))
    return found


def _empty(isolation: IsolationBackend, name: str) -> None:
    deadline = time.monotonic() + KILL_SECONDS
    while not isolation.remove(name):
        if time.monotonic() > deadline:
            left = sorted(isolation.processes(name))[:5]
            raise LaunchError(
                f"{name}: processes {left} cannot be killed",
                code="processes-left",
                value=left,
                container=name,
            )
        isolation.kill(name)
        time.sleep(0.002)


_STARTER: Final = (sys.executable, "-I", "-S", starter.__file__)
