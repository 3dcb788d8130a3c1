"""The demo's world: four unequal hosts made of this machine, written down as a user would.

Unequal in three ways, without root: the CPUs are shared by two hosts where there are few, a competing
load sits on some of them, and two hosts only have the plain numpy implementation.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

import hat
from apples.agent.information import InformationPool, load_information
from apples.agent.model import SpeedFunction
from apples.launch.sample import example_folder

HOSTS = ("ada", "bob", "eve", "fay")
PLAIN = {"bob": "numpy", "fay": "numpy"}
LARGEST_GRID, SMALLEST_GRID = 5000, 1000
MEMORY_SHARE = 0.25
"""The grid's two arrays take no more than this share of the free memory."""


@dataclass(frozen=True)
class DemoWorld:
    """A folder with ``hosts.toml``, ``template.toml`` and ``user.toml``, and the load that belongs to it.

    Attributes
    ----------
    cpus
        The CPU of each host, in the order of `HOSTS`.
    loads
        CPUs to keep busy; one named twice gets two competitors.
    """

    folder: Path
    grid: int
    cpus: tuple[int, ...]
    loads: tuple[int, ...]

    @classmethod
    def on_this_machine(cls, folder: Path, grid: int = 0) -> DemoWorld:
        """Write the files for this machine's CPUs and memory; `grid` 0 chooses by memory."""
        own = sorted(os.sched_getaffinity(0))
        cpus = tuple(own[k * len(own) // len(HOSTS)] for k in range(len(HOSTS)))
        busy = sorted(set(cpus[len(HOSTS) // 2 :]))
        loads = tuple(cpu for times, cpu in enumerate(busy, 1) for _ in range(times))
        world = cls(folder, grid or _grid(), cpus, loads)
        world._write({})
        return world

    def calibrated(self, found: Mapping[str, Mapping[str, SpeedFunction]]) -> DemoWorld:
        """Write the measured dedicated speeds into the host list: what a good static list would say."""
        chosen = self.load(1).active_set.implementations
        rows = self.grid / len(HOSTS)
        self._write({host: found[host][chosen[host].name].at(rows) for host in HOSTS})
        return replace(self)

    def load(self, iterations: int) -> InformationPool:
        """Return the static information pool of the files."""
        files = (self.folder / name for name in ("hosts.toml", "template.toml", "user.toml"))
        return load_information(*files, settings={"grid": self.grid, "iterations": iterations})

    def said(self) -> str:
        """Return the hosts in one line."""
        parts = []
        for name, cpu in zip(HOSTS, self.cpus, strict=True):
            load = self.loads.count(cpu)
            parts.append(f"{name} on CPU {cpu}" + (f" beside {load} competing" if load else ""))
        return ", ".join(parts)

    def _write(self, speeds: Mapping[str, float]) -> None:
        lines = []
        for name, cpu in zip(HOSTS, self.cpus, strict=True):
            lines += ["[[host]]", f'name = "{name}"', f"cpus = [{cpu}]"]
            lines.append(
                f"cpu = {1 / self.cpus.count(cpu)} # shared by hosts, no load: a static view"
            )
            if name in speeds:
                lines.append(f"seconds_per_point = {speeds[name]!r}")
            lines.append("")
        lines += ["[default_link]", "latency = 2e-5", "bandwidth = 4e9", ""]
        (self.folder / "hosts.toml").write_text("\n".join(lines), encoding="utf-8")
        (self.folder / "user.toml").write_text("", encoding="utf-8")
        example = example_folder()
        template = hat.read(example / "template.toml", hat.ApplicationTemplate)
        program = ("{python}", str(example / "solver.py"))
        own = template.model_copy(update={"program": program, "active_set": PLAIN})
        (self.folder / "template.toml").write_text(hat.dump(own), encoding="utf-8")


@contextmanager
def own_state(folder: str) -> Iterator[None]:
    """Remember what the demo learns in its own folder, not among the user's applications."""
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(Path(folder) / "state")
    try:
        yield
    finally:
        if before is None:
            del os.environ["XDG_STATE_HOME"]
        else:
            os.environ["XDG_STATE_HOME"] = before


def _grid() -> int:
    free = psutil.virtual_memory().available * MEMORY_SHARE
    return int(max(SMALLEST_GRID, min(LARGEST_GRID, (free / 16) ** 0.5))) // 100 * 100
