"""`Turn`: one change of a job's hosts, from its beginning to its answer."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

from apples.malleable.command import Command, Done, Member, RolledBack, Share
from apples.malleable.group import Message
from apples.malleable.job_file import JobFile
from apples.malleable.strips import arrange, members, moved

Stage = Literal[
    "launch", "idle", "start", "wait", "change", "leave", "stop", "clear", "finish", "over"
]
"""Launch: groups start with nobody to join. Start: groups that are to join start. Wait: for the safe point.
Change: until the new map holds. Leave: until released hosts are empty. Stop: until a restart's old world is.
Clear: until lost ones are. Finish: until all are."""


@dataclass
class Turn:
    """The change under way.

    Attributes
    ----------
    origin
        Where the data comes from, as in `Plan`.
    lost, reason
        Hosts whose loss it is about, and why.
    mark
        When the phase under way began.
    safe
        When the safe point was reached.
    """

    command: Command | None
    new: tuple[Member, ...]
    joining: list[str]
    leaving: list[str]
    origin: str = "live"
    lost: tuple[str, ...] = ()
    reason: str = ""
    phases: dict[str, float] = field(default_factory=dict)
    begun: float = field(default_factory=time.monotonic)
    mark: float = field(default_factory=time.monotonic)
    safe: float = 0.0
    moved_rows: int = 0
    moved_bytes: int = 0

    @classmethod
    def of(
        cls, command: Command, old: Sequence[Member], rows: int, slots: Mapping[str, int]
    ) -> Turn:
        """Return the change a command asks for."""
        shares = command.hosts
        new = (
            members(shares, rows, slots) if command.ordered else arrange(old, shares, rows, slots)
        )
        before, after = {m.host for m in old}, {m.host for m in new}
        joining = [m.host for m in new if m.host not in before]
        return cls(command, new, joining, [m.host for m in old if m.host not in after])

    def phase(self, name: str) -> None:
        """End a phase now."""
        now = time.monotonic()
        self.phases[name] = now - self.mark
        self.mark = now

    def share_out(self, rows: int, slots: Mapping[str, int]) -> None:
        """Give the new members their rows, now that it is known how many there are."""
        shares = [Share(member.host, member.weight) for member in self.new]
        self.new = members(shares, rows, slots)

    def changed(self, message: Message, old: Sequence[Member]) -> None:
        """Take what rank 0 says of the change that was made."""
        self.phases.update(message["phases"])
        self.moved_bytes = message["bytes"]
        self.moved_rows = moved(old, self.new) if old and self.origin == "live" else 0
        self.mark = time.monotonic()

    def plan(
        self,
        job: JobFile,
        epoch: int,
        old: Sequence[Member],
        slots: Mapping[str, int],
        commits: str,
    ) -> Message:
        """Return the document all ranks work from; `commits` is the directory that all of them see."""
        shares = self.command.hosts if self.command else ()
        return {
            "epoch": self.command.epoch if self.command else epoch + 1,
            "old": [asdict(member) for member in old],
            "new": [asdict(member) for member in self.new],
            "slots": slots,
            "hosts": [place.host for place in job.hosts],
            "origin": self.origin,
            "lost": self.lost,
            "commits": commits,
            "cpus": {share.host: share.cpus for share in shares if share.cpus},
        }

    def answer(
        self, epoch: int, now: Sequence[Member], iteration: int
    ) -> Done | RolledBack | None:
        """Return what is said of it when it is complete; None for the launch."""
        seconds = time.monotonic() - (self.safe or self.begun)
        if self.command is not None:
            found = (epoch, tuple(now), seconds, self.phases)
            return Done(*found, self.moved_rows, self.moved_bytes)
        if self.origin == "commit":
            return RolledBack(epoch, self.lost, self.reason, tuple(now), iteration, seconds)
        return None
