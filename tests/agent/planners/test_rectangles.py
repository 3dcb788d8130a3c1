"""Rectangles on a pool: faster than strips where many are alike, not where messages are dear; caps, refusals."""

from dataclasses import replace

import numpy as np
import pytest
from worlds import pool, random_world

import hat
from apples import (
    Coordinator,
    Host,
    Link,
    ModelError,
    ModelTemplate,
    Rectangle,
    Schedule,
    UsageError,
    equal_blocks,
    rectangles,
    strips_or_rectangles,
    time_balancing,
)
from apples.agent import covered_once, half_perimeters, left_out, negative_strip
from blueprints import minimum_execution_time

LAN = {("local", "local"): Link(1e-6, 1e7)}


def alike(count, **more):
    return tuple(
        Host(f"h{i}", seconds_per_point=1e-9, free_memory=2**40, **more) for i in range(count)
    )


def seconds(schedule, information):
    return information.model_of(schedule).iteration_seconds(schedule)


def test_nine_hosts_that_are_alike_get_rectangles_and_beat_strips():
    information = pool(alike(9), {("local", "local"): Link(1e-6, 1e9)}, grid=900)
    hosts = information.hosts.hosts
    found, strips = rectangles(hosts, information), time_balancing(hosts, information)
    assert len({one.first_column for one in found.rectangles}) in (3, 4)
    # Of three by three the one in the middle has 1200 points of border, a strip has 1800.
    assert half_perimeters(found.rectangles) < 0.65 * 9 * (100 + 900)
    assert seconds(found, information) < 0.95 * seconds(strips, information)
    assert strips_or_rectangles(hosts, information).rectangles == found.rectangles


def test_where_every_message_is_dear_strips_have_fewer_of_them():
    information = pool(alike(9), {("local", "local"): Link(1e-2, 1e9)}, grid=900)
    chosen = strips_or_rectangles(information.hosts.hosts, information)
    assert chosen.planner == "time_balancing"
    assert not chosen.rectangles


@pytest.mark.more
def test_on_random_worlds_every_schedule_is_whole_feasible_and_as_estimated():
    generator = np.random.default_rng(4)
    feasible = 0
    for _ in range(20):
        world = random_world(generator, int(generator.integers(1, 9)))
        information = world.information
        coordinator = Coordinator(information)
        schedule = rectangles(world.hosts, information)
        assert set(schedule.resources) | set(schedule.dropped) == set(world.hosts)
        if not coordinator.is_feasible(schedule):
            # Memory for a rectangle is less than for a strip of as many points only if it is all but square.
            assert world.cap.sum() < 1.2 * world.total
            continue
        feasible += 1
        assert covered_once(schedule.rectangles, world.total, world.total) == world.total**2
        estimate = coordinator.best([coordinator.estimate(schedule)])
        assert estimate.iteration_seconds == pytest.approx(seconds(schedule, information))
        assert estimate.interval[0] <= estimate.execution_seconds <= estimate.interval[1]
        for one in estimate.hosts:
            assert one.memory <= one.host.free_memory
            assert one.rectangle.points == pytest.approx(one.rows * world.total)
    assert feasible >= 10


@pytest.mark.more
def test_what_is_chosen_is_never_estimated_slower_than_strips():
    generator = np.random.default_rng(9)
    for _ in range(15):
        world = random_world(generator, int(generator.integers(2, 9)), capped=False)
        strips = time_balancing(world.hosts, world.information)
        chosen = strips_or_rectangles(world.hosts, world.information)
        assert seconds(chosen, world.information) <= seconds(strips, world.information)


def test_a_host_that_one_row_of_points_would_hold_up_is_dropped():
    slow = Host("slow", seconds_per_point=1.0, free_memory=2**40)
    information = pool((*alike(3), slow), LAN, grid=300)
    schedule = rectangles(information.hosts.hosts, information)
    assert schedule.dropped == (slow,)
    assert len(schedule.rectangles) == 3


@pytest.mark.parametrize(
    ("count", "shape"), [(8, (4, 2)), (9, (3, 3)), (7, (7, 1)), (12, (4, 3)), (1, (1, 1))]
)
def test_square_blocks_are_equal_and_as_square_as_their_number_allows(count, shape):
    down, across = shape
    information = pool(alike(count), LAN, grid=840)
    schedule = equal_blocks(information.hosts.hosts, information)
    assert {(one.rows, one.columns) for one in schedule.rectangles} == {
        (840 // down, 840 // across)
    }
    assert covered_once(schedule.rectangles, 840, 840) == 840**2
    place = dict(zip(schedule.resources, schedule.rectangles, strict=True))
    assert place[information.hosts["h0"]].first_row == 0
    # Row by row, as HPF numbers a grid of processors.
    order = sorted(place, key=lambda h: (place[h].first_row, place[h].first_column))
    assert [host.name for host in order] == [f"h{i}" for i in range(count)]


def test_square_blocks_of_which_a_host_would_have_no_point_are_refused():
    information = pool(alike(9), LAN, grid=2)
    schedule = equal_blocks(information.hosts.hosts, information)
    rejection = negative_strip(schedule, information)
    assert rejection is not None
    assert (rejection.filter, rejection.figures) == ("negative_strip", (0, 1))
    assert "h6" in rejection.reason.split()


def test_a_host_left_out_of_rectangles_is_explained_by_what_its_border_costs():
    far = Host("far", site="abroad", seconds_per_point=1e-9, free_memory=2**40)
    links = {**LAN, ("local", "abroad"): Link(1.0, 1e3), ("abroad", "local"): Link(1.0, 1e3)}
    information = pool((*alike(2), far), links, grid=400)
    coordinator = Coordinator(information, planner=rectangles)
    coordinator.execute(minimum_execution_time)
    chosen = coordinator.decision_log.chosen
    assert chosen.schedule.rectangles
    assert "far" not in chosen.names
    (reason,) = (one for one in left_out(coordinator.decision_log) if one["host"] == "far")
    assert reason["figures"][1] == chosen.iteration_seconds
    assert reason["figures"][0] > 2.0  # a latency there and one back


def test_a_schedule_whose_rectangles_overlap_or_that_mixes_them_with_strips_is_refused():
    hosts = alike(2)
    information = pool(hosts, LAN, grid=10)
    good = equal_blocks(hosts, information)
    assert Coordinator(information).is_feasible(good)
    first, second = good.allocations
    for wrong in (
        (first, type(second)(second.host, 5, "", Rectangle(4, 5, 0, 10))),
        (first, type(second)(second.host, 5, "")),
    ):
        coordinator = Coordinator(information)
        assert not coordinator.is_feasible(Schedule(wrong))
        rejection = coordinator.decision_log.rejections[0]
        assert (rejection.filter, rejection.figures[1]) == ("rows", 100)


def test_a_rectangle_larger_than_its_hosts_memory_is_refused_by_name():
    hosts = alike(2)
    small = Host("small", seconds_per_point=1e-9, free_memory=1000)
    information = pool((hosts[0], small), LAN, grid=100)
    coordinator = Coordinator(information)
    assert not coordinator.is_feasible(equal_blocks(information.hosts.hosts, information))
    rejection = coordinator.decision_log.rejections[0]
    assert rejection.filter == "memory"
    assert {"small", "50", "100"} <= {*rejection.reason.split()}
    assert rejection.figures[1] == 1000


@pytest.mark.parametrize("seed", [8, 50, 60])
def test_where_the_quickest_columns_have_no_memory_others_are_taken(seed):
    """Six hosts with memory for 1.12 times the grid: the two most promising divisions do not fit."""
    free = 2 * 8 * 100 * 100 * 1.12 * np.random.default_rng(seed).dirichlet(np.full(6, 2.0))
    hosts = tuple(
        Host(f"h{i}", seconds_per_point=1e-9 * (1 + 3 * i), free_memory=int(max(each, 2000)))
        for i, each in enumerate(free.tolist())
    )
    information = pool(hosts, LAN, grid=100)
    schedule = rectangles(hosts, information)
    assert len(schedule.rectangles) == 6
    assert Coordinator(information).is_feasible(schedule)


def test_a_program_that_says_nothing_of_rectangles_or_has_another_model_gets_none():
    hosts = alike(2)
    strips = hat.parse('name = "heat"\nprogram = ["heat"]\n', hat.ApplicationTemplate)
    silent = replace(pool(hosts, LAN, grid=100), template=strips)
    with pytest.raises(UsageError) as raised:
        rectangles(hosts, silent)
    assert raised.value.code == "rectangles-unsupported"
    assert raised.value.fields["template"] == "heat"
    rows = strips_or_rectangles(hosts, silent).rows
    assert (rows, sum(rows)) == (time_balancing(hosts, silent).rows, silent.application.rows)

    class Ideal(ModelTemplate):
        def computation(self, resources, rows):
            return 1e-3 * rows

        def communication(self, resources):
            return np.zeros(len(resources))

    with pytest.raises(ModelError) as broken:
        rectangles(hosts, pool(hosts, LAN, grid=100, make_model=lambda _: Ideal()))
    assert broken.value.code == "rectangles-unsupported"
    assert broken.value.fields["model"] == "Ideal"


EIGHT = """
name = "heat"
program = ["heat"]
active_set = { h0 = "eight", h1 = "eight" }
[[implementation]]
name = "plain"
rectangles = true
[[implementation]]
name = "eight"
sweeps = 8
"""


def test_implementations_of_several_sweeps_are_left_to_strips():
    hosts = alike(2)
    template = hat.parse(EIGHT, hat.ApplicationTemplate)
    information = replace(pool(hosts, LAN, grid=100), template=template)
    assert information.implementation(hosts[0]) == "eight"
    schedule = rectangles(hosts, information)
    assert {one.implementation for one in schedule.allocations} == {"plain"}
    estimate = Coordinator(information).estimate(schedule)
    assert {one.implementation for one in estimate.hosts} == {"plain"}
    with pytest.raises(hat.DocumentError) as raised:
        hat.parse(EIGHT + "rectangles = true\n", hat.ApplicationTemplate)
    assert raised.value.fields["field"] == "implementation[1].rectangles"
