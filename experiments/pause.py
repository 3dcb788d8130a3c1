"""Measure how long a job stands still for a resize, and for checkpoint and restart of the same job.

    python experiments/pause.py [--megabytes 8 128 512] [--repeats 20] [--apples COMMAND]

The job is a program of this file with one declared array, on up to four hosts of one rank that are parts of this
machine. Its first rank appends the time of each iteration to a file, and an iteration takes about a millisecond.
A pause is the longest interval between two iterations while ``apples resize`` runs. The program itself measures
it, so it includes the start of new ranks where that holds the program up. Repeats go in turn from 4
hosts to 2, to 4, and from one pair of hosts to the other pair.

Checkpoint and restart: the job has committed on disk, all its processes are killed, and ``apples restart``
continues it.
Its pause is the interval from the last iteration before the kill to the first one after it, so the time to write
the checkpoint is not counted.

Printed for each size: 50th and 95th percentile of the pauses, the same in seconds for each GB that moved between
hosts, memcpy of as many bytes in this process, and the ratio of restart to resize. Exit code 1 if restart takes
less than ten times a resize.

No result is kept.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from apples.launch import marked
from apples.malleable.control.commits import whole_manifests

COLUMNS = 1250
"""A row of float64 is 10,000 bytes."""
ROW_BYTES = 8 * COLUMNS
BAR = 10.0
ITERATION_SECONDS = 0.001
POLL_SECONDS = 0.05
MOVES = ("h0,h1", "h0,h1,h2,h3", "h2,h3", "h0,h1", "h0,h1,h2,h3")
RESTARTS = 5
PROGRAM = """
import time
from apples.program import Task

with Task(defaults={"rows": 100, "iterations": 10}, rows="rows", columns=%d) as task:
    data = task.array("data", (task.parameters["rows"], %d))
    for _ in task.iterations():
        with open(task.parameters["log"], "a") as stream:
            if task.rank == 0:
                stream.write(f"{time.time()!r}\\n")
        data.own[:1] += 1.0
        time.sleep(%r)
        task.allreduce(0.0)
    task.result(data.own)
"""
TEMPLATE = """
name = "pause"
program = ["{python}", "pause_program.py"]
malleable = true
[parameters.rows]
default = 100
minimum = 1
[parameters.iterations]
default = 10
minimum = 1
[parameters.log]
default = ""
[structure]
rows = "rows"
columns = "%d"
iterations = "iterations"
"""


class Job:
    """A job of this benchmark that runs until it is cancelled."""

    def __init__(self, apples: str, folder: Path, megabytes: int) -> None:
        self._apples, self._log = apples, folder / "times"
        self._log.unlink(missing_ok=True)
        words = [
            *("run", "--detach", "--hosts", str(folder / "hosts.toml"), "--weather", "static"),
            *("--template", str(folder / "template.toml"), "--user", str(folder / "user.toml")),
            *(
                "--no-verify",
                "--commit",
                "2",
                "--set",
                f"rows={megabytes * 1_000_000 // ROW_BYTES}",
            ),
            *("--set", "iterations=100000000", "--set", f"log={self._log}"),
        ]
        self.id = str(self.ask(*words)["id"])

    def ask(self, *words: str) -> dict[str, Any]:
        """Return the JSON document of an apples command."""
        done = subprocess.run(
            [self._apples, *words, "--json"], capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"{' '.join(words)}: {done.stderr}")
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def times(self, since: float) -> list[float]:
        """Return the times of iterations from the last one before `since` on."""
        times = [float(line) for line in self._log.read_text().splitlines()]
        first = max((k for k, moment in enumerate(times) if moment <= since), default=0)
        return times[first:]

    def next_iteration(self, since: float) -> None:
        """Wait until an iteration began after `since`."""
        while self.times(since)[-1] <= since:
            time.sleep(POLL_SECONDS)

    def resize(self, hosts: str) -> tuple[float, float]:
        """Resize the job; return its pause in seconds and the bytes that moved between hosts."""
        begun = time.time()
        answer = self.ask("resize", self.id, "--on", hosts)
        self.next_iteration(time.time())
        moments = self.times(begun)
        pause = max(after - before for before, after in itertools.pairwise(moments))
        change = answer.get("change") or {}
        return pause - ITERATION_SECONDS, float(change.get("bytes", 0.0))

    def restart(self) -> float:
        """Kill all processes of the job and restart it; return its pause in seconds."""
        folder = Path(os.environ["XDG_STATE_HOME"]) / "apples" / "jobs" / self.id
        commits = folder / "commits"
        before = next(whole_manifests(commits), {}).get("commit", 0)
        while next(whole_manifests(commits), {}).get("commit", 0) == before:
            time.sleep(POLL_SECONDS)
        os.kill(int((folder / "lock").read_text()), signal.SIGKILL)  # the job's supervisor
        while pids := marked(self.id):
            for pid in pids:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        begun = time.time()
        self.ask("restart", self.id)
        self.next_iteration(time.time())
        moments = self.times(begun)
        return max(after - before for before, after in itertools.pairwise(moments))


def memcpy_seconds(size: int) -> float:
    """Return the median time of a copy of `size` bytes in memory that is mapped already."""
    source, target = np.ones(size, np.uint8), np.ones(size, np.uint8)
    seconds = []
    for _ in range(5):
        begun = time.perf_counter()
        np.copyto(target, source)
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)


def percentile(values: list[float], share: float) -> float:
    """Return a percentile of some values, `share` in 0..1."""
    return float(np.quantile(values, share))


def measured(apples: str, folder: Path, megabytes: int, repeats: int) -> bool:
    """Measure one size and print its line; return whether the bar holds."""
    job = Job(apples, folder, megabytes)
    pauses, per_gigabyte = [], []
    for k in range(repeats):
        pause, size = job.resize(MOVES[k % len(MOVES)])
        pauses.append(pause)
        if size:
            per_gigabyte.append(pause / size * 1e9)
    restarts = [job.restart() for _ in range(RESTARTS)]
    job.ask("cancel", job.id)
    ratio = statistics.median(restarts) / statistics.median(pauses)
    rates = per_gigabyte or [float("nan")]
    print(
        f"{megabytes:5} MB  pause {percentile(pauses, 0.5):.3f} s (95 %: {percentile(pauses, 0.95):.3f} s)  "
        f"{percentile(rates, 0.5):.2f} s/GB moved (95 %: {percentile(rates, 0.95):.2f})  "
        f"memcpy {memcpy_seconds(megabytes * 1_000_000):.3f} s  "
        f"restart {statistics.median(restarts):.2f} s, {ratio:.1f} times a resize",
        flush=True,
    )
    return ratio >= BAR


def main() -> int:
    """Measure each size; return 1 if restart takes less than ten times a resize."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, nargs="+", default=[8, 128, 512])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--apples", default=str(Path(sysconfig.get_path("scripts")) / "apples"))
    options = parser.parse_args()
    print(
        f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} CPUs, {options.repeats} resizes a size"
    )
    good = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["XDG_STATE_HOME"] = name
        host = '[[host]]\nname = "h{}"\nseconds_per_point = 1e-9\n'
        links = "[default_link]\nlatency = 1e-6\nbandwidth = 1e9\n"
        (folder / "hosts.toml").write_text("\n".join(map(host.format, range(4))) + links)
        (folder / "user.toml").write_text("[constraints]\nmaximum_hosts = 4\n")
        (folder / "template.toml").write_text(TEMPLATE % COLUMNS)
        (folder / "pause_program.py").write_text(PROGRAM % (COLUMNS, COLUMNS, ITERATION_SECONDS))
        for megabytes in options.megabytes:
            good &= measured(options.apples, folder, megabytes, options.repeats)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
