"""What every planner must do, on random worlds: hosts of the set in its order, whole rows, nothing left."""

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import pool, random_world

from apples import Host, Link
from apples.agent import PLANNERS
from nws import Forecast, Weather

EXACT = ("time_balancing", "milp")
OF_STRIPS = sorted(set(PLANNERS) - {"rectangles", "strips_or_rectangles", "square_blocks"})


@pytest.mark.parametrize("name", OF_STRIPS)
def test_a_planner_uses_hosts_of_the_set_in_its_order_and_adds_up_or_says_so(name):
    generator = np.random.default_rng(12)
    for _ in range(4 if name == "milp" else 25):
        world = random_world(generator, int(generator.integers(1, 6)))
        schedule = PLANNERS[name](world.hosts, world.information)
        used = schedule.resources
        places = [world.hosts.index(host) for host in used]
        assert places == sorted(set(places))
        assert set(used) | set(schedule.dropped) == set(world.hosts)
        assert all(a.implementation == "default" for a in schedule.allocations)
        rows = np.array(schedule.rows)
        cap = dict(zip(world.hosts, world.cap, strict=True))
        if name in EXACT and world.cap.sum() >= world.total and world.cap.min() >= 1:
            assert rows.sum() == world.total
            assert all(1 <= a.rows <= cap[a.host] for a in schedule.allocations)
        if name == "blocked":
            assert rows.sum() == world.total
        if name == "linear":
            assert rows.sum() == pytest.approx(world.total)


@given(st.lists(st.floats(-15, 15), min_size=1, max_size=6), st.integers(1, 10**9))
@settings(max_examples=examples(60), deadline=None)
def test_the_linear_system_is_solved_however_unequal_the_hosts_are(exponents, grid):
    hosts = tuple(Host(f"h{i}", seconds_per_point=10.0**e) for i, e in enumerate(exponents))
    information = pool(hosts, {("local", "local"): Link(1e-3, 1e8)}, grid=grid)
    rows = PLANNERS["linear"](hosts, information).rows
    p = information.model.seconds_per_row(hosts, grid)
    lost = information.model.communication(hosts) / p  # rows that the borders cost each host
    assert sum(rows) == pytest.approx(grid, rel=1e-9, abs=1e-12 * max(lost))


def test_hosts_that_share_cpus_are_balanced_too():
    hosts = tuple(Host(n, cpus=(0,), seconds_per_point=s) for n, s in (("a", 1e-9), ("b", 3e-9)))
    sky = Weather(cpu={h.name: Forecast(0.9, 0.05, "mean", 9, 0.0) for h in hosts})
    information = pool(hosts, {("local", "local"): Link(1e-7, 1e11)}, weather=sky)
    schedule = PLANNERS["time_balancing"](hosts, information)
    assert sum(schedule.rows) == 1000
    assert all(rows >= 1 for rows in schedule.rows)
