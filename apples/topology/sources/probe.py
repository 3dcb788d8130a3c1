"""Asks another machine for its topology: a program that travels, and what reads its answer.

The program is this file, run there as ``python -I -S probe.py [brief]`` with standard library only; it
prints one JSON document: the CPUs and memory nodes it may use, and the kernel's own description. Another
program that travels takes it along as a module and calls `packed`.
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
"""Asks for what this process may use, without the machine."""
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
    """Return what this machine says of itself to this process."""
    files = {}
    for pattern in patterns:
        for path in glob.glob(root + pattern):  # noqa: PTH207 - travels, and starts fast
            try:
                with open(path, encoding="ascii") as stream:  # noqa: PTH123 - likewise
                    files[path[len(root) :]] = stream.read()
            except (OSError, UnicodeDecodeError):  # a CPU that went away
                continue
    memory = ""
    with open("/proc/self/status", encoding="ascii", errors="replace") as stream:  # noqa: PTH123
        for line in stream:
            if line.startswith("Mems_allowed_list:"):
                memory = line.split(":")[1].strip()
    cpus = sorted(os.sched_getaffinity(0))
    return {"schema": SCHEMA, "boot": _boot(), "cpus": cpus, "memory": memory, "files": files}


def _boot() -> str:
    """Return what is the same for all parts of one machine; empty where it does not say."""
    try:
        with open(BOOT, encoding="ascii") as stream:  # noqa: PTH123 - as above
            return stream.read().strip()
    except OSError:
        return ""


def packed() -> str:
    """Return `describe` as one word of text, compressed."""
    return base64.b64encode(zlib.compress(json.dumps(describe()).encode())).decode("ascii")


if __name__ == "__main__":
    print(json.dumps(describe(patterns=() if BRIEF in sys.argv[1:] else FILES)))  # noqa: T201 - a program of its own
