"""The nodes of Slurm's allocations as hosts of a live scheduler: which there are, and until when."""

from __future__ import annotations

import os
import threading
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import hat
from apples.errors import ApplesError, LaunchError, UsageError
from apples.launch.slurm import client
from apples.launch.slurm.nodes import NAME, SlurmNode, expand, host_entries, left_out
from apples.launch.slurm.replies import SlurmAllocationState
from apples.resources import Host, HostList, read_host_list
from apples.scheduling.server.orders import HostTerm
from apples.storage import documents

OWN: Final = "own"
"""Stands for the allocation that this process is in."""
MOST_HOSTS: Final = 1000
LOOK_SECONDS: Final = 5.0
"""Between two looks at the allocations."""


class AllocationWatch:
    """Follows the allocations of some numbers and names, and keeps the host list of their nodes.

    A node has the entry that the user's own list has of it, else its cores and memory as Slurm says them. What
    the list has once it keeps, for jobs may still be leaving it.

    Parameters
    ----------
    asked
        Numbers and names of Slurm's jobs, and `OWN`. A name stands for all jobs of it that run, also later.
    own
        The user's host list; None: there is none.
    place
        See below.
    allocations, nodes
        What Slurm says: its jobs, its nodes.
    wall
        Seconds since 1970.

    Attributes
    ----------
    hosts
        The list.
    place
        Where it is kept.
    problem
        Why nodes of the allocations are no hosts; empty: all are.

    Raises
    ------
    UsageError
        A list that is none, or `OWN` outside of an allocation.
    """

    def __init__(
        self,
        asked: Sequence[str],
        own: Path | None,
        place: Path,
        allocations: Callable[[], Sequence[SlurmAllocationState]] = client.allocations,
        nodes: Callable[[], Sequence[SlurmNode]] = client.nodes,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._asked = {_number_of(one) for one in asked}
        self.place, self._allocations, self._nodes, self._wall = place, allocations, nodes, wall
        self._had: dict[str, str] = {}
        self.problem = ""
        self._table = {} if own is None else _table(own)
        if place.exists():  # what an earlier scheduler had: jobs of it may be there
            self._take_up(_table(place).get("host", []))
        if self._table:
            self.hosts = self._written()
        else:
            self._table = {"host": []}

    def look(self) -> list[HostTerm]:
        """Return until when which hosts can be used: all that there are now, and those that are over since.

        Raises
        ------
        LaunchError
            Slurm does not answer, or names nodes in a way that nobody can read; nothing is known then.
        """
        ends = self._ends()
        known = {host["name"] for host in self._table["host"]}
        unknown = {name for name in ends if name not in known}
        nodes = [node for node in self._nodes() if node.name in unknown] if unknown else []
        self.problem = "; ".join(left_out(nodes))
        # what is allocated of their memory is so to us
        if entries := host_entries([replace(node, allocated_memory=0) for node in nodes]):
            self._take_up(entries)
            self.hosts = self._written()
            known |= {host["name"] for host in self._table["host"]}
        now = self._wall()
        terms = [
            HostTerm(name, max(1e-3, end - now), source)
            for name, (end, source) in ends.items()
            if name in known
        ]
        terms += [
            HostTerm(name, 0.0, source) for name, source in self._had.items() if name not in ends
        ]
        self._had = {one.host: one.source for one in terms if one.seconds > 0}
        return terms

    def _ends(self) -> dict[str, tuple[float, str]]:
        """Return the end of each node's last allocation, and what that is called."""
        found: dict[str, tuple[float, str]] = {}
        for one in self._allocations():
            if str(one.number) not in self._asked and one.name not in self._asked:
                continue
            try:
                names = expand(one.nodes)
            except ValueError as error:
                raise LaunchError(f"squeue: allocation {one.number}: {error}") from None
            for name in names:
                if NAME.fullmatch(name) and found.get(name, (0.0, ""))[0] < one.end:
                    found[name] = one.end, f"allocation {one.number}"
        if len(found) > MOST_HOSTS:
            raise LaunchError(
                f"the allocations have {len(found)} nodes, at most {MOST_HOSTS} are taken"
            )
        return found

    def _take_up(self, entries: Sequence[Mapping[str, Any]]) -> None:
        hosts = self._table.setdefault("host", [])
        known = {host["name"] for host in hosts}
        hosts += [dict(entry) for entry in entries if entry["name"] not in known]

    def _written(self) -> HostList:
        """Write the list down, and return it."""
        text = "# Written by apples scheduler --slurm\n" + hat.dump(self._table)
        try:
            documents.replace(self.place, text)
        except OSError as error:
            raise LaunchError(f"{self.place}: {error.strerror}") from None
        return read_host_list(self.place)


def _number_of(asked: str) -> str:
    if asked != OWN:
        return asked
    number = os.environ.get("SLURM_JOB_ID", "")
    if not number.isdecimal():
        raise UsageError(
            f"--slurm {OWN}: this is inside of no allocation: give the number or the name of one"
        )
    return number


def _table(path: Path) -> dict[str, Any]:
    """Return a host list as it is written, having looked whether it is one."""
    read_host_list(path)
    return tomllib.loads(path.read_text(encoding="utf-8"))


class AllocationFollower:
    """Has a live scheduler, and whoever runs its jobs, know which hosts Slurm gives, again and again.

    Parameters
    ----------
    joins, ends
        Called with a host that can be used from now on, and with the name of one that was taken back.
    claim
        Refuses a host that another scheduler has (`LaunchError`).
    say
        Hears what is worth saying: each thing once.
    """

    def __init__(
        self,
        watch: AllocationWatch,
        joins: Callable[[Host], None],
        ends: Callable[[str], None],
        claim: Callable[[str], None],
        say: Callable[[str], None],
    ) -> None:
        self._watch, self._joins, self._ends = watch, joins, ends
        self._claim, self._say = claim, say
        self._used: set[str] = set()
        self._said: dict[str, str] = {}

    def look(self, hear: Callable[[HostTerm], None]) -> None:
        """Look at the allocations, and pass on what is new; while nothing can be known what was known stands."""
        try:
            self.take_in(self._watch.look(), hear)
        except ApplesError as error:
            self._tell("", f"{error}; the allocations are as they were")
        else:
            self._tell("", self._watch.problem)

    def take_in(self, terms: Sequence[HostTerm], hear: Callable[[HostTerm], None]) -> None:
        """Pass on until when hosts can be used; a scheduler knows a host before it is asked whether it answers."""
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
                self._used.add(one.host)
                self._joins(self._watch.hosts[one.host])

    def start(self, hear: Callable[[HostTerm], None]) -> None:
        """Look again and again, in a thread that ends with this process."""
        threading.Thread(
            target=self._follow, args=(hear,), name="allocations", daemon=True
        ).start()

    def _follow(self, hear: Callable[[HostTerm], None]) -> None:
        while True:
            time.sleep(LOOK_SECONDS)
            self.look(hear)

    def _tell(self, about: str, text: str) -> None:
        """Say once what is wrong with a host, or with the allocations (empty); without a text nothing is."""
        if text and self._said.get(about) != text:
            self._say(text)
        self._said[about] = text
