"""Jobs in separate sockets: against every way to shrink on two of them."""

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from apples.topology import CpuSet, allocator, keep_apart, nearest, sharing, sockets_of, synthetic

NODE = synthetic("package:2 core:4 pu:1")
SOCKETS = [CpuSet.parse("0-3"), CpuSet.parse("4-7")]


def incidences(sets):
    return sum(1 for some in sets for socket in SOCKETS if some & socket)


def least(holds, shares, newcomer):
    """The fewest (job, socket) pairs over all numbers each job could keep in either socket."""
    ways = []
    for held, share in zip(holds, shares, strict=True):
        here, there = (len(held & socket) for socket in SOCKETS)
        ways.append([(a, share - a) for a in range(share + 1) if a <= here and share - a <= there])
    found = []
    for kept in itertools.product(*ways):
        left = [4 - sum(pair[i] for pair in kept) for i in (0, 1)]
        for a in range(newcomer + 1):
            if a <= left[0] and newcomer - a <= left[1]:
                pairs = [*kept, (a, newcomer - a)]
                found.append(sum((x > 0) + (y > 0) for x, y in pairs))
    return min(found)


@given(st.integers(0, 2**32))
def test_on_two_sockets_as_few_are_shared_as_can_be(seed):
    rng = random.Random(seed)
    cpus = list(range(8))
    if rng.random() < 0.7:
        rng.shuffle(cpus)
    cuts = sorted(rng.sample(range(1, 9), rng.randint(1, 3)))
    holds = [CpuSet.of(cpus[a:b]) for a, b in zip([0, *cuts], cuts, strict=False)]
    shares = [rng.randint(1, len(held)) for held in holds]
    free = CpuSet.of(cpus[cuts[-1] :])
    newcomer = rng.randint(1, 8 - sum(shares)) if sum(shares) < 8 else 0
    kept = keep_apart(NODE, holds, shares, free, newcomer)
    assert all(k <= held for k, held in zip(kept, holds, strict=True))
    assert [len(k) for k in kept] == shares
    rest = NODE.cpus - CpuSet.of(cpu for k in kept for cpu in k)
    comer = nearest(NODE, rest, newcomer) if newcomer else CpuSet()
    assert incidences([*kept, comer]) == least(holds, shares, newcomer)


def test_with_two_sockets_and_one_half_each_job_has_a_socket():
    assert keep_apart(NODE, [NODE.cpus], [4], CpuSet(), 4) == [SOCKETS[0]]
    threads = synthetic("package:2 core:4 pu:2")
    (kept,) = keep_apart(threads, [threads.cpus], [8], CpuSet(), 8)
    assert kept in threads.packages


def test_one_package_is_divided_by_its_memory_nodes():
    assert sockets_of(NODE) == SOCKETS
    assert len(sockets_of(synthetic("package:1 numa:4 pu:2"))) == 4


def test_with_too_many_ways_everybody_keeps_what_is_nearest():
    node = synthetic("package:8 pu:8")
    holds = [package | CpuSet() for package in node.packages]
    kept = keep_apart(node, holds, [4] * 8, CpuSet(), 32)
    assert [len(k) for k in kept] == [4] * 8


def test_of_many_sockets_those_that_have_most_of_a_job_are_tried():
    node = synthetic("package:12 pu:4")
    most = node.packages[-1]
    held = CpuSet.of(
        [*range(0, 40, 4), *most]
    )  # a CPU in each of ten packages, then four in the last
    assert keep_apart(node, [held], [4], CpuSet(), 10) == [most]


def test_what_a_search_among_32_mates_on_64_sockets_looks_at_is_bounded(monkeypatch):
    node = synthetic("package:64 pu:4")
    looks = []

    def counted(topology, free, requirement, starts):
        looks.append(requirement)
        return allocator.choice(topology, free, requirement, starts)

    monkeypatch.setattr(sharing, "choice", counted)
    rng = random.Random(3)
    cpus = list(range(256))
    rng.shuffle(cpus)
    cuts = [0, 100, *range(108, 252, 5), 256]
    holds = [CpuSet.of(cpus[a:b]) for a, b in itertools.pairwise(cuts)]
    kept = keep_apart(node, holds, [len(held) // 2 for held in holds], CpuSet(), 100)
    assert [len(k) for k in kept] == [len(held) // 2 for held in holds]
    assert len(looks) <= len(holds) + 10 * 2 * sharing.SOCKETS_TRIED
