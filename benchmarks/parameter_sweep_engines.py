"""Short tasks of a parameter sweep on both engines: programs that the agent starts itself, and a Dask cluster.

Run: python benchmarks/parameter_sweep_engines.py [--tasks 300] [--hosts 2] [--slots 2] [--rounds 3]
The hosts are processes of this machine for both, the tasks do nothing, so what is told is what an engine adds. In
turns; prints seconds a task and slot, the ratio, and the machine's load.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from distributed import LocalCluster

APPLES = Path(sys.executable).with_name("apples")
SWEEP = """
name = "short"
command = ["{{python}}", "-I", "-S", "task.py", "{{n}}"]
program = ["task.py"]
hosts = [{names}]
work = "0.05"
[parameters]
n = {{from = 1, to = {tasks}}}
"""


def seconds(folder, asked, number, address):
    """Return the seconds of one sweep on an engine, a task and slot."""
    words = [APPLES, "parameter-sweep", "--json", "--out", f"{number}-{bool(address)}"]
    words += ["--dask", address] if address else []
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    took = json.loads(done.stdout)["execution"]["measured_seconds"]
    each = took * asked.hosts * asked.slots / asked.tasks
    print(
        f"{'dask ' if address else 'hosts'} {took:5.1f} s, {1e3 * each:4.0f} ms a task and slot, "
        f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs",
        flush=True,
    )
    return each


def main():
    """Run both in turns and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=300)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as name,
        LocalCluster(
            n_workers=asked.hosts, threads_per_worker=asked.slots, dashboard_address=None
        ) as cluster,
    ):
        folder, names = Path(name), [str(n) for n in range(asked.hosts)]
        (folder / "hosts.toml").write_text(
            "".join(f'[[host]]\nname = "{n}"\nslots = {asked.slots}\n' for n in names)
        )
        quoted = ", ".join(f'"{n}"' for n in names)
        (folder / "sweep.toml").write_text(SWEEP.format(names=quoted, tasks=asked.tasks))
        (folder / "task.py").write_text("print('{}')\n")
        found = {"": [], cluster.scheduler_address: []}
        for number in range(asked.rounds):
            for address, times in found.items():
                times.append(seconds(folder, asked, number, address))
    hosts, dask = (median(times) for times in found.values())
    print(
        f"median: {1e3 * hosts:.0f} ms on hosts, {1e3 * dask:.0f} ms on Dask: {dask / hosts:.2f}"
    )


if __name__ == "__main__":
    main()
