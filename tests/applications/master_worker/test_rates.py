"""Rates of sets under a master: the least of three terms; the choice is the best of all sets and masters."""

from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apples import Host, HostList, Link, Network
from apples.applications import UnitCosts, WorkerRates, choose
from apples.weather import Conditions
from nws import Weather

SPEEDS = st.sampled_from([0.002, 0.01, 0.013, 0.05])
BANDWIDTHS = st.sampled_from([1e4, 1e5, 1e6, 1e8])


def rates(hosts, links=None, default=1e8, **costs):
    network = Network(
        {pair: Link(1e-3, bandwidth) for pair, bandwidth in (links or {}).items()},
        default=Link(1e-4, default),
    )
    return WorkerRates(UnitCosts(**costs), Conditions(HostList(tuple(hosts), network), Weather()))


@st.composite
def worlds(draw):
    sites = ["a", "b"]
    hosts = [
        Host(f"h{n}", site=draw(st.sampled_from(sites)), seconds_per_point=draw(SPEEDS),
             slots=draw(st.integers(1, 3)))
        for n in range(draw(st.integers(1, 5)))
    ]  # fmt: skip
    links = {(a, b): draw(BANDWIDTHS) for a in sites for b in sites}
    return rates(
        hosts, links, size=draw(st.sampled_from([0.0, 1e3, 1e5])),
        result_size=draw(st.sampled_from([0.0, 1e4])),
        service=draw(st.sampled_from([0.0, 0.1, 1.0])),
    )  # fmt: skip


def sets(hosts):
    return chain.from_iterable(combinations(hosts, n) for n in range(len(hosts) + 1))


@given(worlds())
def test_no_master_and_no_set_of_workers_is_quicker_than_the_chosen(world):
    hosts = tuple(world.conditions.hosts)
    best = choose(world, hosts)[0]
    every = max(world.together(master, some).rate for master in hosts for some in sets(hosts))
    assert best.rate == pytest.approx(every, rel=1e-6)


@given(worlds())
def test_every_chosen_worker_raises_the_rate_and_together_they_do_what_is_said(world):
    hosts = tuple(world.conditions.hosts)
    for found in choose(world, hosts):
        assert sum(found.workers.values()) == pytest.approx(found.rate)
        workers = [host for host in hosts if host.name in found.workers]
        again = world.together(world.conditions.hosts[found.master], workers)
        assert again.rate == pytest.approx(found.rate)


@given(worlds(), st.sampled_from([0.05, 0.1, 1.0]))
def test_the_fewest_more_that_raise_the_rate_by_a_part_do_and_one_fewer_does_not(world, gain):
    master, *others = world.conditions.hosts
    enough = (1 + gain) * world.together(master, [master]).rate
    count = world.fewest_more(master, [master], others, gain)
    order = sorted(others, key=lambda host: -world.alone(master, host))
    by_number = [
        world.together(master, [master, *order[:n]]).rate >= enough for n in range(len(order) + 1)
    ]
    assert count == (by_number.index(True) if True in by_number else 0)


def test_a_quick_master_on_a_slow_link_is_not_chosen():
    hosts = [Host("far", site="den", seconds_per_point=0.008)]
    hosts += [Host(f"l{n}", site="lab", seconds_per_point=0.01) for n in range(4)]
    slow = {("lab", "den"): 1e4, ("den", "lab"): 1e4}
    near = choose(rates(hosts, slow, size=1e3, work=10), hosts)
    assert near[0].master != "far"
    assert near[-1].master == "far"
    assert near[-1].bound == "links"


def test_workers_are_added_until_the_master_serves_no_more():
    hosts = [Host(f"h{n}", seconds_per_point=0.01) for n in range(9)]
    found = choose(rates(hosts, work=1.0, service=0.24), hosts)[0]
    assert found.bound == "master"
    assert len(found.workers) == 4
    assert found.master not in found.workers, "it has no time for units of its own"


def test_the_workers_of_a_site_share_its_link():
    hosts = [Host("m", site="lab", seconds_per_point=1.0)]
    hosts += [Host(f"d{n}", site="den", seconds_per_point=0.01) for n in range(4)]
    world = rates(hosts, {("lab", "den"): 1e5, ("den", "lab"): 1e8}, size=1e3)
    rate = [world.together(hosts[0], hosts[1 : 1 + n]).rate for n in (1, 2, 4)]
    assert rate == pytest.approx([100, 100, 100])
    assert world.together(hosts[0], hosts[1:]).bound == "links"


def test_what_was_measured_stands_in_the_place_of_what_was_forecast():
    hosts = [Host("m", seconds_per_point=1.0), Host("w", seconds_per_point=0.01)]
    world = rates(hosts)
    slow = WorkerRates(world.costs, world.conditions, {"w": 4.0}, service_seconds=0.1)
    assert slow.unit_seconds(hosts[1]) == pytest.approx(4 * world.unit_seconds(hosts[1]))
    assert slow.together(hosts[0], hosts[1:]).bound == "master"
