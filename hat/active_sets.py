"""The active set: the implementation to run on each host (Berman et al. 1996, 4.3.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf

from hat.modules import Implementation
from hat.template import ApplicationTemplate

Available = Callable[[str, Implementation], bool]
Cost = Callable[[str, Implementation], float | None]


@dataclass(frozen=True, slots=True)
class ActiveSet:
    """The implementation that each host runs.

    Attributes
    ----------
    implementations
        Implementation by host name, in the order of the hosts.
    left_out
        Reason by host name, for hosts that can run no implementation.
    """

    implementations: Mapping[str, Implementation]
    left_out: Mapping[str, str]

    @property
    def sweeps(self) -> int:
        """Iterations between two exchanges of borders: the least number of any host's implementation."""
        return min((one.sweeps for one in self.implementations.values()), default=1)


def nothing_known(host: str, implementation: Implementation) -> None:
    """Return None: no cost was measured (the default of `active_set`)."""
    del host, implementation


def active_set(
    template: ApplicationTemplate,
    hosts: Mapping[str, str],
    available: Available,
    cost: Cost = nothing_known,
    *,
    threads: bool = False,
) -> ActiveSet:
    """Return the fastest available implementation of each host, by measured costs.

    If the template chooses an implementation for a host, the choice is binding. If `cost` returns None, the
    cost is the one measured in the template. An implementation without a measured cost comes last; of equal
    costs the first in the file wins.

    All hosts make the same number of iterations between two exchanges of borders, if the template's choices
    allow it. Of the numbers for which every host has an implementation, the function takes the one at which all
    hosts together are fastest. If the speed of a host is unknown, that number counts as slowest; if all do, the
    least number wins.

    Parameters
    ----------
    hosts
        Platform by host name; empty: unknown.
    available
        Whether a host has the modules and commands that an implementation requires.
    cost
        Seconds per point measured on a host, or None.
    threads
        True: consider implementations by threads, each host being a set of its own. False: those by ranks.

    Examples
    --------
    >>> template = ApplicationTemplate.model_validate({"name": "heat", "program": ["heat"],
    ...     "implementation": [{"name": "slow"}, {"name": "fast", "platforms": "x86_64"}]})
    >>> found = active_set(template, {"ada": "x86_64", "bob": "arm64"}, lambda host, one: True,
    ...     lambda host, one: {"slow": 2e-9, "fast": 1e-9}[one.name])
    >>> {host: one.name for host, one in found.implementations.items()}
    {'ada': 'fast', 'bob': 'slow'}
    """
    usable: dict[str, list[Implementation]] = {}
    left_out: dict[str, str] = {}
    for host, platform in hosts.items():
        wanted = template.active_set.get(host)
        offered = [
            one
            for one in template.implementations
            if wanted in {None, one.name} and one.threads == threads
        ]
        fitting = [one for one in offered if one.runs_on(platform)]
        found = [one for one in fitting if available(host, one)]
        if found:
            usable[host] = found
        else:
            left_out[host] = _reason(wanted, fitting, platform)

    def seconds(host: str, one: Implementation) -> float:
        return _seconds(one, host, hosts[host], cost)

    def fastest(offered: Mapping[str, list[Implementation]]) -> dict[str, Implementation]:
        return {host: min(ones, key=partial(seconds, host)) for host, ones in offered.items()}

    def speed(chosen: Mapping[str, Implementation]) -> float:
        """Return the points per second of all hosts together; 0 if the speed of any host is unknown."""
        every = [seconds(host, one) for host, one in chosen.items()]
        return 0.0 if inf in every else sum(1.0 / each for each in every)

    numbers = sorted({one.sweeps for one in template.implementations})
    offers = [_of_sweeps(sweeps, usable) for sweeps in numbers]
    together = [fastest(offered) for offered in offers if all(offered.values())]
    return ActiveSet(max(together, key=speed) if together else fastest(usable), left_out)


def _of_sweeps(
    sweeps: int, usable: Mapping[str, list[Implementation]]
) -> dict[str, list[Implementation]]:
    return {host: [one for one in ones if one.sweeps == sweeps] for host, ones in usable.items()}


def _seconds(one: Implementation, host: str, platform: str, cost: Cost) -> float:
    measured = cost(host, one)
    if measured is None:
        measured = one.cost(platform)
    return inf if measured is None else measured


def _reason(wanted: str | None, fitting: list[Implementation], platform: str) -> str:
    what = f"the template's choice, {wanted}," if wanted else "no implementation"
    negation = " not" if wanted else ""
    if not fitting:
        return f"{what} is{negation} for platform {platform or 'unknown'}"
    missing = "; ".join(f"{one.name} needs {_needs(one)}" for one in fitting)
    return f"{what} is{negation} available there ({missing})"


def _needs(one: Implementation) -> str:
    return ", ".join((*one.requires.modules, *one.requires.commands)) or "its requirements"
