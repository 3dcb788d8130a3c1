"""Placement inside a machine: speed of answers, distance of CPUs, and Mix A of Smith, McMillan and Lumb 2001.

The machines are models: an Origin of 256 CPUs and two trees of 256. Times are CPU time of one thread.
"""

from __future__ import annotations

import itertools
import random
import time

import numpy as np

from apples.simulation import first_fit, mean_distance, passing_jobs, random_fit, replay
from apples.topology import (
    BrokerRequest,
    CpuSet,
    CpusetBroker,
    HostCpus,
    Requirement,
    fit,
    origin,
    parse,
    synthetic,
)
from apples.topology.machine import Topology
from apples.topology.parts import Latencies, MemoryNode, Part
from apples.topology.sources.sysfs import described
from benchmarks.common import Row

HOSTS, JOBS = 1000, 400


def some_free(topology, rng):
    part = rng.uniform(0.3, 1.0)
    return CpuSet.of(cpu for cpu in topology.cpus if rng.random() < part)


def answers(topology, count):
    """Return the milliseconds of an answer for all hosts, the best of three; free CPUs differ each time."""
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
    """Return the milliseconds of the slowest allocation by size and density of free CPUs, each best of three."""
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


def kernel_tree():
    """Return the time for a kernel's description of 4,096 CPUs, each in six kinds of groups."""
    files = {"cpu/online": "0-4095", "cpu/present": "0-4095"}
    for cpu in range(4096):
        core, cluster, package = (f"{cpu // n * n}-{cpu // n * n + n - 1}" for n in (2, 8, 512))
        files[f"cpu/cpu{cpu}/topology/core_cpus_list"] = core
        files[f"cpu/cpu{cpu}/topology/package_cpus_list"] = package
        for index, (level, cpus) in enumerate([(1, core), (2, core), (3, cluster)]):
            cache = f"cpu/cpu{cpu}/cache/index{index}"
            files |= {f"{cache}/level": str(level), f"{cache}/shared_cpu_list": cpus}
    began = time.process_time()
    assert len(described(files, "4,096 CPUs").cores) == 2048
    return (time.process_time() - began) * 1e3


def random_machine(rng):
    """Return a machine of 3 to 10 memory nodes on a random graph."""
    count = rng.randint(3, 10)
    steps = np.full((count, count), 99)
    np.fill_diagonal(steps, 0)
    for b in range(1, count):
        for a in {rng.randrange(b), rng.randrange(b)}:
            steps[a, b] = steps[b, a] = 1
    for k in range(count):
        steps = np.minimum(steps, steps[:, k : k + 1] + steps[k : k + 1, :])
    fresh, packages, nodes = itertools.count(), [], []
    for number in range(count):
        threads, cores = rng.choice((1, 2)), []
        for core in range(rng.randint(1, 4)):
            units = tuple(Part("PU", c, 1 << c) for c in itertools.islice(fresh, threads))
            cores.append(Part("Core", core, sum(unit.cpus for unit in units), units))
        packages.append(Part("Package", number, sum(core.cpus for core in cores), tuple(cores)))
        nodes.append(MemoryNode(number, packages[-1].cpus))
    values = tuple(tuple(10 + 6 * int(value) for value in row) for row in steps)
    root = Part("Machine", 0, sum(part.cpus for part in packages), tuple(packages))
    return Topology(root, tuple(nodes), Latencies(tuple(range(count)), values), name="random")


def best_of_subsets(far, count, _radius, _rng):
    """Return the least radius of all subsets, and the least total at it."""
    subsets = np.array(list(itertools.combinations(range(len(far)), count)))
    inside = far[subsets[:, :, None], subsets[:, None, :]]
    radii, totals = inside.max(axis=2).min(axis=1), inside.sum(axis=(1, 2)) / 2
    return radii.min(), totals[radii <= radii.min() + 1e-9].min()


def best_of_climbs(far, count, radius, rng):
    """Return the radius, and the least total that exchanges of single CPUs find within it of some centre."""
    best = np.inf
    for centre in range(len(far)):
        pool = np.flatnonzero(far[centre] <= radius + 1e-9)
        if len(pool) >= count:
            nearest = pool[np.argsort(far[centre][pool], kind="stable")][:count]
            starts = [nearest, *(rng.sample(list(pool), count) for _ in range(3))]
            best = min(best, *(climbed(far, start, pool) for start in starts))
    return radius, best


def climbed(far, chosen, pool):
    """Return the total after the best exchanges of a chosen CPU for another of the pool."""
    inside = np.zeros(len(far), bool)
    inside[chosen] = True
    near = far[:, inside].sum(axis=1)
    while True:
        leave, enter = np.flatnonzero(inside), pool[~inside[pool]]
        change = near[enter][None, :] - near[leave][:, None] - far[np.ix_(leave, enter)]
        if change.min(initial=0.0) >= -1e-9:
            return near[inside].sum() / 2
        a, b = np.unravel_index(change.argmin(), change.shape)
        inside[leave[a]], inside[enter[b]] = False, True
        near += far[:, enter[b]] - far[:, leave[a]]


def distances(topology, seeds):
    """Return the mean hops between a job's CPUs: a row a seed, a column an allocator."""
    rows = []
    for seed in range(seeds):
        jobs = passing_jobs(len(topology.cpus), JOBS, seed)
        rows.append([mean_distance(topology, c, jobs) for c in (random_fit(seed), first_fit, fit)])
    return np.array(rows)


def speed(settings):
    """Measure answers for 1000 hosts, and single allocations."""
    machines = [
        origin(256),
        synthetic("package:2 numa:4 l3:2 core:8 pu:2"),
        synthetic("package:1 l2:32 core:2 pu:4"),
    ]
    for topology in machines[: settings.pick(3, 1)]:
        for count in settings.pick((4, 16, 64), (4,)):
            yield Row(
                f"{count} CPUs, {topology.name}", f"{topology.name}: 1000 hosts, request for {count} CPUs",
                answers(topology, count), "ms CPU", at_most=100,
            )  # fmt: skip
        yield Row(
            f"slowest, {topology.name}", f"{topology.name}: slowest allocation", allocations(topology), "ms CPU",
            at_most=5,
        )  # fmt: skip


def tree(_):
    """Measure the tree of a kernel's description of 4,096 CPUs."""
    yield Row(
        "tree", "tree of 4,096 CPUs from the kernel's files", kernel_tree(), "ms CPU", at_most=2000
    )


def all_subsets(settings):
    """Compare choices over several memory nodes with all subsets of up to 13 free CPUs."""
    yield from optimum(settings, [origin(64), origin(128)], best_of_subsets, 13, 9)


def climbs(settings):
    """Compare choices over several memory nodes with hill climbs on up to 90 free CPUs."""
    yield from optimum(settings, [origin(128), origin(256)], best_of_climbs, 90, 48)


def optimum(settings, machines, oracle, most_free, most_asked):
    """Yield the deviations from an oracle's optimum of choices over several memory nodes."""
    ratios, wrong = [], 0
    for seed in itertools.count():
        if len(ratios) == settings.pick(300, 5):
            break
        rng = random.Random(seed)
        topology = random_machine(rng) if seed % 2 else rng.choice(machines)
        part = rng.uniform(0.2, 0.9)
        free = [cpu for cpu in topology.cpus if rng.random() < part]
        free = sorted(rng.sample(free, min(len(free), most_free)))
        if len(free) < 4:
            continue
        count = rng.randint(2, min(most_asked, len(free) - 1))
        choice = fit(topology, CpuSet.of(free), Requirement(count))
        if len([node for node in topology.nodes if node.cpus & choice.cpus.mask]) < 2:
            continue
        far = np.array([[topology.hops(a, b) for b in free] for a in free])
        radius, total = oracle(far, count, choice.radius, rng)
        wrong += abs(radius - choice.radius) > 1e-9
        ratios.append(choice.total / total)
    title = f"{len(ratios)} choices over several memory nodes"
    above = 100 * sum(ratio > 1.05 for ratio in ratios) / len(ratios)
    yield Row("radius", f"{title}: radius that is not the least", wrong, at_most=0)
    yield Row("total", f"{title}: total hops above 1.05 of the best", above, "%", at_most=1)
    yield Row("worst", f"{title}: total hops over the best, worst", max(ratios), "x")


def hops(settings):
    """Compare three allocators by the hops between a job's CPUs."""
    seeds = settings.pick(15, 2)
    rows = distances(origin(256), seeds)
    random_hops, first, best = rows.mean(axis=0)
    yield Row(
        "hops", f"Origin, 256 CPUs, {JOBS} jobs: hops between a job's CPUs, best radius", best,
        peer=f"first fit {first:.3g}, random {random_hops:.3g}",
    )  # fmt: skip
    nearer = 100 * float((rows[:, 2] < rows[:, 1]).mean())
    yield Row(
        "nearer",
        f"seeds of {seeds} with best radius nearer than first fit",
        nearer,
        "%",
        at_least=95,
    )


def mix(settings):
    """Replay Mix A with drawn CPU counts; intervals are the 10th and 90th percentiles of the seeds."""
    runs = np.array([replay(origin(128), seed) for seed in range(settings.pick(60, 4))]) / 3600
    ratio = runs[:, 0] / runs[:, 1]
    for name, column, unit, paper, band in (
        ("without cpusets", runs[:, 0], "h", "4.32 h", (None, None)),
        ("with cpusets", runs[:, 1], "h", "2.60 h without sleeps, 2.85 h with", (None, None)),
        ("ratio", ratio, "x", "1.66 without sleeps, 1.51 with", (1.4, 2.3)),
    ):
        low, middle, high = np.percentile(column, [10, 50, 90])
        yield Row(
            name,
            f"Mix A, {len(runs)} seeds: {name}",
            middle,
            unit,
            low,
            high,
            band[1],
            band[0],
            paper=paper,
        )


PARTS = {
    "speed": speed,
    "tree": tree,
    "all_subsets": all_subsets,
    "climbs": climbs,
    "hops": hops,
    "mix": mix,
}
