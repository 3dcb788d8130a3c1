"""Real labs for tests: why there can be none, and what a lab has on the machine."""

import contextlib
from pathlib import Path

from apples.errors import UsageError
from apples.lab import LabDocument, tools
from apples.lab.record import MARK, identity

SMALL = """
name = "small"
[[site]]
name = "here"
bandwidth = 4e6
[[site]]
name = "there"
bandwidth = 2e6
[[host]]
name = "ada"
site = "here"
cpu = 1.5
[[host]]
name = "bob"
site = "here"
cpu = 0.25
memory = "256 MB"
[[host]]
name = "far"
site = "there"
cpu = 0.25
"""


def lacking(**asked):
    """Return why this machine can have no such lab; empty when it can."""
    hosts = [{"name": "a", "cpu": 0.5, "memory": 1 << 28}]
    try:
        tools.require(
            LabDocument(name="x", host=hosts, site=[{"name": "local", "bandwidth": 1e6}], **asked)
        )
    except UsageError as error:
        return str(error)
    return ""


def belongings(folder):
    """Return everything on this machine that is a lab's: interfaces, cgroups, mounts, processes, files."""
    mark = identity(folder)
    found = {f"link {p.name}" for p in Path("/sys/class/net").iterdir() if mark in p.name}
    for root in Path("/sys/fs/cgroup").rglob(f"apples-lab-{mark}*"):
        found.add(f"cgroup {root}")
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if mark in line or str(folder) in line:
            found.add(f"mount {line}")
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                if f"{MARK}={mark}".encode() in (process / "environ").read_bytes().split(b"\0"):
                    found.add(f"process {process.name}")
                if str(folder).encode() in (process / "cmdline").read_bytes():
                    found.add(f"process {process.name} {(process / 'cmdline').read_bytes()!r}")
    if folder.exists():
        found.add(f"folder {folder}")
    return found
