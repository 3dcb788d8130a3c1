"""What several ranks of ours get of one machine: a group's weight, a quota and a played machine are shared."""

from dataclasses import replace
from itertools import combinations, permutations

import numpy as np
import pytest
from worlds import pool

from apples import Host, Link
from apples.agent import LearnedLinks, MeasuredBorder, StripModel, as_measured
from nws import Forecast, Weather

HOSTS = [Host(name, seconds_per_point=1e-9, cpus=(cpu,)) for cpu, name in enumerate("abcd")]
NAMES = [host.name for host in HOSTS]


def seen(value):
    return Forecast(value, 0.0, "mean", 9, 0.0)


def one_machine(
    hosts=HOSTS, crowding=0.0, quota=8.0, share=0.5, competitors=1.0, spare=0.0, period=0.0
):
    """Return the pool of hosts that are parts of one machine, all with the same weather."""
    names = [host.name for host in hosts]
    sky = Weather(
        cpu=dict.fromkeys(names, seen(share)),
        competitors=dict.fromkeys(names, seen(competitors)),
        crowding=dict.fromkeys(names, seen(crowding)),
        spare_cpus=dict.fromkeys(names, seen(spare)),
        cpu_quota=dict.fromkeys(names, seen(quota)),
        quota_period=dict.fromkeys(names, seen(period)),
    )
    information = pool(hosts, default=Link(0.0, 1e12), weather=sky)
    machines = dict.fromkeys(names, "here")
    return replace(information, conditions=replace(information.conditions, machines=machines))


def share_of_the_first(information, count):
    model = information.model
    assert isinstance(model, StripModel)
    return model.share(information.hosts.hosts[0], frozenset(NAMES[:count]))


@pytest.mark.parametrize(("count", "expected"), [(1, 0.5), (2, 1 / 3), (4, 1 / 5)])
def test_ranks_of_one_group_share_its_weight(count, expected):
    assert share_of_the_first(one_machine(crowding=1.0), count) == pytest.approx(expected)


@pytest.mark.parametrize(("count", "expected"), [(1, 1.0), (3, 1.0), (4, 2 / 3)])
def test_ranks_on_spare_cpus_drive_nobody_to_the_others(count, expected):
    information = one_machine(crowding=0.5, spare=2.0, share=1.0, competitors=0.0)
    assert share_of_the_first(information, count) == pytest.approx(expected)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_ranks_in_sessions_of_their_own_do_not(count):
    assert share_of_the_first(one_machine(), count) == pytest.approx(0.5)


@pytest.mark.parametrize(("count", "expected"), [(1, 1.0), (2, 0.75), (4, 0.375)])
def test_a_quota_is_for_all_of_ours_together(count, expected):
    information = one_machine(quota=1.5, share=1.0, competitors=0.0)
    assert share_of_the_first(information, count) == pytest.approx(expected)


def test_who_gets_less_anyway_leaves_the_rest_of_the_quota_to_the_others():
    information = one_machine(HOSTS[:2], quota=0.9, share=1.0, competitors=0.0)
    sky = information.conditions.weather
    crowded = replace(
        sky, cpu={**sky.cpu, "b": seen(0.1)}, competitors={**sky.competitors, "b": seen(9.0)}
    )
    information = replace(information, conditions=replace(information.conditions, weather=crowded))
    model, (a, b) = information.model, information.hosts.hosts
    both = frozenset("ab")
    assert [model.share(a, both), model.share(b, both)] == pytest.approx([0.8, 0.1])
    assert model.share(a, both, {"b": 0.5}) == pytest.approx(0.85)


APART = [replace(host, address=f"10.0.0.{k % 3}") for k, host in enumerate(HOSTS)]
"""Parts of one machine, as containers are; `a` and `d` are reached at one address."""


@pytest.mark.parametrize(("count", "expected"), [(1, 0.5), (3, 0.5), (4, 0.25)])
def test_parts_of_a_machine_with_addresses_of_their_own_have_quotas_of_their_own(count, expected):
    information = one_machine(APART, quota=0.5, share=0.5, competitors=0.0)
    assert share_of_the_first(information, count) == pytest.approx(expected)


def with_learned_links(information, hosts, seconds=2e-3, sweeps=1):
    """Return the model with borders between all hosts that took so long."""
    borders = [
        MeasuredBorder(two, seconds, 1e-3, 8000.0, Link(1e-3, 1e6), modelled=0.1)
        for two in combinations(hosts, 2)
    ]
    links = LearnedLinks()
    for k in range(3):
        links = links.taught(borders, 1.0, float(k))
    return replace(information.model, links=links, sweeps=sweeps)


@pytest.mark.parametrize("sweeps", [1, 8])
def test_a_quota_gives_back_one_period_an_exchange(sweeps):
    information = one_machine(APART, quota=0.5, share=0.5, competitors=0.0, period=1e-4)
    model = with_learned_links(information, APART, sweeps=sweeps)
    without = replace(information, conditions=replace(information.conditions, weather=replace(
        information.conditions.weather, cpu_quota={})))  # fmt: skip
    plain = with_learned_links(without, APART, sweeps=sweeps)
    back = plain.communication(APART[:2]) - model.communication(APART[:2])
    assert back * sweeps == pytest.approx([0.5e-4, 0.5e-4])


@pytest.mark.parametrize("sweeps", [1, 8])
def test_what_quotas_give_back_is_the_same_for_one_order_and_for_many(sweeps):
    information = one_machine(APART, quota=0.5, share=0.5, competitors=0.0, period=0.01)
    model = with_learned_links(information, APART, sweeps=sweeps)
    for size in (2, 3, 4):
        orders = np.array(list(permutations(range(4), size)))
        together = model.communication_among(APART)(orders)
        for order, seconds in zip(orders, together, strict=True):
            alone = model.communication([APART[i] for i in order])
            assert seconds == pytest.approx(alone, rel=1e-6)


def test_hosts_on_other_machines_are_none_of_them():
    information = one_machine(crowding=1.0)
    apart = replace(information.conditions, machines={name: name for name in NAMES})
    assert share_of_the_first(replace(information, conditions=apart), 4) == pytest.approx(0.5)


def test_a_rank_that_waits_leaves_its_part_of_the_weight_to_the_longest():
    information = one_machine(HOSTS[:2], crowding=1.0)
    hosts, model = information.hosts.hosts, information.model
    seconds = model.computation(hosts, np.array([800.0, 200.0]))
    # The longest computes all the time; the other for the part d, a quarter with equal shares.
    d = seconds[1] / seconds[0]
    assert seconds[0] == pytest.approx(800e3 * 1e-9 * (2 + d), rel=0.02)
    assert seconds[1] == pytest.approx(200e3 * 1e-9 * 3, rel=0.02)
    assert d < 0.35


def test_those_beside_count_for_the_part_in_which_they_compute():
    information = one_machine(crowding=1.0)
    duty = {"a": 1.0, "b": 0.5, "c": 0.25, "d": 0.0}
    for host in HOSTS:
        elsewhere = sum(duty.values()) - duty[host.name]
        expected = information.conditions.share(host, 1, elsewhere)
        assert information.model.share(host, frozenset(NAMES), duty) == pytest.approx(expected)


def test_the_rows_that_fit_are_those_that_take_no_longer():
    information = one_machine(HOSTS[:2], crowding=1.0)
    hosts, model = information.hosts.hosts, information.model
    rows = model.rows_within(hosts, 1000)(np.array([1e-3, 2e-3]))
    assert rows.tolist() == [333, 666]


def played(cpu, given, competitors, hosts=2):
    """Return the pool of hosts that are played on a machine of two CPUs, as live weather has it."""
    hosts = [Host(f"h{k}", seconds_per_point=1e-9, cpu=cpu) for k in range(hosts)]
    information = pool(hosts, default=Link(0.0, 1e12), weather=Weather())
    names = [host.name for host in hosts]
    here = Weather(
        cpu=dict.fromkeys(names, seen(given)),
        competitors=dict.fromkeys(names, seen(competitors)),
    )
    conditions = replace(information.conditions, here=here, widths=dict.fromkeys(names, 2))
    return replace(information, conditions=conditions)


@pytest.mark.parametrize(
    ("cpu", "given", "competitors", "expected"),
    [
        (0.4, 1.0, 0.0, 0.4),  # the quota that it is played with
        (0.4, 2 / 11, 10.0, 2 / 12),  # what this machine gives to two of ours beside ten
        (1.0, 0.5, 3.0, 0.4),
    ],
)
def test_a_played_host_gets_its_quota_and_no_more_than_this_machine_gives(
    cpu, given, competitors, expected
):
    information = played(cpu, given, competitors)
    hosts = information.hosts.hosts
    share = information.model.share(hosts[0], frozenset(host.name for host in hosts))
    assert share == pytest.approx(expected)
    assert not information.conditions.measured(hosts[0])
    assert information.conditions.cpu(hosts[0]).value == pytest.approx(min(cpu, given))


def test_a_running_job_takes_itself_out_of_the_weight_that_it_shares():
    information = one_machine(HOSTS[:3], crowding=0.5, share=0.2, competitors=4.0)
    done = as_measured(information, {"a": 500, "b": 500}, {"a": 1.0, "b": 0.5})
    others = [done.conditions.competitors(host) for host in information.hosts]
    # On its own CPUs each rank is one competitor while it computes, and all crowd on every CPU.
    assert others == pytest.approx([4 - 1 - 0.75, 4 - 0.5 - 0.75, 4 - 0.75])


def test_a_running_job_beside_which_cpus_are_idle_has_moved_nobody():
    information = one_machine(HOSTS[:3], crowding=0.5, share=0.2, competitors=4.0, spare=2.0)
    done = as_measured(information, {"a": 500, "b": 500}, {"a": 1.0, "b": 0.5})
    others = [done.conditions.competitors(host) for host in information.hosts]
    assert others == pytest.approx([4 - 1, 4 - 0.5, 4])
