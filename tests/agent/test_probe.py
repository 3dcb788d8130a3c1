"""Probes of hosts: the application's own kernel against what the model says of it there."""

import math
from functools import partial
from pathlib import Path

import pytest
from worlds import ROOMY, pool

from apples import Host, Link, load_information
from apples.agent import probe_hosts
from apples.errors import LaunchError
from apples.launch import Calibration
from nws import Forecast, Weather

EXAMPLE = Path(__file__).parents[2] / "examples" / "jacobi2d"
LINKS = {("local", "local"): Link(1e-6, 1e9)}
SPEED = 1e-8


def hosts(**changes):
    names = enumerate(("ada", "bob"))
    return [
        Host(name, seconds_per_point=SPEED, free_memory=ROOMY, cpus=(cpu,), **changes)
        for cpu, name in names
    ]


@pytest.fixture
def kernel():
    """Return what a kernel takes, by host, the sizes it was measured at, and the probe that runs it."""
    takes, sizes = {}, {}

    def measure(host, _program, _implementation, _parameters, asked, **_):
        sizes[host.name] = (host.slots, *asked)
        if isinstance(takes[host.name], Exception):
            raise takes[host.name]
        return [Calibration(rows, *takes[host.name]) for rows in asked]

    return takes, sizes, partial(probe_hosts, measure=measure)


def test_a_slowdown_is_the_wall_time_of_the_kernel_over_that_of_the_model(kernel):
    takes, sizes, probe = kernel
    takes.update(
        ada=(SPEED, 0.0, 7, 2 * SPEED),
        bob=(SPEED, 0.0, 7, SPEED),
    )
    weather = Weather(cpu={"bob": Forecast(0.5, 0.0, "mean", 9, 0.0)})
    information = pool(hosts(), LINKS, weather=weather)
    found = probe(information, {"ada": 300.0, "bob": 700.0})
    # bob's sensor sees a process beside ours, of which the kernel noticed nothing.
    assert found == {"ada": pytest.approx(2.0), "bob": pytest.approx(0.5)}
    assert sizes == {"ada": (1, 300), "bob": (1, 700)}


def test_without_wall_time_it_is_the_processor_time_that_counts(kernel):
    takes, _, probe = kernel
    takes["bob"] = (3 * SPEED, 0.0, 7)
    information = pool(
        hosts(), LINKS, weather=Weather(cpu={"bob": Forecast(0.5, 0.0, "mean", 9, 0.0)})
    )
    assert probe(information, {"bob": 700.0}) == {"bob": pytest.approx(3.0)}


def test_one_process_of_a_host_with_several_slots_has_its_part_of_the_rows(kernel):
    takes, sizes, probe = kernel
    takes["ada"] = (SPEED, 0.0, 7, SPEED)
    found = probe(pool(hosts(slots=4), LINKS), {"ada": 1000.0})
    assert found == {"ada": pytest.approx(1.0)}
    assert sizes == {"ada": (1, 250)}


def test_what_is_assumed_of_a_host_already_is_no_part_of_what_it_is_held_against(kernel):
    takes, _, probe = kernel
    takes["ada"] = (SPEED, 0.0, 7, 2 * SPEED)
    information = pool(hosts(), LINKS, slowdown={"ada": 5.0})
    assert probe(information, {"ada": 10.0}) == {"ada": pytest.approx(2.0)}


def test_a_host_on_which_the_kernel_cannot_run_is_left_out(kernel):
    takes, _, probe = kernel
    takes.update(ada=LaunchError("no such program"), bob=(SPEED, 0.0, 7, SPEED))
    found = probe(pool(hosts(), LINKS), {"ada": 500.0, "bob": 500.0})
    assert found == {"bob": pytest.approx(1.0)}


def test_another_machine_that_nobody_looked_at_is_not_taken_for_this_one(kernel):
    takes, sizes, probe = kernel
    takes.update(ada=(SPEED, 0.0, 7, SPEED), bob=(SPEED, 0.0, 7, SPEED))
    information = pool(hosts(), LINKS)
    away = lambda every: tuple(host for host in every if host.name == "ada")  # noqa: E731
    assert set(probe(information, {"ada": 9.0, "bob": 9.0}, away)) == {"bob"}
    assert set(sizes) == {"bob"}


@pytest.mark.more
@pytest.mark.mpi
def test_the_sample_says_the_wall_time_of_its_kernel(tmp_path):
    (tmp_path / "hosts.toml").write_text(
        '[[host]]\nname = "ada"\nseconds_per_point = 1e-9\n'
        "[default_link]\nlatency = 1e-6\nbandwidth = 1e9\n"
    )
    information = load_information(
        tmp_path / "hosts.toml", EXAMPLE / "template.toml", EXAMPLE / "user.toml",
        settings={"grid": 200}, weather="static",
    )  # fmt: skip
    found = probe_hosts(information, {"ada": 200.0}, silence_seconds=120.0)
    assert math.isfinite(found["ada"])
    assert found["ada"] > 0
