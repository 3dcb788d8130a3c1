"""Compare the rate of master and workers on a lab of seven hosts with the prediction and with other sets.

    python experiments/master_worker_lab.py [--units 1000] [--milliseconds 200] [--sets 8]

Needs root. Two sites, one behind 100 kB/s. Units wait as long as the host's speed requires. Exit code 1: the rate
is more than 10 % off the prediction, or below 0.95 of the best set's.

Result: `benchmarks/results/master_worker_lab.json`.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

APPLES = Path(sys.executable).with_name("apples")
LAB = "master-worker"
SPEEDS = {"l1": 1.0, "l2": 2.0, "l3": 2.0, "l4": 4.0, "d1": 1.0, "d2": 1.0, "d3": 1.0}
PROGRAM = """
import socket, time
SPEEDS = {speeds}
SPEED = SPEEDS[socket.gethostname()] if socket.gethostname() in SPEEDS else 1.0

def units(parameters):
    for number in range({units}):
        yield [number, "x" * {size}]

def work(unit):
    time.sleep({seconds} * SPEED)
    return unit[0]

def combine(total, result):
    return (total or 0) + result
"""


def lab_file():
    """Return a lab of two sites, one of which lies behind a slow link."""
    text = f'name = "{LAB}"\n[[site]]\nname = "lab"\nbandwidth = 1e7\n[[site]]\nname = "den"\nbandwidth = 1e5\n'
    for host in SPEEDS:
        site = "lab" if host.startswith("l") else "den"
        text += f'[[host]]\nname = "{host}"\nsite = "{site}"\n'
    return text


def measured(folder, hosts, *words):
    """Return the document of one run."""
    argv = [APPLES, "run", "--hosts", hosts, "--verify", "none", "--json", *words]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found = json.loads(done.stdout)
    rate = found["execution"]["measured_rate"]
    counts = " ".join(f"{h}:{n}" for h, n in sorted(found["execution"]["hosts"].items()))
    print(
        f"{found['master']} with {','.join(found['workers']):24s} {rate:6.1f} a second, "
        f"{found['predicted_rate']:6.1f} predicted ({found['bound']}), load {os.getloadavg()[0]:.1f}; {counts}",
        flush=True,
    )
    return found


def main():
    """Make the lab, run the chosen set and others, print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, default=1000)
    parser.add_argument("--milliseconds", type=float, default=200.0)
    parser.add_argument("--size", type=int, default=20_000)
    parser.add_argument("--sets", type=int, default=8)
    asked = parser.parse_args()
    seconds = asked.milliseconds / 1e3
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "lab.toml").write_text(lab_file())
        (folder / "program.py").write_text(
            PROGRAM.format(speeds=SPEEDS, units=asked.units, size=asked.size, seconds=seconds)
        )
        (folder / "master-worker.toml").write_text(
            f'name = "waits"\nunits = "{asked.units}"\nbytes = "{asked.size + 20}"\nevery = 1000.0\n'
        )
        up = [APPLES, "lab", "up", folder / "lab.toml", "--no-calibration", "--json"]
        hosts = Path(
            json.loads(subprocess.run(up, capture_output=True, check=True).stdout)["hosts"]
        )
        try:
            text = hosts.read_text()
            for host, speed in SPEEDS.items():
                text = text.replace(
                    f'name = "{host}"\n',
                    f'name = "{host}"\nseconds_per_point = {seconds * speed}\n',
                )
            mine = hosts.with_name("paced.toml")
            mine.write_text(text)
            chosen = measured(folder, mine)
            rates = [chosen["execution"]["measured_rate"]]
            drawn = random.Random(1)
            for number in range(asked.sets):
                some = drawn.sample(list(SPEEDS), drawn.randint(3, 7)) if number else list(SPEEDS)
                master = drawn.choice(list(SPEEDS)) if number > 2 else chosen["master"]
                words = ("--workers", ",".join(some), "--master", master)
                rates.append(measured(folder, mine, *words)["execution"]["measured_rate"])
        finally:
            subprocess.run([APPLES, "lab", "down", LAB], capture_output=True, check=True)
    off = rates[0] / chosen["predicted_rate"] - 1
    best = rates[0] / max(rates)
    print(
        f"chosen: {off:+.1%} of the predicted rate (bar 10 %), {best:.3f} of the best set's (bar .95)"
    )
    return 0 if abs(off) <= 0.1 and best >= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
