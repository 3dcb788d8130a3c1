"""Simulate run times that depend on the hops of a placement: Mix A, and comparison with Slurm's rules.

    python experiments/placement_evidence.py [--seeds 20] [--slurm 60]

A model of the paper's machine (`origin`, 128 CPUs). Each job is slowed by the hops between its CPUs
(`MemorySlowdown`, from published latencies). Allocators: the daemon's, first fit, Slurm's two and random. With
--slurm N (root, Slurm) a real slurmctld answers N requests for each of its two ways, which must equal the rules.

Result: `benchmarks/results/placement_evidence.json`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

import numpy as np

from apples.simulation import passing_jobs
from apples.simulation.placement import first_fit, random_fit
from apples.simulation.placement_replay import (
    COMPUTE_BOUND,
    MEMORY_BOUND,
    draw_shares,
    placed,
    predicted_mix_a,
    slurm_block,
    slurm_cyclic,
)
from apples.topology import CpuSet, Requirement, fit, origin

CPUS, JOBS = 128, 400
FIGURES = ("hours", "hops", "slowdown", "refused", "throughput")
ALLOCATORS = {
    "random": random_fit,
    "Slurm, block:cyclic": lambda _: slurm_cyclic,
    "Slurm, block:block": lambda _: slurm_block,
    "first fit": lambda _: first_fit,
    "ours": lambda _: fit,
}
SECONDS = 60.0


def table(title, runs):
    """Show the median and the spread over seeds of every figure of every allocator, and its time over ours."""
    print(f"{title}: median (10 %, 90 % of the seeds)")
    rows = {
        name: np.array([[getattr(r, f) for f in FIGURES] for r in of]) for name, of in runs.items()
    }
    for name, row in rows.items():
        longer = row[:, 0] / rows["ours"][:, 0]
        spread = np.percentile(np.column_stack([row, longer]), [10, 50, 90], axis=0)
        told = [
            f"{what} {b:.2f} ({a:.2f}, {c:.2f})"
            for what, a, b, c in zip((*FIGURES, "time/ours"), *spread, strict=True)
        ]
        print(f"  {name:<20} {', '.join(told)}")


@contextlib.contextmanager
def slurm(machine):
    """Run a Slurm of one node that has the sockets and cores of a machine, and nothing behind them."""
    sockets, cores = len(machine.node_cpus), machine.node_cpus[0].bit_count()
    inside = f"Sockets={sockets} CoresPerSocket={cores} ThreadsPerCore=1 CPUs={sockets * cores}"
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    for name in ("spool", "node"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    here, ports = socket.gethostname(), []
    for _ in range(2):
        with socket.create_server(("127.0.0.1", 0)) as free:
            ports.append(free.getsockname()[1])
    conf = folder / "slurm.conf"
    conf.write_text(
        f"""ClusterName=evidence
SlurmctldHost={here}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
KillWait=1
StateSaveLocation={folder}/spool
SlurmdSpoolDir={folder}/node
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_min_interval=10000
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
DebugFlags=NO_CONF_HASH
NodeName=origin NodeHostname={here} NodeAddr=127.0.0.1 Port={ports[1]} {inside} State=UNKNOWN
PartitionName=lab Nodes=origin Default=YES MaxTime=INFINITE State=UP
"""
    )
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
    environment = {**os.environ, "SLURM_CONF": str(conf)}
    munge = ["munged", "--foreground", "--force", f"--socket={folder}/munge.socket"]
    munge += [f"--key-file={key}", f"--pid-file={folder}/munged.pid"]
    munge += [f"--log-file={folder}/munged.log", f"--seed-file={folder}/munge.seed"]
    daemons = []
    try:
        for words in (munge, ["slurmctld", "-D", "-i"], ["slurmd", "-D", "-N", "origin"]):
            with (folder / f"{words[0]}.out").open("wb") as out:
                daemons.append(subprocess.Popen(words, stdout=out, stderr=out, env=environment))
            if words is munge:
                wait((folder / "munge.socket").exists)

        def ask(*words):
            done = subprocess.run(
                words, capture_output=True, text=True, env=environment, check=False
            )
            return done.stdout + done.stderr

        wait(lambda: ask("sinfo", "--noheader", "--format=%T").strip() == "idle")
        yield ask
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(30)
        shutil.rmtree(folder)


def wait(condition):
    end = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > end:
            raise SystemExit("Slurm did not come to it in a minute")
        time.sleep(0.05)


def against_slurm(machine, requests, seed=1):
    """Return for each rule how many of so many requests it answers as Slurm does, on what Slurm has free then."""
    alike = {}
    with slurm(machine) as ask:
        for distribution, rule in (("block:cyclic", slurm_cyclic), ("block:block", slurm_block)):
            random, held, free, done = Random(seed), {}, machine.cpus, 0
            alike[distribution] = 0
            while done < requests:
                count = random.choice((1, 2, 3, 4, 6, 8, 12, 16, 24, 32))
                if count > len(
                    free
                ):  # a part of the jobs end, all at once: Slurm takes its time over each
                    ending = random.sample(sorted(held), (len(held) + 1) // 2)
                    ask("scancel", *ending)
                    left = len(held) - len(ending)
                    wait(lambda left=left: len(ask("squeue", "--noheader").splitlines()) == left)
                    for job in ending:
                        free |= held.pop(job)
                    continue
                said = ask("salloc", "--no-shell", "-n", str(count), "-m", distribution)
                job = re.search(r"Granted job allocation (\d+)", said)[1]
                shown = ask("scontrol", "--details", "--oneliner", "show", "job", job)
                cpus = CpuSet.parse(re.search(r"CPU_IDs=(\S+)", shown)[1])
                alike[distribution] += cpus == rule(machine, free, Requirement(count)).cpus
                held[job], free, done = cpus, free - cpus, done + 1
            ask("scancel", "--user=root")
            wait(lambda: not ask("squeue", "--noheader").strip())
    return alike


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--slurm", type=int, default=0, help="requests to a real Slurm")
    options = parser.parse_args()
    machine, seeds = origin(CPUS), range(options.seeds)
    mixes = {
        n: [predicted_mix_a(machine, s, make(s)) for s in seeds] for n, make in ALLOCATORS.items()
    }
    table(
        "Mix A from its times alone (the paper: 4.32 h without cpusets over 2.60 h: 1.66, with sleeps 1.51)",
        mixes,
    )
    for title, shares in (
        ("memory-bound", [MEMORY_BOUND] * JOBS),
        ("compute-bound", [COMPUTE_BOUND] * JOBS),
        ("half of each", None),
    ):
        runs = {
            name: [
                placed(
                    passing_jobs(CPUS, JOBS, seed),
                    machine,
                    make(seed),
                    shares or draw_shares(range(JOBS), Random(seed)),
                )
                for seed in seeds[: max(1, len(seeds) // 4)]
            ]
            for name, make in ALLOCATORS.items()
        }
        table(f"{JOBS} jobs of 1 to 32 CPUs at 85 % load, {title}, a fourth of the seeds", runs)
    if options.slurm:
        for distribution, alike in against_slurm(machine, options.slurm).items():
            print(
                f"Slurm {distribution}: the rule gave Slurm's CPUs {alike} of {options.slurm} times"
            )


if __name__ == "__main__":
    sys.exit(main())
