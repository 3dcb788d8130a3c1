"""How far hosts are from each other: levels where nobody knows, links where somebody does."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import ROOMY, pool

from apples.agent import (
    PROVEN,
    Learned,
    LearnedLink,
    LearnedLinks,
    distances,
    equal_strips,
    launch_plan,
    pair_of,
)
from apples.launch import run_task
from apples.resources import NEAR, SITE, Host, Link, Network, between, host_distances, tells
from nws import Forecast, Weather

MACHINES = ("m1", "m2", "m3", "m4")
LISTS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(MACHINES)), min_size=2, max_size=7
).map(lambda kinds: [Host(f"h{i}", address=m, site=s) for i, (s, m) in enumerate(kinds)])


def unknown(*_):
    return Link(1e-3, 1e7, assumed=True)


@given(LISTS)
def test_a_machine_is_nearer_than_a_site_and_a_site_than_another_where_nothing_is_known(hosts):
    found = host_distances(hosts, unknown)
    for one, other in combinations(hosts, 2):
        same = one.address == other.address
        level = {NEAR} if same else {1.0} if one.site == other.site else {1.0, SITE}
        assert found[one.name][other.name] in level
    apart = [one for one in combinations(hosts, 2) if one[0].address != one[1].address]
    inside = [one for one in apart if one[0].site == one[1].site]
    if inside:
        far = [found[a.name][b.name] for a, b in apart if a.site != b.site]
        assert set(far) <= {SITE}


@given(LISTS, st.randoms(use_true_random=False))
def test_distances_are_symmetric_and_in_the_order_of_the_links_that_are_known(hosts, chance):
    links = {
        (one.name, other.name): Link(1e-4, 10 ** chance.uniform(4, 9))
        for one, other in combinations(hosts, 2)
    }

    def link(one, other):
        return links.get((one.name, other.name)) or links[other.name, one.name]

    found = host_distances(hosts, link)
    apart = [pair for pair in combinations(hosts, 2) if pair[0].address != pair[1].address]
    slowest_first = sorted(apart, key=lambda pair: link(*pair).bandwidth)
    ordered = [found[one.name][other.name] for one, other in slowest_first]
    assert ordered == sorted(ordered, reverse=True)
    assert all(found[a.name][b.name] == found[b.name][a.name] for a, b in combinations(hosts, 2))
    if ordered:
        assert min(ordered) == 1.0


def test_a_known_link_within_a_site_makes_unknown_ones_to_another_site_farther_than_it():
    a, b, c, d = (Host(name, site=site) for name, site in zip("abcd", "xxxy", strict=True))

    def link(one, other):
        slow = {one.name, other.name} == {"a", "c"}
        return Link(1e-4, 1e5) if slow else unknown(one, other)

    found = host_distances([a, b, c, d], link)
    assert found["a"] == {"b": 1.0, "c": 1.0, "d": SITE}


def test_an_unknown_link_within_a_site_is_nearer_than_a_known_one_to_another():
    a, b, c = Host("a", site="x"), Host("b", site="x"), Host("c", site="y")
    known = Link(1e-2, 1e6)
    found = host_distances([a, b, c], lambda *two: known if c in two else unknown(*two))
    assert found == {
        "a": {"b": 1.0, "c": SITE}, "b": {"a": 1.0, "c": SITE}, "c": {"a": SITE, "b": SITE},
    }  # fmt: skip


def test_hosts_that_are_all_as_far_tell_nothing():
    hosts = [Host(name) for name in "abc"]
    assert not tells(host_distances(hosts, unknown))
    assert tells(host_distances([*hosts, Host("d", site="y")], unknown))


@given(st.lists(st.sampled_from("abc"), max_size=6))
def test_a_place_is_nothing_from_itself_near_on_its_host_and_as_the_table_says_elsewhere(places):
    table = {"a": {"b": 3.0}, "b": {"a": 3.0}}
    matrix = between(places, table)
    for i, one in enumerate(places):
        for j, other in enumerate(places):
            expected = 3.0 if {one, other} == {"a", "b"} else 1.0
            assert matrix[i][j] == (0.0 if i == j else NEAR if one == other else expected)


SITES = {
    ("east", "east"): Link(1e-4, 1e8), ("west", "west"): Link(1e-4, 1e8),
    ("east", "west"): Link(1e-2, 1e6), ("west", "east"): Link(1e-2, 1e6),
}  # fmt: skip


def hosts(places):
    return [
        Host(name, seconds_per_point=1e-9, free_memory=ROOMY, site=site)
        for name, site in places.items()
    ]


FOUR = {"a": "east", "b": "east", "c": "west", "d": "west"}


def test_the_task_says_which_hosts_are_near_where_some_are():
    information = pool(hosts(FOUR), SITES)
    schedule = equal_strips(tuple(information.hosts), information)
    told = run_task(launch_plan(schedule, information))["distances"]
    assert told["a"]["b"] == told["c"]["d"] == 1.0
    assert told["a"]["c"] == told["d"]["b"] == pytest.approx(99.9, rel=0.01)
    alike = pool(hosts(dict.fromkeys("abcd", "east")), SITES)
    schedule = equal_strips(tuple(alike.hosts), alike)
    assert "distances" not in run_task(launch_plan(schedule, alike))


def test_a_forecast_stands_above_the_host_list_and_what_a_run_measured_above_both():
    information = pool(hosts(FOUR), SITES)
    listed = distances(tuple(information.hosts), information)

    def forecast(value):
        return Forecast(value=value, error=0.0, method="x", samples=9, time=0.0)

    slow = {("a", "b"): forecast(1e5), ("b", "a"): forecast(1e5)}
    seen = information.with_weather(Weather(bandwidth=slow), "seen")
    found = distances(tuple(seen.hosts), seen)
    assert listed["a"]["b"] == 1.0
    assert found["a"]["b"] > found["a"]["c"] > found["c"]["d"] == 1.0
    pair = pair_of("a", "b")
    quick = LearnedLink(pair, 1e-5, 3e6, 1e-4, 1e5, spread=0.0, evidence=PROVEN)
    learned = LearnedLinks({pair: quick})
    taught = pool(
        hosts(FOUR), SITES, learned=Learned(links=learned), weather=seen.conditions.weather
    )
    again = distances(tuple(taught.hosts), taught)
    assert again["a"]["b"] < 0.2 * found["a"]["b"]


def test_of_more_hosts_than_a_table_is_made_for_nothing_is_told():
    many = {f"h{i}": "east" if i % 2 else "west" for i in range(65)}
    information = pool(hosts(many), SITES)
    assert distances(tuple(information.hosts), information) == {}


def test_links_of_a_list_are_known_and_those_nobody_wrote_are_not():
    network = Network({("x", "x"): Link(1e-4, 1e7)})
    a, b, c = Host("a", site="x"), Host("b", site="x"), Host("c", site="y")
    assert host_distances([a, b, c], network.link)["a"] == {"b": 1.0, "c": SITE}
