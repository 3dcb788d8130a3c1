"""Random host lists, and the arrays an oracle needs to know of them."""

from dataclasses import dataclass

import numpy as np

import hat
from apples.agent import InformationPool
from apples.resources import Host, HostList, Link, Network
from apples.weather import Conditions
from nws import Weather

TEMPLATE = hat.parse(
    'name = "heat"\nprogram = ["heat"]\n[[implementation]]\nname = "default"\nrectangles = true\n',
    hat.ApplicationTemplate,
)
ROOMY = 2**50


def pool(
    hosts, links=None, *, grid=1000, iterations=100, user="", default=None, weather=None, **options
):
    """Return the information pool of some hosts; `links` maps pairs of names to `Link`."""
    network = Network(dict(links or {}), default, {host.name: host.site for host in hosts})
    return InformationPool(
        TEMPLATE,
        TEMPLATE.bind({"grid": grid, "iterations": iterations}),
        hat.parse(user, hat.UserSpecifications),
        Conditions(HostList(tuple(hosts), network), weather or Weather()),
        **options,
    )


def symmetric(links):
    """Return links both ways."""
    return {**links, **{(b, a): link for (a, b), link in links.items()}}


@dataclass
class World:
    """One random problem: the pool, and p_i, borders and caps as plain arrays."""

    information: InformationPool
    p: np.ndarray
    pair: np.ndarray
    cap: np.ndarray

    @property
    def hosts(self):
        return self.information.hosts.hosts

    @property
    def total(self):
        return self.information.application.rows


def random_world(generator, count, *, grid=None, capped=True, sites=3, user="", priced=False):
    """Return a world of `count` hosts on a few sites, the p_i and C_i worked out by hand.

    Where `priced`, hosts also have a cost, a start and some a queue.
    """
    grid = grid or int(generator.choice([20, 200, 500, 1000, 2000, 4000]))
    names = [f"h{i}" for i in range(count)]
    row_bytes = 2 * grid * 8
    free = row_bytes * (grid * generator.uniform(0.1, 1.2, count) + 2)
    hosts = [
        Host(
            name,
            site=f"s{generator.integers(sites)}",
            seconds_per_point=float(10 ** generator.uniform(-9, -8)),
            cpu=float(generator.uniform(0.1, 1)),
            slots=int(generator.integers(1, 4)),
            free_memory=int(free[i]) if capped else ROOMY,
            **(_prices(generator, grid) if priced else {}),
        )
        for i, name in enumerate(names)
    ]
    links = {}
    for a in range(sites):
        for b in range(a, sites):
            near = a == b
            latency = (
                10 ** generator.uniform(-5, -3) if near else 10 ** generator.uniform(-4, -1.5)
            )
            bandwidth = 10 ** generator.uniform(7, 9) if near else 10 ** generator.uniform(6, 8)
            links[f"s{a}", f"s{b}"] = Link(float(latency), float(bandwidth))
    information = pool(hosts, symmetric(links), grid=grid, user=user)
    p = np.array([grid * h.seconds_per_point / (h.cpu * h.slots) for h in hosts])
    pair = np.array([[_border(information, a, b, grid) for b in hosts] for a in hosts])
    fits = np.array([int(h.free_memory // row_bytes) - 2 for h in hosts])
    return World(information, p, pair, np.clip(fits, 0, grid))


def _prices(generator, grid):
    """Return a host's cost, start and queue; the times are of the size of a run of 100 iterations."""
    run = 100 * 1e-9 * grid * grid
    return {
        "cost_per_second": float(10 ** generator.uniform(-1, 1)),
        "start_seconds": float(generator.choice([0.0, 0.1, 1.0]) * run),
        "queue_seconds": None
        if generator.random() < 0.6
        else float(generator.choice([0.0, 1.0]) * run),
    }


def _border(information, a, b, grid):
    if a is b:
        return 0.0
    there = information.hosts.network.link(a, b)
    back = information.hosts.network.link(b, a)
    return there.latency + 8 * grid / there.bandwidth + back.latency + 8 * grid / back.bandwidth


def chain_border(world):
    """Return C_i of all hosts as one chain in list order."""
    steps = np.diag(world.pair, 1)
    return np.concatenate([[0], steps]) + np.concatenate([steps, [0]])
