"""The part of this machine that this process may use: inside a container, taskset or batch job, its share.

Two sources give the same parts: hwloc's ``lstopo``, which also lists GPUs and network interfaces, and the
kernel's ``/sys``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from apples.errors import LaunchError, UsageError
from apples.topology.cpus import CpuSet
from apples.topology.machine import Topology, restricted
from apples.topology.sources.hwloc_xml import read_hwloc_xml
from apples.topology.sources.sysfs import read_sysfs

DEADLINE = 20.0
"""Time limit of ``lstopo`` in seconds; it reads every CPU in turn."""
_LSTOPO = ("lstopo-no-graphics", "lstopo")


def live_topology(source: str = "") -> Topology:
    """Return this machine with the CPUs and memory nodes that this process may use.

    Parameters
    ----------
    source
        `lstopo` or `sys`; empty: the first that is available.

    Raises
    ------
    LaunchError
        The requested source is unavailable or failed.
    UsageError
        The source is unknown.
    """
    if source and source not in SOURCES:
        raise UsageError(
            f"source '{source}': unknown; known: {', '.join(SOURCES)}",
            code="source-unknown",
            value=source,
            known=[*SOURCES],
        )
    if not source:
        source = "lstopo" if _lstopo() else "sys"
    return restricted(SOURCES[source](), own_cpus(), own_memory())


def own_cpus() -> CpuSet:
    """Return the CPUs that this process may run on: its affinity, within its cgroup."""
    return CpuSet.of(os.sched_getaffinity(0))


def own_memory() -> CpuSet | None:
    """Return the memory nodes that this process may use; None if the kernel does not state them."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    lists = [
        line.split(":")[1] for line in status.splitlines() if line.startswith("Mems_allowed_list")
    ]
    return CpuSet.parse(lists[0]) if lists else None


def _lstopo() -> str | None:
    return next((found for name in _LSTOPO if (found := shutil.which(name))), None)


def _from_lstopo() -> Topology:
    program = _lstopo()
    if program is None:
        raise LaunchError(
            "no lstopo: install hwloc, or read /sys (--source sys)",
            code="source-missing",
            value="lstopo",
        )
    words = [program, "--of", "xml", "-"]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("HWLOC_")}
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            timeout=DEADLINE,
            check=False,
            env=clean,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise LaunchError(
            f"{program} did not answer within {DEADLINE:.0f} s",
            code="tool-timeout",
            tool=program,
            seconds=DEADLINE,
        ) from error
    if done.returncode != 0:
        words_of_error = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or [
            "nothing"
        ]
        raise LaunchError(
            f"{program} ended with {done.returncode}: {words_of_error[0][:200]}",
            code="command-failed",
            tool=program,
            value=done.returncode,
        )
    return read_hwloc_xml(done.stdout, "this machine")


SOURCES: Mapping[str, Callable[[], Topology]] = {
    "lstopo": _from_lstopo,
    "sys": read_sysfs,
}
