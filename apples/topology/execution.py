"""The execution plug-in: allocate, bind, deallocate around one command.

The process asks the daemon to move it into the container and then executes the command, so that all children of
the command are inside from the first instruction on. The daemon watches the process that asked for the
allocation, and ends the allocation with it.
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
"""Prefix of the names of containers that are made without a daemon."""
KILL_SECONDS: Final = 2.0
FORWARDED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


@dataclass(frozen=True, slots=True)
class BoundJob:
    """The CPUs and the container of a command.

    Attributes
    ----------
    job, container
        Names of the job and of its container.
    cpus, mems
        CPUs and memory nodes that it may use.
    prefer
        Memory nodes to prefer; empty: the kernel's choice.
    guarantee
        Guarantee of its isolation.
    number
        Number of the allocation; 0: made without a daemon.
    """

    job: str
    container: str
    cpus: CpuSet
    mems: CpuSet
    prefer: CpuSet
    guarantee: str
    number: int = 0


def job_name() -> str:
    """Return a new name for a job."""
    return f"exec-{os.getpid()}-{secrets.token_hex(4)}"


def allocate(place: Path, job: str, count: int, requirement: str = "", **more: Any) -> BoundJob:
    """Ask the daemon at a socket to choose CPUs and to make a container.

    Raises
    ------
    ApplesError
        The daemon cannot satisfy the request on this host (exit code 3) or not at present (4); the message has the
        reason.
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

    It opens a new connection, because the daemon closes idle connections and may have restarted.
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
        This machine can never satisfy the requirement. Permanent.
    LaunchError
        Other jobs hold the CPUs. Transient.
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
    """Run a command in a new container, without a daemon; return its exit code.

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
    """Run a starter to its end and pass signals on; return the exit code that a shell would give.

    It passes on a signal from a process (``kill``). It does not pass on a signal of the terminal (Ctrl-C): the
    kernel sends that to the whole foreground group, which includes the command, and mpiexec aborts at a second
    one.
    """
    watched = {*FORWARDED, signal.SIGCHLD}
    if go is not None:
        os.set_inheritable(go, True)
    handler = signal.signal(
        signal.SIGCHLD, signal.SIG_DFL
    )  # if SIGCHLD were ignored, the exit code would be lost
    before = signal.pthread_sigmask(
        signal.SIG_BLOCK, watched
    )  # no signal is lost before the command runs
    ignored = (
        signal.SIGPIPE,
        signal.SIGXFSZ,
    )  # Python ignores these; a command would inherit that
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
        while signal.sigtimedwait(
            watched, 0
        ):  # signals that arrived with the end, for example from the terminal
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGCHLD, handler)


def _ended(process: int, watched: Collection[int]) -> int:
    """Wait for a process and pass signals on; return the exit code that a shell would give."""
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return 128 - code if code < 0 else code
        arrived = signal.sigwaitinfo(watched)
        if (
            arrived.si_signo != signal.SIGCHLD and arrived.si_code <= 0
        ):  # from a process, not from the kernel
            os.kill(process, arrived.si_signo)


def environment(bound: BoundJob, more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a job's processes; variables that the user set keep their values."""
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
