"""The origin of a report, so that it can be reproduced: the command, the versions, the machine."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

Document = dict[str, Any]

PACKAGES = ("apples", "mpich", "mpi4py", "numpy", "numba")


def made_by(command: str) -> Document:
    """Return the command, the time, the versions of installed packages, and the machine."""
    return {
        "command": command,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version(), **dict(_versions())},
        "machine": {
            "system": f"{platform.system()} {platform.release()}",
            "processor": _processor(),
            "cpus": len(os.sched_getaffinity(0)),
            "memory": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        },
    }


def _versions() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        try:
            yield package, version(package)
        except PackageNotFoundError:
            continue


def _processor() -> str:
    """Return the model name of the processor, or its architecture if Linux gives no name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
