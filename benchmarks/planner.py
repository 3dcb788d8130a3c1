"""How good and how fast the planning is: exact against HiGHS, near the best subset, 10,000 hosts at once.

Run: python benchmarks/planner.py [--chains 500] [--worlds 200] [--hosts 10000]
Prints one line a bar with what was asked and what came out; exit 1 when a bar is missed.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from oracles import best_of_all_ordered_subsets, highs_seconds, paper_border
from worlds import chain_border, random_world

from apples import Coordinator, NoFeasiblePlanError, load_information
from apples.agent import balance
from blueprints import minimum_execution_time


def exact_against_highs(chains):
    """Return the largest relative excess over HiGHS on random fixed chains of up to 32 hosts."""
    generator, worst, done, times = np.random.default_rng(5), 0.0, 0, [[], []]
    while done < chains:
        world = random_world(generator, int(generator.integers(2, 33)))
        if world.cap.min() < 1 or world.cap.sum() < world.total or len(world.p) > world.total:
            continue
        border = chain_border(world)
        start = time.perf_counter()
        rows = balance(world.information.model, world.hosts, world.total)
        middle = time.perf_counter()
        theirs, _ = highs_seconds(world.p, border, world.cap, world.total)
        times[0].append(middle - start)
        times[1].append(time.perf_counter() - middle)
        worst = max(worst, float((world.p * rows + border).max()) / theirs - 1)
        done += 1
    return worst, float(np.median(times[1]) / np.median(times[0]))


def near_the_best_subset(worlds):
    """Return mean and largest ratio to the best of all ordered subsets, up to 6 hosts with caps."""
    generator, ratios = np.random.default_rng(17), []
    while len(ratios) < worlds:
        world = random_world(generator, int(generator.integers(1, 7)))
        best = best_of_all_ordered_subsets(
            world.p, paper_border(world.pair), world.cap, world.total
        )
        coordinator = Coordinator(world.information)
        try:
            coordinator.execute(minimum_execution_time)
        except NoFeasiblePlanError:
            assert np.isinf(best)
            continue
        ratios.append(coordinator.decision_log.chosen.iteration_seconds / best)
    return float(np.mean(ratios)), float(np.max(ratios))


def write_many(folder, hosts, sites=50):
    """Write a host list of many hosts on many sites; return the paths the command takes."""
    generator = np.random.default_rng(1)
    lines = ["[default_link]\nlatency = 0.02\nbandwidth = 1e7\n"]
    for i in range(hosts):
        lines.append(  # noqa: PERF401 - three draws a host, in this order
            f'[[host]]\nname = "h{i}"\nsite = "s{i % sites}"\nfree_memory = "4 GB"\n'
            f"seconds_per_point = {10 ** generator.uniform(-9, -8):.4g}\n"
            f"cpu = {generator.uniform(0.2, 1):.3g}\n"
        )
    for s in range(sites):
        lines.append(  # noqa: PERF401 - as above
            f'[[link]]\nbetween = ["s{s}", "s{s}"]\nlatency = 5e-5\nbandwidth = 1e9\n'
            f'[[link]]\nbetween = ["s{s}", "s{(s + 1) % sites}"]\nlatency = 0.005\nbandwidth = 1e8\n'
        )
    (folder / "hosts.toml").write_text("\n".join(lines))
    (folder / "template.toml").write_text('name = "heat"\nprogram = ["heat"]\n')
    (folder / "user.toml").write_text("")
    return [folder / f for f in ("hosts.toml", "template.toml", "user.toml")]


def many_hosts(count):
    """Return planning seconds, peak megabytes and whole-command seconds for `count` hosts."""
    with tempfile.TemporaryDirectory() as name:
        files = write_many(Path(name), count)
        information = load_information(*files, settings={"grid": 20000})
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.perf_counter()
        coordinator = Coordinator(information)
        coordinator.execute(minimum_execution_time)
        seconds = time.perf_counter() - start
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        start = time.perf_counter()
        options = [
            x
            for pair in zip(("--hosts", "--template", "--user"), map(str, files), strict=True)
            for x in pair
        ]
        subprocess.run(
            [sys.executable, "-m", "apples", "plan", *options, "--weather", "static", "--json",
             "--set", "grid=20000"],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        used = len(coordinator.decision_log.chosen.hosts)
        return seconds, grown, time.perf_counter() - start, used


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--chains", type=int, default=500)
    parser.add_argument("--worlds", type=int, default=200)
    parser.add_argument("--hosts", type=int, default=10000)
    options = parser.parse_args()
    seconds, megabytes, command, used = many_hosts(options.hosts)
    mean, worst = near_the_best_subset(options.worlds)
    excess, ratio = exact_against_highs(options.chains)
    bars = [
        (f"planning {options.hosts} hosts ({used} used)", f"{seconds:.2f} s", "1 s", seconds <= 1),
        ("  memory it adds", f"{megabytes:.0f} MB", "300 MB", megabytes <= 300),
        ("  the whole command", f"{command:.2f} s", "5 s", command <= 5),
        (
            f"{options.worlds} lists, mean over the best subset",
            f"{mean:.6f}",
            "1.005",
            mean <= 1.005,
        ),
        ("  worst", f"{worst:.6f}", "1.05", worst <= 1.05),
        (f"{options.chains} chains, worst over HiGHS", f"{excess:.1e}", "1e-9", excess <= 1e-9),
        ("  HiGHS takes times as long", f"{ratio:.0f} x", "", True),
    ]
    for what, found, asked, good in bars:
        print(f"{what:45} {found:>12}   bar {asked:8} {'ok' if good else 'MISSED'}")
    sys.exit(not all(good for *_, good in bars))


if __name__ == "__main__":
    main()
