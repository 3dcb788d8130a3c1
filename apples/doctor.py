"""What this machine offers a run, each with ok, warn or fail and what cures it. Needs no network."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import hat
from apples import state
from apples.errors import UsageError
from apples.information import LiveSky, available_here
from apples.launch import hydra, quota
from apples.launch.conformance import Check, check_program
from apples.quantities import amount, digits
from apples.resources import Host, HostList, Network

Status = Literal["ok", "warn", "fail"]
LEAST_PYTHON = (3, 11)
SMALL = {"grid": "24", "iterations": "6"}
"""What a program is checked at."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: what was found, and what to do about it where it is not ok."""

    name: str
    status: Status
    detail: str
    cure: str = ""


def examine() -> Iterator[Finding]:
    """Yield the findings about this machine, one after the other; a check that fails stops no other."""
    for name, look in CHECKS.items():
        try:
            yield look(name)
        except Exception as error:  # noqa: BLE001 - whatever is broken is a finding
            yield Finding(name, "fail", f"{type(error).__name__}: {error}")


def _python(name: str) -> Finding:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= LEAST_PYTHON:
        return Finding(name, "ok", found)
    return Finding(name, "fail", found, "install Python 3.11 or newer")


def _mpi(name: str) -> Finding:
    launcher = hydra.mpiexec()
    wheels = ", ".join(f"{p} {version(p)}" for p in ("mpich", "mpi4py"))
    return Finding(name, "ok", f"{launcher} ({wheels})")


def _kernels(name: str) -> Finding:
    found = ["numpy"]
    if importlib.util.find_spec("numba"):
        found.append(f"numba {_version('numba')}")
    if shutil.which("cc"):
        found.append("cc")
    if len(found) > 1:
        return Finding(name, "ok", ", ".join(found))
    cure = 'pip install "apples[fast]", or install a C compiler'
    return Finding(name, "warn", "numpy only: the slowest kernel", cure)


def _cpus(name: str) -> Finding:
    own = sorted(os.sched_getaffinity(0))
    return Finding(name, "ok", f"{len(own)} usable: {', '.join(map(str, own))}")


def _weather(name: str) -> Finding:
    here = LiveSky(HostList((Host("localhost"),), Network()), rounds=2).weather()
    share, free = here.cpu["localhost"].value, here.free_memory["localhost"].value
    detail = f"a new process gets {digits(share, 2)} of a CPU, {amount(free)} of memory are free"
    return Finding(name, "ok", detail)


def _quota(name: str) -> Finding:
    reason = quota.writable()
    if reason is None:
        return Finding(
            name, "ok", "CPU quotas can be set: hosts with cpu below 1 are played as slow"
        )
    cure = "run as root, or have a cgroup delegated; without, such hosts run faster than planned"
    return Finding(name, "warn", f"no CPU quotas: {reason}", cure)


def _state(name: str) -> Finding:
    folder = state.directory()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
    except OSError as error:
        cure = "make it writable, or set XDG_STATE_HOME: nothing is learned from runs meanwhile"
        return Finding(name, "warn", f"{folder}: {error.strerror}", cure)
    return Finding(name, "ok", str(folder))


def _ports(name: str) -> Finding:
    detail = (
        "while a program runs, mpiexec's control port listens on all interfaces without asking who "
        "is there; ranks talk on loopback"
    )
    return Finding(name, "warn", detail, "on a shared network, let a firewall close high ports")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "of unknown version"


CHECKS: dict[str, Callable[[str], Finding]] = {
    "python": _python,
    "mpi": _mpi,
    "kernels": _kernels,
    "cpus": _cpus,
    "weather": _weather,
    "quota": _quota,
    "state": _state,
    "ports": _ports,
}


def examine_program(template: Path, settings: Mapping[str, str]) -> list[Check]:
    """Return the checks of a template's program against the application protocol, by running it small.

    Parameters
    ----------
    settings
        Parameters of the template; those named ``grid`` and ``iterations`` are made small unless set.

    Raises
    ------
    hat.DocumentError
        The template cannot be read, or has no small grid at these parameters.
    UsageError
        No implementation can run on this machine.
    """
    found = hat.read(template, hat.ApplicationTemplate)
    small = {name: value for name, value in SMALL.items() if name in found.parameters}
    application = found.bind({**small, **settings})
    folder = template.resolve().parent
    programs = {
        one.name: found.command(
            one.name, folder, python=sys.executable, parameters=application.parameters
        )
        for one in found.implementations
        if available_here("", one)
    }
    if not programs:
        raise UsageError(f"{template}: no implementation has what it requires on this machine")
    return check_program(programs, application.parameters, application.rows)
