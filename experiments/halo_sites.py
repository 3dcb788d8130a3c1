"""Measure the halo time of particles on a lab of two sites by placement strategy.

    python experiments/halo_sites.py [--rounds 5] [--steps 60] [--bandwidth 1e5]

Needs root. Four hosts, two a site, with a slow link between the sites. `greedy` and `refine` balance the load
only; `placement` also uses messages and distances, `blind` messages without distances. Exit code 1: `placement`
is not faster than `greedy` and `refine`.

Result (2026-11-23, 4 CPUs, load 17 to 28): 58 ms a step by `placement`, 199 `greedy`, 145 `refine`, 96 `blind`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean, median

APPLES = Path(sys.executable).with_name("apples")
EXAMPLE = Path(__file__).parents[1] / "examples" / "particles"
LAB = "halo-sites"
HOSTS = {"e1": "east", "w1": "west", "e2": "east", "w2": "west"}
STRATEGIES = ("greedy", "refine", "blind", "placement")
BLIND = '''"""Placement by messages that knows of no sites."""
from dataclasses import replace

from apples.malleable.balancers import placement


def blind(now):
    """Return the owners that placement gives where all hosts are as far."""
    alike = tuple(replace(one, distances={}) for one in now.processors)
    return placement(replace(now, processors=alike))
'''


def lab_file(bandwidth: float) -> str:
    """Return a lab of two sites with a slow way between."""
    sites = "".join(
        f'[[site]]\nname = "{site}"\nbandwidth = {bandwidth}\n'
        for site in sorted(set(HOSTS.values()))
    )
    hosts = "".join(
        f'[[host]]\nname = "{host}"\nsite = "{site}"\n' for host, site in HOSTS.items()
    )
    return f'name = "{LAB}"\n{sites}{hosts}'


def halo(hosts: Path, strategy: str, steps: int) -> tuple[float, float]:
    """Return milliseconds of halo and of all in a step of one run, means of the hosts."""
    words = ["--set", f"steps={steps}", "--set", f"strategy={strategy}"]
    argv = [
        str(APPLES), "run", "--json", "--hosts", str(hosts), "--actuator", "ssh", "--weather", "static",
        "--blueprint", "blocked", "--verify", "none", *words,
    ]  # fmt: skip
    done = subprocess.run(argv, cwd=EXAMPLE, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    execution = json.loads(done.stdout)["execution"]
    spent = [
        one["communicate_seconds"] + (one.get("wait_seconds") or 0.0) for one in execution["hosts"]
    ]
    return mean(spent) / steps * 1e3, execution["measured_seconds"] / steps * 1e3


def main() -> int:
    """Make the lab, run the strategies in turns, print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--bandwidth", type=float, default=1e5)
    asked = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = {one: [] for one in STRATEGIES}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "lab.toml").write_text(lab_file(asked.bandwidth))
        (folder / "blind.py").write_text(BLIND)
        up = [APPLES, "lab", "up", folder / "lab.toml", "--no-calibration", "--json"]
        made = subprocess.run(up, capture_output=True, check=True).stdout
        try:
            hosts = Path(json.loads(made)["hosts"])
            for number in range(asked.rounds):
                for strategy in STRATEGIES:
                    named = f"{folder / 'blind.py'}:blind" if strategy == "blind" else strategy
                    spent, step = halo(hosts, named, asked.steps)
                    found[strategy].append((spent, step))
                    print(
                        f"round {number} {strategy:10} halo {spent:7.1f} ms a step of {step:7.1f},"
                        f" load {os.getloadavg()[0]:.1f}",
                        flush=True,
                    )
        finally:
            subprocess.run([APPLES, "lab", "down", LAB], capture_output=True, check=True)
    halos = {one: median(spent for spent, _ in runs) for one, runs in found.items()}
    steps = {one: median(step for _, step in runs) for one, runs in found.items()}
    for one in STRATEGIES:
        print(
            f"{one:10} halo {halos[one]:7.1f} ms, step {steps[one]:7.1f} ms; placement's is"
            f" {halos['placement'] / halos[one]:.2f} and {steps['placement'] / steps[one]:.2f} of it"
        )
    return 0 if halos["placement"] < min(halos["greedy"], halos["refine"]) else 1


if __name__ == "__main__":
    sys.exit(main())
