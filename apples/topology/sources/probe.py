"""Reads the topology of another machine: this file is sent there as a program, and prints a description.

It runs there as ``python -I -S probe.py [brief]`` with the standard library only. It prints one JSON document:
the CPUs and memory nodes it may use, and the kernel's description. Another program that is sent includes it as a
module and calls `packed`.
"""

from __future__ import annotations

import base64
import glob
import json
import os
import sys
import zlib

SCHEMA = "apples.probe/1"
ROOT = "/sys/devices/system/"
BOOT = "/proc/sys/kernel/random/boot_id"
BRIEF = "brief"
"""Argument that asks only for the CPUs and memory nodes this process may use."""
FILES = (
    "cpu/online",
    "cpu/present",
    "../cpu_*/cpus",
    "cpu/cpu[0-9]*/cpu_capacity",
    "cpu/cpu[0-9]*/topology/*_list",
    "cpu/cpu[0-9]*/topology/*_id",
    "cpu/cpu[0-9]*/cache/index*/level",
    "cpu/cpu[0-9]*/cache/index*/type",
    "cpu/cpu[0-9]*/cache/index*/shared_cpu_list",
    "node/online",
    "node/node[0-9]*/cpulist",
    "node/node[0-9]*/distance",
    "node/node[0-9]*/meminfo",
)


def describe(root: str = ROOT, patterns: tuple[str, ...] = FILES) -> dict[str, object]:
    """Return the kernel's description of this machine, and the CPUs and memory nodes this process may use."""
    files = {}
    for pattern in patterns:
        for path in glob.glob(root + pattern):  # noqa: PTH207 - travels, and starts fast
            try:
                with open(path, encoding="ascii") as stream:  # noqa: PTH123 - likewise
                    files[path[len(root) :]] = stream.read()
            except (OSError, UnicodeDecodeError):  # a CPU that went offline
                continue
    memory = ""
    with open("/proc/self/status", encoding="ascii", errors="replace") as stream:  # noqa: PTH123
        for line in stream:
            if line.startswith("Mems_allowed_list:"):
                memory = line.split(":")[1].strip()
    cpus = sorted(os.sched_getaffinity(0))
    return {"schema": SCHEMA, "boot": _boot(), "cpus": cpus, "memory": memory, "files": files}


def _boot() -> str:
    """Return the boot id, which all containers of one machine share; empty if the kernel gives none."""
    try:
        with open(BOOT, encoding="ascii") as stream:  # noqa: PTH123 - as above
            return stream.read().strip()
    except OSError:
        return ""


def packed() -> str:
    """Return `describe` compressed, as one word of text."""
    return base64.b64encode(zlib.compress(json.dumps(describe()).encode())).decode("ascii")


if __name__ == "__main__":
    print(json.dumps(describe(patterns=() if BRIEF in sys.argv[1:] else FILES)))  # noqa: T201 - a program of its own
