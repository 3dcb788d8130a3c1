"""Placement by communication: against the optimum, against placing by load alone, and what it always keeps."""

from itertools import product

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import placement_optimum
from pulp import HiGHS, LpProblem, lpSum, value

from apples.errors import UsageError
from apples.topology import PlacementProblem, place

SITES = 10.0
"""Between two sites a byte costs ten times what it costs inside one."""


def sites(hosts, each):
    """Distances of hosts in sites of so many."""
    site = np.arange(hosts) // each
    distances = np.where(site[:, None] == site[None, :], 1.0, SITES)
    np.fill_diagonal(distances, 0.05)
    return distances


def stencil(side, chance):
    """Five points, the tasks numbered at random."""
    order = chance.permutation(side * side).reshape(side, side)
    messages = np.zeros((side * side, side * side))
    for one, other in ((order[1:], order[:-1]), (order[:, 1:], order[:, :-1])):
        messages[one, other] = messages[other, one] = 1.0
    return messages


def groups(tasks, count, chance):
    """Tasks that talk inside their group, and a little with everybody."""
    member = chance.integers(0, count, tasks)
    inside = (member[:, None] == member[None, :]) * chance.uniform(0.5, 1.5, (tasks, tasks))
    return inside + 0.05 * chance.uniform(size=(tasks, tasks))


WORLDS = {
    "8 x 8 points on 8 hosts": lambda chance: (stencil(8, chance), 8, 4),
    "16 x 16 points on 16 hosts": lambda chance: (stencil(16, chance), 16, 8),
    "64 tasks in 8 groups": lambda chance: (groups(64, 8, chance), 8, 4),
}


@pytest.mark.parametrize("world", WORLDS)
def test_over_two_sites_it_costs_a_third_of_placing_by_load_alone_and_balances_as_well(world):
    ratios = []
    for seed in range(3):
        chance = np.random.default_rng(seed)
        messages, hosts, each = WORLDS[world](chance)
        tasks = len(messages)
        problem = PlacementProblem(
            messages,
            sites(hosts, each),
            (1.0,) * tasks,
            (1.0,) * hosts,
            weight=messages.sum() * 10,
        )
        by_load = chance.permutation(np.repeat(np.arange(hosts), tasks // hosts))
        found = place(problem)
        assert problem.seconds(found).max() == tasks / hosts
        ratios.append(problem.talk(found) / problem.talk(by_load))
    assert np.mean(ratios) <= 0.35


@st.composite
def problems(draw, most=8, hosts=3):
    tasks, count = draw(st.integers(1, most)), draw(st.integers(1, hosts))
    chance = np.random.default_rng(draw(st.integers(0, 2**32)))
    messages = chance.uniform(size=(tasks, tasks))
    messages *= chance.uniform(size=(tasks, tasks)) < chance.uniform(0.2, 1)
    distances = chance.uniform(0.1, 5, (count, count))
    room = chance.integers(0, tasks + 1, count) if draw(st.booleans()) else ()
    if sum(room) < tasks:
        room = ()
    return PlacementProblem(
        messages,
        distances + distances.T,
        tuple(chance.uniform(0.1, 2, tasks)),
        tuple(chance.uniform(0.5, 2, count)),
        weight=draw(st.sampled_from([0.0, 0.3, 1.0, 3.0, 30.0])),
        room=tuple(map(int, room)),
        tolerated=draw(st.sampled_from([0.0, 1.0, 3.0])),
    )


@settings(max_examples=examples(30))
@given(problem=problems())
def test_of_up_to_ten_tasks_it_is_within_a_twentieth_of_the_optimum(problem):
    assert problem.cost(place(problem)) <= 1.05 * placement_optimum(problem) + 1e-9


@settings(max_examples=examples(5))
@given(problem=problems(most=5))
def test_the_optimum_is_the_one_that_highs_finds(problem):
    assert by_highs(problem) == pytest.approx(placement_optimum(problem), rel=1e-4, abs=1e-6)


@pytest.mark.more
@settings(max_examples=examples(40))
@given(problem=problems(most=12, hosts=5), seed=st.integers(0, 99))
def test_what_is_there_gets_no_worse_and_no_host_gets_more_than_it_has_room_for(problem, seed):
    tasks, hosts = len(problem.loads), len(problem.speeds)
    places = np.repeat(np.arange(hosts), problem.room or tasks)
    begin = np.random.default_rng(seed).permutation(places)[:tasks]
    found = place(problem, begin)
    assert problem.cost(found) <= problem.cost(begin) * (1 + 1e-9)
    used = np.bincount(found, minlength=hosts)
    assert (used <= np.array(problem.room or [tasks] * hosts)).all()
    assert found == place(problem, begin)


def test_a_placement_is_kept_unless_another_is_worth_the_moves():
    pairs = np.zeros((4, 4))
    pairs[0, 1] = pairs[2, 3] = 9.0
    problem = PlacementProblem(pairs, 1 - np.eye(2), (1,) * 4, (1.0, 1.2), weight=1.0)
    slower = (1, 1, 0, 0)
    assert place(problem, slower, worth=0.5) == slower


def test_a_fast_host_gets_more_and_without_a_weight_all_are_on_one():
    nothing = np.zeros((4, 4))
    by_load = PlacementProblem(nothing, 1 - np.eye(2), (1,) * 4, (1, 3), weight=1.0)
    assert sorted(place(by_load)) == [0, 1, 1, 1]
    everyone = PlacementProblem(np.ones((4, 4)), 1 - np.eye(2), (1,) * 4, (1, 3), weight=0.0)
    assert len({*place(everyone)}) == 1


def test_no_tasks_have_no_places():
    assert place(PlacementProblem(np.zeros((0, 0)), [[0.0]], (), (1.0,), weight=1.0)) == ()


@pytest.mark.parametrize(
    ("changed", "code", "fields"),
    [
        (
            {"messages": np.zeros((2, 3))},
            "matrix-size-invalid",
            {"value": [2, 3], "needed": [2, 2]},
        ),
        ({"messages": [[0, -1], [0, 0]]}, "value-range", {}),
        ({"distances": [[0, 1], [2, 0]]}, "distances-asymmetric", {}),
        ({"distances": [[0, np.nan], [np.nan, 0]]}, "value-range", {}),
        ({"speeds": (1.0, 0.0)}, "value-range", {}),
        ({"weight": -1.0}, "value-range", {"value": -1.0}),
        ({"tolerated": float("inf")}, "value-range", {"value": float("inf")}),
        ({"room": (1, 0)}, "room-insufficient", {"value": 1, "needed": 2}),
        ({"room": (1,)}, "value-range", {"value": [1]}),
    ],
)
def test_what_is_no_problem_is_refused_by_its_field(changed, code, fields):
    given = {
        "messages": np.zeros((2, 2)),
        "distances": np.zeros((2, 2)),
        "loads": (1.0, 1.0),
        "speeds": (1.0, 1.0),
        "weight": 1.0,
    }
    with pytest.raises(UsageError) as raised:
        PlacementProblem(**{**given, **changed})
    assert raised.value.code == code
    assert {"field": next(iter(changed)), **fields}.items() <= raised.value.fields.items()


def by_highs(problem):
    """The optimum as a mixed integer program: Adams and Johnson's linearisation of the products."""
    tasks, hosts = range(len(problem.loads)), range(len(problem.speeds))
    program = LpProblem("placement")
    on = {(t, h): program.add_variable(f"on_{t}_{h}", cat="Binary") for t in tasks for h in hosts}
    both = {
        key: program.add_variable("both_{}_{}_{}_{}".format(*key), 0, 1)
        for key in product(tasks, tasks, hosts, hosts)
        if key[1] < key[0]
    }
    step = program.add_variable("step", 0)
    talk = lpSum(
        problem.tie[a, b] * problem.distance[h, k] * v for (a, b, h, k), v in both.items()
    )
    program += talk + problem.weight * step
    for t in tasks:
        program += lpSum(on[t, h] for h in hosts) == 1
    for h in hosts:
        program += lpSum(problem.loads[t] * on[t, h] for t in tasks) <= problem.speeds[h] * step
        if problem.room:
            program += lpSum(on[t, h] for t in tasks) <= problem.room[h]
    program += step >= problem.tolerated
    for a, b, h in product(tasks, tasks, hosts):
        if b < a:
            program += lpSum(both[a, b, h, k] for k in hosts) == on[a, h]
            program += lpSum(both[a, b, k, h] for k in hosts) == on[b, h]
    program.solve(HiGHS(msg=False))
    return value(program.objective)
