"""The contract of an isolation backend, and the guarantees that backends give."""

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
"""Prefix, mark of the daemon (from its state directory), job, number of the allocation."""


class Guarantee(StrEnum):
    """The level of isolation that a user may rely on, strongest first."""

    ISOLATED = "isolated partition"
    """No other process, managed or not, runs on the CPUs."""
    EXCLUSIVE = "exclusive among managed jobs"
    """The job cannot leave its CPUs, and no other managed job runs there; unmanaged processes may."""
    CONTAINED = "contained"
    """The job cannot leave its CPUs; a mate that shares with it may run there."""
    ADVISORY = "advisory"
    """The job's affinity is set and watched; the job could change it."""
    NONE = "none"
    """No isolation: a dry run."""


SHORTAGE: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors of a process short of descriptors or memory. The file or process may still exist."""


def missing(error: OSError) -> None:
    """Ignore an error of a missing file or process; raise it again if this process is short of resources."""
    if error.errno in SHORTAGE:
        raise error


class IsolationError(LaunchError):
    """The kernel or the system manager refused; the message includes its text."""

    code = "isolation-refused"


@dataclass(frozen=True, slots=True)
class CpuContainer:
    """The CPUs and memory nodes that a job's processes may use.

    Attributes
    ----------
    name
        Name of the kernel's object, of the form `NAME`.
    cpus, mems
        OS indices of the CPUs and of the memory nodes; neither is empty.
    exclusive
        Whether the kernel should forbid overlapping sets.
    """

    name: str
    cpus: CpuSet
    mems: CpuSet
    exclusive: bool = False


class IsolationBackend(ABC):
    """Keeps processes on the CPUs of their container, by one mechanism of the kernel.

    All methods return at once and may be repeated: after a crash, repeating all calls gives the same state. Each
    method raises `IsolationError` if the kernel refuses. Each `name` is the name of a `CpuContainer`.
    """

    title: ClassVar[str]

    @abstractmethod
    def universe(self) -> tuple[CpuSet, CpuSet]:
        """Return the CPUs and memory nodes that may be allocated, within the limits on this process."""

    @abstractmethod
    def sets(self) -> Mapping[str, CpuSet]:
        """Return path -> CPUs of all existing sets: boot cpusets, sets of other managers, our containers."""

    @abstractmethod
    def names(self) -> frozenset[str]:
        """Return the existing containers of all daemons."""

    @abstractmethod
    def fit(self, container: CpuContainer) -> Guarantee:
        """Create the container, or change it to these values; return its guarantee."""

    @abstractmethod
    def cpus(self, name: str) -> CpuSet:
        """Return the kernel's CPUs of a container; empty if it does not exist."""

    @abstractmethod
    def admit(self, name: str, process: int) -> None:
        """Move a process with all its threads into the container; their masks become the container's."""

    @abstractmethod
    def processes(self, name: str) -> frozenset[int]:
        """Return the processes in the container, without zombies."""

    @abstractmethod
    def freeze(self, name: str) -> None:
        """Stop all processes of the container."""

    @abstractmethod
    def thaw(self, name: str) -> None:
        """Resume all processes of the container."""

    @abstractmethod
    def kill(self, name: str) -> None:
        """Kill the processes that are in the container now, once; frozen processes die as well."""

    @abstractmethod
    def remove(self, name: str) -> bool:
        """Remove the container; return False while a process is in it. A missing container counts as removed."""

    def strays(self, container: CpuContainer) -> frozenset[int]:
        """Return processes of the container that run outside its CPUs. The watch reports them."""
        return (
            frozenset()
            if self.cpus(container.name) <= container.cpus
            else self.processes(container.name)
        )


class RememberedContainers(IsolationBackend):
    """Base class of backends whose containers exist in the kernel only after a process enters.

    Parameters
    ----------
    cpus
        The CPUs that may be allocated.

    Attributes
    ----------
    containers
        Name -> `CpuContainer`, only in memory; a restarted daemon creates them again.
    """

    def __init__(self, cpus: CpuSet) -> None:
        self._mine = cpus
        self.containers: dict[str, CpuContainer] = {}

    def universe(self) -> tuple[CpuSet, CpuSet]:
        """Return the CPUs that may be allocated, and node 0, because memory cannot be bound."""
        return self._mine, CpuSet.of([0])

    def sets(self) -> Mapping[str, CpuSet]:
        """Return an empty mapping: this process cannot use CPUs of other sets anyway."""
        return {}

    def names(self) -> frozenset[str]:
        """Return the containers in memory."""
        return frozenset(self.containers)

    def cpus(self, name: str) -> CpuSet:
        """Return the CPUs of the last `fit`."""
        return self.containers[name].cpus if name in self.containers else CpuSet()

    def remember(self, container: CpuContainer) -> None:
        """Store a container, if this process may use its CPUs."""
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
        """Return the stored container of a name."""
        if name not in self.containers:
            raise IsolationError(
                f"no such container: {name}", code="container-unknown", container=name
            )
        return self.containers[name]


@contextlib.contextmanager
def entering(name: str, process: int) -> Iterator[None]:
    """Convert a kernel error while a process enters a container into an `IsolationError`."""
    try:
        yield
    except OSError as error:
        raise IsolationError(
            f"process {process} cannot enter {name}: {error}",
            code="process-not-placed",
            container=name,
            value=process,
        ) from error
