"""The model of rectangles: contacts against every pair, C_i by hand, strips as the rectangles of full width."""

from dataclasses import replace

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import pool, random_world

from apples import Host, Link, Rectangle, time_balancing
from apples.agent import RectangleModel, contacts, division
from apples.agent import proportional as near


def by_hand(rectangles):
    """Return what two share of a side, for every pair that does."""
    found = {}
    for i, a in enumerate(rectangles):
        for j, b in enumerate(rectangles):
            across = min(a.first_column + a.columns, b.first_column + b.columns)
            across -= max(a.first_column, b.first_column)
            down = min(a.first_row + a.rows, b.first_row + b.rows) - max(a.first_row, b.first_row)
            if a.first_row + a.rows == b.first_row and across > 0:
                found[i, j] = across
            if a.first_column + a.columns == b.first_column and down > 0:
                found[i, j] = down
    return found


@given(
    st.lists(st.floats(0.05, 1.0), min_size=1, max_size=14),
    st.integers(14, 60),
    st.integers(14, 60),
)
@settings(max_examples=examples(60), deadline=None)
def test_contacts_are_those_of_every_pair_that_shares_a_part_of_a_side(shares, rows, columns):
    found = near(division(shares, rows, columns), shares, rows, columns)
    touching = contacts(found)
    pairs = zip(touching.first.tolist(), touching.second.tolist(), strict=True)
    assert dict(zip(pairs, touching.points.tolist(), strict=True)) == by_hand(found)


def test_rectangles_of_the_whole_width_cost_what_strips_do():
    generator = np.random.default_rng(8)
    for _ in range(25):
        world = random_world(generator, int(generator.integers(1, 7)), capped=False)
        strips = time_balancing(world.hosts, world.information)
        row, tiles = 0, []
        for rows in strips.rows:
            tiles.append(Rectangle(row, int(rows), 0, world.total))
            row += int(rows)
        model = world.information.model
        ours = replace(RectangleModel.like(model), rectangles=tuple(tiles))
        used = strips.resources
        assert ours.communication(used) == pytest.approx(model.communication(used))
        assert ours.border_seconds(used) == pytest.approx(model.border_seconds(used))
        assert ours.touching(used) == model.touching(used)
        rows = np.array(strips.rows, dtype=float)
        for draws in (ours, model):
            drawn = draws.draw(used, rows, np.random.default_rng(1), 50)
            assert drawn.max() == pytest.approx(
                model.draw(used, rows, np.random.default_rng(1), 50).max()
            )


def test_a_message_to_each_neighbour_and_bytes_in_proportion_to_the_part():
    hosts = tuple(Host(name, seconds_per_point=1e-9) for name in "abc")
    information = pool(hosts, {("local", "local"): Link(1e-3, 8e6)}, grid=100)
    tiles = (Rectangle(0, 100, 0, 40), Rectangle(0, 30, 40, 60), Rectangle(30, 70, 40, 60))
    model = replace(RectangleModel.like(information.model), rectangles=tiles)
    point = 8 / 8e6
    # Both ways: a has two neighbours on its right, b and c each other and a.
    assert model.communication(hosts) == pytest.approx(
        [4e-3 + 2 * 100 * point, 4e-3 + 2 * 90 * point, 4e-3 + 2 * 130 * point]
    )
    assert model.touching(hosts) == [
        (hosts[1], hosts[2]),
        (hosts[0], hosts[1]),
        (hosts[0], hosts[2]),
    ]


def test_memory_is_of_the_points_and_those_around_them():
    hosts = (Host("a", seconds_per_point=1e-9),)
    application = pool(hosts, grid=100).application
    assert application.rectangle_memory(10, 20) == 2 * 8 * 12 * 22
