"""`ReconfigurationEngine`: carries out commands: starts groups, tells ranks what to become, answers when it is so.

*Merge*: every host has a world of its own and worlds are merged. *Restart*: all ranks are one world, as a
rigid allocation starts them; a change commits, ends it and starts another. After the loss of a host both
start again on the survivors from the last commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from selectors import BaseSelector
from typing import Literal

from apples.malleable.control.command import (
    HostRows,
    HostWeight,
    JobEnded,
    JobNotice,
    JobStatus,
    LimitsRequested,
    ResizeCommand,
    ResizeDone,
    ResizeRefused,
    RolledBack,
    StateName,
)
from apples.malleable.control.job_file import JobFile
from apples.malleable.control.strips import rows_moved, strips_by_weight, strips_moving_fewest_rows
from apples.malleable.manager.rank_groups import WORLD, Message, ProcessGroup, ProcessGroups

Stage = Literal[
    "launch", "idle", "start", "wait", "change", "leave", "stop", "clear", "finish", "over"
]
"""Launch: groups start with nobody to join. Start: groups that are to join start. Wait: for the safe point.
Change: until the new map holds. Leave: until released hosts are empty. Stop: until a restart's old world is.
Clear: until lost ones are. Finish: until all are."""


@dataclass
class Reconfiguration:
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

    command: ResizeCommand | None
    new: tuple[HostRows, ...]
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
        cls, command: ResizeCommand, old: Sequence[HostRows], rows: int, slots: Mapping[str, int]
    ) -> Reconfiguration:
        """Return the change a command asks for."""
        shares = command.hosts
        new = (
            strips_by_weight(shares, rows, slots)
            if command.ordered
            else strips_moving_fewest_rows(old, shares, rows, slots)
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
        shares = [HostWeight(member.host, member.weight) for member in self.new]
        self.new = strips_by_weight(shares, rows, slots)

    def changed(self, message: Message, old: Sequence[HostRows]) -> None:
        """Take what rank 0 says of the change that was made."""
        self.phases.update(message["phases"])
        self.moved_bytes = message["bytes"]
        self.moved_rows = rows_moved(old, self.new) if old and self.origin == "live" else 0
        self.mark = time.monotonic()

    def plan(
        self,
        job: JobFile,
        epoch: int,
        old: Sequence[HostRows],
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
        self, epoch: int, now: Sequence[HostRows], iteration: int
    ) -> ResizeDone | RolledBack | None:
        """Return what is said of it when it is complete; None for the launch."""
        seconds = time.monotonic() - (self.safe or self.begun)
        if self.command is not None:
            found = (epoch, tuple(now), seconds, self.phases)
            return ResizeDone(*found, self.moved_rows, self.moved_bytes)
        if self.origin == "commit":
            return RolledBack(epoch, self.lost, self.reason, tuple(now), iteration, seconds)
        return None


START_SECONDS = 60.0
"""A cold group may take so long to park."""
CHANGE_SECONDS = 60.0
FAREWELL_SECONDS = 5.0
MOST_ROLLBACKS = 3  # in a row, without a commit between them


class ReconfigurationEngine:
    """One job's processes: what happens goes to `notify`, guards of this machine use `folder`."""

    def __init__(
        self,
        job: JobFile,
        selector: BaseSelector,
        notify: Callable[[JobNotice], None],
        folder: Path = Path(),
    ) -> None:
        self.job, self._notify = job, notify
        self.restarts = restarts(job)
        self.fleet = ProcessGroups(job, selector, folder, self._hear, self._lose)
        self.slots = {place.host: place.slots for place in job.hosts}
        self.stage: Stage = "launch"
        self.state: StateName = "starting"
        self.reason = ""
        self.epoch = self.iteration = 0
        self.members: tuple[HostRows, ...] = ()
        self._rows = self._rollbacks = 0
        self._finished = False
        self._turn = Reconfiguration(
            None, strips_by_weight(job.members, 0, self.slots), [], [], "start"
        )
        self._begin(self._turn)

    @property
    def status(self) -> JobStatus:
        """The job now."""
        busy = self.stage not in ("idle", "over")
        limits = (self.job.minimum, self.job.maximum or len(self.slots))
        found = (self.state, self.members, self.epoch, self.iteration, *limits, busy)
        return JobStatus(*found, warm=self.fleet.warm())

    def command(self, command: ResizeCommand) -> None:
        """Begin a command; asked only while idle. Answered by one `ResizeDone` or `ResizeRefused`."""
        need = sum(self.slots[share.host] for share in command.hosts)
        if self._rows and need > self._rows:
            self._notify(ResizeRefused(command.epoch, f"{self._rows} rows for {need} ranks"))
            return
        self._turn = Reconfiguration.of(command, self.members, self._rows, self.slots)
        if self.restarts:
            self.stage = "wait"
            self._tell_leader("restart", 0)
            return
        self.stage = "start"
        self.fleet.have(*self._turn.joining)
        self._started()

    def turn(self) -> None:
        """Do what time asks for."""
        now = time.monotonic()
        for group in self.fleet:
            group.look(now)
        late = now - self._turn.mark
        if self.stage == "start" and late > START_SECONDS:
            slow = [h for h in self._turn.joining if self.fleet[h].phase == "starting"]
            self._refuse(f"{', '.join(slow)}: not ready within {START_SECONDS:g} s")
        elif self.stage == "launch" and late > START_SECONDS * 2:
            self._end("failed", f"the job was not ready within {START_SECONDS * 2:g} s")
        elif self.stage == "change" and late > CHANGE_SECONDS:
            self._recover("", f"a change took more than {CHANGE_SECONDS:g} s")
        elif self.stage == "leave" and late > FAREWELL_SECONDS:
            for host in self._turn.leaving:
                self.fleet[host].end()
        elif self.stage in ("finish", "stop") and late > FAREWELL_SECONDS:
            self.fleet.end()
        self._settle()

    def cancel(self) -> None:
        """End the job."""
        if self.stage != "over" and not self._finished:
            self._end("cancelled", "")

    def _begin(self, turn: Reconfiguration) -> None:
        """Start all groups of a map that no live member holds the data of."""
        self._turn, self.fleet.declared, self.stage = turn, None, "launch"
        turn.joining = [member.host for member in turn.new]
        if self.restarts:
            self.fleet.have_world(turn.joining)
            return
        self.fleet.have(*turn.joining)

    def _started(self) -> None:
        """Go on when everyone who is to join has parked."""
        keys = [WORLD] if self.restarts else self._turn.joining
        if self.stage not in ("launch", "start"):
            return
        if any(self.fleet[key].phase != "parked" for key in keys):
            return
        if reason := self.fleet.objection(keys):
            self._give_up(reason)
            return
        self._turn.phase("start")
        if self.stage == "launch":
            self._launch(self.fleet[keys[0]], len(keys) - 1)
            return
        self.stage = "wait"
        self._tell_leader("become", len(keys))

    def _launch(self, first: ProcessGroup, joining: int) -> None:
        """Let the first group admit the others."""
        self._rows = int(first.declared["rows"])
        need = sum(self.slots[member.host] for member in self._turn.new)
        if self._rows and need > self._rows:
            self._end("failed", f"{self._rows} rows for {need} ranks")
            return
        self._turn.share_out(self._rows, self.slots)
        self.stage, first.phase = "change", "joining"
        first.tell({**self.fleet.order("begin", first), "plan": self._plan(), "joining": joining})

    def _tell_leader(self, word: str, joining: int) -> None:
        key = WORLD if self.restarts else self.members[0].host
        self.fleet[key].tell({"do": word, "plan": self._plan(), "joining": joining}, 0)

    def _plan(self) -> Message:
        turn, directory = self._turn, self.fleet.directory
        return turn.plan(self.job, self.epoch, self.members, self.slots, directory)

    def _hear(self, group: ProcessGroup, rank: int, message: Message) -> None:
        word = message["say"]
        if word == "parked":
            group.parked(message)
            self._started()
        elif word == "invite":
            self.fleet.invite([] if self.restarts else self._turn.joining, message["port"])
        elif word == "failed":
            self._end("failed", f"rank {rank} on {group.host}: {message['message']}")
        elif word == "request":
            self._notify(LimitsRequested(message["minimum"], message["maximum"]))
        elif word in ("at", "finished", "committed", "changed"):
            self.iteration = message["iteration"]
        self._go_on(word, message)

    def _go_on(self, word: str, message: Message) -> None:
        """Take the step that a word of rank 0 calls for."""
        if word == "safepoint" and self.stage == "wait":
            self._turn.phase("wait")
            self._turn.safe = time.monotonic()
            self.stage = "change"
        elif word == "stays" and self.stage == "change":
            self._refuse(f"no commit could be made: {message['reason']}")
        elif word == "stops" and self.stage == "change":
            self._turn.phase("commit")
            self.stage, self.fleet[WORLD].phase = "stop", "leaving"
        elif word == "changed" and self.stage == "change":
            self._turn.changed(message, self.members)
            self.fleet.settle(self._turn.leaving)
            self.members, self.epoch = self._turn.new, message["epoch"]
            self.stage, self.state = "leave", "running"
        elif word == "committed":
            self._rollbacks, self.fleet.committed = 0, True
        elif word == "finished":
            self._finish()
        self._settle()

    def _settle(self) -> None:
        """Go on where groups had to be empty first."""
        turn = self._turn
        if self.stage == "leave" and self.fleet.have_emptied(turn.leaving):
            self._complete(turn)
        elif self.stage == "stop" and self.fleet[WORLD].phase == "empty":
            turn.phase("leave")
            turn.leaving, turn.origin = [], "moved"
            self._begin(turn)
        elif self.stage == "clear" and all(g.phase in ("empty", "parked") for g in self.fleet):
            for host in turn.lost:
                self.fleet.drop(host)
            self._begin(turn)
        elif self.stage == "finish" and self.fleet.all_emptied():
            self.stage = "over"
            self._notify(JobEnded(self.state, self.reason))

    def _complete(self, turn: Reconfiguration) -> None:
        self.fleet.release(turn.leaving)
        if turn.leaving:
            turn.phase("leave")
        self.stage = "idle"
        answer = turn.answer(self.epoch, self.members, self.iteration)
        if answer is not None:
            self._notify(answer)
        if not self.restarts:
            self.fleet.warm_up()

    def _answer(self, reason: str) -> None:
        """Refuse the command under way, if there is one."""
        command, self._turn.command = self._turn.command, None
        if command is not None and self.stage not in ("idle", "over"):
            self._notify(ResizeRefused(command.epoch, reason))

    def _refuse(self, reason: str) -> None:
        """Give a command up before anything changed."""
        if not self.restarts:
            self.fleet.give_up(self._turn.joining)
        self._answer(reason)
        self.stage = "idle"

    def _give_up(self, reason: str) -> None:
        """Refuse a command, or end a launch."""
        if self.stage == "launch":
            self._end("failed", reason)
        else:
            self._refuse(reason)

    def _finish(self) -> None:
        """See everyone off: the program is through."""
        self._answer("the job finished first")
        self._finished = True
        self._turn = Reconfiguration(None, self.members, [], [])
        self.stage, self.state = "finish", "finished"
        for group in self.fleet:
            if group.phase in ("starting", "parked", "joining"):
                group.end()

    def _end(self, state: StateName, reason: str) -> None:
        """End everything now."""
        if self.stage in ("finish", "over"):
            return
        self._answer(f"the job {state}: {reason}" if reason else f"the job was {state}")
        self.state, self.reason = state, reason
        self.stage, self._turn = "finish", Reconfiguration(None, self.members, [], [])
        self.fleet.end()

    def _lose(self, group: ProcessGroup, why: str) -> None:
        """Judge what the loss of a group means."""
        joins = self.stage in ("launch", "start", "change") and group.host in self._turn.joining
        if self.stage in ("finish", "over") or group.phase == "leaving":
            group.end()
        elif self.stage == "start" and joins:
            self._refuse(f"{group.host}: {why}")
        elif group.phase in ("parked", "starting") and not joins:
            self.fleet.groups.pop(group.host).kill()
        elif self.stage == "launch" and self._turn.origin == "start":
            self._end("failed", f"{group.host}: {why}")
        else:
            self._recover(group.host, why)

    def _recover(self, host: str, why: str) -> None:
        """End all ranks; what is left then starts again from the last commit."""
        turn = self._turn
        reason = f"{host} was lost: {why}" if host else why
        lost = (*turn.lost, host) if self.stage in ("launch", "change", "clear") else (host,)
        self._answer(reason)
        left = tuple(m for m in self.members or turn.new if m.host not in lost)
        self._rollbacks += 1
        if len(left) < max(1, self.job.minimum):
            self._end(
                "failed", f"{reason}; {len(left)} hosts are left of {self.job.minimum} needed"
            )
        elif self._rollbacks > MOST_ROLLBACKS:
            self._end("failed", f"{reason}; {self._rollbacks} losses without a commit between")
        else:
            self._turn = Reconfiguration(
                None, left, [], [], "commit", tuple(filter(None, lost)), why
            )
            self.stage = "clear"
            self.fleet.end(spare_parked=True)


def restarts(job: JobFile) -> bool:
    """Whether changes are made by restarts: asked for, or because processes can only be started all at once."""
    return job.engine == "restart" or (job.engine == "auto" and bool(job.world))
