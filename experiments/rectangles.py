"""Compare the communication of rectangles with the best known, and time plans for 10,000 hosts.

    python experiments/rectangles.py [--worlds 40] [--hosts 10000]

The best known is that over all slicing partitions. The volume is the sum of half perimeters (Beaumont et al.
2001). Exit code 1: a bar is missed.

Result: `benchmarks/results/rectangles.json`.
"""

import argparse
import sys
import time
from itertools import combinations
from math import sqrt
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from worlds import pool

from apples import Host, Link, rectangles
from apples.agent.planners.columns import Demands, cut, division, half_perimeters

GRID = 2000


def best_slicing(areas, width, height, bound=np.inf):
    """Return the least sum of half perimeters of rectangles of these areas, if it is below the bound; else inf."""
    if len(areas) == 1:
        return width + height
    least = bound
    first, rest = areas[0], areas[1:]
    for count in range(len(rest)):
        for beside in combinations(range(len(rest)), count):
            one = [first, *(rest[i] for i in beside)]
            other = [rest[i] for i in range(len(rest)) if i not in beside]
            part = sum(one) / (width * height)
            floors = [2 * sum(map(sqrt, each)) for each in (one, other)]
            for upright in (True, False):
                sides = (
                    ((part * width, height), ((1 - part) * width, height))
                    if upright
                    else ((width, part * height), (width, (1 - part) * height))
                )
                if floors[0] + floors[1] >= least:
                    continue
                mine = best_slicing(one, *sides[0], least - floors[1])
                if mine + floors[1] >= least:
                    continue
                least = min(least, mine + best_slicing(other, *sides[1], least - mine))
    return least if least < bound else np.inf


def volumes(worlds):
    """Return volumes and borders over those of the best slicing partition; hosts are up to 30 times as fast."""
    generator, ratios = np.random.default_rng(21), []
    for world in range(worlds):
        count = 2 + world % 7
        shares = np.sort(10 ** generator.uniform(0, generator.uniform(0, 1.5), count))
        demands = Demands(1 / shares, np.zeros(count), np.full(count, 1e12))
        found = cut(division(shares, GRID, GRID), demands, GRID, GRID)
        areas = sorted((one.points / GRID**2 for one in found), reverse=True)
        best = best_slicing(areas, 1.0, 1.0)
        ours = half_perimeters(found) / GRID
        ratios.append((ours / best, (ours - 2) / (best - 2)))
    return np.array(ratios).T


def many_hosts(count):
    """Return the seconds and processor seconds of planning so many hosts of 50 sites."""
    generator = np.random.default_rng(3)
    hosts = tuple(
        Host(
            f"h{i}",
            site=f"s{i % 50}",
            seconds_per_point=float(10 ** generator.uniform(-9, -8)),
            free_memory=2**40,
        )
        for i in range(count)
    )
    information = pool(hosts, {}, grid=40000, default=Link(1e-5, 1e9))
    start, used = time.perf_counter(), time.process_time()
    schedule = rectangles(hosts, information)
    assert len(schedule.rectangles) == count
    return time.perf_counter() - start, time.process_time() - used


def machine():
    """Return the processor seconds of ten million additions: how fast this machine is just now."""
    start, total = time.process_time(), 0
    for i in range(10_000_000):
        total += i
    return time.process_time() - start


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--worlds", type=int, default=42)
    parser.add_argument("--hosts", type=int, default=10000)
    options = parser.parse_args()
    volume, border = volumes(options.worlds)
    seconds, used = many_hosts(options.hosts)
    speed = machine()
    bars = [
        ("volume over the best slicing, mean", f"{volume.mean():.4f}", "", True),
        ("  worst", f"{volume.max():.4f}", "1.05", volume.max() <= 1.05),
        ("  borders inside the grid, worst", f"{border.max():.4f}", "", True),
        (f"planning {options.hosts} hosts", f"{seconds:.2f} s", "2 s", seconds <= 2),
        ("  processor time", f"{used:.2f} s", "", True),
        ("  in times of 10^7 additions here", f"{used / speed:.2f} x", "", True),
    ]
    for what, found, asked, good in bars:
        print(
            f"{what:40} {found:>10}   {f'bar {asked}' if asked else '':9} {'ok' if good else 'MISSED'}"
        )
    sys.exit(not all(good for *_, good in bars))


if __name__ == "__main__":
    main()
