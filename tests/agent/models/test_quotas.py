"""Iterations of hosts under CPU quotas, against a simulation of the quotas, period by period."""

from itertools import combinations

import numpy as np
import pytest
from oracles import seconds_under_quotas
from worlds import pool

from apples import Host, Link
from apples.agent import PROVEN, Learned, LearnedLink, LearnedLinks, pair_of
from nws import Forecast, Weather

GRID = 1000
LISTED = Link(1e-3, 1e9)
PERIOD = 0.01


def forecast(value):
    return Forecast(value, 0.0, "mean", 9, 0.0)


def world(quotas, iteration, border, *, share=None):
    """Return the model of hosts that compute for `iteration` seconds each, and rows that make them do so."""
    rows = [GRID // len(quotas)] * (len(quotas) - 1)
    rows.append(GRID - sum(rows))
    hosts = [
        Host(f"h{i}", seconds_per_point=q * iteration / (r * GRID))
        for i, (q, r) in enumerate(zip(quotas, rows, strict=True))
    ]
    sky = Weather(
        cpu={h.name: forecast(share or q) for h, q in zip(hosts, quotas, strict=True)},
        cpu_quota={h.name: forecast(q) for h, q in zip(hosts, quotas, strict=True)},
        quota_period={h.name: forecast(PERIOD) for h in hosts},
    )
    measured = Link(border, 1e18)
    pairs = [pair_of(a.identity, b.identity) for a, b in combinations(hosts, 2)]
    links = {
        pair: LearnedLink(pair, border, 1e15, border, 1e15, spread=0.0, evidence=PROVEN)
        for pair in pairs
    }
    learned = Learned(links=LearnedLinks(links))
    listed = {("local", "local"): measured}
    return pool(hosts, listed, grid=GRID, weather=sky, learned=learned), np.array(rows, float)


def predicted(quotas, iteration, border, **more):
    information, rows = world(quotas, iteration, border, **more)
    hosts, model = information.hosts.hosts, information.model
    return float((model.computation(hosts, rows) + model.communication(hosts)).max())


@pytest.mark.parametrize("quotas", [(0.6, 0.4), (0.6, 0.4, 0.2), (0.5, 0.5, 0.5)])
@pytest.mark.parametrize("iteration", [1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 4e-2])
@pytest.mark.parametrize("border", [2e-4, 1e-3, 3e-3])
def test_what_is_waited_at_borders_is_not_waited_for_the_quota_again(quotas, iteration, border):
    """Short iterations run at full speed between two waits for the quota, and no slower on the mean."""
    begin = np.random.default_rng(3).uniform(-PERIOD, 0.0, len(quotas))
    compute = [q * iteration for q in quotas]
    exact = seconds_under_quotas(quotas, compute, border, PERIOD, begin)
    assert predicted(quotas, iteration, border) == pytest.approx(exact, rel=0.03)


@pytest.mark.parametrize("border", [0.008, 0.013, 0.027])
@pytest.mark.parametrize("iteration", [5e-3, 2e-2, 6e-2])
def test_a_border_of_more_than_a_period_gives_back_one_period_at_most(iteration, border):
    generator = np.random.default_rng(4)
    exact = np.mean(
        [
            seconds_under_quotas((0.5, 0.5), (0.5 * iteration,) * 2, border * f, PERIOD, begin)
            for f, begin in zip(
                generator.uniform(0.95, 1.05, 16),
                generator.uniform(-PERIOD, 0.0, (16, 2)),
                strict=True,
            )
        ]
    )
    assert predicted((0.5, 0.5), iteration, border) == pytest.approx(exact, rel=0.15)


def test_where_others_take_the_cpu_the_quota_is_not_what_a_host_waits_for():
    busy = predicted((0.6, 0.6), 2e-2, 2e-3, share=0.3)
    assert busy == pytest.approx(2 * 2e-2 + 2e-3)


def test_without_measured_links_the_border_is_the_papers():
    information, _ = world((0.5, 0.5), 1e-2, 1e-3)
    hosts = information.hosts.hosts
    plain = pool(hosts, {("local", "local"): LISTED}, weather=information.conditions.weather)
    paper = 2 * (LISTED.latency + plain.application.border_bytes / LISTED.bandwidth)
    assert plain.model.communication(hosts) == pytest.approx([paper, paper])
