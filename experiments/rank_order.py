"""Compare orders of ranks by bytes times hops, and with TreeMatch.

    python experiments/rank_order.py [--treematch FOLDER]

Without TreeMatch: the cost of each pattern over that of the topology's own order. FOLDER has TreeMatch's sources
(Open MPI has them in `3rd-party/treematch`); a C compiler and hwloc's headers build its program in a temporary
folder, which maps the same patterns to the machine `tleaf 4 16 500 2 100 2 50 2 10` of its header.

Result: `benchmarks/results/rank_order.json`.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from apples.topology import origin, synthetic
from apples.topology.bindings import per_rank
from apples.topology.mapping import PlacementProblem, distances, place

MACHINES = {
    "2 packages, 4 caches, 64 CPUs": synthetic("package:2 [numa] l3:4 core:8 pu:1"),
    "Origin, 128 CPUs": origin(128),
}
EXAMPLE = ((16, 500), (2, 100), (2, 50), (2, 10))
"""Arity, and what a byte costs on the way up from there, of TreeMatch's example."""
DRIVER = r"""
#include <stdio.h>
#include "treematch.h"
int main(int argc, char **argv) {
  int ranks, i, j;
  FILE *file = fopen(argv[2], "r");
  if (argc != 3 || !file || fscanf(file, "%d", &ranks) != 1) return 2;
  double **sent = MALLOC(ranks * sizeof(double *));
  for (i = 0; i < ranks; i++) {
    sent[i] = MALLOC(ranks * sizeof(double));
    for (j = 0; j < ranks; j++) if (fscanf(file, "%lf", &sent[i][j]) != 1) return 2;
  }
  tm_set_verbose_level(0);
  tm_set_max_nb_threads(1);
  tm_topology_t *machine = tm_load_topology(argv[1], TM_FILE_TYPE_TGT);
  tm_optimize_topology(&machine);
  tm_tree_t *tree = tm_build_tree_from_topology(machine, tm_build_affinity_mat(sent, ranks), NULL, NULL);
  tm_solution_t *found = tm_compute_mapping(machine, tree);
  for (i = 0; i < ranks; i++) printf("%d ", found->sigma[i]);
  return 0;
}
"""


def grid(rows, columns, down=1, across=1):
    """Return ranks that send to those beside, above and below, numbered row by row."""
    size = rows * columns
    sent = np.zeros((size, size))
    for at in range(size):
        if (at + 1) % columns:
            sent[at, at + 1] = sent[at + 1, at] = across
        if at + columns < size:
            sent[at, at + columns] = sent[at + columns, at] = down
    return sent


def anyhow(sent, seed=1):
    """Return the same ranks, numbered at random."""
    order = np.random.default_rng(seed).permutation(len(sent))
    return sent[np.ix_(order, order)]


def butterfly(size):
    """Return each rank with those whose numbers differ in one bit."""
    numbers = np.arange(size)
    apart = numbers[:, None] ^ numbers[None, :]
    return ((apart > 0) & (apart & (apart - 1) == 0)).astype(float)


def groups(size, members):
    """Return all to all in groups whose ranks are numbered in turn."""
    group = np.arange(size) % (size // members)
    return (group[:, None] == group[None, :]) & ~np.eye(size, dtype=bool)


def some(size):
    """Return what a fifth of the pairs send, by chance."""
    chance = np.random.default_rng(3)
    sent = np.triu(chance.integers(0, 100, (size, size)) * (chance.random((size, size)) < 0.2), 1)
    return sent + sent.T


def patterns(size):
    """Return name -> bytes."""
    rows = {16: 4, 32: 4, 64: 8, 128: 8}[size]
    columns = size // rows
    return {
        "chain": grid(1, size),
        f"grid {rows} x {columns}": grid(rows, columns),
        f"grid {rows} x {columns}, ten times as much down": grid(rows, columns, 10, 1),
        f"grid {rows} x {columns}, numbered at random": anyhow(grid(rows, columns)),
        "butterfly": butterfly(size),
        "butterfly, numbered at random": anyhow(butterfly(size)),
        "all to all in groups of four": groups(size, 4).astype(float),
        "a fifth of all pairs": some(size).astype(float),
    }


def leaves(levels):
    """Return what a byte costs between each two leaves of a tree."""
    size = int(np.prod([arity for arity, _ in levels]))
    numbers, cost = np.arange(size), np.zeros((size, size))
    width = size
    for level, (arity, _) in enumerate(levels):
        inside = numbers // width
        below = numbers // (width // arity)
        way = sum(price for _, price in levels[level:])
        cost[(inside[:, None] == inside) & (below[:, None] != below)] = way
        width //= arity
    return cost


def problem(sent, far):
    """Return the placement of ranks on places, one each."""
    ranks, places = len(sent), len(far)
    return PlacementProblem(sent, far, (1.0,) * ranks, (1.0,) * places, 0.0, (1,) * places)


def placed(one, ranks):
    """Return the places of ranks, and the CPU seconds that it took."""
    begin = time.process_time()
    found = place(one, begin=range(ranks))
    return found, time.process_time() - begin


def before_and_after():
    """Print what an order by messages saves."""
    for name, machine in MACHINES.items():
        print(f"{name}: bytes x hops over those of the topology's own order; CPU seconds")
        ranks = len(machine.cpus)
        far = distances(machine, per_rank(machine, machine.cpus, ranks))
        for pattern, sent in patterns(ranks).items():
            one = problem(sent, far)
            found, seconds = placed(one, ranks)
            print(f"  {pattern:45} {one.talk(found) / one.talk(range(ranks)):.2f} {seconds:6.2f}")


def beside(folder):
    """Print ours over TreeMatch's."""
    with tempfile.TemporaryDirectory() as work:
        program, tree = Path(work, "map"), Path(work, "128.tgt")
        Path(work, "driver.c").write_text(DRIVER, "utf-8")
        Path(work, "config.h").write_text("", "utf-8")
        Path(work, "ompi_config.h").write_text("#define OMPI_HIDDEN\n", "utf-8")
        sources = [Path(work, "driver.c"), *sorted(folder.glob("*.c"))]
        command = ["cc", "-O2", "-w", f"-I{work}", f"-I{folder}", "-o", program, *sources]
        subprocess.run([*command, "-lhwloc", "-lpthread", "-lm"], check=True)
        tree.write_text("tleaf 4 " + " ".join(f"{a} {c}" for a, c in EXAMPLE) + "\n", "utf-8")
        print("TreeMatch's example of 128 leaves: ours over its cost; seconds of each (ours CPU)")
        far = leaves(EXAMPLE)
        for ranks in (16, 32, 64, 128):
            for pattern, sent in patterns(ranks).items():
                talk = Path(work, "talk.mat")
                np.savetxt(talk, sent, fmt="%d", header=str(ranks), comments="")
                begin = time.perf_counter()
                answer = subprocess.run([program, tree, talk], check=True, capture_output=True)
                took = time.perf_counter() - begin
                one = problem(sent, far)
                found, seconds = placed(one, ranks)
                ratio = one.talk(found) / one.talk(list(map(int, answer.stdout.split())))
                print(f"  {ranks:3} {pattern:45} {ratio:.3f} {seconds:6.2f} {took:6.2f}")


def main():
    """Run the parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--treematch", type=Path, metavar="FOLDER")
    folder = parser.parse_args().treematch
    before_and_after()
    if folder is not None:
        beside(folder)


if __name__ == "__main__":
    main()
