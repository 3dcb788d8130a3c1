"""Chains: orders of hosts as strip neighbours (Berman et al. 1996, Figure 3).

A chain starts at a locus; the host nearest to its tail is appended until no host is left. `limits` leaves out
hosts beyond the maximum logical distance from the locus. For many hosts the chain is built site by site: inside
a site, hosts without a link of their own have equal borders, so no pair is computed twice and no N x N
structure exists.

The nearest host is defined by a logical distance, which depends on the application's use of the hosts. A
`Distance` is a plain callable: ``distance(host, others, information)`` returns one number for each of `others`.
A user's own distance is ``--distance module:name`` or ``file.py:name``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from apples.agent.information import InformationPool
from apples.errors import ModelError, place_of_function, repr_of
from apples.resources import Host

Distances = npt.NDArray[np.float64]
Distance = Callable[[Host, Sequence[Host], InformationPool], Distances]


def communication(host: Host, others: Sequence[Host], information: InformationPool) -> Distances:
    """Return the seconds two hosts would spend at their common border in one iteration."""
    return information.model.borders(host, others)


def communication_between(hosts: Sequence[Host], information: InformationPool) -> Distance:
    """Return `communication` for these hosts with a cache, so that each pair is computed once."""
    index = {host.name: i for i, host in enumerate(hosts)}
    pairs = information.model.border_matrix(hosts)

    def distance(host: Host, others: Sequence[Host], information: InformationPool) -> Distances:
        del information
        return np.asarray(pairs[index[host.name], [index[other.name] for other in others]])

    return distance


def paper(host: Host, others: Sequence[Host], information: InformationPool) -> Distances:
    """Return n^2 |P_i - P_j| + border: near hosts have similar speeds and a good connection.

    Berman et al. 1996, section 2.3 (the formula is an image there; rebuilt from its words). The first term puts
    equally fast hosts of different sites side by side, with up to 2.7 times the optimum on two sites. It is
    therefore not the default.
    """
    total = information.application.rows
    p = information.model.seconds_per_row((host, *others), total)
    return np.asarray(total * np.abs(p[1:] - p[0]) + information.model.borders(host, others))


def measured(
    distance: Distance, host: Host, others: Sequence[Host], information: InformationPool
) -> list[float]:
    """Return the distances to some hosts; raise `ModelError` unless there is one number for each."""
    given = distance(host, others, information)
    try:
        found = np.asarray(given, dtype=float)
    except (TypeError, ValueError):
        found = np.array(np.nan)
    if found.shape != (len(others),) or np.isnan(found).any():
        place, shown = place_of_function(distance), repr_of(given)
        where = f"{place['file']}:{place['line']}: " if place else ""
        raise ModelError(
            f"{where}the distance must give a number for each of {len(others)} hosts, not {shown}",
            code="distance-invalid",
            value=shown,
            bound=len(others),
            **place,
        )
    return [float(x) for x in found]


DISTANCES: Mapping[str, Distance] = {"communication": communication, "paper": paper}


Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

FEW_HOSTS = 64
"""Up to this number, every host is a locus and every distance is computed; above, chains are built by site."""


def chain(
    locus: int,
    hosts: Sequence[Host],
    speed: Sequence[float],
    distance: Distance,
    information: InformationPool,
) -> list[int]:
    """Return indices of hosts: the locus, then always the host nearest to the tail (Figure 3).

    Ties go to the faster host (`speed` is seconds per row), then to the host listed first.
    """
    order, left = [locus], [i for i in range(len(hosts)) if i != locus]
    while left:
        distances = measured(distance, hosts[order[-1]], [hosts[i] for i in left], information)
        nearest = min(range(len(left)), key=lambda k: (distances[k], speed[left[k]], left[k]))
        order.append(left.pop(nearest))
    return order


@dataclass(frozen=True)
class _Block:
    """The hosts of one site in chain order, and the borders inside it."""

    hosts: list[int]
    speed: Floats
    inner: Floats


def site_chains(
    hosts: Sequence[Host], speed: Floats, information: InformationPool
) -> Iterator[tuple[Indices, Floats]]:
    """Yield one chain from each site: indices, and the border after each host (0 after the last).

    Inside a site the best connected hosts come first, and of equal hosts the faster. The next site is the
    nearest to the last site.
    """
    blocks = _blocks(hosts, speed, information)
    model = information.model
    # The fastest host represents its site in the distances between sites.
    between = model.border_matrix([hosts[block.hosts[0]] for block in blocks])
    fastest = np.array([block.speed[0] for block in blocks])
    nearest = [np.lexsort((fastest, steps)) for steps in between]
    for start in range(len(blocks)):
        order, left = [start], np.ones(len(blocks), dtype=bool)
        left[start] = False
        while left.any():
            near = nearest[order[-1]]
            order.append(int(near[left[near].argmax()]))
            left[order[-1]] = False
        indices = np.concatenate([np.array(blocks[k].hosts, dtype=np.int64) for k in order])
        borders = []
        for here, after in zip(order, [*order[1:], None], strict=True):
            borders.append(blocks[here].inner)
            if after is not None:
                tail, head = hosts[blocks[here].hosts[-1]], hosts[blocks[after].hosts[0]]
                borders.append(model.borders(tail, [head]))
        yield indices, np.append(np.concatenate(borders), 0.0)


def _blocks(hosts: Sequence[Host], speed: Floats, information: InformationPool) -> list[_Block]:
    """Return each site's hosts, its fastest first and the others by their border with it."""
    by_site: dict[str, list[int]] = {}
    for i, host in enumerate(hosts):
        by_site.setdefault(host.site, []).append(i)
    blocks = []
    for members in by_site.values():
        centre = min(members, key=lambda i: (speed[i], i))
        rest = [i for i in members if i != centre]
        reach = information.model.borders(hosts[centre], [hosts[i] for i in rest])
        near = dict(zip(rest, reach, strict=True))
        order = [centre, *sorted(rest, key=lambda i: (near[i], speed[i], i))]
        inner = np.array(
            [float(information.model.borders(hosts[a], [hosts[b]])[0]) for a, b in pairwise(order)]
        )
        blocks.append(_Block(order, speed[order], inner))
    return blocks
