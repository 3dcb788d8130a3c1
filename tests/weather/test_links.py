"""Which links of many hosts are measured, against hosts that answer as a known network would."""

import time
from collections import Counter
from itertools import pairwise

import pytest

from apples import Host, HostList
from apples import Network as ListedNetwork
from apples.weather import LinkSensing, ProposedPlan, SensingContext
from nws import BANDWIDTH_TCP, LATENCY_TCP, Measurement, SensorReply, SeriesName, Weather

SITES = {f"h{i}": f"s{i % 3}" for i in range(30)}
HOSTS = HostList(tuple(Host(name, site=site) for name, site in SITES.items()), ListedNetwork())


class Network:
    """Hosts that can be asked; a link takes its values from the two sites."""

    def __init__(self):
        self.found, self.probed = {}, []

    def ask(self, host, verb, seconds, /, **what):
        del seconds
        if verb == "listen":
            return SensorReply(1, time.time(), listening=(host, 1))
        pair = host, what["peer"]
        self.probed.append(pair)
        near = SITES[host] == SITES[what["peer"]]
        for resource, value in (
            (LATENCY_TCP, 1e-4 if near else 5e-3),
            (BANDWIDTH_TCP, 1e8 if near else 6e6),
        ):
            name = SeriesName(resource, *pair)
            self.found.setdefault(name, []).append(Measurement(name, time.time(), value))
        return SensorReply(2, time.time())

    def sensing(self):
        return LinkSensing(
            SensingContext(HOSTS),
            SITES,
            self.ask,
            {},
            self.found,
            machine_of={},
            most=30,
            address_of=str,
        )


def a_chain_of_all(_):
    """Whatever is known, all hosts in the order of the list: every border passes between sites."""
    hosts = tuple(SITES)

    def seconds(sky):
        links = pairwise(hosts)
        return 1e-4 + sum(sky.latency[pair].value for pair in links if pair in sky.latency)

    return ProposedPlan(hosts, seconds)


def test_one_link_between_two_sites_is_measured_before_the_others():
    network = Network()
    links = network.sensing()
    links.measure_needed(lambda: links.interpolated(weather_of(links)), a_chain_of_all)
    crossed = {frozenset((SITES[a], SITES[b])) for a, b in pairwise(SITES)}
    first = Counter(frozenset((SITES[a], SITES[b])) for a, b in network.probed[: len(crossed)])
    assert first == dict.fromkeys(crossed, 1)


def test_the_direction_that_was_not_measured_is_bounded_wider_and_measured_where_it_matters():
    network = Network()
    links = network.sensing()
    links.measure({("h0", "h1")})
    bounds = links.bounds()
    assert bounds["h3", "h4"].spread < bounds["h4", "h3"].spread < bounds["h3", "h5"].spread

    def plan(_):
        return ProposedPlan(("h0", "h1"), lambda sky: sky.latency["h1", "h0"].value)

    links.measure_needed(lambda: links.interpolated(weather_of(links)), plan)
    assert network.probed == [("h0", "h1"), ("h1", "h0")]


def test_what_one_link_told_holds_between_all_hosts_of_its_sites():
    network = Network()
    links = network.sensing()
    links.measure({("h0", "h1"), ("h0", "h3")})
    weather = links.interpolated(weather_of(links))
    for a, b in ((a, b) for a in SITES for b in SITES if a != b):
        between = (SITES[a], SITES[b])
        if between in {("s0", "s1"), ("s1", "s0"), ("s0", "s0")}:
            assert weather.latency[a, b].value == pytest.approx(
                1e-4 if SITES[a] == SITES[b] else 5e-3
            )
        else:
            assert (a, b) not in weather.latency


def weather_of(links):
    latency, bandwidth = links.tables()
    return Weather(latency=latency, bandwidth=bandwidth)
