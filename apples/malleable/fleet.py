"""`Fleet`: all groups of one job, by host."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from selectors import BaseSelector

from apples.malleable.group import Group, Message
from apples.malleable.job_file import JobFile, Place

WORLD = "*"
"""The one group of a restart engine."""


@dataclass
class Fleet:
    """The groups there are.

    Attributes
    ----------
    hear, lose
        As for `Group`.
    released
        Hosts that were given back: nothing waits there, though they were opted in.
    declared
        What the programs of the job's groups declare, all alike; None before the first.
    committed
        Whether a state of the job was ever kept.
    directory
        Where states are kept, beside memory; empty: nowhere.
    """

    job: JobFile
    selector: BaseSelector
    folder: Path
    hear: Callable[[Group, int, Message], None]
    lose: Callable[[Group, str], None]
    groups: dict[str, Group] = field(default_factory=dict)
    released: set[str] = field(default_factory=set)
    declared: object = None
    committed: bool = False
    _numbers: int = 0

    def __post_init__(self) -> None:
        self.directory = self.job.commits

    def __getitem__(self, host: str) -> Group:
        """Return the group of a host."""
        return self.groups[host]

    def __iter__(self) -> Iterator[Group]:
        """Yield every group, of those there are now."""
        return iter(list(self.groups.values()))

    def have(self, *hosts: str) -> None:
        """Have a group on each host, parked soon if it is not."""
        for host in hosts:
            group = self.groups.get(host)
            self.released.discard(host)
            if group is None or group.gone:
                group = self.groups[host] = self._new([self.job.place(host)])
                group.start()
            elif group.phase == "empty":
                group.start()

    def have_world(self, hosts: Sequence[str]) -> None:
        """Start all ranks of some hosts as one world."""
        old = self.groups.pop(WORLD, None)
        if old is not None:
            old.dismiss()
        self.groups[WORLD] = self._new([self.job.place(host) for host in hosts])
        self.groups[WORLD].start()

    def _new(self, places: Sequence[Place]) -> Group:
        self._numbers += 1
        return Group(
            self.job, places, self._numbers, self.selector, self.folder, self.hear, self.lose
        )

    def warm_up(self) -> None:
        """Park groups on the hosts that were opted in and not given back."""
        for place in self.job.hosts:
            if place.warm and place.host not in {*self.groups, *self.released}:
                self.have(place.host)

    def warm(self) -> tuple[str, ...]:
        """Return the hosts where a group is parked."""
        return tuple(group.host for group in self if group.phase == "parked")

    def objection(self, joining: Sequence[str]) -> str:
        """Return why groups that have parked must not join; empty if nothing is wrong."""
        for key in joining:
            group = self.groups[key]
            found = group.declared["declared"]
            self.declared = self.declared or found
            if found != self.declared:
                return f"{group.host} declares other data than the job's others"
            if self.directory and not group.sees_commits:
                what = f"{group.host} does not see {self.directory}"
                if self.committed:
                    return f"{what}, where states of this job are kept"
                self.directory = ""
                line = f"warning: {what}: rows are kept in memory only, blocks not at all"
                print(line, file=sys.stderr, flush=True)  # noqa: T201 - talk
        return ""

    def order(self, word: str, group: Group) -> Message:
        """Return what every rank of a group is told when it becomes a member."""
        names = [place.host for place in self.job.hosts]
        seats = [(names.index(p.host), rank) for p in group.places for rank in range(p.slots)]
        return {"do": word, "seats": seats, "commit_seconds": self.job.commit_seconds}

    def invite(self, joining: Sequence[str], port: str) -> None:
        """Tell the next group that joins where."""
        waiting = [host for host in joining if self.groups[host].phase == "parked"]
        if waiting:
            group = self.groups[waiting[0]]
            group.phase = "joining"
            group.tell({**self.order("join", group), "port": port})

    def settle(self, leaving: Sequence[str]) -> None:
        """Take note who is a member and who leaves."""
        for group in self:
            if group.phase in ("joining", "member"):
                group.phase = "leaving" if group.host in leaving else "member"

    def emptied(self, host: str) -> bool:
        """Whether nothing of the job is on a host any more; its guard goes last."""
        group = self.groups[host]
        if group.phase == "empty" and not group.gone:
            group.dismiss()
        return group.gone

    def all_emptied(self) -> bool:
        """Whether nothing of the job is anywhere."""
        return self.have_emptied(list(self.groups))

    def have_emptied(self, hosts: Sequence[str]) -> bool:
        """Whether nothing of the job is on these hosts any more; all of them are seen to."""
        left = [host for host in hosts if not self.emptied(host)]
        return not left

    def release(self, hosts: Sequence[str]) -> None:
        """Forget hosts that were given back."""
        for host in hosts:
            del self.groups[host]
        self.released |= set(hosts)

    def give_up(self, hosts: Sequence[str]) -> None:
        """End groups that were to join; one that was parked there before the command may stay."""
        for host in hosts:
            if self.job.place(host).warm and self.groups[host].phase == "parked":
                continue
            self.groups.pop(host).kill()

    def drop(self, host: str) -> None:
        """Let a host's guard go, if there is one, and what it guards with it."""
        if host in self.groups:
            self.groups.pop(host).dismiss()

    def end(self, spare_parked: bool = False) -> None:
        """Kill all ranks; the guards stay."""
        for group in self:
            if not (spare_parked and group.phase == "parked"):
                group.end()
