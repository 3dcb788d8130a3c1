"""Measure the cost of counting messages for an exchange of 32 kB between two ranks.

    python experiments/count_messages.py [--repeats N]

Counted and uncounted exchanges alternate inside one program, a hundred each; lower quartiles are compared. A
control run without the library shows the noise. Exit code 1: counting costs more than 1 % of an exchange.

No result is kept.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from apples.launch.message_counts.counter import MessageCounts

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
BAR = 1.0  # per cent of an exchange


def main() -> bool:
    """Print the cost; say whether the bar holds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    counts = MessageCounts.into()
    with tempfile.TemporaryDirectory() as work:
        program = Path(work, "exchange")
        subprocess.run([BIN / "mpicc", "-O2", "-o", program, HERE / "exchange.c"], check=True)
        environment = {**counts.environment(), "LD_PRELOAD": str(counts.library)}
        found: dict[str, list[float]] = {"counted": [], "control": []}
        exchange = 0.0
        for _ in range(repeats):
            for name, added in (("counted", environment), ("control", {})):
                through, past = measured(program, added)
                found[name].append(100 * (through / past - 1))
                exchange = past
    counts.discard()
    load = os.getloadavg()[0]
    print(f"two ranks, 32 kB: an exchange takes {1e6 * exchange:.1f} us; load {load:.1f}")
    cost = statistics.median(found["counted"])
    mark = "ok  " if cost <= BAR else "OVER"
    print(f"{mark}  counting costs {cost:+.2f} % of it (at most {BAR:g})", end="; ")
    print(f"control {statistics.median(found['control']):+.2f} %; medians of {repeats}", end=" ")
    print("(", ", ".join(f"{one:+.2f}" for one in found["counted"]), ")", sep="")
    return cost <= BAR


def measured(program: Path, environment: Mapping[str, str]) -> tuple[float, float]:
    """Return the seconds of an exchange through the library, and past it."""
    command = [str(BIN / "mpiexec"), "-n", "2"]
    for name, value in environment.items():
        command += ["-genv", name, value]
    ran = subprocess.run([*command, str(program)], capture_output=True, text=True, check=True)
    _, _, through, past = map(float, ran.stdout.split())
    return through, past


if __name__ == "__main__":
    sys.exit(not main())
