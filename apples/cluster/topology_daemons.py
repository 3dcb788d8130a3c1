"""`TopologyDaemons`: the CPUs of hosts that jobs share, as the topology daemon of each host gives them.

Each host has a daemon of its own, as a node of SD-Policy has its node manager. A daemon of this machine is asked
over its socket; that of another machine by a host agent there (`apples.cluster.daemon_connection`). An allocation
has the name of the attempt. If an attempt comes to a host where another runs, the daemon asks that one to give up
its part and waits until it has adapted; at the end of either the daemon gives the other all.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from apples.cluster.daemon_connection import DaemonConnection, DaemonSilence
from apples.errors import ApplesError, LaunchError, UsageError, coded
from apples.launch.remote import bootstrap, ssh
from apples.launch.remote.ask import printable
from apples.launch.remote.leftovers import remains
from apples.resources import Host, HostList
from apples.topology.cpus import CpuSet
from apples.topology.daemon.client import TopologyClient, error_of
from apples.topology.daemon.protocol import PROTOCOL

ANSWER_SECONDS = 20.0
"""For an answer of a daemon, which waits for mates: longer than it lets them take (5 s)."""
ASKED_AT_ONCE = 32
"""Daemons that are asked at the same time when a scheduler starts."""
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
        Host -> the socket of its daemon, there.
    cpus
        Of each host; 0: no job shares a host, and a daemon is asked for jobs with a requirement only.
    sharing_factor
        The part of a mate's CPUs that a daemon takes; 0: no job shares a host, so that it does not matter.
    silent
        Hosts whose daemon did not answer the first question, and why.
    listed
        Returns the host list, which says how other machines are reached; None: all hosts are of this machine.
    far
        Names of the hosts that are other machines.
    has_cpus
        Whether an attempt may have been given CPUs: else no daemon is asked when it leaves a host.
    """

    def __init__(
        self,
        sockets: Mapping[str, str],
        cpus: int,
        sharing_factor: float,
        silent: Mapping[str, str] = NOBODY,
        listed: Callable[[], HostList] | None = None,
        far: Collection[str] = (),
        has_cpus: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._has_cpus = has_cpus
        self.sockets, self.cpus, self.sharing_factor = dict(sockets), cpus, sharing_factor
        self.silent = silent
        self._listed = listed
        self._far: dict[str, DaemonConnection] = {}
        for host in far:
            self._reach(host)

    @classmethod
    def of(
        cls,
        hosts: HostList,
        sharing_factor: float,
        far: Collection[str] = (),
        listed: Callable[[], HostList] | None = None,
        has_cpus: Callable[[str], bool] = lambda _: True,
    ) -> TopologyDaemons:
        """Return those of a host list, having asked every daemon.

        Parameters
        ----------
        far
            Names of the hosts that are other machines.
        listed
            Returns the list as it is now, if it may change.

        Raises
        ------
        UsageError
            A host has no daemon or that of another, they have not as many CPUs each, or one takes another part of
            a mate's than the policy. Permanent.
        LaunchError
            No daemon answers. Transient.
        """
        sockets = {
            host.name: _checked_socket(host.name, host.topologyd, str(hosts.source))
            for host in hosts
        }
        machines = {host.name: f"{host.user}@{host.reached_at}:" for host in hosts}
        places = Counter(
            (machines[name], socket) if name in far else ("", os.path.realpath(socket))
            for name, socket in sockets.items()
        )
        (_, socket), most = places.most_common(1)[0]
        if most > 1:
            raise UsageError(
                f"{hosts.source}: {most} hosts have the topology daemon at {socket}: each needs its own",
                code="daemon-shared",
                file=str(hosts.source),
                field="topologyd",
                value=socket,
            )
        silent = dict[str, str]()
        self = cls(sockets, 0, sharing_factor, silent, listed or (lambda: hosts), far, has_cpus)
        try:
            self.cpus = self._ask_all(silent, str(hosts.source))
        except BaseException:
            self.close()
            raise
        return self

    def _ask_all(self, silent: dict[str, str], source: str) -> int:
        """Return how many CPUs each host has; note the hosts whose daemon does not answer."""
        found = dict[str, int]()
        with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
            asked = {name: pool.submit(self.check, name) for name in self.sockets}
        for name, answer in asked.items():
            try:
                found[name] = answer.result()
            except SilentDaemonError as error:
                silent[name] = str(error)
        if not found:
            raise LaunchError(
                next(iter(silent.values())), code="daemon-unreachable", hosts=list(silent)
            )
        if len(set(found.values())) > 1:
            many = ", ".join(f"{name} has {cpus}" for name, cpus in found.items())
            raise UsageError(
                f"{source}: shared hosts must have equal numbers of CPUs: {many}",
                code="cpus-differ",
                file=source,
                cpus=found,
            )
        return next(iter(found.values()))

    def join(self, host: Host, *, here: bool) -> None:
        """Use one more host; a host without a daemon is found by `look`."""
        self.sockets[host.name] = host.topologyd
        if not here:
            self._reach(host.name)

    def is_far(self, host: str) -> bool:
        """Whether a host is another machine."""
        return host in self._far

    def places(self) -> list[str]:
        """Return the daemons, by the names under which a scheduler claims them."""
        hosts = None if self._listed is None else self._listed()
        return [
            os.path.realpath(socket)
            if hosts is None or name not in self._far
            else f"{hosts[name].user}@{hosts[name].reached_at}:{socket}"
            for name, socket in self.sockets.items()
            if socket
        ]

    def close(self) -> None:
        """End the host agents; what daemons have given stays."""
        DaemonConnection.close_all(self._far.values())

    def _reach(self, name: str) -> None:
        def command() -> list[str]:
            assert self._listed is not None  # noqa: S101 - for the type checker
            hosts = self._listed()
            return ssh.command(ssh.reach(hosts[name], hosts), bootstrap.words(site=False))

        self._far.setdefault(name, DaemonConnection(name, command))

    def allocate(self, job: str, hosts: Iterable[str], requirement: str = "") -> None:
        """Have an attempt have all CPUs of each host, or its part of them where another has them.

        With a requirement it has as many as the host has slots, which meet it and which no other job has.
        A daemon that has given it CPUs answers with those again.

        Raises
        ------
        SilentDaemonError
            A daemon does not answer: whether it has given CPUs is not known. Or it is of another
            version. Ask again.
        ApplesError
            The refusal of a daemon. What was given on other hosts stays, in both cases.
        """
        for host in hosts:
            _checked_socket(host, self.sockets.get(host, ""), self._source())
            wanted: dict[str, Any] = {"count": self.cpus, "least": 1, "share": True}
            if requirement:
                slots = self.cpus if self._listed is None else self._listed()[host].slots
                wanted = {"count": slots, "requirement": requirement}
            request = {"job": job, "until": "idle", **wanted}
            try:
                self._answer(host, "allocate", {}, **request)
            except SilentDaemonError:
                raise
            except ApplesError:
                self.status(host)  # a daemon of an earlier version may not know the request
                raise

    def release(self, job: str, host: str) -> None:
        """Take an attempt's CPUs on a host back, if it has any; whatever of it is among them is killed.

        Raises
        ------
        ApplesError
            The daemon does not answer, or something there cannot be killed.
        """
        for given in self._answer(host, "jobs", {"jobs": list}, job=job)["jobs"]:
            number = given.get("number") if isinstance(given, dict) else given
            try:
                self._answer(host, "deallocate", {}, job=job, number=number)
            except UsageError as refusal:
                if refusal.code != "job-unknown":  # the answer to the request before was lost
                    raise

    def check(self, host: str) -> int:
        """Return how many CPUs the daemon of a host gives.

        Raises
        ------
        SilentDaemonError
            It does not answer, or is of another version.
        UsageError
            It takes another part of a mate's CPUs than is wanted, if jobs share hosts.
        """
        said = self.status(host)
        taken = said["sharing_factor"]
        if self.sharing_factor and taken != self.sharing_factor:
            raise UsageError(
                f"{self._named(host)} takes {taken:g} of a mate's CPUs, and the policy "
                f"{self.sharing_factor:g} (--sharing-factor of the one, --option sharing_factor of the other)",
                code="sharing-factors-differ",
                socket=self.sockets[host],
                value=taken,
                bound=self.sharing_factor,
            )
        return len(CpuSet.parse(said["universe"]))

    def status(self, host: str) -> dict[str, Any]:
        """Return the status of a daemon that takes the requests of this version."""
        status = self._answer(host, "status", {"sharing_factor": float, "universe": str})
        protocol = printable(str(status.get("protocol", 1)))
        if protocol != str(PROTOCOL):
            raise SilentDaemonError(
                f"{self._named(host)} is of another version (protocol {protocol}, here {PROTOCOL}): "
                f"restart apples topologyd on {host}",
                code="daemon-outdated",
                host=host,
                socket=self.sockets[host],
                value=protocol,
                expected=PROTOCOL,
            )
        return status

    def look(self, host: Host, jobs: Mapping[str, bool]) -> Mapping[str, int]:
        """Take back the CPUs of attempts that have left a host; return for each whether something is left, 1 or 0.

        On another machine that is also any process of the attempt: those of one that is over are ended first.

        Raises
        ------
        LaunchError
            The host has no daemon, its daemon does not answer, or does not give what it gave; one that came back
            may be another.
        """
        if not self.cpus:
            return self._left(host, jobs)
        try:
            _checked_socket(host.name, self.sockets[host.name], self._source())
            cpus = self.check(host.name)
        except UsageError as error:
            fields = {**error.fields, "host": host.name}
            raise LaunchError(str(error), code="daemon-changed", **fields) from None
        if cpus != self.cpus:
            raise LaunchError(
                f"{self._named(host.name)} gives {cpus} CPUs, and those of the other hosts {self.cpus} each",
                code="daemon-changed",
                host=host.name,
                value=cpus,
                bound=self.cpus,
            )
        return self._left(host, jobs)

    def _left(self, host: Host, jobs: Mapping[str, bool]) -> dict[str, int]:
        """Take back the CPUs of attempts; return for each whether something is left, 1 or 0."""
        there: Mapping[str, int] = {}
        if self._listed is not None and self.is_far(host.name) and (jobs or not self.cpus):
            hosts = self._listed()  # how it is reached may be new
            there = remains(hosts[host.name], hosts, jobs)
        found = {job: int(there.get(job, 0) > 0) for job in jobs}
        for job, left in found.items():
            if not left and self.sockets.get(host.name) and self._has_cpus(job):
                found[job] = 1
                with suppress(ApplesError):  # it is asked again
                    self.release(job, host.name)
                    found[job] = 0
        return found

    def without(self) -> list[str]:
        """Return the hosts that have no daemon."""
        return [host for host, socket in self.sockets.items() if not socket]

    def _source(self) -> str:
        return "" if self._listed is None else str(self._listed().source)

    def _named(self, host: str) -> str:
        where = f" on {host}" if self.is_far(host) else ""
        return f"the topology daemon at {self.sockets[host]}{where}"

    def _answer(
        self, host: str, verb: str, has: Mapping[str, type], **fields: Any
    ) -> dict[str, Any]:
        """Return a daemon's answer after checking its fields: another program may listen on the socket.

        Raises
        ------
        SilentDaemonError
            It does not answer, or its answer is not to the request; one line, with the socket.
        ApplesError
            Its refusal, in one line.
        """
        place, socket = self._named(host), self.sockets[host]
        try:
            said = self._line(host, {"verb": verb, **fields})
        except (ApplesError, ConnectionError) as silence:
            named = "" if socket in str(silence) else f"{place}: "
            raise SilentDaemonError(
                printable(f"{named}{silence}"), host=host, socket=socket
            ) from None
        if said is None:
            raise SilentDaemonError(
                f"{place} did not answer {verb} in {ANSWER_SECONDS:g} s",
                host=host,
                socket=socket,
                value=verb,
                seconds=ANSWER_SECONDS,
            )
        refusal = error_of(said)
        if said.get("ok"):
            lacking = [
                field for field, kind in has.items() if not isinstance(said.get(field), kind)
            ]
            if not lacking:
                return said
            refusal = SilentDaemonError(
                f"{place} answers {verb} without {lacking[0]}: it is none, or of another version",
                code="topology-daemon-invalid",
                host=host,
                socket=socket,
                field=lacking[0],
            )
        elif not said.get("error"):
            refusal = SilentDaemonError(
                f"{place}: {refusal}", code=refusal.code, host=host, socket=socket
            )
        named = "" if isinstance(refusal, SilentDaemonError) else f"{host}: "
        raise type(refusal)(printable(f"{named}{refusal}"), **coded(refusal))

    def _line(self, host: str, request: dict[str, Any]) -> dict[str, Any] | None:
        """Return the line of a daemon; None: it did not come in time."""
        socket, far = self.sockets[host], self._far.get(host)
        if far is not None:
            try:
                return far.ask(socket, request, ANSWER_SECONDS)
            except DaemonSilence as silence:
                if silence.absent:
                    raise ConnectionError(
                        f"{host}: no topology daemon at {socket}: {silence}; start one there with: "
                        "apples topologyd"
                    ) from None
                raise ConnectionError(
                    f"{host}: cannot connect to the topology daemon at {socket}: {silence}"
                ) from None
            except ConnectionError as silence:
                raise ConnectionError(f"{host}: {silence}") from None
        with TopologyClient(Path(socket), seconds=ANSWER_SECONDS) as client:
            client.send(request)
            return client.receive(ANSWER_SECONDS)


def _checked_socket(host: str, socket: str, source: str) -> str:
    """Return the socket of a host's daemon.

    Raises
    ------
    UsageError
        The host has none. Permanent.
    """
    if not socket:
        where = f"{source}: {host}" if source else host
        raise UsageError(
            f"{where}: topologyd: missing; name the socket of its topology daemon "
            '(topologyd = "/path/of/its/socket")',
            code="field-missing",
            file=source or None,
            field="topologyd",
            host=host,
        )
    return socket
