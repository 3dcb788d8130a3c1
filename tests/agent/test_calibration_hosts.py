"""Which implementations are measured on which hosts: those that a run of the list could use."""

from collections import Counter
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path

import pytest
from worlds import pool

import hat
from apples import Host, Link
from apples.agent import (
    InformationPool,
    LearnedKey,
    calibrate_hosts,
    equal_strips,
    is_measured,
    measure_first,
    recall,
    speed_source,
)
from apples.errors import LaunchError
from apples.launch import Calibration
from apples.resources import HostList, Network
from apples.weather import Conditions
from nws import Weather

TEMPLATE = """
name = "heat"
program = ["heat"]
active_set = {active}
[[implementation]]
name = "fast"
[[implementation]]
name = "blocked"
sweeps = 4
[[implementation]]
name = "plain"
"""
KEY = LearnedKey.of("heat", "", Path())
HOSTS = [Host(name, cpus=(k // 2,)) for k, name in enumerate(("ada", "bob", "cyd", "dot"))]


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Return what counts the measurements: one by implementation and CPUs, whoever stands for them."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    asked = Counter()

    def measure(host, _program, implementation, _parameters, sizes, **_):
        asked[implementation, host.cpus] += 1
        if implementation in broken:
            raise LaunchError(f"{implementation} does not start")
        return [Calibration(rows, 1e-9, 0.0, 7) for rows in sizes]

    broken = set()

    def run(active, *, at_once=False, fails=()):
        broken.clear()
        broken.update(fails)
        template = hat.parse(TEMPLATE.replace("{active}", active), hat.ApplicationTemplate)
        hosts = Conditions(HostList(tuple(HOSTS), Network()), Weather())
        pool = InformationPool(
            template, template.bind({}), hat.parse("", hat.UserSpecifications), hosts
        )
        return calibrate_hosts(pool, [100, 500], at_once=at_once, measure=measure), asked

    return run


@pytest.mark.parametrize("at_once", [False, True])
def test_hosts_that_share_cpus_are_measured_once_with_all_that_one_of_them_may_run(
    measured, at_once
):
    found, asked = measured(
        '{ "bob" = "plain", "cyd" = "plain", "dot" = "plain" }', at_once=at_once
    )
    assert asked == {("fast", (0,)): 1, ("plain", (0,)): 1, ("plain", (1,)): 1}
    assert {host: sorted(speeds) for host, speeds in found.items()} == {
        "ada": ["fast", "plain"], "bob": ["fast", "plain"], "cyd": ["plain"], "dot": ["plain"],
    }  # fmt: skip
    assert set(recall(KEY).speeds) == {host.identity for host in HOSTS}


def test_a_number_of_sweeps_that_every_host_can_make_is_measured(measured):
    _, asked = measured("{}")
    assert {name for name, _ in asked} == {"fast", "blocked", "plain"}
    assert set(asked.values()) == {1}


@pytest.mark.parametrize("fails", [("plain",), ("fast", "blocked", "plain")])
def test_a_failed_calibration_keeps_the_speeds_of_the_last_one(measured, fails):
    measured("{}")
    before = recall(KEY).speeds
    measured("{}", fails=fails)
    assert recall(KEY).speeds == before


class Kernel:
    """A program's kernel that takes the same time a point on each host; counts the sizes measured on each."""

    def __init__(self, seconds_per_point=5e-9, fails=()):
        self.seconds_per_point, self.fails, self.sizes = seconds_per_point, fails, {}

    def __call__(self, host, _program, _implementation, _parameters, sizes, **_):
        self.sizes.setdefault(host.name, []).extend(sizes)
        if host.name in self.fails:
            raise LaunchError(f"{host.name} does not start it")
        return [Calibration(rows, self.seconds_per_point, 0.0, 7) for rows in sizes]


@pytest.fixture
def list_speeds(monkeypatch, tmp_path):
    """Return a pool of hosts whose speeds the host list gives, 1 ns a point, each with a CPU of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def make(grid=1000, names=("ada", "bob"), **changes):
        hosts = [
            Host(name, seconds_per_point=1e-9, cpus=(k,), **changes)
            for k, name in enumerate(names)
        ]
        return pool(hosts, {("local", "local"): Link(1e-6, 1e9)}, grid=grid)

    return make


def chosen(*names):
    """Return a proposal: equal strips on these hosts."""

    def propose(information):
        return equal_strips([information.hosts[name] for name in names], information)

    return propose


def held(information, *names):
    return [is_measured(information, information.hosts[name]) for name in names]


def test_hosts_of_the_plan_are_measured_first_and_planned_with_what_was_measured(list_speeds):
    kernel, lines, before = Kernel(), [], list_speeds(names=("ada", "bob", "eve"))
    after = measure_first(before, chosen("ada", "bob"), lines.append, measure=kernel)
    assert held(before, "ada", "bob") == [False, False]
    assert held(after, "ada", "bob", "eve") == [True, True, False]
    assert after.speeds["ada"].at(500) == pytest.approx(5e-9)
    assert kernel.sizes == {"ada": [500, 62, 1000], "bob": [500, 62, 1000]}
    (line,) = lines
    assert {"ada", "bob", "--no-calibrate"} <= {*line.replace(",", " ").replace("(", " ").split()}
    assert measure_first(after, chosen("ada", "bob"), lines.append, measure=kernel) is after
    assert len(lines) == 1, "nothing is measured again"


@pytest.mark.parametrize(
    ("grid", "measured", "factor"), [(1900, False, 3.61), (3000, True, 9.0), (300, False, 1.0)]
)
def test_a_grid_of_more_than_four_times_the_points_is_measured_anew(
    list_speeds, grid, measured, factor
):
    propose, kernel = chosen("ada", "bob"), Kernel()
    measure_first(list_speeds(1000), propose, measure=Kernel())
    again = list_speeds(grid)
    again = replace(again, learned=recall(again.learned_key))
    source = speed_source(again, again.hosts["ada"])
    assert (source["points"], source["factor"]) == (1e6, pytest.approx(factor))
    assert is_measured(again, again.hosts["ada"]) is not measured
    after = measure_first(again, propose, measure=kernel)
    assert bool(kernel.sizes) == measured
    assert held(after, "ada", "bob") == [True, True]


def test_a_host_that_cannot_be_measured_is_tried_once_and_keeps_its_speed(list_speeds):
    kernel, lines, before = Kernel(fails=("bob",)), [], list_speeds()
    after = measure_first(before, chosen("ada", "bob"), lines.append, measure=kernel)
    assert held(after, "ada", "bob") == [True, False]
    why, left = (line for line in lines if line.startswith("warning: "))
    assert ("bob does not start it" in why, "not measured on bob:" in left) == (True, True)
    assert {*kernel.sizes} == {"ada", "bob"}
    broken = Kernel(fails=("ada", "bob"))
    unmeasured = list_speeds(names=("eve", "ada"))
    assert measure_first(unmeasured, chosen("ada"), measure=broken) is unmeasured


def test_hosts_that_the_new_plan_has_instead_are_measured_next(list_speeds):
    kernel = Kernel()

    def propose(information):
        name = "bob" if held(information, "ada") == [True] else "ada"
        return equal_strips([information.hosts[name]], information)

    after = measure_first(list_speeds(), propose, measure=kernel)
    assert [*kernel.sizes] == ["ada", "bob"]
    assert held(after, "ada", "bob") == [True, True]


def test_no_measurement_begins_after_the_time_limit(list_speeds):
    kernel, clock = Kernel(), chain((0.0, 1.0, 2.0), repeat(7.0))
    names = ("ada", "bob", "eve", "dot")
    shared = list_speeds(names=names)
    hosts = HostList(
        tuple(replace(host, cpus=(0, k + 1)) for k, host in enumerate(shared.hosts)), Network()
    )
    shared = replace(shared, conditions=Conditions(hosts, Weather()))
    measure_first(shared, chosen(*names), clock=lambda: next(clock), measure=kernel)
    assert [*kernel.sizes] == ["ada"], "they share a CPU: one after the other"


def test_hosts_with_the_same_cpus_are_measured_once(list_speeds):
    kernel, information = Kernel(), list_speeds()
    hosts = HostList(tuple(replace(host, cpus=()) for host in information.hosts), Network())
    here = Conditions(hosts, Weather(), machines={"ada": "this", "bob": "this"})
    information = replace(information, conditions=here)
    after = measure_first(information, chosen("ada", "bob"), measure=kernel)
    assert [*kernel.sizes] == ["ada"]
    assert held(after, "ada", "bob") == [True, True]


def test_no_host_behind_a_queue_is_measured(list_speeds):
    kernel, information = Kernel(), list_speeds(queue_seconds=60.0)
    assert measure_first(information, chosen("ada", "bob"), measure=kernel) is information
    assert kernel.sizes == {}
