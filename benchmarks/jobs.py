"""Many detached jobs at once: until all run, CPU and memory of a job on the head, and what verbs cost.

    python benchmarks/jobs.py [--jobs 20] [--at-once 4] [--hosts 8] [--apples COMMAND]

The jobs have one rank each, on parts of this machine that play hosts. Memory is the proportional set size (PSS),
read from the processes when all jobs run. To compare two checkouts give the command of each, in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from apples.launch.supervisor import MANAGER
from apples.malleable.manager.process_groups import SUPERVISOR
from apples.supervision.job_processes import marked, parent_of

SAMPLE = Path(__file__).parents[1] / "tests" / "jobs" / "sample"
KINDS = {
    MANAGER: "job manager",
    SUPERVISOR: "on the host",
    "launch/supervisor.py": "run supervisor",
    "mpiexec": "on the host",
    "hydra_pmi": "on the host",
    "bind.py": "on the host",
    "program.py": "on the host",
}
VERBS = 5


def files(folder: Path, hosts: int) -> list[str]:
    """Write the files of a job that one of so many hosts is to run; return the options that name them."""
    host = '[[host]]\nname = "h{}"\nseconds_per_point = 1e-4\n'
    links = "[default_link]\nlatency = 1e-6\nbandwidth = 1e9\n"
    (folder / "hosts.toml").write_text("\n".join(map(host.format, range(hosts))) + links)
    (folder / "user.toml").write_text("[constraints]\nmaximum_hosts = 2\n")
    (folder / "one.toml").write_text("[constraints]\nmaximum_hosts = 1\n")
    return [
        *("--hosts", str(folder / "hosts.toml"), "--template", str(SAMPLE / "template.toml")),
        *("--weather", "static", "--no-verify", "--json"),
        *("--set", "iterations=1000000", "--set", "pause=0.1"),
    ]


def asked(words: list[str]) -> tuple[dict[str, object], float]:
    """Return what a command answers, and the seconds it took."""
    begun = time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: {done.stderr}")
    return json.loads(done.stdout), time.perf_counter() - begun


def cpu() -> float:
    """CPU seconds of all commands so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cpu_of(pid: int) -> float:
    """CPU seconds of a process so far, and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def pss(pid: int) -> float:
    """MB of a process, its part of what it shares included."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def looked_at(folders: list[Path]) -> tuple[Counter[str], Counter[str]]:
    """Return MB and CPU seconds of all processes of some jobs, by kind."""
    supervisors = {int((folder / "lock").read_text()) for folder in folders}
    kinds = dict.fromkeys(supervisors, "job supervisor")
    for parent in {parent_of(pid) for pid in supervisors}:
        if b"interpreter" in Path(f"/proc/{parent}/cmdline").read_bytes():
            kinds[parent] = "parked interpreter"
    for pid in (pid for folder in folders for pid in marked(folder.name)):
        words = Path(f"/proc/{pid}/comm").read_text() + Path(f"/proc/{pid}/cmdline").read_text()
        kinds[pid] = next((kind for word, kind in KINDS.items() if word in words), "other")
    memory, seconds = Counter[str](), Counter[str]()
    for pid, kind in kinds.items():
        memory[kind] += pss(pid)
        seconds[kind] += cpu_of(pid)
    return memory, seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--at-once", type=int, default=4, help="commands at once")
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--apples", default=str(Path(sysconfig.get_path("scripts")) / "apples"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        os.environ["XDG_STATE_HOME"] = name
        submit = [options.apples, "run", "--detach", *files(Path(name), options.hosts)]
        one = [*submit, "--user", f"{name}/one.toml"]
        used, begun = cpu(), time.perf_counter()
        with ThreadPoolExecutor(options.at_once) as pool:
            jobs = [job["id"] for job, _ in pool.map(asked, [one] * options.jobs)]
        took, used = time.perf_counter() - begun, cpu() - used
        load = os.getloadavg()[0]
        memory, seconds = looked_at([Path(name) / "apples" / "jobs" / str(job) for job in jobs])
        for job in jobs:
            asked([options.apples, "cancel", str(job), "--json"])
        print(
            f"{options.jobs} jobs run after {took:.1f} s (load {load:.1f}, {os.cpu_count()} CPUs)"
        )
        print(f"a job's commands: {used / options.jobs:.2f} s CPU")
        for kind in sorted(memory, key=lambda kind: kind == "on the host"):
            each = memory[kind] / options.jobs, seconds[kind] / options.jobs
            print(f"a job's {kind:20} {each[0]:6.1f} MB  {each[1]:5.2f} s CPU")
        head = sum(each for kind, each in memory.items() if kind != "on the host")
        print(f"a job on the head: {head / options.jobs:.1f} MB")
        job = str(asked([*submit, "--user", f"{name}/user.toml"])[0]["id"])
        for verb, moves in {
            "jobs": [[]],
            "resize, shrink and grow": [["--hosts", "h0"], ["--hosts", "h0,h1"]],
        }.items():
            words = [verb.split(",")[0], job, "--json"]
            used, found = cpu(), list[float]()
            for _ in range(VERBS):
                found += [asked([options.apples, *words, *move])[1] for move in moves]
            used = (cpu() - used) / len(found)
            print(f"apples {verb}: {statistics.median(found):.2f} s, {used:.2f} s CPU")
        asked([options.apples, "cancel", job, "--json"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
