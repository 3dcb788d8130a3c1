"""How fast a topology answers, how near its CPUs are, and Mix A once more; limits beside each figure.

    python benchmarks/topology.py [SEEDS] [MACHINE.xml ...]

Without files the machines are models: an Origin of 256 CPUs and two trees of 256. A named file (such as the
256-way Itanium of hwloc's collection) is measured as well. Times are processor time of this one thread, which
a busy machine does not stretch. Exit code 1 if a limit is passed.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import numpy as np

from apples.simulation import first_fit, mean_distance, passing_jobs, random_fit, replay
from apples.topology import (
    BrokerRequest,
    CpuSet,
    CpusetBroker,
    HostCpus,
    Requirement,
    fit,
    load_topology,
    origin,
    parse,
    synthetic,
)

HOSTS, ANSWER_MS, ALLOCATE_MS, SHARE = 1000, 100.0, 5.0, 0.95
JOBS = 400
late = []


def limit(what, figure, most):
    print(f"  {what}: {figure:.4g} (limit {most:g})")
    if figure > most:
        late.append(what)


def some_free(topology, rng):
    part = rng.uniform(0.3, 1.0)
    return CpuSet.of(cpu for cpu in topology.cpus if rng.random() < part)


def answers(topology, count):
    """Return the shortest of three times for all hosts; other free CPUs each time: nothing is remembered."""
    rng = random.Random(count)
    request = BrokerRequest(parse(""), count)
    best = float("inf")
    for _ in range(3):
        hosts = {str(i): HostCpus(topology, some_free(topology, rng), i) for i in range(HOSTS)}
        broker = CpusetBroker(hosts.get)
        broker.satisfies("0", request)
        began = time.process_time()
        for host in hosts:
            broker.satisfies(host, request)
        best = min(best, time.process_time() - began)
    return best * 1e3


def allocations(topology):
    """Return the slowest question of all sizes and several densities of free CPUs; each the best of three."""
    rng = random.Random(1)
    slowest = 0.0
    for count in (1, 2, 4, 8, 16, 32, 64, 96, 128, 192):
        for part in (1.0, 0.8, 0.6):
            free = CpuSet.of(cpu for cpu in topology.cpus if rng.random() < part)
            if len(free) < count:
                continue
            best = float("inf")
            for _ in range(3):
                began = time.process_time()
                fit(topology, free, Requirement(count))
                best = min(best, time.process_time() - began)
            slowest = max(slowest, best)
    return slowest * 1e3


def distances(topology, seeds):
    """Mean hops between a job's CPUs for three allocators, and how often best radius beats first fit."""
    rows = []
    for seed in range(seeds):
        jobs = passing_jobs(len(topology.cpus), JOBS, seed)
        rows.append([mean_distance(topology, c, jobs) for c in (random_fit(seed), first_fit, fit)])
    return np.array(rows)


def main():
    seeds = int(sys.argv[1]) if sys.argv[1:] else 10
    machines = [
        origin(256),
        synthetic("package:2 numa:4 l3:2 core:8 pu:2"),
        synthetic("package:1 l2:32 core:2 pu:4"),
    ]
    machines += [load_topology(Path(name)) for name in sys.argv[2:]]
    for topology in machines:
        print(f"{topology.name}: {len(topology.cpus)} CPUs, {len(topology.nodes)} memory nodes")
        for count in (4, 16, 64):
            limit(f"{HOSTS} hosts asked for {count} CPUs, ms", answers(topology, count), ANSWER_MS)
        limit("slowest allocation, ms", allocations(topology), ALLOCATE_MS)
    for topology in [machines[0], *machines[3:]]:
        rows = distances(topology, seeds)
        print(
            f"mean hops between a job's CPUs, {JOBS} jobs at 85 % load, seeds 0-{seeds - 1}, {topology.name}:"
        )
        print("  random {:.3f}, first fit {:.3f}, best radius {:.3f}".format(*rows.mean(axis=0)))
        beaten = float((rows[:, 2] < rows[:, 1]).mean())
        limit(
            "seeds on which best radius is not nearer than first fit, %",
            100 * (1 - beaten),
            100 * (1 - SHARE),
        )
    runs = np.array([replay(origin(128), seed) for seed in range(4 * seeds)]) / 3600
    print(f"Mix A, CPU counts drawn with seeds 0-{4 * seeds - 1}: p10 / median / p90 (paper)")
    for name, column, paper in (
        ("without cpusets, h", runs[:, 0], "4.32"),
        ("with cpusets, h", runs[:, 1], "2.60 without sleeps, 2.85 with"),
        ("ratio", runs[:, 0] / runs[:, 1], "1.51, 1.66; band of the medians 1.4-2.3"),
    ):
        low, middle, high = np.percentile(column, [10, 50, 90])
        print(f"  {name}: {low:.2f} / {middle:.2f} / {high:.2f} ({paper})")
    if not 1.4 <= middle <= 2.3:
        late.append("Mix A")
    return bool(late)


if __name__ == "__main__":
    sys.exit(main())
