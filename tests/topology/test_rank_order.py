"""Which rank gets which CPUs: against all orders, and never worse than the topology's own."""

import itertools
import random
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from apples.errors import UsageError
from apples.topology import (
    MAX_READ,
    CpuSet,
    MessageMatrix,
    distances,
    origin,
    per_rank,
    synthetic,
)
from apples.topology import order_ranks as rank_order

MACHINES = [
    synthetic(each)
    for each in (
        "package:2 core:4 pu:1",
        "package:2 [numa] l3:2 core:2 pu:2",
        "package:3 core:3 pu:1",
        "numa:2 core:2 pu:2",
        "package:4 l3:1 core:2 pu:2",
    )
] + [origin(16)]


def least(messages, far):
    """The least bytes x hops over all orders."""
    orders = np.array(list(itertools.permutations(range(len(messages)))))
    cost = np.zeros(len(orders))
    for a in range(len(messages)):
        for b in range(a):
            cost += (messages[a][b] + messages[b][a]) * far[orders[:, a], orders[:, b]]
    return cost.min()


@settings(max_examples=examples(25))
@given(st.integers(0, 2**32), st.sampled_from(MACHINES), st.integers(2, 7))
def test_of_few_ranks_the_order_is_within_five_in_a_hundred_of_the_best_of_all(
    seed, machine, ranks
):
    rng = random.Random(seed)
    free = CpuSet.of(
        rng.sample(list(machine.cpus), rng.randint(ranks, min(12, len(machine.cpus))))
    )
    shares = per_rank(machine, free, ranks)
    share = rng.choice((0.2, 0.5, 1.0))
    messages = [[rng.randint(0, 99) * (rng.random() < share) for _ in shares] for _ in shares]
    found = rank_order(machine, shares, messages)
    assert sorted(map(str, found.shares)) == sorted(map(str, shares))
    assert found.cost <= found.before
    for at in range(ranks):
        messages[at][at] = 0
    assert found.cost <= 1.05 * least(messages, distances(machine, shares)) + 1e-9


def grid(rows, columns, down=1, across=1):
    size = rows * columns
    sent = np.zeros((size, size))
    for at in range(size):
        if at % columns + 1 < columns:
            sent[at, at + 1] = sent[at + 1, at] = across
        if at + columns < size:
            sent[at, at + columns] = sent[at + columns, at] = down
    return sent


def test_a_chain_keeps_the_topologys_own_order():
    machine = synthetic("package:2 l3:2 core:4 pu:1")
    shares = per_rank(machine, machine.cpus, 16)
    found = rank_order(machine, shares, grid(1, 16))
    assert found.shares == tuple(shares)
    assert found.cost == found.before


def test_ranks_that_send_nothing_keep_their_places():
    machine = synthetic("package:2 core:2 pu:1")
    shares = per_rank(machine, machine.cpus, 4)
    assert rank_order(machine, shares, np.zeros((4, 4))).shares == tuple(shares)


@pytest.mark.parametrize("seed", range(3))
def test_a_grid_of_64_ranks_in_any_numbering_is_placed_as_one_in_the_best(seed):
    machine = synthetic("package:4 l3:4 core:4 pu:1")
    shares = per_rank(machine, machine.cpus, 64)
    sent, order = grid(8, 8), np.random.default_rng(seed).permutation(64)
    found = rank_order(machine, shares, sent[np.ix_(order, order)])
    blocks = [  # squares in squares in squares, which nothing can beat on a tree of fours
        8 * (4 * (p // 2) + 2 * (cache // 2) + c // 2) + 4 * (p % 2) + 2 * (cache % 2) + c % 2
        for p in range(4) for cache in range(4) for c in range(4)
    ]  # fmt: skip
    assert found.cost <= 1.05 * rank_order(machine, shares, sent[np.ix_(blocks, blocks)]).cost


def test_groups_that_talk_among_themselves_each_get_a_package():
    machine = synthetic("package:4 core:4 pu:1")
    shares = per_rank(machine, machine.cpus, 16)
    among = [[9 * (a % 4 == b % 4 and a != b) for b in range(16)] for a in range(16)]
    found = rank_order(machine, shares, among)
    for group in range(4):
        cpus = CpuSet.of(cpu for share in found.shares[group::4] for cpu in share)
        assert cpus in machine.packages


NO_NUMBER = "value-invalid"


@pytest.mark.parametrize(
    ("text", "code", "fields"),
    [
        (b"0 1\n1", "matrix-size-invalid", {"line": 2, "value": 1, "needed": 2}),
        (b"0 1\n1 0\n1 1", "matrix-size-invalid", {"line": 1, "value": 2, "needed": 3}),
        (b"# of two\n0 1\n1 x", NO_NUMBER, {"line": 3, "value": "x"}),
        (b"0 -1\n1 0", NO_NUMBER, {"line": 1, "value": "-1"}),
        (b"-1 0\n1 0", NO_NUMBER, {"line": 1, "value": "-1"}),
        (b"0 nan\n1 0", NO_NUMBER, {"line": 1, "value": "nan"}),
        (b"0 inf\n1 0", NO_NUMBER, {"line": 1, "value": "inf"}),
        (b"0 1e300\n1 0", NO_NUMBER, {"line": 1, "value": "1e300"}),
        (b"0 %s" % (b"1" * 5000), NO_NUMBER, {"line": 1, "value": "1" * 40}),
        (b"1 " * 257, "too-many-ranks", {"line": 1, "bound": 256}),
        (b"1\n" * 257, "too-many-ranks", {"line": 257, "bound": 256}),
        (b"#", "file-empty", {}),
        (b"[[0, 1], [1, 0]]", "file-invalid", {}),
        (b"nan 0\n0 0", "file-invalid", {}),
    ],
)
def test_what_is_no_matrix_is_refused_with_file_and_line(text, code, fields):
    with pytest.raises(UsageError) as refused:
        MessageMatrix.parse(text, Path("talk.txt"))
    assert refused.value.code == code
    common = {"option": "--messages", "file": "talk.txt"}
    assert refused.value.fields == {**common, **fields}
    assert "\n" not in str(refused.value)


def test_rows_may_begin_with_a_point_or_a_remark_and_end_as_on_any_system():
    found = MessageMatrix.parse(b".6 8 # from rank 0\r\n\r\n8.0,0\r\n", Path("talk.txt"))
    assert found.bytes == ((1, 8), (8, 0))
    assert found.source == "declared"


@pytest.mark.more
@pytest.mark.parametrize("text", [b"0 ", b"0\n", b"[],", b'{"":0},', b"1"], ids=str)
def test_the_longest_file_that_is_read_takes_at_most_300_mb(text):
    begin = b"[" if text[:1] in b"[{" else b""
    whole = (begin + text * (MAX_READ // len(text)))[:MAX_READ]
    tracemalloc.start()
    try:
        with pytest.raises(UsageError):
            MessageMatrix.parse(whole, Path("talk.txt"))
        assert tracemalloc.get_traced_memory()[1] < 300e6
    finally:
        tracemalloc.stop()
