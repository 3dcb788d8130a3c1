"""Transient scopes of systemd, for hosts on which only systemd may write to the control groups.

Pure functions build commands and parse answers; `SystemdScope` runs them in one place. A scope begins with its
first process, so a container without processes is only stored. ``make vm`` tests it under systemd on an emulated
machine; the other tests use programs that stand in for systemd's.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from apples.topology.cpus import CpuSet
from apples.topology.isolation.backend import (
    CpuContainer,
    Guarantee,
    IsolationError,
    RememberedContainers,
    entering,
    missing,
)
from apples.topology.isolation.cpusets import EVERY
from apples.topology.isolation.freezers import place_threads

MANAGER = (
    "org.freedesktop.systemd1",
    "/org/freedesktop/systemd1",
    "org.freedesktop.systemd1.Manager",
)
SECONDS = 10.0


def start_scope(container: CpuContainer, process: int, *, user: bool) -> list[str]:
    """Return the command that makes a scope around a process."""
    cpus, mems = _mask(container.cpus), _mask(container.mems)
    return [
        *("busctl", *_bus(user), "call", *MANAGER, "StartTransientUnit", "ssa(sv)a(sa(sv))"),
        *(f"{container.name}.scope", "fail", "4"),
        *("PIDs", "au", "1", str(process)),
        *("Delegate", "b", "false"),
        *("AllowedCPUs", "ay", str(len(cpus)), *map(str, cpus)),
        *("AllowedMemoryNodes", "ay", str(len(mems)), *map(str, mems)),
        "0",
    ]


def attach(name: str, process: int, *, user: bool) -> list[str]:
    """Return the command that adds a process to a scope."""
    words = ("AttachProcessesToUnit", "ssau", f"{name}.scope", "", "1", str(process))
    return ["busctl", *_bus(user), "call", *MANAGER, *words]


def change(container: CpuContainer, *, user: bool) -> list[str]:
    """Return the command that changes the CPUs of a scope."""
    masks = (f"AllowedCPUs={container.cpus}", f"AllowedMemoryNodes={container.mems}")
    unit = f"{container.name}.scope"
    return [
        "systemctl",
        *_bus(user),
        "--no-ask-password",
        "set-property",
        "--runtime",
        unit,
        *masks,
    ]


def verb(word: str, name: str, *, user: bool, options: Sequence[str] = ()) -> list[str]:
    """Return the command for ``freeze``, ``thaw``, ``kill``, ``stop``, ``reset-failed`` of a scope."""
    return ["systemctl", *_bus(user), "--no-ask-password", *options, word, f"{name}.scope"]


def group_of(name: str, *, user: bool) -> list[str]:
    """Return the command that prints the control group of a scope."""
    return verb("show", name, user=user, options=["--value", "--property=ControlGroup"])


class SystemdScope(RememberedContainers):
    """Containers are scopes of the system's manager, or of the user's.

    Parameters
    ----------
    groups
        Mount point of the hierarchy with systemd's groups.
    mine
        CPUs that this process may use; by default those of its affinity mask.
    """

    title: ClassVar[str] = "systemd-scope"

    def __init__(self, groups: Path, mine: CpuSet | None = None) -> None:
        super().__init__(mine or CpuSet.of(os.sched_getaffinity(0)))
        self._groups = groups
        self._user = os.geteuid() != 0

    def universe(self) -> tuple[CpuSet, CpuSet]:
        """Return the mask of this process, and the memory nodes: node 0 if the kernel names none."""
        online = Path("/sys/devices/system/node/has_memory")
        return self._mine, CpuSet.parse(online.read_text()) if online.exists() else CpuSet.of([0])

    def names(self) -> frozenset[str]:
        """Return the containers in memory and the scopes of systemd."""
        words = ("list-units", "--all", "--plain", "--no-legend", "--type=scope", "topologyd-*")
        lines = self._run(["systemctl", *_bus(self._user), *words]).splitlines()
        scopes = {line.split()[0].removesuffix(".scope") for line in lines if line.strip()}
        return super().names() | scopes

    def fit(self, container: CpuContainer) -> Guarantee:
        """Change the scope if it exists; else store the container for its first process."""
        self.remember(container)  # systemd would reject the CPUs only at the first process
        if self._group(container.name) is not None:
            self._run(change(container, user=self._user))
        return Guarantee.EXCLUSIVE if container.exclusive else Guarantee.CONTAINED

    def cpus(self, name: str) -> CpuSet:
        """Read the group's ``cpuset.cpus``; if it has none yet, return the stored CPUs."""
        group = self._group(name)
        if group is not None and (group / "cpuset.cpus").exists():
            return CpuSet.parse((group / "cpuset.cpus").read_text())
        return super().cpus(name)

    def admit(self, name: str, process: int) -> None:
        """Make a scope with the process, or add the process to the scope."""
        if self._group(name) is not None:
            self._run(attach(name, process, user=self._user))
        else:
            self._run(start_scope(self.known(name), process, user=self._user))
        with entering(name, process):
            place_threads(process, EVERY)

    def processes(self, name: str) -> frozenset[int]:
        """Read the group's ``cgroup.procs``."""
        group = self._group(name)
        try:
            return (
                frozenset(map(int, (group / "cgroup.procs").read_text().split()))
                if group
                else frozenset()
            )
        except OSError as error:
            missing(error)
            return frozenset()

    def freeze(self, name: str) -> None:
        """Ask systemd to freeze the scope."""
        self._run(verb("freeze", name, user=self._user))

    def thaw(self, name: str) -> None:
        """Ask systemd to thaw the scope."""
        self._run(verb("thaw", name, user=self._user))

    def kill(self, name: str) -> None:
        """Ask systemd to kill the whole group."""
        if self._group(name) is not None:
            self._run(verb("kill", name, user=self._user, options=["--signal=SIGKILL"]))

    def remove(self, name: str) -> bool:
        """Forget the container; an empty scope ends by itself."""
        if self.processes(name):
            return False
        if self._group(name) is not None:
            self._run(verb("stop", name, user=self._user))
        self.containers.pop(name, None)
        return True

    def _group(self, name: str) -> Path | None:
        path = self._run(group_of(name, user=self._user)).strip()
        return self._groups / path.lstrip("/") if path.startswith("/") else None

    def _run(self, command: list[str]) -> str:
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise IsolationError(
                f"{command[0]}: {error}", code="systemd-unreachable", tool=command[0]
            ) from error
        if done.returncode:
            words = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise IsolationError(
                f"{command[0]}: {words[-1]}", code="isolation-refused", tool=command[0]
            )
        return done.stdout


def _bus(user: bool) -> list[str]:
    return ["--user"] if user else ["--system"]


def _mask(numbers: CpuSet) -> bytes:
    """Return the numbers as systemd's byte array, lowest first."""
    return numbers.mask.to_bytes(max(1, (numbers.mask.bit_length() + 7) // 8), "little")
