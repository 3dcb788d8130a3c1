"""Checks of this machine for a run: each finding is ok, warn or fail, with its remedy. Needs no network."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import hat
from apples.agent.information import available_here
from apples.errors import UsageError
from apples.io import state
from apples.launch import hydra, quota
from apples.launch.meeting import with_meeting
from apples.launch.program_check import Check, ProblemSize, check_program
from apples.launch.remote.addresses import is_here
from apples.launch.remote.fitness import LARGER_SHM, RESOLVE_SECONDS, Finding, Fitness, Needs
from apples.launch.remote.preflight import preflight
from apples.launch.this_host import lacking_shared_memory
from apples.malleable.migration.criu import version_of, working_criu
from apples.malleable.migration.hosts import trial_migration
from apples.resources import Host, HostList, Network
from apples.ui.units import amount, digits
from apples.weather.local import LocalSensing

MIN_PYTHON = (3, 11)
MAX_GPUS, SHOWN = 16, 400
SMALL = {"grid": "24", "iterations": "6"}
"""Parameters at which a program is checked."""
TELLING = {"grid": "600", "iterations": "20"}
"""Parameters at which compute time must depend on the rows of a rank."""


def examine() -> Iterator[Finding]:
    """Yield the findings about this machine in order; a check that fails does not stop the others."""
    for name, look in CHECKS.items():
        try:
            yield look(name)
        except Exception as error:  # noqa: BLE001 - any error of a check is a finding
            yield Finding(name, "fail", f"{type(error).__name__}: {error}")


def _python(name: str) -> Finding:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= MIN_PYTHON:
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


def gpu_finding(name: str, seconds: float = 20.0) -> Finding:
    """Return the GPUs that ``nvidia-smi`` lists within `seconds`, as a GPU may need to wake up. Loads no CUDA."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return Finding(name, "ok", "none: nvidia-smi is not installed")
    asked = [tool, "--query-gpu=name,memory.free", "--format=csv,noheader"]
    cure = "repair the NVIDIA driver: programs find no GPU on this machine"
    try:
        done = subprocess.run(
            asked,
            capture_output=True,
            check=False,
            text=True,
            errors="replace",
            timeout=seconds,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(name, "warn", f"nvidia-smi: {error}", cure)
    found = "; ".join(line.strip() for line in done.stdout.splitlines()[:MAX_GPUS])[:SHOWN]
    if done.returncode or not found:
        return Finding(name, "warn", f"nvidia-smi: {found or 'finds none'}", cure)
    if importlib.util.find_spec("numba") is None:
        return Finding(name, "warn", f"{found} free, unused", 'pip install "apples[gpu]"')
    return Finding(name, "ok", f"{found} free: for hosts with a platform like cuda")


def _cpus(name: str) -> Finding:
    own = sorted(os.sched_getaffinity(0))
    return Finding(name, "ok", f"{len(own)} usable: {', '.join(map(str, own))}")


def _weather(name: str) -> Finding:
    here = LocalSensing(HostList((Host("localhost"),), Network()), rounds=2).weather()
    share, free = here.cpu["localhost"].value, here.free_memory["localhost"].value
    detail = f"a new process gets {digits(share, 2)} of a CPU, {amount(free)} of memory are free"
    return Finding(name, "ok", detail)


def _quota(name: str) -> Finding:
    reason = quota.writable()
    if reason is None:
        return Finding(name, "ok", "CPU quotas can be set: hosts with cpu below 1 are emulated")
    cure = "run as root, or have a cgroup delegated; without, such hosts run faster than planned"
    return Finding(name, "warn", f"no CPU quotas: {reason}", cure)


def _criu(name: str) -> Finding:
    """Move a sleeping program with each installed CRIU, as ``criu check`` does not prove that moves work."""
    found, missing = working_criu()
    cure = "install a private CRIU; without it, unmodified programs cannot be moved"
    if found is None:
        return Finding(name, "warn", missing, cure)
    reason = trial_migration()
    if reason:
        return Finding(name, "warn", f"{found.origin}: does not move a process: {reason}", cure)
    return Finding(name, "ok", f"{found.origin}, version {version_of(found)}: a process was moved")


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


def _shm(name: str) -> Finding:
    ranks = len(os.sched_getaffinity(0))
    if lacking := lacking_shared_memory(ranks):
        return Finding(name, "warn", lacking, LARGER_SHM)
    return Finding(name, "ok", f"enough for a rank on each of {ranks} CPUs")


def _ports(name: str) -> Finding:
    detail = (
        "while a program runs, mpiexec's control port listens on all interfaces of this machine without "
        "authentication; ranks use loopback, with ssh each host's interface towards this machine"
    )
    cure = (
        "on a shared network, let a firewall close high ports to all but the hosts of the list; "
        "MPIEXEC_PORT_RANGE and UCX_TCP_PORT_RANGE set the ports in use"
    )
    return Finding(name, "warn", detail, cure)


def _name(name: str) -> Finding:
    own = socket.gethostname()
    begin = time.monotonic()
    try:
        address = socket.getaddrinfo(own, None)[0][4][0]
    except OSError as error:
        cure = f"name it in /etc/hosts: some MPI programs wait for it ({error.strerror})"
        return Finding(name, "warn", f"{own} does not resolve", cure)
    took = time.monotonic() - begin
    if took > RESOLVE_SECONDS:
        return Finding(
            name, "warn", f"{own} takes {took:.1f} s to resolve", "name it in /etc/hosts"
        )
    return Finding(name, "ok", f"{own} is {address}")


def examine_hosts(listed: HostList) -> dict[str, Fitness]:
    """Return the fitness of every host of a list that is another machine.

    Fit hosts are tested with a launch: one MPI rank on each, and the ranks must connect.
    """
    others = [host for host in listed if not is_here(host)]
    return with_meeting(preflight(others, listed, Needs()), listed)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "of unknown version"


CHECKS: dict[str, Callable[[str], Finding]] = {
    "python": _python,
    "mpi": _mpi,
    "kernels": _kernels,
    "gpu": gpu_finding,
    "cpus": _cpus,
    "weather": _weather,
    "quota": _quota,
    "criu": _criu,
    "state": _state,
    "shm": _shm,
    "ports": _ports,
    "name": _name,
}


def examine_program(template: Path, settings: Mapping[str, str]) -> list[Check]:
    """Check a template's program against the application protocol in a small run; return the checks.

    Parameters
    ----------
    settings
        Parameters of the template; ``grid`` and ``iterations`` are small unless set here.

    Raises
    ------
    hat.DocumentError
        The template cannot be read, or has no small grid at these parameters.
    UsageError
        No implementation can run on this machine.
    """
    found = hat.read(template, hat.ApplicationTemplate)
    small, telling = (
        found.bind({**{k: v for k, v in size.items() if k in found.parameters}, **settings})
        for size in (SMALL, TELLING)
    )
    folder = template.resolve().parent
    programs = {
        one.name: found.command(
            one.name, folder, python=sys.executable, parameters=small.parameters
        )
        for one in found.implementations
        if one.runs_on(platform.machine()) and available_here("", one)
    }
    if not programs:
        raise UsageError(
            f"{template}: this machine lacks the requirements of every implementation",
            code="implementation-unavailable",
            file=template,
        )
    few, many = (ProblemSize(one.parameters, one.rows, one.columns) for one in (small, telling))
    tiled = {one.name for one in found.implementations if one.rectangles}
    by_threads = {one.name for one in found.implementations if one.threads}
    sweeps = {one.name: one.sweeps for one in found.implementations}
    return check_program(programs, few, many, tiled, by_threads, sweeps)
