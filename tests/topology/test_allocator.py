"""The allocator against every subset, and what each key of a requirement does to its answer.

APPLES_TOPOLOGY_CASES sets how many random cases are held against all subsets.
"""

import itertools
import os
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import Machine, best_by_trying_all, random_machine

from apples.topology import (
    COST_UNIT,
    CpuSet,
    ExchangeSearch,
    Fit,
    PackingCache,
    Placement,
    Requirement,
    Rules,
    Satisfiability,
    Unsatisfied,
    balls_for,
    fit,
    origin,
    read_hwloc_xml,
    synthetic,
)

CASES = int(os.environ.get("APPLES_TOPOLOGY_CASES", "1000"))
SEEDS = st.integers(0, 2**32)


def read(machine):
    return read_hwloc_xml(machine.xml().encode(), "random")


def case(seed, most=8):
    rng = random.Random(seed)
    machine = random_machine(rng)
    free = rng.sample(machine.cpus, rng.randint(1, min(most, len(machine.cpus))))
    return machine, read(machine), CpuSet.of(free), rng.randint(1, len(free))


def checked(machine, found, count):
    """The figures of a fit are those of its CPUs."""
    cpus = list(found.cpus)
    assert len(cpus) == count
    assert found.centre in cpus
    assert found.radius == pytest.approx(max(machine.hops(found.centre, c) for c in cpus))
    pairs = itertools.combinations(cpus, 2)
    assert found.total == pytest.approx(sum(machine.hops(a, b) for a, b in pairs))


def test_the_radius_is_the_least_of_all_subsets_and_the_total_within_twice_the_least():
    exact = 0
    for seed in range(CASES):
        machine, topology, free, count = case(seed)
        found = fit(topology, free, Requirement(count))
        radius, total = best_by_trying_all(machine, free, count)
        checked(machine, found, count)
        assert found.cpus <= free
        assert found.radius == pytest.approx(radius), seed
        assert found.total <= 2 * total + 1e-9, seed
        exact += found.total <= total + 1e-9
    assert exact >= 0.95 * CASES


@given(SEEDS)
def test_the_same_question_has_the_same_answer(seed):
    _, topology, free, count = case(seed)
    again = read_hwloc_xml(case(seed)[0].xml().encode(), "again")
    assert fit(topology, free, Requirement(count)) == fit(again, free, Requirement(count))


@given(SEEDS, st.sampled_from(Placement))
def test_every_placement_gives_free_cpus_in_the_number_asked(seed, placement):
    machine, topology, free, count = case(seed, most=30)
    found = fit(topology, free, Requirement(count, placement=placement))
    assert found.cpus <= free
    checked(machine, found, count)


@given(SEEDS, st.sampled_from(Placement))
def test_a_maximal_radius_is_kept_or_the_refusal_names_the_radius_there_is(seed, placement):
    _, topology, free, count = case(seed)
    least = fit(topology, free, Requirement(count)).radius
    for limit in (0.0, 0.5, 1.0, 2.0, 3.0):
        found = fit(topology, free, Requirement(count, max_radius=limit, placement=placement))
        if isinstance(found, Fit):
            assert found.radius <= limit
        else:
            assert (found.key, found.needed) == ("MAX_RADIUS", limit)
            assert (
                found.found <= least
                if found.verdict is Satisfiability.NEVER
                else found.found == least
            )
            assert least > limit


@given(SEEDS)
def test_no_memory_node_gives_more_than_its_limit_unless_there_is_no_way(seed):
    machine, topology, free, count = case(seed, most=30)
    for cap in (1, 2, 3):
        found = fit(topology, free, Requirement(count, max_cpus_per_node=cap))
        possible = sum(min(cap, len(held & set(free))) for held in machine.nodes.values())
        if isinstance(found, Fit):
            assert all(len(held & set(found.cpus)) <= cap for held in machine.nodes.values())
            checked(machine, found, count)
        else:
            assert found.key == "MAX_CPU_PER_NODE"
            assert possible < count


@given(SEEDS, st.sampled_from(Placement))
def test_whole_cores_are_given_as_a_whole(seed, placement):
    _, topology, free, count = case(seed, most=30)
    asked = Requirement(count, whole_cores=True, placement=placement)
    found = fit(topology, free, asked)
    cores = [set(core) for core in topology.cores]
    whole = [core for core in cores if core <= set(free)]
    if isinstance(found, Fit):
        held = set(found.cpus)
        assert all(core <= held or not core & held for core in cores)
        assert count <= len(held) < count + len(cores[0])
    else:
        assert sum(map(len, whole)) < count


def test_whole_cores_of_unequal_size_are_chosen_to_waste_nothing():
    cores = [("Core", 0, [0, 1]), ("Core", 1, [2, 3]), ("Core", 2, [4]), ("Core", 3, [5])]
    topology = read(Machine(("Machine", 0, cores)))
    assert str(fit(topology, topology.cpus, Requirement(2, whole_cores=True)).cpus) == "0-1"
    assert len(fit(topology, topology.cpus, Requirement(3, whole_cores=True)).cpus) == 3
    assert len(fit(topology, topology.cpus, Requirement(1, whole_cores=True)).cpus) == 1


@pytest.mark.parametrize(
    ("free", "count", "chosen"),
    [
        ("0-15", 4, "0-3"),  # lowest of equals
        ("1-3,4-7,8-11", 3, "1-3"),  # the tightest ball is used up first
        ("2-7", 4, "4-7"),  # the only L3 with four
        ("0-2,8,12", 4, "0-2,8"),  # no package has four: three together and one far away
        ("0-1,4-5,8-10,12", 4, "8-10,12"),  # three in one L3 are nearer than two and two
        ("3,7,11,15", 2, "3,7"),
    ],
)
def test_best_fit_on_the_drawn_machine(free, count, chosen):
    """(0 1 2 3) (4 5 6 7)  |  (8 9 10 11) (12 13 14 15): caches in packages."""
    topology = synthetic("package:2 l3:2 core:4 pu:1")
    assert str(fit(topology, CpuSet.parse(free), Requirement(count)).cpus) == chosen


def test_first_fit_takes_the_lowest_and_spread_goes_round_the_packages_and_caches():
    topology = synthetic("package:2 l3:2 core:2 pu:2")
    first = fit(topology, CpuSet.parse("1-15"), Requirement(3, placement=Placement.FIRST))
    assert str(first.cpus) == "1-3"
    order = [
        fit(topology, topology.cpus, Requirement(k, placement=Placement.SPREAD))
        for k in range(1, 9)
    ]
    assert [str(found.cpus) for found in order] == [
        "0", "0,8", "0,4,8", "0,4,8,12", "0,2,4,8,12", "0,2,4,8,10,12", "0,2,4,6,8,10,12",
        "0,2,4,6,8,10,12,14",
    ]  # fmt: skip


def test_the_memory_nodes_of_a_fit_are_those_of_its_cpus_or_those_asked_for():
    topology = synthetic("package:2 [numa] core:4 pu:1")
    assert str(fit(topology, CpuSet.parse("2-5"), Requirement(4)).memory) == "0-1"
    asked = Requirement(2, memory=CpuSet.parse("1"))
    assert str(fit(topology, CpuSet.parse("0-3"), asked).memory) == "1"


@pytest.mark.parametrize(
    ("asked", "free", "verdict", "key", "numbers"),
    [
        (Requirement(9), "0-7", Satisfiability.NEVER, "-n", (8, 9)),
        (Requirement(3), "0-1", Satisfiability.NOT_NOW, "-n", (2, 3)),
        (
            Requirement(2, cpus=CpuSet.parse("7-9")),
            "0-7",
            Satisfiability.NEVER,
            "CPU_LIST",
            (1, 2),
        ),
        (
            Requirement(2, cpus=CpuSet.parse("2-3")),
            "0-2",
            Satisfiability.NOT_NOW,
            "CPU_LIST",
            (1, 2),
        ),
        (
            Requirement(4, whole_cores=True),
            "0-2,4,6",
            Satisfiability.NOT_NOW,
            "WHOLE_CORES",
            (2, 4),
        ),
        (
            Requirement(4, max_cpus_per_node=1),
            "0-7",
            Satisfiability.NEVER,
            "MAX_CPU_PER_NODE",
            (2, 4),
        ),
        (Requirement(4, max_radius=2), "0-1,4-5", Satisfiability.NOT_NOW, "MAX_RADIUS", (3, 2)),
        (Requirement(8, max_radius=2), "0-7", Satisfiability.NEVER, "MAX_RADIUS", (3, 2)),
        (
            Requirement(1, memory=CpuSet.parse("0,5")),
            "0-7",
            Satisfiability.NEVER,
            "MEM_LIST",
            (5, 2),
        ),
    ],
)
def test_a_refusal_has_one_reason_with_both_numbers(asked, free, verdict, key, numbers):
    topology = synthetic("package:2 [numa] core:2 pu:2")
    found = fit(topology, CpuSet.parse(free), asked)
    assert isinstance(found, Unsatisfied)
    assert (found.verdict, found.key, (found.found, found.needed)) == (verdict, key, numbers)
    assert str(numbers[0]) in found.reason


def test_moving_cpus_between_nodes_shortens_the_total_and_keeps_count_of_it():
    topology = origin(128)
    hops, shorter = topology.hops, 0
    for seed in range(10):
        rng = random.Random(seed)
        free = sum(1 << cpu for cpu in topology.cpus if rng.random() < 0.6)
        count = rng.randint(12, 48)
        balls = balls_for(topology, free, Requirement(count))
        for ball in balls:
            for centre in range(32):
                search = ExchangeSearch(
                    PackingCache(hops, Rules(), count), ball.usable, centre, count
                )
                if hops.domains[centre].cpus & ball.centres and search.fill():
                    grown = hops.total(search.mask())
                    search.descend()
                    shorter += hops.total(search.mask()) < grown - 1e-9
                    assert hops.total(search.mask()) == pytest.approx(
                        search.cost() // COST_UNIT / hops.scale
                    )
    assert shorter >= 3


@pytest.mark.parametrize(("whole", "most", "admitted"), [(False, 1, 9), (True, 3, 10)])
def test_a_cpu_in_no_memory_node_is_under_no_cap(whole, most, admitted):
    machine = synthetic("package:2 numa:1 core:4 pu:2")
    machine = replace(machine, nodes=machine.nodes[:1])  # the second package's memory is not there

    def asked(count):
        wanted = Requirement(count, max_cpus_per_node=most, whole_cores=whole)
        return fit(machine, machine.cpus, wanted)

    found = asked(admitted)
    assert len(found.cpus & CpuSet.parse("0-7")) == admitted - 8
    refused = asked(admitted + 1)
    assert (refused.key, refused.found) == ("MAX_CPU_PER_NODE", admitted)
