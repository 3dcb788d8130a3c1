"""`TopologyDaemons`: the CPUs of hosts that jobs share, as the topology daemon of each host allocates them.

Each host has its own daemon, as a node of SD-Policy has its node manager. A daemon of this machine is asked
over its socket, and a daemon of another machine through a host agent there (`apples.cluster.daemon_connection`).
An allocation has the name of the attempt. If an attempt comes to a host with another attempt, the daemon asks the
latter to give up a part of the CPUs and waits until it has adapted. When either ends, the other gets all CPUs.
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
"""Time limit of a daemon's answer; longer than the 5 s that a daemon gives mates to adapt."""
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
    """Allocates CPUs to attempts of jobs, and takes them back.

    Parameters
    ----------
    sockets
        Host -> the socket of its daemon, as a path on that host.
    cpus
        CPUs of each host; 0: no job shares a host, and daemons serve only jobs with a requirement.
    sharing_factor
        The part of a mate's CPUs that a daemon takes; 0: no job shares a host, so it does not matter.
    silent
        Hosts with daemons that did not answer the first question, with the reason.
    listed
        Returns the host list, which defines how to reach other machines; None: all hosts are of this machine.
    far
        Names of the hosts that are other machines.
    has_cpus
        Whether an attempt may have CPUs; if not, no daemon is asked when it leaves a host.
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
        """Return the daemons of a host list after a query of each daemon.

        Parameters
        ----------
        far
            Names of the hosts that are other machines.
        listed
            Returns the present list, if it may change.

        Raises
        ------
        UsageError
            A host has no daemon or shares one, their numbers of CPUs differ, or a daemon takes another part of a
            mate's CPUs than the policy. Permanent.
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
        """Return the number of CPUs of each host; note the hosts with daemons that do not answer."""
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
        """Use a further host; `look` finds out if it has no daemon."""
        self.sockets[host.name] = host.topologyd
        if not here:
            self._reach(host.name)

    def is_far(self, host: str) -> bool:
        """Whether a host is another machine."""
        return host in self._far

    def places(self) -> list[str]:
        """Return the names by which a scheduler claims its daemons: socket paths, with user and host if remote."""
        hosts = None if self._listed is None else self._listed()
        return [
            os.path.realpath(socket)
            if hosts is None or name not in self._far
            else f"{hosts[name].user}@{hosts[name].reached_at}:{socket}"
            for name, socket in self.sockets.items()
            if socket
        ]

    def close(self) -> None:
        """End the host agents; allocated CPUs stay allocated."""
        DaemonConnection.close_all(self._far.values())

    def _reach(self, name: str) -> None:
        def command() -> list[str]:
            assert self._listed is not None  # noqa: S101 - for the type checker
            hosts = self._listed()
            return ssh.command(ssh.reach(hosts[name], hosts), bootstrap.words(site=False))

        self._far.setdefault(name, DaemonConnection(name, command))

    def allocate(self, job: str, hosts: Iterable[str], requirement: str = "") -> None:
        """Allocate all CPUs of each host to an attempt, or its part of them if another attempt has them.

        With a requirement it gets as many CPUs as the host has slots; they meet it, and no other job has them. A
        repeated request gets the same CPUs again.

        Raises
        ------
        SilentDaemonError
            A daemon does not answer, so its allocation is unknown; or it is of another version. Ask again.
        ApplesError
            A daemon refuses. In both cases the allocations on other hosts stay.
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
                self.status(host)  # a daemon of an earlier version may not support the request
                raise

    def release(self, job: str, host: str) -> None:
        """Take back an attempt's CPUs on a host, if it has any; its processes on them are killed.

        Raises
        ------
        ApplesError
            The daemon does not answer, or a process there cannot be killed.
        """
        for given in self._answer(host, "jobs", {"jobs": list}, job=job)["jobs"]:
            number = given.get("number") if isinstance(given, dict) else given
            try:
                self._answer(host, "deallocate", {}, job=job, number=number)
            except UsageError as refusal:
                if refusal.code != "job-unknown":  # the answer to an earlier request was lost
                    raise

    def check(self, host: str) -> int:
        """Return the number of CPUs of a host's daemon.

        Raises
        ------
        SilentDaemonError
            It does not answer, or is of another version.
        UsageError
            Jobs share hosts, and its part of a mate's CPUs differs from that of the policy.
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
        """Return the status of a daemon, after a check of its protocol version."""
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
        """Take back the CPUs of attempts that have left a host; return 1 for each attempt still there, else 0.

        On another machine, an attempt is there as long as it has processes. The processes of an attempt that is
        over are killed first.

        Raises
        ------
        LaunchError
            The host has no daemon, its daemon does not answer, or gives other CPUs than before; after a restart it
            may be another daemon.
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
                f"{self._named(host.name)} offers {cpus} CPUs, the daemons of the other hosts {self.cpus} each",
                code="daemon-changed",
                host=host.name,
                value=cpus,
                bound=self.cpus,
            )
        return self._left(host, jobs)

    def _left(self, host: Host, jobs: Mapping[str, bool]) -> dict[str, int]:
        """Take back the CPUs of attempts; return 1 for each attempt that is still there, else 0."""
        there: Mapping[str, int] = {}
        if self._listed is not None and self.is_far(host.name) and (jobs or not self.cpus):
            hosts = self._listed()  # the way to reach the host may have changed
            there = remains(hosts[host.name], hosts, jobs)
        found = {job: int(there.get(job, 0) > 0) for job in jobs}
        for job, left in found.items():
            if not left and self.sockets.get(host.name) and self._has_cpus(job):
                found[job] = 1
                with suppress(ApplesError):  # the next probe asks again
                    self.release(job, host.name)
                    found[job] = 0
        return found

    def without(self) -> list[str]:
        """Return the hosts without a daemon."""
        return [host for host, socket in self.sockets.items() if not socket]

    def _source(self) -> str:
        return "" if self._listed is None else str(self._listed().source)

    def _named(self, host: str) -> str:
        where = f" on {host}" if self.is_far(host) else ""
        return f"the topology daemon at {self.sockets[host]}{where}"

    def _answer(
        self, host: str, verb: str, has: Mapping[str, type], **fields: Any
    ) -> dict[str, Any]:
        """Return a daemon's answer after a check of its fields: another program may listen on the socket.

        Raises
        ------
        SilentDaemonError
            It does not answer, or the answer does not fit the request; one line, with the socket.
        ApplesError
            The daemon refuses; one line.
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
                f"{place} answers {verb} without {lacking[0]}: not a topology daemon, or another version",
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
        """Return the answer of a daemon; None: none came in time."""
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
        The host has no daemon. Permanent.
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
