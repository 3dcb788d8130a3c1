"""`TopologyDaemons`: the CPUs of hosts that jobs share, as the topology daemon of each host gives them.

Each host is a part of this machine with a daemon of its own, as a node of SD-Policy has its node manager. An
allocation has the name of the attempt. Who comes to a host where another is has the daemon ask that one to give up
its part and waits until it has adapted; at the end of either the daemon gives the other all.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from apples.errors import ApplesError, LaunchError, UsageError, coded
from apples.launch.remote.ask import printable
from apples.resources import Host, HostList
from apples.topology.cpus import CpuSet
from apples.topology.daemon.client import TopologyClient, error_of

ANSWER_SECONDS = 20.0
"""For an answer of a daemon, which waits for mates: longer than it lets them take (5 s)."""
NOBODY: Mapping[str, str] = MappingProxyType({})


class SilentDaemonError(LaunchError):
    """A topology daemon is absent, does not answer in time, or sends an invalid answer. Transient.

    Attributes
    ----------
    host
        The host of the daemon.
    """

    code = "daemon-unreachable"

    def __init__(self, reason: str, *, code: str = "", host: str = "", **fields: Any) -> None:
        super().__init__(reason, code=code, host=host or None, **fields)
        self.host = host


class TopologyDaemons:
    """Has CPUs given to attempts of jobs, and taken back.

    Parameters
    ----------
    sockets
        Host -> the socket of its daemon.
    cpus
        Of each host.
    sharing_factor
        The part of a mate's CPUs that a daemon takes.

    Attributes
    ----------
    silent
        Hosts whose daemon did not answer the first question, and why.
    """

    def __init__(
        self,
        sockets: Mapping[str, str],
        cpus: int,
        sharing_factor: float,
        silent: Mapping[str, str] = NOBODY,
    ) -> None:
        self.sockets, self.cpus, self.sharing_factor = dict(sockets), cpus, sharing_factor
        self.silent = silent

    @classmethod
    def of(cls, hosts: HostList, sharing_factor: float) -> TopologyDaemons:
        """Return those of a host list, having asked every daemon.

        Raises
        ------
        UsageError
            A host has no daemon or that of another, they have not as many CPUs each, or one takes another part of
            a mate's than the policy. Permanent.
        LaunchError
            No daemon answers. Transient.
        """
        sockets = {host.name: host.topologyd for host in hosts}
        for name, socket in sockets.items():
            if not socket:
                raise UsageError(
                    f"{hosts.source}: {name}: topologyd: missing; name the socket of its topology daemon "
                    '(topologyd = "/path/of/its/socket")',
                    code="field-missing",
                    file=str(hosts.source),
                    field="topologyd",
                    host=name,
                )
        places = Counter(os.path.realpath(socket) for socket in sockets.values())
        socket, most = places.most_common(1)[0]
        if most > 1:
            raise UsageError(
                f"{hosts.source}: {most} hosts have the topology daemon at {socket}: each needs its own",
                code="daemon-shared",
                file=str(hosts.source),
                field="topologyd",
                value=socket,
            )
        found, silent = dict[str, int](), dict[str, str]()
        for name, socket in sockets.items():
            try:
                found[name] = _asked(socket, sharing_factor)
            except SilentDaemonError as error:
                silent[name] = str(error)
        if not found:
            raise LaunchError(
                next(iter(silent.values())), code="daemon-unreachable", hosts=list(silent)
            )
        if len(set(found.values())) > 1:
            many = ", ".join(f"{name} has {cpus}" for name, cpus in found.items())
            raise UsageError(
                f"{hosts.source}: shared hosts must have equal numbers of CPUs: {many}",
                code="cpus-differ",
                file=str(hosts.source),
                cpus=found,
            )
        return cls(sockets, next(iter(found.values())), sharing_factor, silent)

    def allocate(self, job: str, hosts: Iterable[str], epoch: int = 0) -> None:
        """Have an attempt have all CPUs of each host, or its part of them where another has them.

        `epoch` numbers the orders by which it comes to hosts: a daemon answers what it was asked before as before,
        and an attempt may come back to a host that it has left.

        Raises
        ------
        SilentDaemonError
            A daemon does not answer: whether it has given CPUs is not known. Ask again.
        ApplesError
            The refusal of a daemon. What was given on other hosts stays, in both cases.
        """
        for host in hosts:
            with _of(host):
                _answer(
                    self.sockets[host], "allocate", {}, request=f"give-{job}-{epoch}", job=job, count=self.cpus,
                    least=1, share=True, until="told",
                )  # fmt: skip

    def release(self, job: str, host: str) -> None:
        """Take an attempt's CPUs on a host back, if it has any; whatever of it is among them is killed.

        Raises
        ------
        ApplesError
            The daemon does not answer, or something there cannot be killed.
        """
        socket = self.sockets[host]
        for given in _answer(socket, "jobs", {"jobs": list}, job=job)["jobs"]:
            number = given.get("number") if isinstance(given, dict) else given
            _answer(socket, "deallocate", {}, request=f"take-{job}-{number}", job=job)

    def check(self, host: str) -> int:
        """Return how many CPUs the daemon of a host gives.

        Raises
        ------
        SilentDaemonError
            It does not answer.
        UsageError
            It takes another part of a mate's CPUs than is wanted.
        """
        with _of(host):
            return _asked(self.sockets[host], self.sharing_factor)

    def look(self, host: Host, jobs: Mapping[str, bool]) -> Mapping[str, int]:
        """Take back the CPUs of attempts that have left a host; return for each whether it still has some, 1 or 0.

        Raises
        ------
        LaunchError
            Its daemon does not answer, or does not give what it gave; one that came back may be another.
        """
        try:
            cpus = self.check(host.name)
        except UsageError as error:
            fields = {**error.fields, "host": host.name}
            raise LaunchError(str(error), code="daemon-changed", **fields) from None
        if cpus != self.cpus:
            raise LaunchError(
                f"the topology daemon at {self.sockets[host.name]} gives {cpus} CPUs, and those of the other "
                f"hosts {self.cpus} each",
                code="daemon-changed",
                host=host.name,
                value=cpus,
                bound=self.cpus,
            )
        found = dict.fromkeys(jobs, 1)
        for job in jobs:
            with suppress(ApplesError):  # it is asked again
                self.release(job, host.name)
                found[job] = 0
        return found


@contextmanager
def _of(host: str) -> Iterator[None]:
    """Have a daemon that does not answer be known as that of a host."""
    try:
        yield
    except SilentDaemonError as error:
        raise SilentDaemonError(str(error), **{**coded(error), "host": host}) from None


def _asked(socket: str, sharing_factor: float) -> int:
    """Return how many CPUs a daemon gives."""
    said = _answer(socket, "status", {"sharing_factor": float, "universe": str})
    taken = said["sharing_factor"]
    if taken != sharing_factor:
        raise UsageError(
            f"the topology daemon at {socket} takes {taken:g} of a mate's CPUs, and the "
            f"policy {sharing_factor:g} (--sharing-factor of the one, --option sharing_factor of the other)",
            code="sharing-factors-differ",
            socket=socket,
            value=taken,
            bound=sharing_factor,
        )
    return len(CpuSet.parse(said["universe"]))


def _answer(socket: str, verb: str, has: Mapping[str, type], **fields: Any) -> dict[str, Any]:
    """Return a daemon's answer, which has some fields; what is no daemon of ours may answer anything.

    Raises
    ------
    SilentDaemonError
        It does not answer, or what it says is not what was asked; one line, with the socket.
    ApplesError
        Its refusal, in one line.
    """
    place = f"the topology daemon at {socket}"
    try:
        with TopologyClient(Path(socket), seconds=ANSWER_SECONDS) as client:
            client.send({"verb": verb, **fields})
            said = client.receive(ANSWER_SECONDS)
    except ApplesError as silence:
        named = "" if socket in str(silence) else f"{place}: "
        raise SilentDaemonError(printable(f"{named}{silence}"), socket=socket) from None
    if said is None:
        raise SilentDaemonError(
            f"{place} did not answer {verb} in {ANSWER_SECONDS:g} s",
            socket=socket,
            value=verb,
            seconds=ANSWER_SECONDS,
        )
    refusal = error_of(said)
    if said.get("ok"):
        lacking = [field for field, kind in has.items() if not isinstance(said.get(field), kind)]
        if not lacking:
            return said
        refusal = SilentDaemonError(
            f"{place} answers {verb} without {lacking[0]}: it is none, or of another version",
            code="topology-daemon-invalid",
            socket=socket,
            field=lacking[0],
        )
    elif not said.get("error"):
        refusal = SilentDaemonError(f"{place}: {refusal}", **{**coded(refusal), "socket": socket})
    raise type(refusal)(printable(str(refusal)), **coded(refusal))
