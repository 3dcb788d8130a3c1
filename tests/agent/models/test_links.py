"""Links as runs measured them: what a document keeps, what is forgotten, who learns from whom."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apples import Host, Link
from apples.agent import MOST_LINKS, LearnedLinks, MeasuredBorder, crossings

FORECAST = Link(1e-3, 1e7)
A, B = Host("a", site="east"), Host("b", site="west")
positive = st.floats(1e-6, 1e3)


def measured(seconds, latency=1e-4, size=1e4, hosts=(A, B), forecast=FORECAST):
    return MeasuredBorder(hosts, seconds, latency, size, forecast)


@given(
    seconds=positive,
    latency=st.none() | positive,
    size=st.floats(1.0, 1e9),
    messages=st.integers(1, 4),
)
def test_a_border_costs_what_it_was_measured_to_cost(seconds, latency, size, messages):
    link = LearnedLinks().taught([measured(seconds, latency, size)], messages).of(A, B)
    now = link.under(FORECAST)
    assert messages * now.latency + size / now.bandwidth == pytest.approx(seconds, rel=1e-3)


def test_what_was_measured_is_forgotten_within_some_runs():
    links = LearnedLinks().taught([measured(1.0)], 1)
    for _ in range(12):
        links = links.taught([measured(0.1)], 1)
    now = links.of(B, A).under(FORECAST)
    assert now.latency + 1e4 / now.bandwidth == pytest.approx(0.1, rel=0.05)


@given(st.permutations([1.0, 0.4, 0.4]))
def test_the_first_three_runs_count_alike(seconds):
    links = LearnedLinks()
    for each in seconds:
        links = links.taught([measured(each, latency=1e-9)], 1)
    mean = (1.0 * 0.4 * 0.4) ** (1 / 3)
    assert 1e4 / links.of(A, B).bandwidth == pytest.approx(mean, rel=1e-6)


def test_hosts_that_never_ran_together_learn_from_their_sites():
    links = LearnedLinks().taught([measured(1.0)], 1)
    other = Host("c", site="west")
    assert links.of(A, other) == links.of(A, B)
    assert links.of(B, other) is None
    near = links.taught([measured(3.0, hosts=(A, other))], 1)
    assert near.of(A, other).bandwidth < near.of(A, B).bandwidth


@given(st.lists(st.tuples(positive, st.none() | positive), max_size=5))
def test_a_document_keeps_them(runs):
    links = LearnedLinks()
    for seconds, latency in runs:
        links = links.taught([measured(seconds, latency)], 1)
    assert LearnedLinks.recalled(json.loads(json.dumps(links.stored()))) == links


@pytest.mark.parametrize(
    "stored",
    [
        None,
        [],
        {"hosts": 3, "sites": [None, 7, {}]},
        {"hosts": [{"between": ["a"], "latency": 1, "bandwidth": 1, "forecast_bandwidth": 1}]},
        {"hosts": [{"between": [1, 2], "latency": 1, "bandwidth": 1, "forecast_bandwidth": 1}]},
        {"sites": [{"between": ["a", "b"], "latency": -1, "bandwidth": "x"}]},
        {
            "sites": [
                {
                    "between": ["a", "b"],
                    "latency": 1,
                    "bandwidth": float("inf"),
                    "forecast_bandwidth": 1,
                }
            ]
        },
    ],
)
def test_what_makes_no_sense_in_a_document_is_left_out(stored):
    assert not LearnedLinks.recalled(stored)


def test_only_so_many_pairs_are_remembered_the_newest():
    borders = [measured(1.0, hosts=(A, Host(f"h{k}", site="west"))) for k in range(MOST_LINKS + 5)]
    links = LearnedLinks().taught(borders, 1)
    assert len(links.hosts) == MOST_LINKS
    assert ("a", "h4") not in links.hosts
    assert ("a", f"h{MOST_LINKS}") in links.hosts


def test_only_borders_between_sites_share_a_link():
    hosts = [Host(name, site=name[0]) for name in ("e1", "e2", "w1", "e3", "s1", "s2")]
    assert crossings(hosts) == {("e", "w"): 2, ("e", "s"): 1}
