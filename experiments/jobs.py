"""Measure the memory and the time of jobs started with `apples submit`.

    python experiments/jobs.py [--jobs 20] [--at-once 4] [--hosts 8] [--lab] [--apples COMMAND]

The jobs have one rank each, on parts of this machine. Other experiments use its functions.

Result (2026-11-29, 2 CPUs): 27.5 MB of memory on the head for each of 20 jobs.
"""

from __future__ import annotations

import argparse
import contextlib
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
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from apples.lab import labs, record
from apples.launch.host_agent import MANAGER
from apples.launch.job_processes import marked
from apples.malleable.manager.hosts import SUPERVISOR

SAMPLE = Path(__file__).parents[1] / "tests" / "jobs" / "sample"
KINDS = {
    "ssh\n": "connection",
    "node.supervisor": "on the host",
    MANAGER: "job manager",
    SUPERVISOR: "on the host",
    "launch/host_agent.py": "run supervisor",
    "mpiexec": "on the host",
    "hydra_pmi": "on the host",
    "rank_wrapper.py": "on the host",
    "bind.py": "on the host",
    "program.py": "on the host",
}
VERBS = 5


def host_lists(folder: Path, hosts: int) -> list[Path]:
    """Write the list of so many hosts; return where it is."""
    host = '[[host]]\nname = "h{}"\nseconds_per_point = 1e-4\n'
    links = "[default_link]\nlatency = 1e-6\nbandwidth = 1e9\n"
    (folder / "hosts.toml").write_text("\n".join(map(host.format, range(hosts))) + links)
    return [folder / "hosts.toml"]


@contextlib.contextmanager
def lab_of(apples: str, folder: Path, hosts: int) -> Iterator[list[Path]]:
    """Yield the host lists of a lab: a list for each host, with that one first."""
    site = 'name = "jobs"\nssh = true\n[[site]]\nname = "s"\nbandwidth = 1e8\n'
    each = (
        f'[[host]]\nname = "h{{}}"\nsite = "s"\ncpu = {0.9 * (os.cpu_count() or 1) / hosts:.2f}\n'
    )
    (folder / "lab.toml").write_text(site + "".join(map(each.format, range(hosts))))
    try:
        made = Path(
            str(asked([apples, "lab", "up", str(folder / "lab.toml"), "--json"])[0]["hosts"])
        )
        head, *entries = made.read_text().split("[[host]]\n")
        last, *rest = entries[-1].partition("\n[")
        entries[-1] = last + "\n"
        found = []
        for k in range(hosts):
            turned = [*entries[k:], *entries[:k]]
            found.append(made.with_name(f"turned-{k}.toml"))
            found[k].write_text(
                head + "".join(f"[[host]]\n{one}" for one in turned) + "".join(rest)
            )
        yield found
    finally:
        subprocess.run([apples, "lab", "down", "jobs"], capture_output=True, check=False)


def connections() -> int:
    """Return how many TCP connections were made to the hosts of the lab so far."""
    count, lab = 0, record.read(labs() / "jobs")
    for machine in lab.machines if lab else ():
        names, values = [
            line.split()
            for line in Path(f"/proc/{machine.pid}/net/snmp").read_text().splitlines()
            if line.startswith("Tcp:")
        ]
        count += int(values[names.index("PassiveOpens")])
    return count


def files(folder: Path) -> list[str]:
    """Write the other files of a job; return the options that name them, and that are the same for all."""
    (folder / "user.toml").write_text("[constraints]\nmaximum_hosts = 2\n")
    (folder / "one.toml").write_text("[constraints]\nmaximum_hosts = 1\n")
    return [
        *("--template", str(SAMPLE / "template.toml")),
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
    parser.add_argument("--lab", action="store_true", help="on the hosts of a lab, over ssh")
    parser.add_argument("--apples", default=str(Path(sysconfig.get_path("scripts")) / "apples"))
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory())
        os.environ["XDG_STATE_HOME"] = name
        submit, place = [options.apples, "run", "--detach", *files(Path(name))], Path(name)
        if options.lab:
            submit += ["--actuator", "ssh"]
            lists = stack.enter_context(lab_of(options.apples, place, options.hosts))
        else:
            lists = host_lists(place, options.hosts)
        one = [*submit, "--user", f"{name}/one.toml", "--hosts"]
        wanted = [[*one, str(lists[k % len(lists)])] for k in range(options.jobs)]
        used, before, begun = cpu(), connections(), time.perf_counter()
        with ThreadPoolExecutor(options.at_once) as pool:
            jobs = [job["id"] for job, _ in pool.map(asked, wanted)]
        took, used = time.perf_counter() - begun, cpu() - used
        load = os.getloadavg()[0]
        memory, seconds = looked_at([Path(name) / "apples" / "jobs" / str(job) for job in jobs])
        for job in jobs:
            asked([options.apples, "cancel", str(job), "--json"])
        print(
            f"{options.jobs} jobs run after {took:.1f} s (load {load:.1f}, {os.cpu_count()} CPUs)"
        )
        if options.lab:
            print(f"connections to the hosts: {connections() - before}")
        print(f"a job's commands: {used / options.jobs:.2f} s CPU")
        for kind in sorted(memory, key=lambda kind: kind == "on the host"):
            each = memory[kind] / options.jobs, seconds[kind] / options.jobs
            print(f"a job's {kind:20} {each[0]:6.1f} MB  {each[1]:5.2f} s CPU")
        head = sum(each for kind, each in memory.items() if kind != "on the host")
        print(f"a job on the head: {head / options.jobs:.1f} MB")
        more = ["--user", f"{name}/user.toml", "--hosts", str(lists[0])]
        job = str(asked([*submit, *more])[0]["id"])
        for verb, moves in {
            "jobs": [[]],
            "resize, shrink and grow": [["--on", "h0"], ["--on", "h0,h1"]],
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
