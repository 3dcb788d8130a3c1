"""Links as runs measured them: what they predict, where they hold, and when their forecast is used instead."""

import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from apples import Host, Link
from apples.agent import MAX_LINKS, LearnedLinks, MeasuredBorder, crossings

FORECAST = Link(1e-3, 1e7)
A, B = Host("a", site="east"), Host("b", site="west")
MODELLED = 2 * (1e-3 + 1e4 / 1e7)
"""Seconds of a border of 10 kB by the paper's sum, under `FORECAST`."""


def measured(seconds, latency=1e-4, size=1e4, hosts=(A, B), forecast=FORECAST, modelled=MODELLED):
    return MeasuredBorder(hosts, seconds, latency, size, forecast, modelled)


def after(*seconds, hosts=(A, B), **border):
    links = LearnedLinks()
    for k, each in enumerate(seconds):
        links = links.taught([measured(each, hosts=hosts, **border)], 1, float(k))
    return links


def cost(links, a=A, b=B, forecast=FORECAST, size=1e4):
    return links.of(a, b).seconds(size, 1, forecast)


def test_a_link_that_no_later_run_tested_is_not_used():
    links = after(0.02)
    assert links.of(A, B) is None
    assert not links


@settings(max_examples=examples(60))
@given(
    seconds=st.floats(2e-3, 2.5e-2),
    latency=st.none() | st.floats(1e-4, 1e-2),
    runs=st.integers(3, 5),
)
def test_a_border_costs_what_runs_measured_it_to_cost(seconds, latency, runs):
    links = after(*[seconds] * runs, latency=latency)
    if links.of(A, B):
        assert cost(links) == pytest.approx(seconds, rel=0.12)
    else:
        assert seconds == pytest.approx(MODELLED, rel=0.15)


def test_a_link_that_its_forecast_predicts_better_is_not_used():
    assert after(0.02, MODELLED, MODELLED).of(A, B) is None


def test_another_bandwidth_is_followed_within_some_runs():
    assert cost(after(0.02, 0.02, *[0.01] * 9)) == pytest.approx(0.01, rel=0.15)


def test_a_measured_link_is_within_its_bound_of_the_forecast():
    links = after(1e3, 1e3, 1e3)
    assert links.of(A, B).under(FORECAST).bandwidth == pytest.approx(1e7 / 30)


def test_hosts_that_never_ran_together_use_the_link_between_their_sites():
    links = after(0.02, 0.02, 0.02)
    other = Host("c", site="west")
    assert cost(links, A, other) == pytest.approx(cost(links))
    assert links.of(B, other) is None
    near = links
    for k in (3.0, 4.0, 5.0):
        near = near.taught([measured(0.01, hosts=(A, other))], 1, k)
    assert cost(near, A, other) == pytest.approx(0.01, rel=0.05)
    assert cost(near) == pytest.approx(0.02, rel=0.05)


def test_another_host_list_with_the_same_names_of_sites_inherits_no_link():
    links = after(0.02, 0.02, 0.02)
    others = Host("x", site="east"), Host("y", site="west")
    assert links.among({"x", "y"}).of(*others) is None
    assert links.among({"a", "x", "y"}).of(*others) is not None
    again = links.taught([measured(0.05, hosts=others)], 1, 2.0)
    assert (again.sites["east", "west"].evidence.runs, again.hosts["a", "b"].evidence.runs) == (
        1,
        3,
    )


def test_other_pairs_of_the_same_list_teach_the_same_link_of_their_sites():
    others, listed = (Host("x", site="east"), Host("y", site="west")), {"a", "b", "x", "y"}
    links = after(0.02, 0.02).taught([measured(0.02, hosts=others)], 1, 1.0, listed)
    assert links.sites["east", "west"].evidence.tested == 2
    assert cost(links.among({"b"})) == pytest.approx(0.02, rel=0.12)


def test_a_link_inside_a_site_holds_for_its_two_hosts_alone():
    near = Host("n", site="east"), Host("m", site="east")
    links = after(0.02, 0.02, 0.02, hosts=near)
    assert links.of(*near) is not None
    assert links.of(near[0], A) is None


def test_a_forecast_that_moved_moves_the_measured_link():
    links = after(0.02, 0.02, 0.02)
    noise, collapsed = Link(1e-3, 0.9e7), Link(1e-3, 1e7 / 40)
    assert cost(links, forecast=noise) == pytest.approx(cost(links), rel=0.02)
    assert cost(links, forecast=collapsed) > 30 * cost(links)


def test_only_so_many_pairs_are_remembered_the_newest():
    borders = [measured(1.0, hosts=(A, Host(f"h{k}", site="west"))) for k in range(MAX_LINKS + 5)]
    links = LearnedLinks().taught(borders, 1, 0.0)
    assert len(links.hosts) == MAX_LINKS
    assert ("a", "h4") not in links.hosts
    assert ("a", f"h{MAX_LINKS}") in links.hosts


def test_several_borders_of_a_run_are_one_run_of_their_sites():
    borders = [measured(0.02, hosts=(A, Host(name, site="west"))) for name in "bcd"]
    links = LearnedLinks().taught(borders, 1, 0.0)
    assert links.sites["east", "west"].evidence.runs == 1


def test_only_borders_between_sites_share_a_link():
    hosts = [Host(name, site=name[0]) for name in ("e1", "e2", "w1", "e3", "s1", "s2")]
    assert crossings(hosts) == {("e", "w"): 2, ("e", "s"): 1}
