"""Kill all processes of jobs with commits, restart the jobs, and compare their results.

    python experiments/restarts.py [--jobs 20] [--at-once 4] [--hosts 8] [--rounds 1] [--apples COMMAND]

One rank a job, a commit twice a second. Exit code 1: the last job computes again after more than 15 s, or a result
differs from that of an undisturbed job.

No result is kept.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from jobs import SAMPLE, asked, host_lists

from apples.launch.job_processes import marked
from apples.malleable.control.commits import whole_manifests

ITERATIONS = 3000
BAR = 15.0
LOOK_SECONDS = 0.1
SLOW = 300
"""How many times longer a host takes than it means to, while the file says so."""


def lost(folders: list[Path]) -> int:
    """Kill every process of some jobs."""
    supervisors = {int((folder / "lock").read_text()) for folder in folders}
    found = {pid for folder in folders for pid in marked(folder.name)} | supervisors
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    while any(marked(folder.name) for folder in folders):
        time.sleep(LOOK_SECONDS)
    return len(found)


def ended(apples: str, job: str) -> dict[str, Any]:
    """Return the document of a job that is waited for."""
    words = [apples, "wait", job, "--timeout", "600", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    document: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
    return document


def one_round(options: argparse.Namespace, folder: Path) -> bool:
    """Start the jobs, lose them, start them again and let them end; say whether the bars hold."""
    hosts, slow = host_lists(folder, options.hosts)[0], folder / "slow"
    (folder / "one.toml").write_text("[constraints]\nmaximum_hosts = 1\n")
    slow.write_text("".join(f"h{k} {SLOW}\n" for k in range(options.hosts)))
    submit = [
        *(options.apples, "run", "--detach", "--hosts", str(hosts), "--commit", "0.5", "--json"),
        *("--template", str(SAMPLE / "template.toml"), "--user", str(folder / "one.toml")),
        *("--weather", "static", "--no-verify", "--set", f"iterations={ITERATIONS}"),
        *("--set", "pause=0.001", "--set", f"slow={slow}"),
    ]
    with ThreadPoolExecutor(options.at_once) as pool:
        jobs = [str(job["id"]) for job, _ in pool.map(asked, [submit] * options.jobs)]
        folders = [folder / "apples" / "jobs" / job for job in jobs]
        while not all(next(whole_manifests(one / "commits"), None) for one in folders):
            time.sleep(LOOK_SECONDS)
        killed, load, begun = lost(folders), os.getloadavg()[0], time.perf_counter()

        def again(job: str) -> tuple[dict[str, object], float]:
            return asked([options.apples, "restart", job, "--json"])[
                0
            ], time.perf_counter() - begun

        answers = list(pool.map(again, jobs))
        slow.unlink()
        results = list(pool.map(lambda job: ended(options.apples, job), jobs))
    right = hashlib.sha256(np.full((60, 4), float(ITERATIONS)).tobytes()).hexdigest()
    went_on = sum(int(str(one["iteration"])) > 0 and one["attempt"] == 2 for one, _ in answers)
    same = sum(one.get("result_sha256") == right for one in results)
    took = max(seconds for _, seconds in answers)
    print(
        f"{killed} processes killed; {went_on} of {options.jobs} jobs go on, the last after {took:.1f} s "
        f"(bar {BAR:g}; load {load:.1f}, {os.cpu_count()} CPUs); {same} end with the same bits"
    )
    return took <= BAR and went_on == same == options.jobs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--at-once", type=int, default=4, help="commands at once")
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--apples", default=str(Path(sysconfig.get_path("scripts")) / "apples"))
    options = parser.parse_args()
    good = True
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as name:
            os.environ["XDG_STATE_HOME"] = name
            good &= one_round(options, Path(name))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
