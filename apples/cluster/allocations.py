"""The nodes of Slurm's allocations as hosts of a live scheduler, each until the end of its allocation."""

from __future__ import annotations

import os
import threading
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import hat
from apples.cluster.orders import HostLease
from apples.errors import ApplesError, LaunchError, UsageError, coded, failure_of, system_code
from apples.io import documents
from apples.launch.slurm import client
from apples.launch.slurm.nodes import (
    MAX_SLOTS,
    NAME,
    AllocatedPart,
    SlurmNode,
    expand,
    host_entries,
    left_out,
)
from apples.launch.slurm.replies import SlurmAllocationState
from apples.resources import Host, HostList, HostListDocument, Network, read_host_list

OWN: Final = "own"
"""Stands for the allocation that contains this process."""
MAX_HOSTS: Final = 1000
LOOK_SECONDS: Final = 5.0
"""Interval between two queries of the allocations."""


class AllocationWatch:
    """Follows the allocations with given numbers and names, and keeps the host list of their nodes.

    A node has its entry of the user's host list, else the cores and memory that Slurm reports. Its slots and
    memory never exceed the part that its allocation has of it. An entry stays in the list, because jobs may still
    be leaving the node.

    Parameters
    ----------
    asked
        Numbers and names of Slurm's jobs, and `OWN`. A name selects all running jobs of that name, also jobs
        that start later.
    own
        The user's host list; None: no list.
    place
        See below.
    steps
        Whether steps of its allocation (`Host.allocation`) reach a node, instead of ssh. The processes on a node
        end with the allocation that started them, so a node keeps its allocation until that ends.
    allocations, nodes, parts
        Queries of Slurm: its jobs, its nodes, and the part of each node that a job has.
    wall
        Seconds since 1970.

    Attributes
    ----------
    hosts
        The list; empty until the first allocation has nodes.
    place
        The file of the list, written unless the list is empty.
    problem
        Reason that nodes of the allocations are left out; empty: none is.

    Raises
    ------
    UsageError
        A host list is invalid, or `OWN` is used outside of an allocation.
    """

    def __init__(
        self,
        asked: Sequence[str],
        own: Path | None,
        place: Path,
        allocations: Callable[[], Sequence[SlurmAllocationState]] = client.allocations,
        nodes: Callable[[], Sequence[SlurmNode]] = client.nodes,
        wall: Callable[[], float] = time.time,
        *,
        parts: Callable[[int], Mapping[str, AllocatedPart]] = client.allocated_parts,
        steps: bool = False,
    ) -> None:
        self._steps, self._parts_of = steps, parts
        self._parts: dict[tuple[int, str], Mapping[str, AllocatedPart]] = {}
        self._known: dict[str, SlurmNode | None] = {}
        self._asked = {_number_of(one) for one in asked}
        self.place, self._allocations, self._nodes, self._wall = place, allocations, nodes, wall
        self._had: dict[str, str] = {}
        self.problem = ""
        self._table = {} if own is None else _table(own)
        self._whole = {} if own is None else _sizes(read_host_list(own))
        if place.exists():  # of an earlier scheduler: its jobs may be on these hosts
            self._take_up(_table(place).get("host", []))
        self.hosts = self._written() if self._table else HostList((), Network())
        self._table = self._table or {"host": []}
        self._kept = deepcopy(self._table)  # as it is on the disk

    def look(self) -> list[HostLease]:
        """Return the lease of each host, and an ended lease for each host that has no allocation any more.

        Raises
        ------
        LaunchError
            Slurm does not answer, or its node names cannot be parsed. The last leases stay valid.
        """
        having = self._having()
        self._ask_parts(having)
        ends = {name: (one.end, f"allocation {one.number}") for name, one in having.items()}
        known = {host["name"] for host in self._table["host"]}
        unknown = {name for name in ends if name not in known}
        nodes = self._nodes() if unknown or ends.keys() - self._known.keys() else []
        self._known |= dict.fromkeys(ends.keys() - self._known.keys())
        self._known |= {node.name: node for node in nodes if node.name in ends}
        self.problem = "; ".join(left_out([node for node in nodes if node.name in unknown]))
        # the allocations have this memory, so the scheduler can use it
        listed = [replace(node, allocated_memory=0) for node in nodes if node.name in ends]
        entries = [entry for entry in host_entries(listed) if entry["name"] in unknown]
        self._take_up(entries)
        self._fit(having)
        self._reach_by(having)
        if self._table != self._kept:  # also after a failed write
            self.hosts = self._written()
            self._kept = deepcopy(self._table)
        known |= {entry["name"] for entry in entries}
        now = self._wall()
        terms = [
            HostLease(name, max(1e-3, end - now), source)
            for name, (end, source) in ends.items()
            if name in known
        ]
        terms += [
            HostLease(name, 0.0, source) for name, source in self._had.items() if name not in ends
        ]
        self._had = {one.host: one.source for one in terms if one.seconds > 0}
        return terms

    def _having(self) -> dict[str, SlurmAllocationState]:
        """Return for each node its allocation with the latest end; with steps, the allocation in use."""
        found: dict[str, SlurmAllocationState] = {}
        by = {host["name"]: host.get("allocation", "") for host in self._table["host"]}
        used = by if self._steps else {}
        for one in self._allocations():
            if str(one.number) not in self._asked and one.name not in self._asked:
                continue
            try:
                names = expand(one.nodes)
            except ValueError as error:
                raise LaunchError(
                    f"squeue: allocation {one.number}: {error}",
                    code="slurm-answer-invalid",
                    command="squeue",
                    job=one.number,
                ) from None
            for name in names:
                if not NAME.fullmatch(name):
                    continue
                better = used.get(name) == str(one.number), one.end
                known = found.get(name)
                if known is None or (used.get(name) == str(known.number), known.end) < better:
                    found[name] = one
        if len(found) > MAX_HOSTS:
            raise LaunchError(
                f"the allocations have {len(found)} nodes; the limit is {MAX_HOSTS}",
                code="too-many-nodes",
                value=len(found),
                bound=MAX_HOSTS,
            )
        return found

    def _take_up(self, entries: Sequence[Mapping[str, Any]]) -> None:
        hosts = self._table.setdefault("host", [])
        known = {host["name"] for host in hosts}
        hosts += [dict(entry) for entry in entries if entry["name"] not in known]

    def _ask_parts(self, having: Mapping[str, SlurmAllocationState]) -> None:
        """Query the parts of nodes that allocations have, once for each allocation and its nodes."""
        found: dict[tuple[int, str], Mapping[str, AllocatedPart]] = {}
        for one in having.values():
            key = one.number, one.nodes
            if key not in found:
                found[key] = self._parts[key] if key in self._parts else self._parts_of(one.number)
        self._parts = found

    def _fit(self, having: Mapping[str, SlurmAllocationState]) -> None:
        """Limit the slots and memory of nodes to the parts that their allocations have."""
        for host in self._table["host"]:
            one, node = having.get(host["name"]), self._known.get(host["name"])
            if one is None or node is None:
                continue
            cores = max(
                1, min(node.cores, MAX_SLOTS)
            )  # Slurm may report 0; a host has a slot at least
            slots, memory = self._whole.get(node.name, (cores, node.memory))
            part = self._parts[one.number, one.nodes].get(node.name)
            if part is not None:
                slots = min(slots, part.slots(node))
                memory = min(memory or part.memory, part.memory) if part.memory else memory
            host["slots"] = slots
            if memory:
                host["free_memory"] = memory
            else:
                host.pop("free_memory", None)

    def _reach_by(self, having: Mapping[str, SlurmAllocationState]) -> None:
        """Set the allocation through which steps reach each node; empty: ssh reaches it."""
        for host in self._table["host"]:
            known = having.get(host["name"])
            number = str(known.number) if known is not None and self._steps else ""
            # After the allocation has ended its number stays, so an access fails with that reason.
            if host.get("allocation", "") != number and (number or not self._steps):
                host["allocation"] = number

    def _written(self) -> HostList:
        """Write the list to its file and return it; an invalid list does not replace the file that jobs read."""
        text = "# Written by apples scheduler --slurm\n" + hat.dump(self._table)
        hat.parse(text, HostListDocument, source=str(self.place))
        try:
            documents.replace(self.place, text)
        except OSError as error:
            raise LaunchError(
                f"{self.place}: {error.strerror}",
                **coded(error, code=system_code(error)),
                file=self.place,
            ) from None
        return read_host_list(self.place)


def _number_of(asked: str) -> str:
    if asked != OWN:
        return asked
    number = os.environ.get("SLURM_JOB_ID", "")
    if not number.isdecimal():
        raise UsageError(
            f"--slurm {OWN}: this process is not inside an allocation; give the number or name of an allocation",
            code="outside-allocation",
            option="--slurm",
            value=OWN,
        )
    return number


def _sizes(hosts: HostList) -> dict[str, tuple[int, int]]:
    """Return slots and memory of hosts; 0: their memory is not known."""
    return {host.name: (host.slots, host.free_memory or 0) for host in hosts}


def _table(path: Path) -> dict[str, Any]:
    """Return a host list as a table, after a check that it is valid."""
    read_host_list(path)
    return tomllib.loads(path.read_text(encoding="utf-8"))


class AllocationFollower:
    """Passes the hosts that Slurm allocates to a live scheduler and its executor, at regular intervals.

    Parameters
    ----------
    joins, ends
        Called with a host that can be used from now on, and with the name of a host that was taken back.
    claim
        Rejects a host that another scheduler has (`LaunchError`).
    say
        Called with a problem, once for each change of it.
    listed
        Called with the host list after each change, before any of its hosts joins.
    """

    def __init__(
        self,
        watch: AllocationWatch,
        joins: Callable[[Host], None],
        ends: Callable[[str], None],
        claim: Callable[[str], None],
        say: Callable[[str], None],
        listed: Callable[[HostList], None] = lambda _: None,
    ) -> None:
        self._watch, self._joins, self._ends = watch, joins, ends
        self._claim, self._say, self._tell_list = claim, say, listed
        self._listed: HostList | None = None
        self._used: set[str] = set()
        self._said: dict[str, str] = {}

    def look(self, hear: Callable[[HostLease], None]) -> None:
        """Query the allocations and pass on changes; if the query fails, the last leases stay valid."""
        try:
            self.take_in(self._watch.look(), hear)
        except ApplesError as error:
            self._tell("", f"{error}; the allocations are as they were")
        else:
            self._tell("", self._watch.problem)

    def take_in(self, terms: Sequence[HostLease], hear: Callable[[HostLease], None]) -> None:
        """Pass on leases; the scheduler gets a host's lease before the executor checks the host."""
        if self._watch.hosts is not self._listed:
            self._listed = self._watch.hosts
            self._tell_list(self._listed)
        for one in terms:
            if one.seconds <= 0:
                hear(one)
                self._ends(one.host)
                self._used.discard(one.host)
                continue
            joins = one.host not in self._used
            if joins:
                try:
                    self._claim(one.host)
                except LaunchError as error:
                    self._tell(one.host, str(error))
                    continue
                self._tell(one.host, "")
            hear(one)
            if joins:
                self._joins(self._watch.hosts[one.host])
                self._used.add(one.host)

    def start(self, hear: Callable[[HostLease], None]) -> None:
        """Query the allocations at intervals, in a thread that ends with this process."""
        threading.Thread(
            target=self._follow, args=(hear,), name="allocations", daemon=True
        ).start()

    def _follow(self, hear: Callable[[HostLease], None]) -> None:
        while True:
            time.sleep(LOOK_SECONDS)
            self.look_again(hear)

    def look_again(self, hear: Callable[[HostLease], None]) -> None:
        """Query the allocations and report any error; no error may end the thread, which alone repeats queries."""
        try:
            self.look(hear)
        except Exception as error:  # noqa: BLE001 - see above
            self._tell("", f"{failure_of(error).message}; the allocations are looked at again")

    def _tell(self, about: str, text: str) -> None:
        """Report a problem once; `about` is a host, or empty for all allocations; an empty `text` clears it."""
        if text and self._said.get(about) != text:
            self._say(text)
        self._said[about] = text
