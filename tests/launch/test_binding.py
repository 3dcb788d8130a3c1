"""Ranks on the allocator's CPUs: what each gets, on machines drawn here and on this one."""

import base64
import json
import os
import subprocess
import sys
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apples.errors import LaunchError
from apples.launch import RankGroup, bound, bound_apart, rank_cpus
from apples.topology import SYSFS_MOST_BYTES as MAX_BYTES
from apples.topology import (
    CpuSet,
    live_topology,
    probe,
    read_packed,
    read_probe,
    restricted,
    synthetic,
)

MACHINE = synthetic("package:2 l3:2 core:2 pu:2")


def rank_group(host, ranks, cpus=()):
    return RankGroup(host, ranks, ("program",), tuple(cpus))


def places(rank_groups, machine=MACHINE):
    return [one.rank_cpus for one in bound(rank_groups, machine)]


SEGMENTS = st.lists(
    st.builds(
        rank_group, st.just("h"), st.integers(1, 5), st.sets(st.integers(0, 15), max_size=6)
    ),
    max_size=5,
)


@given(SEGMENTS)
def test_no_two_ranks_share_a_cpu_and_every_rank_stays_where_its_host_is(rank_groups):
    found = places(rank_groups)
    held = [cpu for ranks in found for rank in ranks for cpu in rank]
    assert len(held) == len(set(held))
    for one, ranks in zip(rank_groups, found, strict=True):
        assert len(ranks) in {0, one.ranks}
        assert {cpu for rank in ranks for cpu in rank} <= set(one.cpus or range(16))
    assert all(found) or not any(found)


@given(SEGMENTS.filter(lambda s: not any(one.cpus for one in s)))
def test_ranks_are_bound_whenever_there_is_a_cpu_for_each(rank_groups):
    enough = sum(one.ranks for one in rank_groups) <= 16
    assert all(bool(found) == enough for found in places(rank_groups))


def test_a_hosts_ranks_are_neighbours_and_its_listed_cpus_are_divided():
    assert places([rank_group("a", 4), rank_group("b", 4)]) == [
        ((0,), (1,), (2,), (3,)), ((4,), (5,), (6,), (7,)),
    ]  # fmt: skip
    assert places([rank_group("a", 2, (0, 1, 2, 3)), rank_group("b", 2)]) == [
        ((0, 1), (2, 3)), ((4,), (5,)),
    ]  # fmt: skip


def pairs_apart(ranks):
    """Each rank sends to the one half the ranks away, and nothing else."""
    return tuple(tuple(9 * (abs(a - b) == ranks // 2) for b in range(ranks)) for a in range(ranks))


def test_ranks_that_talk_share_a_core_where_it_is_known_who_does():
    (asked,) = bound([replace(rank_group("a", 8), messages=pairs_apart(8))], MACHINE)
    cores = [cpu // 2 for (cpu,) in asked.rank_cpus]
    assert cores[:4] == cores[4:]
    assert sorted(cores) == sorted([*range(4)] * 2)
    assert places([rank_group("a", 8)]) == [tuple((cpu,) for cpu in range(8))]


def test_what_one_host_says_of_its_ranks_changes_nothing_for_another():
    first, second = replace(rank_group("a", 4), messages=pairs_apart(4)), rank_group("b", 4)
    found = places([first, second])
    assert found[1] == ((4,), (5,), (6,), (7,))
    assert sorted(found[0]) == [(0,), (1,), (2,), (3,)]
    assert found[0] != ((0,), (1,), (2,), (3,))


def test_what_two_hosts_list_is_not_taken_by_the_first():
    assert places([rank_group("a", 1, (0, 1)), rank_group("b", 1, (0, 1))]) == [((0,),), ((1,),)]
    assert places([rank_group("a", 2, (0, 1)), rank_group("b", 1, (0, 1))]) == [(), ()]


def test_only_the_cpus_that_were_given_are_ever_named():
    ours = restricted(MACHINE, CpuSet.parse("5-7"))
    assert places([rank_group("a", 3)], ours) == [((5,), (6,), (7,))]
    with pytest.raises(LaunchError) as raised:
        bound([rank_group("a", 1, (4, 5))], ours)
    assert raised.value.code == "cpus-not-ours"
    assert raised.value.fields == {"host": "a", "value": [4], "known": [5, 6, 7]}
    assert rank_cpus("a", 4, (), ours) == ()


@pytest.mark.more
def test_another_machine_says_what_it_is_and_is_read_as_this_one_is():
    words = [sys.executable, "-I", "-S", probe.__file__]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    there, here = read_probe(done.stdout, "there"), live_topology("sys")
    assert there.cpus == here.cpus
    assert set(there.cores) == set(here.cores)
    assert there.nodes == here.nodes
    assert probe.describe()["cpus"] == sorted(os.sched_getaffinity(0))


GOOD = {"schema": probe.SCHEMA, "cpus": [0], "memory": "", "files": {"cpu/online": "0"}}


@pytest.mark.parametrize(
    ("wrong", "code"),
    [(wrong, "topology-answer-invalid") for wrong in (
        {"schema": "x"}, {"cpus": [-1]}, {"cpus": "0"}, {"memory": "x"}, {"files": []},
        {"files": {"../../etc/passwd": "x"}}, {"files": {"cpu/online": "x" * 2**17}},
        {"files": {"/abs": ""}},
    )] + [({"files": {}}, "kernel-files-missing"), ({"cpus": [7]}, "cpus-not-ours")],
)  # fmt: skip
def test_an_answer_that_is_none_is_refused_and_nothing_is_written(
    wrong, code, tmp_path, monkeypatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert len(read_probe(json.dumps(GOOD), "far").cpus) == 1
    with pytest.raises(LaunchError) as raised:
        read_probe(json.dumps({**GOOD, **wrong}), "far")
    assert raised.value.code == code
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "[]", "nothing", "[" * 10_000])
def test_no_document_is_refused(text):
    with pytest.raises(LaunchError) as raised:
        read_probe(text, "far")
    assert raised.value.fields["host"] == "far"


def apart(*parties):
    return [one.rank_cpus for one in bound_apart(parties)]


def test_hosts_of_several_machines_each_have_their_own_numbers():
    small = synthetic("core:2 pu:1")
    parties = ((rank_group("a", 2), "x", small), (rank_group("b", 2), "y", MACHINE))
    assert apart(*parties) == [((0,), (1,)), ((0,), (1,))]


def test_hosts_that_are_parts_of_one_machine_are_not_bound_onto_each_other():
    assert apart(
        (rank_group("a", 2), "x", MACHINE), (rank_group("c", 1), "y", MACHINE), (rank_group("b", 2), "x", MACHINE)
    ) == [((0,), (1,)), ((0,),), ((2,), (3,))]  # fmt: skip
    given = restricted(MACHINE, CpuSet.parse("0-1"))
    assert apart((rank_group("a", 2), "x", MACHINE), (rank_group("b", 2), "x", given)) == [
        ((2,), (3,)), ((0,), (1,)),
    ]  # fmt: skip


def test_ranks_that_must_share_on_one_machine_leave_all_unbound():
    small = synthetic("core:2 pu:1")
    parties = ((rank_group("a", 2), "x", MACHINE), (rank_group("b", 3), "y", small))
    assert apart(*parties) == [(), ()]
    assert apart((rank_group("a", 1), "x", small), (rank_group("b", 2), "x", small)) == [(), ()]


def test_a_packed_answer_is_the_answer():
    assert read_packed(probe.packed(), "here").cpus == live_topology("sys").cpus


@pytest.mark.parametrize(
    ("word", "bound"),
    [
        ("not base64!", None),
        ("AAAA", None),
        (base64.b64encode(zlib.compress(b"[]")).decode(), None),
        (base64.b64encode(zlib.compress(b" " * 2 * MAX_BYTES)).decode(), MAX_BYTES),
    ],
    ids=["not base64", "not compressed", "no document", "too long"],
)
def test_a_packed_answer_that_is_none_names_the_host(word, bound):
    with pytest.raises(LaunchError) as raised:
        read_packed(word, "ada")
    fields = raised.value.fields
    assert (raised.value.code, fields["host"]) == ("topology-answer-invalid", "ada")
    assert fields.get("bound") == bound
