"""The execution plug-in: allocate, bind, deallocate around one command.

The command's process asks to be bound before it becomes the command, so everything it starts is inside from
the first instruction on. The allocation ends with the process that asked for it, however that ends: the
daemon watches it.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from apples.errors import InfeasibleError, LaunchError
from apples.topology import starter
from apples.topology.allocator import fit
from apples.topology.cpus import CpuSet
from apples.topology.daemon.client import JOB_VARIABLE, SOCKET_VARIABLE, TopologyClient, fresh_id
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
    """

    job: str
    container: str
    cpus: CpuSet
    mems: CpuSet
    prefer: CpuSet
    guarantee: str


def job_name() -> str:
    """Return a fresh name for a job."""
    return f"exec-{os.getpid()}-{secrets.token_hex(4)}"


class ExecutionPlugin:
    """The three entry points of the paper, over a daemon.

    Parameters
    ----------
    client
        The connection to it.
    place
        The path of its socket, for the process that binds itself.
    """

    def __init__(self, client: TopologyClient, place: Path) -> None:
        self._client = client
        self._place = place

    def allocate(self, job: str, count: int, requirement: str = "", **more: Any) -> BoundJob:
        """Have CPUs chosen and a container made.

        Raises
        ------
        ApplesError
            The daemon's refusal: never (exit code 3) or not now (4), with the reason.
        """
        answer = self._client.ask(
            "allocate",
            request=fresh_id(),
            job=job,
            count=count,
            requirement=requirement,
            **more,
        )
        return BoundJob(
            job,
            answer["pen"],
            CpuSet.parse(answer["cpus"]),
            CpuSet.parse(answer["mems"]),
            CpuSet.parse(answer["prefer"]),
            str(answer.get("guarantee", Guarantee.NONE.value)),
        )

    def command(self, bound: BoundJob, command: Sequence[str]) -> list[str]:
        """Return the command that binds itself and then becomes `command`."""
        return [*_STARTER, str(self._place), bound.job, *command]

    def environment(self, bound: BoundJob) -> dict[str, str]:
        """Return what is added to the environment of a command."""
        return environment(bound, {SOCKET_VARIABLE: str(self._place)})

    def deallocate(self, job: str, grace: float = 0.0) -> None:
        """Kill what is left of the job and free its CPUs."""
        self._client.ask("deallocate", request=fresh_id(), job=job, grace=grace)

    def run(self, bound: BoundJob, command: Sequence[str]) -> int:
        """Run a command in an allocation and end that; return the command's exit code."""
        try:
            return run(self.command(bound, command), self.environment(bound))
        finally:
            self.deallocate(bound.job)


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
    FenceError
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
    """Run a starter to its end, signals passed on; return the exit code a shell would."""
    with _signals_passed_on() as process_is:
        process = subprocess.Popen(
            words, env={**os.environ, **more}, pass_fds=() if go is None else (go,)
        )
        process_is(process)
        try:
            admit(process.pid)
        except BaseException:
            process.kill()
            process.wait()
            raise
        code = process.wait()
    return 128 - code if code < 0 else code


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


@contextmanager
def _signals_passed_on() -> Iterator[Callable[[subprocess.Popen[bytes]], None]]:
    """Pass signals on to a process, from before it starts until it has ended."""
    running: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, _: object) -> None:
        for process in running:
            process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in FORWARDED}
    try:
        yield running.append
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
