"""Which link holds between two hosts, and that nothing grows with the number of pairs."""

import tracemalloc

import pytest

from apples import Host, Link, read_host_list
from apples.resources import NEVER_MEASURED, Network
from apples.weather import Conditions
from nws import Weather

A, B, C = Host("a", site="s"), Host("b", site="t"), Host("c", site="t")
SITES = {"a": "s", "b": "t", "c": "t"}


def listed(tmp_path, text):
    path = tmp_path / "hosts.toml"
    hosts = "".join(f'[[host]]\nname = "{h.name}"\nsite = "{h.site}"\n' for h in (A, B, C))
    path.write_text(hosts + text)
    return read_host_list(path)


def link(ends, latency, bandwidth=1e6):
    return f"[[link]]\n{ends}\nlatency = {latency}\nbandwidth = {bandwidth}\n"


def test_a_host_pair_wins_over_a_host_and_a_site_and_that_over_a_site_pair(tmp_path):
    sites = link('between = ["s", "t"]', 3)
    half = link('between = ["a", "t"]', 2)
    hosts = link('between = ["a", "b"]', 1)
    network = listed(tmp_path, sites + half + hosts).network
    assert [network.link(A, B).latency, network.link(B, A).latency] == [1, 1]
    assert [network.link(A, C).latency, network.link(C, A).latency] == [2, 2]
    assert listed(tmp_path, hosts + sites).network.link(A, C).latency == 3
    assert listed(tmp_path, sites + hosts).network.link(A, B).latency == 1


def test_a_directed_link_leaves_the_other_direction_alone(tmp_path):
    one_way = link('from = "a"\nto = "b"', 1) + link('from = "b"\nto = "a"', 5, 7.0)
    network = listed(tmp_path, one_way).network
    assert network.link(A, B) == Link(1, 1e6)
    assert network.link(B, A) == Link(5, 7.0)


def test_the_default_holds_where_nothing_is_written_and_is_no_assumption(tmp_path):
    hosts = listed(tmp_path, "[default_link]\nlatency = 4\nbandwidth = 2\n")
    assert hosts.network.link(A, B) == Link(4, 2)
    assert not [a for a in Conditions(hosts, Weather()).assumptions((A, B, C)) if "link" in a]


def test_an_unknown_link_is_the_worst_of_its_site_pair_and_said_to_be_assumed(tmp_path):
    known = link('between = ["a", "b"]', 1, 50) + link('between = ["b", "c"]', 9, 10)
    hosts = listed(tmp_path, known)
    assert hosts.network.link(A, C) == Link(1, 50, assumed=True)
    assumed = Conditions(hosts, Weather()).assumptions((A, B, C))
    (line,) = (line for line in assumed if "a and c" in line)
    assert "1e+03 ms" in line
    assert "5e-05 MB/s" in line
    assert not any("a and b" in line or "b and c" in line for line in assumed)


def test_latency_and_bandwidth_are_each_the_worst_of_the_site_pair():
    links = {("a", "b"): Link(1, 10), ("b", "a"): Link(1, 10), ("a", "t2"): Link(3, 20)}
    network = Network(links, None, {**SITES, "t2": "t"})
    assert network.link(A, C) == Link(3, 10, assumed=True)


def test_without_any_written_link_a_slow_office_network_is_assumed():
    assert Network({}, None, SITES).link(A, B) == NEVER_MEASURED


def test_inside_a_site_the_link_of_the_site_with_itself_holds(tmp_path):
    hosts = listed(tmp_path, link('between = ["t", "t"]', 2))
    assert hosts.network.link(B, C) == Link(2, 1e6)


@pytest.mark.parametrize("count", [1_000, 10_000])
def test_nothing_is_stored_per_pair_of_hosts(count):
    hosts = [Host(f"h{i}", site=f"s{i % 50}") for i in range(count)]
    links = {(f"s{a}", f"s{b}"): Link(1e-3, 1e8) for a in range(50) for b in range(50) if a != 7}
    network = Network(links, None, {h.name: h.site for h in hosts})
    entries = len(network.links)
    tracemalloc.start()
    for i in range(0, count, count // 500):
        network.link(hosts[i], hosts[-1 - i])
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert network.link(hosts[7], hosts[57]).assumed
    assert len(network.links) == entries
    assert len(network.assumed_links) <= entries + 1  # site pairs, however many hosts
    assert grown < 2_000_000
