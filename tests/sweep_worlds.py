"""Random parameter sweeps, and what is true of any plan for one."""

from dataclasses import dataclass

import numpy as np

from apples import Host, HostList, Link, Network
from apples.applications import InputFile, ParameterSweep, SiteCache, SweepTask, sweep_costs
from apples.weather import Conditions
from nws import Weather


@dataclass
class SweepWorld:
    """A sweep, its caches and its hosts."""

    sweep: ParameterSweep
    caches: tuple
    hosts: HostList

    @property
    def costs(self):
        return sweep_costs(self.sweep, self.caches, Conditions(self.hosts, Weather()))


def sweep_world(
    generator, sites=6, hosts=(2, 8), tasks=150, files=40, inputs=1, stores=1, capacity=np.inf
):
    """Return a world of several sites: alike inside, a slow serial link into each, files shared by tasks.

    Parameters
    ----------
    hosts
        The least and the most hosts of a site.
    inputs
        The most files of a task.
    stores
        At how many sites, of their own, the files lie.
    """
    listed = [Host(f"store{s}", site=f"archive{s}") for s in range(stores)]
    caches, links = [], {}
    for site in range(sites):
        speed = generator.uniform(0.6, 1.8)
        names = [f"s{site}h{h}" for h in range(int(generator.integers(hosts[0], hosts[1] + 1)))]
        for name in names:
            seconds = 1 / (speed * generator.uniform(0.5, 2))
            listed.append(Host(name, site=f"s{site}", seconds_per_point=seconds))
        caches.append(SiteCache(f"s{site}", tuple(names), capacity))
        for store in range(stores):
            links[f"archive{store}", f"s{site}"] = Link(0.0, 1e6 * generator.uniform(1, 8))
    network = Network(links, None, {host.name: host.site for host in listed})
    kept = tuple(
        InputFile(f"f{f}", 1e6 * generator.uniform(20, 400), f"store{f % stores}")
        for f in range(files)
    )
    work = generator.lognormal(np.log(60), 0.6, tasks)
    some = tuple(
        SweepTask(
            f"t{t}",
            float(work[t]),
            tuple(
                f"f{f}"
                for f in generator.choice(
                    files, min(files, int(generator.integers(1, inputs + 1))), replace=False
                )
            )
            if files
            else (),
        )
        for t in range(tasks)
    )
    return SweepWorld(ParameterSweep(some, kept), tuple(caches), HostList(tuple(listed), network))
