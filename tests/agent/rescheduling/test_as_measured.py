"""What a running job takes out of the weather: its own processes, and nobody else's."""

import pytest
from worlds import pool

from apples import Host, Link
from apples.agent import as_measured
from nws import Forecast, Weather


def seen(value):
    return Forecast(value, 0.01, "mean", 9, 0.0)


def measured(hosts):
    """The competitors of each host, without the job on a and b."""
    names = [host.name for host in hosts]
    sky = Weather(cpu=dict.fromkeys(names, seen(0.2)), competitors=dict.fromkeys(names, seen(4.0)))
    information = pool(hosts, default=Link(1e-5, 1e9), weather=sky)
    done = as_measured(information, {"a": 500, "b": 500}, {"a": 1.0, "b": 1.0})
    return [done.conditions.competitors(host) for host in hosts]


def test_a_job_on_other_machines_is_no_load_of_a_machine_it_is_not_on():
    apart = [
        Host(n, seconds_per_point=1e-9, slots=2, address=f"192.0.2.{i}")
        for i, n in enumerate("abc", 1)
    ]
    assert measured(apart) == pytest.approx([2.0, 2.0, 4.0])


def test_parts_of_this_machine_with_the_same_cpus_bear_the_whole_job():
    assert measured([Host(n, seconds_per_point=1e-9, slots=2) for n in "abc"]) == pytest.approx(
        [0.0, 0.0, 0.0]
    )
    own = [
        Host(n, seconds_per_point=1e-9, slots=2, cpus=cpus)
        for n, cpus in (("a", (0,)), ("b", (1,)), ("c", (0,)))
    ]
    assert measured(own) == pytest.approx([2.0, 2.0, 2.0])
