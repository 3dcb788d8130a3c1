"""Compare tight, redundant and sparse decompositions of one field, and the benefit of each when a host leaves.

    python experiments/decomposition.py [STEPS]

Van Albada et al. 1999, "Job preparation". Four ranks stand for four equal hosts, bands of a field are the blocks,
and the second host is vacated. Measured are the CPU time of the slowest rank (median of the steps), messages and
bytes; the time of a step adds the messages' time on the link below.

Result (2026-11-23, 4 CPUs, load 60 to 75): three hosts with two partitions each were predicted at 152 ms an
iteration and took 172; with one partition 103 and 154.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from mpi4py import MPI

from apples.malleable import Blocks, Measured, Processor, refine

RANKS, VACATED = 4, 1
KINDS = ("tight", "redundant:2", "redundant:4", "redundant:8", "redundant:16", "sparse:1")
LATENCY, BANDWIDTH = 50e-6, 1e9
COLUMNS, POINTS, SWEEPS = 240, 1500, 8
"""Of the field: its columns are shared out; a step sweeps each block so often, as a force takes its time."""
BORDER_BYTES = 8 * POINTS


def main() -> None:
    """Run each decomposition on four ranks and print the table."""
    steps = sys.argv[1] if len(sys.argv) > 1 else "40"
    mpiexec = Path(sys.executable).with_name("mpiexec")
    link = f"{LATENCY * 1e6:.0f} us and {BANDWIDTH / 1e9:.0f} GB/s a message"
    print(f"{RANKS} ranks, median of {steps} steps; then rank {VACATED} is vacated; {link}")
    print(f"{'':14} |{'on four ranks':^43} |{'vacated':^41}")
    print(
        f"{'':14} | {'blocks':>6} {'compute':>8} {'messages':>8} {'step':>8} {'cost':>8} |"
        f" {'moved':>6} {'MB':>6} {'messages':>8} {'step':>8} {'slower':>8}"
    )
    first = 0.0
    for kind in KINDS:
        command = [str(mpiexec), "-n", str(RANKS), sys.executable, __file__, "--rank", kind, steps]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
        seen = json.loads(done.stdout.splitlines()[-1])
        one, two = seen["before"], seen["after"]
        before, after = (step_seconds(measured) for measured in (one, two))
        first = first or before
        print(
            f"{kind:14} | {seen['blocks']:6} {one['compute'] * 1e3:5.2f} ms {one['messages']:8.0f}"
            f" {before * 1e3:5.2f} ms {before / first:8.2f} | {seen['moved']:6} {seen['moved_bytes'] / 1e6:6.2f}"
            f" {two['messages']:8.0f} {after * 1e3:5.2f} ms {after / before:8.2f}"
        )
    print(
        "messages: of the rank with most, a step. cost: step against the tight fit's. slower: step on three ranks"
    )
    print("against the same decomposition's on four: 1.33 if all of it could be divided at will.")


def step_seconds(measured: dict[str, float]) -> float:
    """Return what a step takes: the slowest rank's computing, and its messages."""
    return measured["compute"] + measured["messages"] * (LATENCY + BORDER_BYTES / BANDWIDTH)


def nominal(measured: Measured) -> Sequence[int]:
    """Refine by the size of blocks and not by their times, so that each run makes the same moves."""
    return refine(replace(measured, work=tuple(map(float, measured.size))))


class Field:
    """Bands of a field of points, each a block, its neighbours' borders beside its own rows."""

    def __init__(self, world: MPI.Intracomm, kind: str) -> None:
        self.world = world
        self.bands: Blocks[np.ndarray] = Blocks(
            "bands", self._make, lambda band: {"band": band}, lambda arrays: arrays["band"],
            decomposition=kind, strategy=self._strategy,
        )  # fmt: skip
        self.place(range(RANKS))

    def place(self, enabled: Sequence[int]) -> None:
        """Begin on these ranks, or move to them."""
        here = [Processor(f"host{r}", enabled=r in enabled) for r in range(RANKS)]
        if len(self.bands):
            self.bands.redistribute(self.world, here)
        else:
            self.bands.begin(self.world, here)

    def _strategy(self, measured: Measured) -> Sequence[int]:
        sizes = tuple(round(share * COLUMNS) for share in self.bands.shares)
        return nominal(replace(measured, size=sizes))

    def _make(self, number: int) -> np.ndarray:
        edges = np.round(np.cumsum((0.0, *self.bands.shares)) * COLUMNS).astype(int)
        return np.random.default_rng(number).random(
            (edges[number + 1] - edges[number] + 2, POINTS)
        )

    def step(self) -> tuple[float, int]:
        """Exchange borders and smooth; return processor seconds of smoothing and messages sent."""
        requests, arriving, sent = [], [], 0
        for number, band in self.bands.items():
            for there, mine, theirs, way in ((number - 1, 1, 0, 0), (number + 1, -2, -1, 1)):
                if not 0 <= there < len(self.bands):
                    continue
                if there in self.bands:
                    band[theirs] = self.bands[there][-2 if way == 0 else 1]
                    continue
                owner, border = self.bands.owner(there), np.empty(POINTS)
                requests.append(self.world.Isend(band[mine].copy(), owner, 2 * number + way))
                requests.append(self.world.Irecv(border, owner, 2 * there + 1 - way))
                arriving.append((band, theirs, border))
                sent += 1
        MPI.Request.Waitall(requests)
        for band, theirs, border in arriving:
            band[theirs] = border
        begin = time.thread_time()
        for _, band in self.bands.items():  # noqa: PERF102 - no dict
            for _ in range(SWEEPS):
                inner = band[:-2, 1:-1] + band[2:, 1:-1] + band[1:-1, :-2] + band[1:-1, 2:]
                band[1:-1, 1:-1] = 0.25 * inner
        return time.thread_time() - begin, sent

    def measure(self, steps: int) -> dict[str, float]:
        """Return the slowest rank's computing and the most messages of a rank, a step. Collective."""
        self.step()
        seen = np.array([self.step() for _ in range(steps)])
        most = np.empty(2)
        self.world.Allreduce(np.median(seen, axis=0), most, MPI.MAX)
        return {"compute": float(most[0]), "messages": float(most[1])}


def rank(kind: str, steps: int) -> None:
    """Measure one decomposition: steps on all ranks, then without one."""
    world = MPI.COMM_WORLD
    field = Field(world, kind)
    before = field.measure(steps)
    field.place([r for r in range(RANKS) if r != VACATED])
    moved = world.allreduce(field.bands.moved_bytes)
    after = field.measure(steps)
    if world.Get_rank() == 0:
        print(json.dumps({
            "blocks": len(field.bands), "before": before, "after": after,
            "moved": field.bands.moved, "moved_bytes": moved,
        }))  # fmt: skip


if __name__ == "__main__":
    if "--rank" in sys.argv:
        rank(sys.argv[2], int(sys.argv[3]))
    else:
        main()
