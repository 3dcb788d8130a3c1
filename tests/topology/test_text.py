"""What is printed of machines: parts inside parts, who has which CPUs, never wider than a terminal."""

from hypothesis import given
from hypothesis import strategies as st

from apples.topology import CpuSet, draw, origin, restricted, synthetic

MACHINE = synthetic("package:2 [numa] l3:2 core:3 pu:2")


def test_a_map_shows_parts_inside_parts_memory_and_who_has_what():
    held = {"job 7": CpuSet.parse("0-2"), "job 8": CpuSet.parse("12-23")}
    assert draw(restricted(MACHINE, CpuSet.parse("0-5,12-23")), held).splitlines() == [
        "18 CPUs, 9 cores, 2 packages, 2 memory nodes",
        "package 0, node 0, L3  [a a] [a 3] [4 5]",
        "package 1, node 1",
        "  L3  [ b  b] [ b  b] [ b  b]",
        "  L3  [ b  b] [ b  b] [ b  b]",
        "not ours: CPUs 6-11",
        "a = job 7 (0-2)",
        "b = job 8 (12-23)",
    ]


def test_a_map_shows_the_latencies_of_a_small_machine():
    assert draw(origin(16)).splitlines() == [
        "16 CPUs, 16 cores, 0 packages, 4 memory nodes; latencies 10 16",
        "node 0  [0] [1] [2] [3]",
        "node 1  [4] [5] [6] [7]",
        "node 2  [ 8] [ 9] [10] [11]",
        "node 3  [12] [13] [14] [15]",
        "latency   0  1  2  3",
        "      0  10 16 16 16",
        "      1  16 10 16 16",
        "      2  16 16 10 16",
        "      3  16 16 16 10",
    ]


@given(st.integers(1, 4), st.integers(1, 9), st.integers(1, 4))
def test_no_line_of_a_map_is_wider_than_a_terminal(packages, cores, threads):
    for line in draw(synthetic(f"package:{packages} core:{cores * 4} pu:{threads}")).splitlines():
        assert len(line) <= 80
