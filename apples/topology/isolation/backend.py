"""The contract of what keeps a job's processes on its CPUs, and the guarantee that it gives."""

from __future__ import annotations

import contextlib
import errno
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final

from apples.errors import LaunchError
from apples.topology.cpus import CpuSet

NAME = re.compile(r"topologyd-[0-9a-f]{8}-[A-Za-z0-9._-]{1,64}-[0-9]{1,12}")
"""Prefix, mark of the daemon (by its state directory), job, number of the allocation."""


class Guarantee(StrEnum):
    """What a user may rely on, strongest first."""

    ISOLATED = "isolated partition"
    """No other process, managed or not, runs on the CPUs."""
    EXCLUSIVE = "exclusive among managed jobs"
    """The job cannot leave its CPUs and no other managed job is put there; others may run there."""
    CONTAINED = "contained"
    """The job cannot leave its CPUs; a mate that it is shared with may be put there."""
    ADVISORY = "advisory"
    """The job is put there and watched; it could leave."""
    NONE = "none"
    """Nothing is done: a dry run."""


SHORTAGE: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors that mean: this process is short of descriptors or memory. The file or process may be as it was."""


def missing(error: OSError) -> None:
    """Take an error for a file or process that is gone; raise it again if this process is short of resources."""
    if error.errno in SHORTAGE:
        raise error


class IsolationError(LaunchError):
    """The kernel or the system manager refused; the message has its words."""

    code = "isolation-refused"


@dataclass(frozen=True, slots=True)
class CpuContainer:
    """Where a job's processes may run.

    Attributes
    ----------
    name
        Of the kernel's object: `NAME`.
    cpus, mems
        OS indices of the CPUs and of the memory nodes; neither is empty.
    exclusive
        Whether the kernel is asked to keep other sets off.
    """

    name: str
    cpus: CpuSet
    mems: CpuSet
    exclusive: bool = False


class IsolationBackend(ABC):
    """Keeps processes on the CPUs of their container, by one means of the kernel.

    All methods are immediate and may be repeated: after any crash, doing everything again gives the same.
    Each of them raises `IsolationError` where the kernel refuses. A name is that of a `CpuContainer`.
    """

    title: ClassVar[str]

    @abstractmethod
    def universe(self) -> tuple[CpuSet, CpuSet]:
        """Return the CPUs and memory nodes that may be given at all, by what surrounds this process."""

    @abstractmethod
    def sets(self) -> Mapping[str, CpuSet]:
        """Return path -> CPUs of all sets there are: boot cpusets, those of managers, our containers."""

    @abstractmethod
    def names(self) -> frozenset[str]:
        """Return the containers that there are, of any daemon."""

    @abstractmethod
    def fit(self, container: CpuContainer) -> Guarantee:
        """Make the container or change it to this; return what it guarantees."""

    @abstractmethod
    def cpus(self, name: str) -> CpuSet:
        """Return the CPUs of a container as the kernel has them; empty where there is none."""

    @abstractmethod
    def admit(self, name: str, process: int) -> None:
        """Move a process with all its threads into the container; its own mask is reset to the container's."""

    @abstractmethod
    def processes(self, name: str) -> frozenset[int]:
        """Return the processes in the container, zombies left out."""

    @abstractmethod
    def freeze(self, name: str) -> None:
        """Stop all processes of the container."""

    @abstractmethod
    def thaw(self, name: str) -> None:
        """Let them go on."""

    @abstractmethod
    def kill(self, name: str) -> None:
        """Kill what is in the container now: one round; a frozen container dies as well."""

    @abstractmethod
    def remove(self, name: str) -> bool:
        """Remove the container; False while a process is in it. Nothing happens where there is none."""

    def strays(self, container: CpuContainer) -> frozenset[int]:
        """Return processes of the container that run elsewhere than they should: what a watch reports."""
        return (
            frozenset()
            if self.cpus(container.name) <= container.cpus
            else self.processes(container.name)
        )


class RememberedContainers(IsolationBackend):
    """Base class of backends whose containers are no object of the kernel before a process enters.

    Parameters
    ----------
    cpus
        The CPUs that may be given.

    Attributes
    ----------
    containers
        Name -> `CpuContainer`, in memory only: a daemon that restarts makes them anew.
    """

    def __init__(self, cpus: CpuSet) -> None:
        self._mine = cpus
        self.containers: dict[str, CpuContainer] = {}

    def universe(self) -> tuple[CpuSet, CpuSet]:
        """Return the CPUs that may be given, and node 0: memory cannot be bound."""
        return self._mine, CpuSet.of([0])

    def sets(self) -> Mapping[str, CpuSet]:
        """Return nothing: CPUs of other sets are not open to this process in the first place."""
        return {}

    def names(self) -> frozenset[str]:
        """Return the containers in memory."""
        return frozenset(self.containers)

    def cpus(self, name: str) -> CpuSet:
        """Return the CPUs of the last `fit`."""
        return self.containers[name].cpus if name in self.containers else CpuSet()

    def remember(self, container: CpuContainer) -> None:
        """Keep a container, if this process may use its CPUs."""
        if not container.cpus or not container.cpus <= self._mine:
            raise IsolationError(
                f"{container.name}: CPUs {container.cpus} are not all among {self._mine}",
                code="cpus-not-ours",
                container=container.name,
                cpus=str(container.cpus),
                known=str(self._mine),
            )
        self.containers[container.name] = container

    def known(self, name: str) -> CpuContainer:
        """Return the container of a name."""
        if name not in self.containers:
            raise IsolationError(
                f"there is no container {name}", code="container-unknown", container=name
            )
        return self.containers[name]


@contextlib.contextmanager
def entering(name: str, process: int) -> Iterator[None]:
    """Turn an error of the kernel, while a process enters a container, into an `IsolationError`."""
    try:
        yield
    except OSError as error:
        raise IsolationError(
            f"process {process} cannot enter {name}: {error}",
            code="process-not-placed",
            container=name,
            value=process,
        ) from error
