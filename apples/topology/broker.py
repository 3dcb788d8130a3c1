"""`RequirementBroker`: the external scheduler of Smith et al. 2001, which judges hosts by a requirement.

A scheduler calls a broker without parsing the requirement. A broker for another kind of resource is an entry of
the mapping from the name before the bracket (``GPU[...]``) to its broker.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from apples.topology.allocator import judge
from apples.topology.cpus import CpuSet
from apples.topology.language import RequirementError
from apples.topology.machine import Topology
from apples.topology.requirement import CpusetType, Requirement, Satisfiability, Unsatisfied


@dataclass(frozen=True, slots=True)
class BrokerAnswer:
    """The verdict of a broker on one host.

    Attributes
    ----------
    verdict
        Yes, not now (a job must end first), or never (not on this host as it is).
    reason
        One clause with both numbers; empty for yes.
    found, needed
        The numbers compared.
    key
        The key of the requirement that decides.
    quality
        The rank of a host with the verdict yes; the smallest is the best.
    """

    verdict: Satisfiability
    reason: str = ""
    found: float = 0.0
    needed: float = 0.0
    key: str = ""
    quality: tuple[float, ...] = ()

    def __bool__(self) -> bool:
        """Whether the verdict is yes."""
        return self.verdict is Satisfiability.YES


@dataclass(frozen=True)
class BrokerRequest:
    """A requirement, for some number of CPUs (``-n``)."""

    expression: Requirement
    count: int = 1

    @cached_property
    def requirement(self) -> Requirement:
        """The requirement with this number of CPUs."""
        return replace(self.expression, count=self.count)


class RequirementBroker(ABC):
    """Judges requirements of one name. It books nothing, so an allocation may still be refused.

    A broker uses the information it has at the moment and never waits for a host. The same information gives the
    same answer.
    """

    @abstractmethod
    def satisfies(self, host: str, request: BrokerRequest) -> BrokerAnswer:
        """Return whether a host can satisfy a request: yes, not now or never, with one primary reason.

        Raises
        ------
        RequirementError
            The requirement cannot be read; on every host alike. Permanent.
        """

    def rank(self, hosts: Sequence[str], request: BrokerRequest) -> list[str]:
        """Return the hosts that can satisfy a request now, the best first; equal hosts in the order given."""
        answers = [(self.satisfies(host, request), host) for host in hosts]
        able = [(answer.quality, i, host) for i, (answer, host) in enumerate(answers) if answer]
        return [host for _, _, host in sorted(able)]


def broker_of(
    expression: Requirement, brokers: Mapping[str, RequirementBroker]
) -> RequirementBroker:
    """Return the broker that the name before the bracket selects; `RequirementError` for an unknown name."""
    if expression.broker not in brokers:
        known = ", ".join(sorted(brokers))
        raise RequirementError(
            f"requirement: unknown broker {expression.broker}; known: {known}",
            code="broker-unknown",
            value=expression.broker,
            known=sorted(brokers),
        )
    return brokers[expression.broker]


@dataclass(frozen=True, slots=True)
class HostCpus:
    """The CPUs of one host at one moment.

    Attributes
    ----------
    free
        Free CPUs.
    version
        Changes whenever `free` does.
    """

    topology: Topology
    free: CpuSet
    version: int = 0


class CpusetBroker(RequirementBroker):
    """Judges ``CPUSET[...]`` by each host's topology and free CPUs; ranks by radius, then fewest free.

    An answer is cached until its host's version changes.

    Parameters
    ----------
    known
        Returns the CPUs of a host; None for an unknown host.

    Examples
    --------
    >>> from apples.topology import synthetic
    >>> from apples.topology.language import parse
    >>> machine = synthetic("package:2 pu:4")
    >>> hosts = {"ada": HostCpus(machine, CpuSet.parse("2-5")), "bob": HostCpus(machine, CpuSet.parse("0-3"))}
    >>> broker = CpusetBroker(hosts.get)
    >>> broker.rank(["ada", "bob"], BrokerRequest(parse(""), 4))
    ['bob', 'ada']
    >>> broker.satisfies("ada", BrokerRequest(parse("MAX_RADIUS=1"), 4)).reason
    'the nearest 4 free CPUs lie within 2 hops, MAX_RADIUS is 1'
    """

    REMEMBERED = 100_000
    """Size of the cache of answers; the cache is emptied when it is full."""

    def __init__(self, known: Callable[[str], HostCpus | None]) -> None:
        self._known = known
        self._answers: dict[tuple[str, BrokerRequest], tuple[int, Topology, BrokerAnswer]] = {}

    def satisfies(self, host: str, request: BrokerRequest) -> BrokerAnswer:
        """Return whether a host can satisfy a request."""
        known = self._known(host)
        if known is None:
            return BrokerAnswer(
                Satisfiability.NEVER, f"nothing is known of the CPUs of {host}", 0, 1, "-n"
            )
        remembered = self._answers.get((host, request))
        if remembered and remembered[:2] == (known.version, known.topology):
            return remembered[2]
        answer = _judge(known, request.requirement)
        if len(self._answers) >= self.REMEMBERED:
            self._answers.clear()
        self._answers[host, request] = (known.version, known.topology, answer)
        return answer


def _judge(known: HostCpus, requirement: Requirement) -> BrokerAnswer:
    free = known.free
    if requirement.kind is CpusetType.NONE:
        return BrokerAnswer(Satisfiability.YES, quality=(0.0, float(-len(free))))
    found = judge(known.topology, free.mask, requirement)
    if isinstance(found, Unsatisfied):
        return BrokerAnswer(found.verdict, found.reason, found.found, found.needed, found.key)
    return BrokerAnswer(Satisfiability.YES, quality=(found, float(len(free))))
