"""The search proposes what the filters accept, and finds the best of all ordered subsets of a few hosts."""

import json
from contextlib import suppress
from dataclasses import replace
from itertools import combinations, permutations

import numpy as np
import pytest
from drawn import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from worlds import ROOMY, pool, random_world, symmetric

import hat
from apples import Coordinator, Host, Link, NoFeasiblePlanError, Rejection, UsageError
from apples.agent import FILTERS, HOST_FILTERS, Limits, ResourceSelector
from blueprints import minimum_execution_time

NEAR, ACROSS = Link(1e-6, 1e10), Link(1e-4, 1e9)


def decided(information, **subsystems):
    coordinator = Coordinator(information, **subsystems)
    coordinator.execute(minimum_execution_time)
    return coordinator.decision_log.chosen


def limited(information, user):
    return replace(information, specifications=hat.parse(user, hat.UserSpecifications))


def equal_hosts(count, sites, **more):
    return [
        Host(f"h{i}", site=f"s{i % sites}", seconds_per_point=1e-8, free_memory=ROOMY, **more)
        for i in range(count)
    ]


def linked(sites, inside=NEAR, across=ACROSS):
    names = [f"s{i}" for i in range(sites)]
    return symmetric({(a, b): inside if a == b else across for a in names for b in names})


# ---------------------------------------------------------------- the defects
@pytest.mark.parametrize(("count", "sites"), [(4, 2), (12, 2), (30, 6), (120, 8)])
def test_a_plan_on_few_sites_is_found_however_many_sets_span_more(count, sites):
    listed = equal_hosts(count, sites)
    information = pool(listed, linked(sites, across=NEAR), grid=4000)
    for most in (1, 2):
        chosen = decided(limited(information, f"[constraints]\nmaximum_sites = {most}\n"))
        used = {host.site for host in chosen.schedule.resources}
        assert len(used) == most
        assert len(chosen.names) == most * count // sites


def test_the_sites_that_hold_the_grid_together_are_found_though_others_are_nearer():
    """Of 12 sites in a row only the first and the last have memory: neither is the other's nearest."""
    grid = 1000
    listed = [
        replace(host, free_memory=(200 if host.site in {"s0", "s11"} else 20) * 16 * grid)
        for host in equal_hosts(48, 12)
    ]
    names = [f"s{i}" for i in range(12)]
    links = {
        (a, b): Link(1e-6 * (1 + abs(i - k)), 1e9)
        for i, a in enumerate(names)
        for k, b in enumerate(names)
    }
    information = pool(
        listed, links, grid=grid, user="[constraints]\nmaximum_sites = 2\nmaximum_hosts = 8\n"
    )
    chosen = decided(information)
    assert {host.site for host in chosen.schedule.resources} == {"s0", "s11"}


@pytest.mark.parametrize(
    "limit", ["", "minimum_hosts", "maximum_hosts", "deadline", "maximum_cost"]
)
@pytest.mark.parametrize("seed", [0, 6])
def test_of_many_sites_a_plan_is_found_where_any_choice_of_them_has_one(seed, limit):
    """Nine sites have 36 pairs, more than are searched: the plan is about as good as the best plan of one pair."""
    drawn = random_world(np.random.default_rng(seed), 14, grid=1000, sites=9, priced=True)
    scarce = [replace(h, free_memory=h.free_memory // 4) for h in drawn.hosts]
    world = pool(scarce, drawn.information.hosts.network.links, grid=1000)
    at_most = "[constraints]\nmaximum_sites = 2\n"
    best = decided(limited(world, at_most))
    figures = {
        "": 2, "minimum_hosts": len(best.names), "maximum_hosts": len(best.names),
        "deadline": best.execution_seconds * 1.001, "maximum_cost": best.cost * 1.001,
    }  # fmt: skip
    line = f"{limit or 'maximum_sites'} = {figures[limit]}\n"
    user = at_most + line if limit else at_most
    sites = sorted({host.site for host in scarce})
    plans = []
    for pair in combinations(sites, 2):
        of_pair = user + f"sites = {json.dumps(pair)}\n"
        with suppress(NoFeasiblePlanError):
            plans.append(decided(limited(world, of_pair)).value)
    assert plans
    assert decided(limited(world, user)).value <= 1.05 * min(plans)


@pytest.mark.parametrize("count", [4, 12, 120])
def test_a_maximum_distance_is_kept_by_every_search(count):
    """Borders inside a site are near, those between sites far; by cost and by time."""
    listed = equal_hosts(count, 2, cost_per_second=1.0)
    information = pool(listed, linked(2, across=Link(4e-4, 1e9)), grid=4000)
    assert len({host.site for host in decided(information).schedule.resources}) == 2
    for measure in ("execution_time", "cost"):
        user = f'[objective]\nmeasure = "{measure}"\n[constraints]\nmaximum_distance = 2e-4\n'
        chosen = decided(limited(information, user))
        assert len({host.site for host in chosen.schedule.resources}) == 1


def test_every_host_is_within_the_distance_of_the_locus_though_not_of_each_other():
    listed = [
        Host(n, site=n, seconds_per_point=1e-8, free_memory=ROOMY) for n in ("a", "locus", "b")
    ]
    near, far = Link(1e-6, 1e9), Link(1e-5, 1e9)
    links = symmetric({("a", "locus"): near, ("locus", "b"): near, ("a", "b"): far})
    information = pool(listed, links, user="[constraints]\nmaximum_distance = 2e-5\n")
    limits = Limits(information)
    assert limits.refuse_set(listed) is None
    refusal = limits.refuse_set((listed[0], listed[2]))
    assert refusal.filter == "distance"
    assert refusal.figures == (pytest.approx(3.6e-5), 2e-5)
    assert "a" in refusal.reason
    assert "b" in refusal.reason
    assert set(decided(information).names) == {"a", "locus", "b"}


def test_a_distance_of_the_users_own_is_kept_too():
    listed = equal_hosts(4, 1)
    apart = {"h0": 0.0, "h1": 1.0, "h2": 2.0, "h3": 9.0}
    selector = ResourceSelector(
        lambda host, others, _: np.array([abs(apart[host.name] - apart[o.name]) for o in others])
    )
    information = pool(listed, linked(1), user="[constraints]\nmaximum_distance = 2.0\n")
    assert "h3" not in decided(information, selector=selector).names


def test_a_host_is_not_left_out_because_the_user_prefers_it():
    """Ada and bob reach each other through carl alone; bob alone is within the fraction, and has fewer others."""
    listed = [
        Host("ada", site="a", seconds_per_point=2e-8, free_memory=ROOMY),
        Host("bob", site="b", seconds_per_point=1e-8, free_memory=ROOMY),
        Host("carl", site="c", seconds_per_point=4e-8, free_memory=ROOMY),
    ]
    far = Link(1.0, 1e9)
    links = symmetric({("a", "c"): NEAR, ("b", "c"): NEAR, ("a", "b"): far})
    information = pool(listed, links)
    assert set(decided(information).names) == {"ada", "bob", "carl"}
    for within in (0.05, 0.5, 1.0):
        user = f'[preferences]\nprefer = ["ada"]\nprefer_within = {within}\n'
        assert "ada" in decided(limited(information, user)).names, within
    only = '[preferences]\nprefer = ["ada"]\nprefer_within = 3.0\n'
    assert decided(limited(information, only)).names == ("ada",)


# ---------------------------------------------------------------- brute force
FIELDS = (
    "hosts", "sites", "exclude", "no_access", "memory", "minimum_hosts", "maximum_hosts", "maximum_sites",
    "maximum_distance", "deadline", "maximum_cost", "cost", "speedup", "reference", "prefer", "avoid",
    "prefer_within", "risk", "frame", "partitions",
)  # fmt: skip
"""Every field of the user specification but the names of blueprint, planner, distance, model and metric."""


def draw_field(field, world, generator):
    """Return the table and the line that state a field, with a value that matters in this world."""
    hosts, information = world.hosts, world.information
    name, site = (str(generator.choice([getattr(h, k) for h in hosts])) for k in ("name", "site"))
    rows = int(generator.integers(1, world.total + 1))
    alone = float((world.p * world.total).min()) * information.application.iterations
    price = max(host.cost_per_second for host in hosts) * alone
    factor = 10 ** generator.uniform(-1, 0.5)
    objective = {
        "cost": 'measure = "cost"',
        "speedup": 'measure = "speedup"',
        "reference": f'measure = "speedup"\nreference = "{name}"',
    }
    preferences = {
        "prefer": f'prefer = ["{generator.choice([name, site])}"]',
        "avoid": f'avoid = ["{generator.choice([name, site])}"]',
        "prefer_within": f"prefer_within = {generator.uniform(0, 1)}",
        "risk": f"risk = {generator.uniform(0, 2)}",
        "frame": f"frame = {alone}",
        "partitions": f'partitions = "{generator.choice(["tight", "redundant:3", "sparse:1"])}"',
    }
    constraints = {
        "hosts": f'hosts = ["{name}"]',
        "sites": f'sites = ["{site}"]',
        "exclude": f'exclude = ["{generator.choice([name, site])}"]',
        "no_access": f'no_access = ["{generator.choice([name, site])}"]',
        "memory": f"memory = {16 * world.total * (rows + 2)}",
        "minimum_hosts": f"minimum_hosts = {generator.integers(1, len(hosts) + 2)}",
        "maximum_hosts": f"maximum_hosts = {generator.integers(1, len(hosts) + 2)}",
        "maximum_sites": f"maximum_sites = {generator.integers(1, 4)}",
        "maximum_distance": f"maximum_distance = {generator.choice(world.pair.ravel())}",
        "deadline": f"deadline = {factor * alone}",
        "maximum_cost": f"maximum_cost = {factor * price}",
    }
    for table, lines in (
        ("objective", objective),
        ("preferences", preferences),
        ("constraints", constraints),
    ):
        if field in lines:
            return table, lines[field]
    raise AssertionError(field)


def user_of(fields, world, generator):
    """Return the specification of some fields, or None where hat refuses them together."""
    tables = {}
    for field in fields:
        table, line = draw_field(field, world, generator)
        tables.setdefault(table, []).append(line)
    text = "".join(f"[{table}]\n" + "\n".join(lines) + "\n" for table, lines in tables.items())
    try:
        return hat.parse(text, hat.UserSpecifications)
    except hat.DocumentError:  # two objectives, or a preferred host that is avoided too
        return None


def refusals_of(log):
    """Return the hosts, whatever their order, and the filter of each refusal."""
    return {(frozenset(refusal.hosts), refusal.filter) for refusal in log.rejections}


def best_of_all(information):
    """Return the best estimate of all ordered subsets, each planned, filtered and estimated.

    Also the refusals of hosts; of all sets; and the filters that refuse the sets that the user's limits on sets
    allow, where they allow any, else the set of all hosts.
    """
    coordinator = Coordinator(information)
    log, limits = coordinator.decision_log, Limits(information)
    usable = next(coordinator.select_resources("listed"), ())
    of_hosts = tuple(log.rejections)
    candidates, allowed, of_all = [], set(), {refusal.filter for refusal in of_hosts}
    for size in range(1, len(usable) + 1):
        for resources in permutations(usable, size):
            schedule, before = coordinator.plan(resources), len(log.rejections)
            if coordinator.is_feasible(schedule):
                candidates.append(coordinator.estimate(schedule))
            filters = {refusal.filter for refusal in log.rejections[before:]}
            if limits.refuse_set(resources) is None:
                allowed |= filters
            if size == len(usable):
                of_all |= filters
    filters = allowed | {refusal.filter for refusal in of_hosts} if allowed else of_all
    return (
        coordinator.best(candidates) if candidates else None,
        of_hosts,
        refusals_of(log),
        filters,
    )


def is_as_good_as_all(information):
    """Assert that the search finds the best of all ordered subsets, and refuses what they are refused for."""
    best, of_hosts, refusals, filters = best_of_all(information)
    coordinator = Coordinator(information)
    log = coordinator.decision_log
    if best is None:
        with pytest.raises(NoFeasiblePlanError) as error:
            coordinator.execute(minimum_execution_time)
        mine = {refusal.filter for refusal in error.value.rejections}
        assert mine >= filters
        assert mine == filters or "limits" in filters  # then smaller sets may be refused too
    else:
        coordinator.execute(minimum_execution_time)
        assert log.chosen.value == pytest.approx(best.value, rel=1e-9)
    assert tuple(log.rejections[: len(of_hosts)]) == of_hosts
    assert refusals_of(log) <= refusals


def world_of(seed, count):
    generator = np.random.default_rng(seed)
    world = random_world(generator, count, priced=bool(seed % 2))
    taking = world.information.template.model_copy(update={"partitions": True})
    world.information = replace(world.information, template=taking)
    return world, generator


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("count", [1, 3])
def test_with_any_one_field_the_plan_is_the_best_of_all_ordered_subsets(field, count):
    for seed in range(3):
        world, generator = world_of(seed, count)
        user = user_of([field], world, generator)
        is_as_good_as_all(replace(world.information, specifications=user))


@given(
    st.integers(0, 10**6),
    st.integers(1, 5),
    st.lists(st.sampled_from(FIELDS), min_size=1, max_size=2, unique=True),
)
@settings(max_examples=examples(40), deadline=None)
@example(3, 4, ["maximum_sites", "minimum_hosts"])
@example(5, 5, ["maximum_distance", "cost"])
@example(7, 4, ["partitions", "deadline"])
def test_with_any_two_fields_the_plan_is_the_best_of_all_ordered_subsets(seed, count, fields):
    if "partitions" in fields:
        count = min(count, 4)  # with five, not every order of uneven partitions is planned
    world, generator = world_of(seed, count)
    user = user_of(fields, world, generator)
    if user is not None:
        is_as_good_as_all(replace(world.information, specifications=user))


@given(
    st.integers(0, 10**6),
    st.integers(6, 12),
    st.lists(
        st.sampled_from(("maximum_sites", "maximum_distance", "maximum_hosts", "cost")),
        min_size=1,
        max_size=3,
        unique=True,
    ),
)
@settings(max_examples=examples(30), deadline=None)
def test_the_search_proposes_only_sets_that_the_limits_allow(seed, count, fields):
    world, generator = world_of(seed, count)
    user = user_of(fields, world, generator)
    information = replace(world.information, specifications=user)
    selector = ResourceSelector()
    usable, _ = selector.usable_hosts(information)
    limits = selector.limits(information)
    proposed = list(selector.resource_sets(usable, information))
    assert bool(proposed) == bool(usable)
    for resources in proposed:
        assert limits.refuse_set(resources) is None, (fields, resources)


# ---------------------------------------------------------------- filters of the user's own
def test_sets_are_proposed_until_a_filter_of_the_user_accepts_one():
    def only_the_last_three(schedule, information):
        del information
        wanted = {"h3", "h4", "h5"}
        if {host.name for host in schedule.resources} <= wanted:
            return None
        return Rejection(("h0",), "0 of 1 hosts wanted", (0.0, 1.0), "mine")

    selector = ResourceSelector(filters=(*FILTERS, only_the_last_three))
    for count in (6, 4):
        information = pool(equal_hosts(count, 2), linked(2))
        assert set(decided(information, selector=selector).names) <= {"h3", "h4", "h5"}


def test_a_caller_that_plans_nothing_between_two_sets_gets_the_promising_ones():
    for count, most in ((5, 60), (12, 41)):
        coordinator = Coordinator(pool(equal_hosts(count, 2), linked(2)))
        assert len(list(coordinator.select_resources())) <= most


@pytest.mark.parametrize("answer", ["too thin", True, 3])
def test_a_filter_that_returns_no_rejection_is_an_error_at_its_line(answer):
    def mine(*_):
        return answer

    for filters in (
        {"filters": (*FILTERS, mine)},
        {"host_filters": (*HOST_FILTERS, mine)},
    ):
        with pytest.raises(UsageError) as error:
            decided(pool(equal_hosts(2, 1)), selector=ResourceSelector(**filters))
        fields = error.value.fields
        assert error.value.code == "filter-invalid"
        assert (fields["filter"], fields["file"]) == ("mine", __file__)
        assert fields["line"] == mine.__code__.co_firstlineno
        assert f"{__file__}:{fields['line']}" in str(error.value)
