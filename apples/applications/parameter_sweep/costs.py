"""`SweepCosts`: the seconds of each task and each transfer of a sweep, under one weather, as arrays.

Rows are lanes (a slot of a host), caches and files; a plan reads nothing else. Lanes are ordered by site and by
cache, so that the lanes of a cache, and the caches of a site, are contiguous.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apples.applications.host_inputs import speeds_of
from apples.applications.parameter_sweep.tasks import ParameterSweep, SiteCache, check_places
from apples.weather.conditions import Conditions

Numbers = NDArray[np.float64]
Indices = NDArray[np.int64]

MIN_TRANSFER_SECONDS = 1e-9
"""Seconds of any transfer at least, so that even a small file takes its turn on the link."""


@dataclass(frozen=True)
class SweepCosts:
    """The numbers of one decision.

    Attributes
    ----------
    sweep, caches
        The planned sweep; its caches, those of a site contiguous.
    hosts
        By lane: its host.
    first_lane
        By cache: its first lane; after the last cache the number of lanes.
    site
        By cache: the number of its site.
    compute
        By lane and task: seconds.
    transfer
        By file and cache: seconds on the link; 0 if the cache has the file from the beginning.
    source
        By file: the number of the site of its storage; files of one site share its link to another.
    missing
        By file and cache: whether the cache lacks the file at first.
    assumed
        Values that were neither given nor measured, one line each.
    """

    sweep: ParameterSweep
    caches: tuple[SiteCache, ...]
    hosts: tuple[str, ...]
    first_lane: tuple[int, ...]
    site: tuple[int, ...]
    compute: Numbers
    transfer: Numbers
    source: tuple[int, ...]
    missing: NDArray[np.bool_]
    assumed: tuple[str, ...] = ()

    @property
    def cache_of_lane(self) -> Indices:
        """The number of each lane's cache."""
        return np.repeat(np.arange(len(self.caches)), np.diff(self.first_lane))


def sweep_costs(
    sweep: ParameterSweep, caches: Sequence[SiteCache], conditions: Conditions
) -> SweepCosts:
    """Return the costs of a sweep under `conditions`, on the hosts of `caches`.

    A task takes its work times the host's `seconds_per_point`, divided by the forecast share of a CPU that each
    slot gets while all slots are busy. A host without that figure gets the median of the others.

    Raises
    ------
    UsageError
        A file or cache is on an unknown host. Permanent.
    """
    listing = conditions.hosts
    check_places(sweep, caches, listing)
    sites = {host.site: number for number, host in enumerate(listing)}
    caches = sorted(caches, key=lambda cache: sites[listing[cache.hosts[0]].site])
    lanes = [
        listing[name]
        for cache in caches
        for name in cache.hosts
        for _ in range(listing[name].slots)
    ]
    counts = [sum(listing[name].slots for name in cache.hosts) for cache in caches]
    seconds, assumed = speeds_of([listing[n] for cache in caches for n in cache.hosts])
    rate = np.array([seconds[h.name] / conditions.share(h, h.slots) for h in lanes])
    heads = [listing[cache.hosts[0]] for cache in caches]
    stores = [listing[file.storage] for file in sweep.files]
    shape = (len(sweep.files), len(caches))
    missing = np.array(
        [[file.storage not in cache.hosts for cache in caches] for file in sweep.files], dtype=bool
    ).reshape(shape)
    links = {
        (store.name, head.name): conditions.link(store, head).link
        for store in {store.name: store for store in stores}.values()
        for head in heads
        if store is not head
    }
    transfer = np.zeros(shape)
    for f, (file, store) in enumerate(zip(sweep.files, stores, strict=True)):
        for k in np.flatnonzero(missing[f]):
            seconds_there = links[store.name, heads[k].name].seconds(file.size)
            transfer[f, k] = max(MIN_TRANSFER_SECONDS, seconds_there)
    return SweepCosts(
        sweep,
        tuple(caches),
        tuple(host.name for host in lanes),
        tuple(np.concatenate([[0], np.cumsum(counts)]).tolist()),
        tuple(sites[head.site] for head in heads),
        rate[:, None] * np.array([task.work for task in sweep.tasks])[None, :],
        transfer,
        tuple(sites[store.site] for store in stores),
        missing,
        (
            *assumed,
            *conditions.unknown_links(list({h.name: h for h in [*heads, *stores]}.values())),
        ),
    )
