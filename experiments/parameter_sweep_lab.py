"""Compare a planned parameter sweep with a work queue on a lab of nine hosts over ssh.

    python experiments/parameter_sweep_lab.py [--rounds 2] [--tasks 10] [--files 30] [--seconds 0.5]

Needs root. Two sites of four hosts behind 1 MB/s and a storage at a third; 300 tasks share 30 files of 1 MB. Exit
code 1: planned runs take more than 0.7 of the time of the work queue.

Result: `benchmarks/results/parameter_sweep_lab.json`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean

APPLES = Path(sys.executable).with_name("apples")
LAB = "parameter-sweep"
BAR = 0.7
TASK = """
import hashlib, json, sys, time
data = open(sys.argv[1], "rb").read()
time.sleep(float(sys.argv[2]))
print(json.dumps({"digest": hashlib.sha256(data).hexdigest()}))
"""


def lab_file():
    """Return a lab of a storage and two sites of four hosts each behind a slow link."""
    sites = {"home": ("store",), "lab": ("l1", "l2", "l3", "l4"), "den": ("d1", "d2", "d3", "d4")}
    text = f'name = "{LAB}"\n'
    for site in sites:
        text += f'[[site]]\nname = "{site}"\nbandwidth = {20e6 if site == "home" else 1e6}\n'
    for site, hosts in sites.items():
        text += "".join(f'[[host]]\nname = "{host}"\nsite = "{site}"\n' for host in hosts)
    return text


def sweep_file(folder, asked):
    """Return the sweep: each task reads one file and takes so many seconds."""
    return f"""
name = "shared"
command = ["{{python}}", "task.py", "{{mesh}}", "{asked.seconds}"]
program = ["task.py"]
hosts = ["l1", "l2", "l3", "l4", "d1", "d2", "d3", "d4"]
work = "{asked.seconds}"
[parameters]
part = {{from = 1, to = {asked.files}}}
number = {{from = 1, to = {asked.tasks}}}
[input.mesh]
file = "{folder}/mesh-{{part}}"
storage = "store"
"""


def seconds(folder, hosts, heuristic, number):
    """Return the makespan of one run, and how many files were moved."""
    words = ["run", "--hosts", hosts, "--output", f"{heuristic}-{number}", "--json"]
    words += ["--heuristic", heuristic] if heuristic else []
    done = subprocess.run([APPLES, *words], cwd=folder, capture_output=True, text=True, check=True)
    execution = json.loads(done.stdout)["execution"]
    load = os.getloadavg()[0]
    took, moved = execution["measured_seconds"], execution["moved_files"]
    print(
        f"{heuristic or 'planned':8s} {took:5.1f} s, {moved} files moved, load {load:.1f}",
        flush=True,
    )
    return took


def main():
    """Make the lab, run both in turns, print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--tasks", type=int, default=10)
    parser.add_argument("--files", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=0.5)
    asked = parser.parse_args()
    found = {"": [], "queue": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "lab.toml").write_text(lab_file())
        (folder / "sweep.toml").write_text(sweep_file(folder, asked))
        (folder / "task.py").write_text(TASK)
        for part in range(1, asked.files + 1):
            (folder / f"mesh-{part}").write_bytes(os.urandom(1_000_000))
        up = [APPLES, "lab", "up", folder / "lab.toml", "--no-calibration", "--json"]
        hosts = json.loads(subprocess.run(up, capture_output=True, check=True).stdout)["hosts"]
        try:
            for number in range(asked.rounds):
                for heuristic, times in found.items():
                    times.append(seconds(folder, hosts, heuristic, number))
        finally:
            subprocess.run([APPLES, "lab", "down", LAB], capture_output=True, check=True)
    ratio = mean(found[""]) / mean(found["queue"])
    print(f"planned over work queue: {ratio:.2f} (bar {BAR})")
    return 0 if ratio <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
