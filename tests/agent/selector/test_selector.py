"""The chosen subset against every ordered subset."""

from dataclasses import replace
from itertools import combinations_with_replacement, pairwise, permutations

import numpy as np
import pytest
from drawn import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import best_of_all_ordered_subsets, paper_border, shared_border
from worlds import ROOMY, pool, random_world, symmetric

from apples import Coordinator, Host, Link, NoFeasiblePlanError
from apples.agent import (
    DISTANCES,
    PROVEN,
    Learned,
    LearnedLink,
    LearnedLinks,
    ResourceSelector,
    SubsetSearch,
    linear,
    pair_of,
    prefix_seconds,
)
from apples.weather import Conditions
from blueprints import all_resources, blocked, minimum_execution_time, single_host
from nws import Forecast, Weather


def chosen(information, blueprint=minimum_execution_time, **subsystems):
    coordinator = Coordinator(information, **subsystems)
    coordinator.execute(blueprint)
    return coordinator.decision_log.chosen


@pytest.mark.more
def test_the_chosen_set_is_the_best_of_all_ordered_subsets_up_to_one_percent():
    generator = np.random.default_rng(7)
    ratios = []
    while len(ratios) < 60:
        world = random_world(generator, int(generator.integers(1, 7)))
        best = best_of_all_ordered_subsets(
            world.p, paper_border(world.pair), world.cap, world.total
        )
        if np.isinf(best):
            with pytest.raises(NoFeasiblePlanError):
                chosen(world.information)
            continue
        ratios.append(chosen(world.information).iteration_seconds / best)
    assert min(ratios) > 1 - 1e-9
    assert np.mean(ratios) <= 1.005
    assert max(ratios) <= 1.05


def with_measured_links(world, generator):
    """Return the pool after runs measured every link of sites, and C_i of chains by hand."""
    sites = sorted({host.site for host in world.hosts})
    sites_of = [sites.index(host.site) for host in world.hosts]
    latency, bandwidth = np.zeros((2, len(sites), len(sites)))
    inside, across = {}, {}
    for a, b in combinations_with_replacement(range(len(sites)), 2):
        pairs = [
            (one, other)
            for one, other in permutations(world.hosts, 2)
            if (one.site, other.site) == (sites[a], sites[b])
        ]
        if not pairs:
            continue
        forecast = world.information.conditions.slower_link(*pairs[0])
        measured = [
            10 ** generator.uniform(-0.5, 0.5) * value
            for value in (forecast.latency, forecast.bandwidth)
        ]
        if a == b:
            known, between = inside, [pair_of(h.identity, k.identity) for h, k in pairs]
        else:
            known, between = across, [pair_of(sites[a], sites[b])]
        for pair in between:
            known[pair] = LearnedLink(
                pair, *measured, forecast.latency, forecast.bandwidth, spread=0.0, evidence=PROVEN
            )
            used = known[pair].under(forecast)
        latency[a, b] = latency[b, a] = used.latency
        bandwidth[a, b] = bandwidth[b, a] = used.bandwidth
    bandwidth[bandwidth == 0] = np.inf  # the link of a site with one host
    learned = Learned(links=LearnedLinks(inside, across))
    here = np.ix_(sites_of, sites_of)
    number = np.arange(len(sites) ** 2).reshape(len(sites), len(sites))
    number = np.where(np.eye(len(sites), dtype=bool), -1, np.minimum(number, number.T))
    border = shared_border(latency[here], 8 * world.total / bandwidth[here], number[here])
    return replace(world.information, learned=learned), border


@pytest.mark.more
def test_with_measured_links_too_that_sets_share_and_hosts_cross_at_once():
    generator = np.random.default_rng(17)
    ratios = []
    while len(ratios) < 40:
        world = random_world(generator, int(generator.integers(1, 7)))
        information, border = with_measured_links(world, generator)
        best = best_of_all_ordered_subsets(world.p, border, world.cap, world.total)
        if np.isinf(best):
            continue
        ratios.append(chosen(information).iteration_seconds / best)
    assert min(ratios) > 1 - 1e-9
    assert np.mean(ratios) <= 1.005
    assert max(ratios) <= 1.05


def under_quotas(information, generator):
    """Return the pool where some hosts have a CPU quota, and some of those are parts of one machine."""
    hosts = information.hosts.hosts
    limited = [host for host in hosts if generator.random() < 0.7]
    shares = generator.uniform(0.1, 1.5, len(hosts)).tolist()

    def table(values):
        return {
            host.name: Forecast(value, 0.0, "mean", 9, 0.0)
            for host, value in zip(limited, values, strict=False)
        }

    weather = Weather(
        cpu=table(min(1.0, share) for share in shares),
        cpu_quota=table(shares),
        quota_period=table([10 ** generator.uniform(-3, 1)] * len(hosts)),
    )
    machines = {host.name: "shared" for host in limited if generator.random() < 0.5}
    return replace(
        information, conditions=Conditions(information.hosts, weather, machines=machines)
    )


@pytest.mark.parametrize("measured", [False, True])
@pytest.mark.parametrize("quotas", [False, True])
def test_many_sets_at_once_are_worth_what_each_is_alone(measured, quotas):
    generator = np.random.default_rng(29)
    for _ in range(12):
        count = int(generator.integers(1, 8))
        world = random_world(generator, count, priced=True)
        information = with_measured_links(world, generator)[0] if measured else world.information
        information = under_quotas(information, generator) if quotas else information
        orders = {
            tuple(generator.permutation(count)[:size].tolist())
            for size in generator.integers(1, count + 1, 25)
        }
        together = SubsetSearch(world.hosts, information, 1000).values(orders)
        one_by_one = SubsetSearch(world.hosts, information, 1000)
        assert together == pytest.approx({order: one_by_one.value(order) for order in orders})


class OneSetAtATime(SubsetSearch):
    """A search that works every set out to the last, and remembers it."""

    def _best_move(self, order, pool, below):
        values = self.values(self._moves(order, pool))
        return min(values, key=values.__getitem__, default=order)


USERS = [
    "",
    '[objective]\nmeasure = "cost"\n',
    "[constraints]\nmaximum_hosts = 4\n",
    "[constraints]\ndeadline = 0.02\n",
]


@given(
    st.integers(0, 10**6),
    st.integers(1, 14),
    st.booleans(),
    st.sampled_from([80, 900, 60_000]),
    st.sampled_from(USERS),
)
@settings(max_examples=examples(40), deadline=None)
def test_bounds_and_moves_as_arrays_lead_where_working_every_set_out_does(
    seed, count, measured, budget, user
):
    generator = np.random.default_rng(seed)
    world = random_world(generator, count, priced=True, user=user)
    information = with_measured_links(world, generator)[0] if measured else world.information
    quick, plain = (
        kind(world.hosts, information, budget) for kind in (SubsetSearch, OneSetAtATime)
    )
    starts = [
        tuple(generator.permutation(count)[:size].tolist())
        for size in generator.integers(1, count + 1, 4)
    ]
    assert quick.values(starts) == plain.values(starts)
    for start in starts:
        assert quick.descend(start, range(count)) == plain.descend(start, range(count))
        assert quick.budget == plain.budget


LIMITS = '[objective]\nmeasure = "{}"\n[constraints]\ndeadline = {}\nmaximum_cost = {}\n'


POWERS = st.integers(-6, 3).map(lambda power: 10.0**power)


@given(st.sampled_from(["execution_time", "cost"]), *[POWERS] * 4, st.floats(1, 1e3))
@example(
    "execution_time", 1e-3, 1e-3, 1e-4, 0.05, 10.0
)  # too late at once, and too dear only later
def test_no_set_is_worth_more_for_taking_longer(measure, deadline, most, rate, seconds, longer):
    hosts = [Host("ada", seconds_per_point=1e-8, cost_per_second=rate)]
    information = pool(hosts, user=LIMITS.format(measure, deadline, most))
    search = SubsetSearch(information.hosts.hosts, information, 1)
    times = np.array([seconds, seconds * longer])
    sooner, later = search.judge(times, rate, 0.0, 0.0)
    assert sooner <= later


def test_the_prefixes_of_a_long_chain_are_as_dear_as_the_model_says():
    generator = np.random.default_rng(5)
    p, border = generator.uniform(1, 3, 9), generator.uniform(0, 2, 9)
    border[-1] = 0.0
    for at_once in (False, True):
        seconds, _ = prefix_seconds(p, border, 100.0, at_once)
        for k in range(1, 10):
            above, below = np.array([0.0, *border[: k - 1]]), np.array([*border[: k - 1], 0.0])
            both = np.maximum(above, below) if at_once else above + below
            exact = (100.0 + (both / p[:k]).sum()) / (1 / p[:k]).sum()
            assert seconds[k - 1] == pytest.approx(exact)


@pytest.mark.more
@pytest.mark.parametrize("spare", [1.0, 1.02, 1.5], ids=["exactly", "barely", "amply"])
def test_a_plan_is_found_whenever_the_memory_suffices(spare):
    generator = np.random.default_rng(11)
    for _ in range(20):
        count, grid = int(generator.integers(1, 12)), 300
        rows = generator.multinomial(grid - count, generator.dirichlet(np.ones(count))) + 1
        hosts = [
            Host(
                f"h{i}",
                site=f"s{i % 3}",
                seconds_per_point=float(10 ** generator.uniform(-9, -8)),
                free_memory=int(np.ceil(16 * grid * (np.ceil(r * spare) + 2))),
            )
            for i, r in enumerate(rows)
        ]
        far = {(f"s{a}", f"s{b}"): Link(0.05, 1e6) for a in range(3) for b in range(3)}
        estimate = chosen(pool(hosts, far, grid=grid))
        assert sum(estimate.schedule.rows) == grid


def test_without_the_memory_there_is_no_plan_and_each_host_says_what_it_lacks():
    hosts = [Host(f"h{i}", seconds_per_point=1e-9, free_memory="1 MB") for i in range(3)]
    with pytest.raises(NoFeasiblePlanError) as refusal:
        chosen(pool(hosts))
    assert refusal.value.exit_code == 3
    assert (refusal.value.rejections[0].filter, refusal.value.rejections[0].figures[1]) == (
        "memory",
        1000,
    )
    assert all(len(r.figures) == 2 for r in refusal.value.rejections)


def test_a_dear_link_keeps_the_grid_on_one_host():
    hosts = [Host("ada", seconds_per_point=1e-9), Host("bob", site="b", seconds_per_point=1e-9)]
    information = pool(hosts, symmetric({("local", "b"): Link(1.0, 1e6)}))
    assert chosen(information).names == ("ada",)


def test_a_cheap_link_spreads_it_over_both():
    hosts = [Host("ada", seconds_per_point=1e-9), Host("bob", seconds_per_point=1e-9)]
    information = pool(hosts, {("local", "local"): Link(1e-6, 1e10)})
    assert chosen(information).schedule.rows == (500, 500)


def test_the_papers_ordering_and_planner_give_the_papers_answer():
    """Every locus, every prefix of its chain, the linear system, both filters: Figures 3 and 4 by hand."""
    generator = np.random.default_rng(3)
    for _ in range(25):
        world = random_world(generator, int(generator.integers(2, 7)), grid=1000)
        n, p, pair = world.total, world.p, world.pair
        best = np.inf
        for locus in range(len(p)):
            order, left = [locus], set(range(len(p))) - {locus}
            while left:
                near = {j: n * abs(p[order[-1]] - p[j]) + pair[order[-1], j] for j in left}
                order.append(min(left, key=lambda j: (near[j], p[j], j)))
                left.remove(order[-1])
            for k in range(1, len(p) + 1):
                best = min(best, _papers_time(order[:k], world))
        selector = ResourceSelector(DISTANCES["paper"])
        if np.isinf(best):
            with pytest.raises(NoFeasiblePlanError):
                chosen(world.information, selector=selector, planner=linear)
        else:
            got = chosen(world.information, selector=selector, planner=linear)
            assert got.iteration_seconds == pytest.approx(best, rel=1e-12)


def _papers_time(order, world):
    p, n = world.p[order], world.total
    step = world.pair[order[:-1], order[1:]]
    border = np.concatenate([[0], step]) + np.concatenate([step, [0]])
    system = np.block(
        [[np.diag(p), -np.ones((len(p), 1))], [np.ones((1, len(p))), np.zeros((1, 1))]]
    )
    rows = np.linalg.solve(system, np.append(-border, n))[:-1]
    if rows.min() <= 0:
        return np.inf
    whole = np.floor(rows)
    for i in np.argsort(-(rows - whole), kind="stable")[: n - int(whole.sum())]:
        whole[i] += 1
    if whole.min() < 1 or np.any(whole > world.cap[order]):
        return np.inf
    return (p * whole + border).max()


def test_hosts_far_apart_in_the_middle_of_a_chain_keep_their_bridge():
    """A host that computes almost nothing may stay: without it its neighbours would be neighbours."""
    hosts = [
        Host("a", site="a", seconds_per_point=1e-8, free_memory=16 * 200 * 122),
        Host("b", site="b", seconds_per_point=9e-8, free_memory=16 * 200 * 3),
        Host("c", site="c", seconds_per_point=1e-8, free_memory=16 * 200 * 122),
    ]
    near, far = Link(1e-3, 1e9), Link(1.0, 1e9)
    links = symmetric({("a", "b"): near, ("b", "c"): near, ("a", "c"): far})
    assert chosen(pool(hosts, links, grid=200)).names in {("a", "b", "c"), ("c", "b", "a")}


@pytest.mark.parametrize("method", [all_resources, blocked])
def test_only_methods_that_must_use_all_hosts_refuse_a_grid_smaller_than_the_list(method):
    hosts = [Host(f"h{i}", seconds_per_point=1e-9, free_memory=ROOMY) for i in range(5)]
    information = pool(hosts, {("local", "local"): Link(1e-9, 1e12)}, grid=3)
    with pytest.raises(NoFeasiblePlanError):
        chosen(information, method)
    assert sum(chosen(information).schedule.rows) == 3
    assert sum(chosen(information, single_host).schedule.rows) == 3


def test_no_selection_is_refused_where_a_border_outlasts_the_work_of_the_others():
    hosts = [
        Host(n, site=s, seconds_per_point=1e-9) for n, s in (("a", "x"), ("b", "x"), ("c", "y"))
    ]
    links = symmetric({("x", "x"): Link(1e-6, 1e10), ("x", "y"): Link(0.05, 1e6)})
    with pytest.raises(NoFeasiblePlanError) as refusal:
        chosen(pool(hosts, links, grid=500), all_resources)
    assert refusal.value.rejections[0].filter == "negative_strip"


def test_a_maximum_logical_distance_cuts_the_chains():
    hosts = [Host("a", seconds_per_point=1e-8), Host("b", site="s", seconds_per_point=1e-8)]
    links = symmetric({("local", "s"): Link(1e-3, 1e9)})
    assert len(chosen(pool(hosts, links)).names) == 2
    user = "[constraints]\nmaximum_distance = 1e-4\n"
    selector = ResourceSelector(
        lambda host, others, information: information.model.borders(host, others)
    )
    assert len(chosen(pool(hosts, links, user=user), selector=selector).names) == 1


def test_a_chain_of_all_hosts_passes_between_sites_once_though_every_border_costs_alike():
    """Near ties of measured links must not send the borders of one site through the other."""
    names = ["e1", "w1", "e2", "w2", "e3"]
    listed = [Host(n, seconds_per_point=1e-9, site=n[0]) for n in names]
    links = {
        (a, b): Link(1e-4, 2e6 * (0.99 if a[0] == b[0] else 1.0))
        for a in names
        for b in names
        if a != b
    }
    chain = ResourceSelector().whole_set(listed, pool(listed, links))
    assert sum(a.site != b.site for a, b in pairwise(chain)) == 1
