"""`ReconfigurationEngine`: the state machine that carries out the commands of one job.

It starts process groups, sends ranks what to become, and notifies what came of it. A change is made in one of
two ways. *Merge*: every host has an MPI world of its own, and worlds are merged. *Restart*: all ranks are one
world, as a rigid allocation starts them; the world commits and ends, and another starts from that commit. After
the loss of a host both start again on the survivors from the last commit.

The stages of a change, and what ends each:

    merge    idle -> start (new groups have parked) -> wait (safe point) -> change (rank 0 has changed)
             -> leave (released hosts are empty) -> idle
    restart  idle -> wait (safe point) -> change (rank 0 has committed) -> stop (the old world is empty)
             -> launch (the new world has parked) -> change -> leave -> idle
    loss     any -> clear (every rank has been killed) -> launch -> change -> leave -> idle
    end      any -> finish (every host is empty) -> over
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from selectors import BaseSelector
from typing import Literal

from apples.malleable.control.command import (
    ChangeOrigin,
    ChangePlan,
    HostRows,
    HostShare,
    JobEnded,
    JobNotice,
    LimitsRequested,
    ManagerStatus,
    ResizeCommand,
    ResizeDone,
    ResizeRefused,
    RolledBack,
    StateName,
)
from apples.malleable.control.job_file import JobFile
from apples.malleable.control.strips import rows_moved, strips, strips_moving_fewest_rows
from apples.malleable.manager.process_groups import WORLD, Message, ProcessGroup, ProcessGroups

Stage = Literal[
    "launch", "idle", "start", "wait", "change", "leave", "stop", "clear", "finish", "over"
]


@dataclass
class Reconfiguration:
    """One change of a job's hosts, from its beginning to its answer.

    Attributes
    ----------
    command
        What asked for it; None for a launch and after a loss, and once the command has been answered.
    shares, new
        The map to come, and its strips. The strips of a launch have no rows until the program has said how
        many it has.
    origin
        Where the data comes from, as in `ChangePlan`.
    lost, reason
        Hosts whose loss it is about, and why.
    mark
        When the phase under way began.
    safe
        When the safe point was reached; 0 before.
    """

    command: ResizeCommand | None
    shares: tuple[HostShare, ...]
    new: tuple[HostRows, ...]
    joining: list[str] = field(default_factory=list)
    leaving: list[str] = field(default_factory=list)
    origin: ChangeOrigin = "live"
    lost: tuple[str, ...] = ()
    reason: str = ""
    phases: dict[str, float] = field(default_factory=dict)
    begun: float = field(default_factory=time.monotonic)
    mark: float = field(default_factory=time.monotonic)
    safe: float = 0.0
    moved_rows: int = 0
    moved_bytes: int = 0

    @classmethod
    def commanded(
        cls, command: ResizeCommand, old: Sequence[HostRows], rows: int, slots: Mapping[str, int]
    ) -> Reconfiguration:
        """Return the change that a command asks for."""
        if command.ordered:
            new = strips(command.hosts, rows, slots)
        else:
            new = strips_moving_fewest_rows(old, command.hosts, rows, slots)
        before, after = {one.host for one in old}, {one.host for one in new}
        joining = [one.host for one in new if one.host not in before]
        leaving = [one.host for one in old if one.host not in after]
        return cls(command, command.hosts, new, joining, leaving)

    @classmethod
    def launched(
        cls, shares: Sequence[HostShare], slots: Mapping[str, int], origin: ChangeOrigin
    ) -> Reconfiguration:
        """Return the start of all hosts of a map, in its order."""
        return cls(None, tuple(shares), strips(shares, 0, slots), origin=origin)

    def end_phase(self, name: str) -> None:
        """End the phase under way and begin the next."""
        now = time.monotonic()
        self.phases[name] = now - self.mark
        self.mark = now

    def assign_rows(self, rows: int, slots: Mapping[str, int]) -> None:
        """Give the new strips their rows, now that it is known how many the program has."""
        by_host = {share.host: share for share in self.shares}
        self.new = strips([by_host[one.host] for one in self.new], rows, slots)

    def complete(self, message: Message, old: Sequence[HostRows]) -> None:
        """Take rank 0's report of the change that was made."""
        self.phases.update(message["phases"])
        self.moved_bytes = message["bytes"]
        self.moved_rows = rows_moved(old, self.new) if old and self.origin == "live" else 0
        self.mark = time.monotonic()

    def notice(
        self, epoch: int, now: Sequence[HostRows], iteration: int
    ) -> ResizeDone | RolledBack | None:
        """Return what is notified when it is complete; None for the launch."""
        seconds = time.monotonic() - (self.safe or self.begun)
        if self.command is not None:
            found = (epoch, tuple(now), seconds, self.phases)
            return ResizeDone(*found, self.moved_rows, self.moved_bytes)
        if self.origin == "commit":
            return RolledBack(epoch, self.lost, self.reason, tuple(now), iteration, seconds)
        return None


START_SECONDS = 60.0
"""A group that was started for a change must have parked by then; twice as long at the launch."""
CHANGE_SECONDS = 60.0
"""From the safe point until the new map holds."""
LEAVE_SECONDS = 5.0
"""Released ranks may take so long to end by themselves before they are killed."""
MOST_ROLLBACKS = 3
"""In a row, without a commit between them."""


class ReconfigurationEngine:
    """Carries out the commands of one job.

    Parameters
    ----------
    notify
        Takes what happened.
    folder
        Where supervisors of this machine put their files.

    Attributes
    ----------
    members
        The strips of the map that holds now; empty until the launch is complete.
    """

    def __init__(
        self,
        job: JobFile,
        selector: BaseSelector,
        notify: Callable[[JobNotice], None],
        folder: Path = Path(),
    ) -> None:
        self.job, self._notify = job, notify
        self.restarts = restarts(job)
        self.groups = ProcessGroups(job, selector, folder, self._on_message, self._on_lost)
        self.slots = {place.host: place.slots for place in job.hosts}
        self.stage: Stage = "launch"
        self.state: StateName = "starting"
        self.reason = ""
        self.epoch = self.iteration = 0
        self.members: tuple[HostRows, ...] = ()
        self._rows = self._rollbacks = 0
        self._finished = False
        self._begin(Reconfiguration.launched(job.members, self.slots, "start"))

    @property
    def status(self) -> ManagerStatus:
        """The job now."""
        busy = self.stage not in ("idle", "over")
        limits = (self.job.minimum, self.job.maximum or len(self.slots))
        found = (self.state, self.members, self.epoch, self.iteration, *limits, busy)
        return ManagerStatus(*found, warm=self.groups.warm())

    def command(self, command: ResizeCommand) -> None:
        """Begin a command; asked only while idle. Answered by one `ResizeDone` or `ResizeRefused`."""
        need = sum(self.slots[share.host] for share in command.hosts)
        if self._rows and need > self._rows:
            self._notify(ResizeRefused(command.epoch, f"{self._rows} rows for {need} ranks"))
            return
        self._change = Reconfiguration.commanded(command, self.members, self._rows, self.slots)
        if self.restarts:
            self.stage = "wait"
            self._send_to_leader("restart", 0)
            return
        self.stage = "start"
        self.groups.start_on(*self._change.joining)
        self._on_parked()

    def tick(self) -> None:
        """Check every group, and end a stage that takes too long."""
        now = time.monotonic()
        for group in self.groups:
            group.check(now)
        late = now - self._change.mark
        if self.stage == "start" and late > START_SECONDS:
            slow = [h for h in self._change.joining if self.groups[h].phase == "starting"]
            self._refuse(f"{', '.join(slow)}: not ready within {START_SECONDS:g} s")
        elif self.stage == "launch" and late > START_SECONDS * 2:
            self._end("failed", f"the job was not ready within {START_SECONDS * 2:g} s")
        elif self.stage == "change" and late > CHANGE_SECONDS:
            self._recover("", f"a change took more than {CHANGE_SECONDS:g} s")
        elif self.stage == "leave" and late > LEAVE_SECONDS:
            for host in self._change.leaving:
                self.groups[host].end()
        elif self.stage in ("finish", "stop") and late > LEAVE_SECONDS:
            self.groups.end()
        self._advance_when_empty()

    def cancel(self) -> None:
        """End the job."""
        if self.stage != "over" and not self._finished:
            self._end("cancelled", "")

    def _begin(self, change: Reconfiguration) -> None:
        """Start all groups of a map whose data no live member holds."""
        self._change, self.groups.declared, self.stage = change, None, "launch"
        change.joining = [one.host for one in change.new]
        if self.restarts:
            self.groups.start_world(change.joining)
            return
        self.groups.start_on(*change.joining)

    def _on_parked(self) -> None:
        """Go on when every group that is to join has parked."""
        keys = [WORLD] if self.restarts else self._change.joining
        if self.stage not in ("launch", "start"):
            return
        if any(self.groups[key].phase != "parked" for key in keys):
            return
        if reason := self.groups.reason_against(keys):
            self._give_up(reason)
            return
        self._change.end_phase("start")
        if self.stage == "launch":
            self._launch(self.groups[keys[0]], len(keys) - 1)
            return
        self.stage = "wait"
        self._send_to_leader("resize", len(keys))

    def _launch(self, first: ProcessGroup, joining: int) -> None:
        """Let the first group admit the others."""
        self._rows = int(first.declared["rows"])
        need = sum(self.slots[member.host] for member in self._change.new)
        if self._rows and need > self._rows:
            self._end("failed", f"{self._rows} rows for {need} ranks")
            return
        self._change.assign_rows(self._rows, self.slots)
        self.stage, first.phase = "change", "joining"
        first.send(
            {
                **self.groups.joining_order("launch", first),
                "plan": self._plan(),
                "joining": joining,
            }
        )

    def _send_to_leader(self, order: str, joining: int) -> None:
        """Send rank 0 an order; it tells the other ranks at the next safe point."""
        key = WORLD if self.restarts else self.members[0].host
        self.groups[key].send({"order": order, "plan": self._plan(), "joining": joining}, 0)

    def _plan(self) -> dict[str, object]:
        """Return the plan of the change under way, as the ranks get it."""
        change, command = self._change, self._change.command
        return ChangePlan(
            epoch=command.epoch if command else self.epoch + 1,
            old=self.members,
            new=change.new,
            slots=self.slots,
            hosts=tuple(host.host for host in self.job.hosts),
            origin=change.origin,
            lost=change.lost,
            commits=self.groups.directory,
            cpus={share.host: share.cpus for share in command.hosts if share.cpus}
            if command
            else {},
        ).dump()

    def _on_message(self, group: ProcessGroup, rank: int, message: Message) -> None:
        """Take a message of a rank."""
        event = message["event"]
        if event == "parked":
            group.parked(message)
            self._on_parked()
        elif event == "invite":
            self.groups.invite([] if self.restarts else self._change.joining, message["port"])
        elif event == "failed":
            self._end("failed", f"rank {rank} on {group.host}: {message['message']}")
        elif event == "limits":
            self._notify(LimitsRequested(message["minimum"], message["maximum"]))
        elif event in ("progress", "finished", "committed", "changed"):
            self.iteration = message["iteration"]
        self._advance(event, message)

    def _advance(self, event: str, message: Message) -> None:
        """Take the step of the state machine that a message of rank 0 calls for."""
        if event == "safepoint" and self.stage == "wait":
            self._change.end_phase("wait")
            self._change.safe = time.monotonic()
            self.stage = "change"
        elif event == "commit_failed" and self.stage == "change":
            self._refuse(f"no commit could be made: {message['reason']}")
        elif event == "restarting" and self.stage == "change":
            self._change.end_phase("commit")
            self.stage, self.groups[WORLD].phase = "stop", "leaving"
        elif event == "changed" and self.stage == "change":
            # From here on the new map holds, whatever happens to the hosts that leave.
            self._change.complete(message, self.members)
            self.groups.settle(self._change.leaving)
            self.members, self.epoch = self._change.new, message["epoch"]
            self.stage, self.state = "leave", "running"
        elif event == "committed":
            self._rollbacks, self.groups.committed = 0, True
        elif event == "finished":
            self._finish()
        self._advance_when_empty()

    def _advance_when_empty(self) -> None:
        """Take the step that waited until groups were empty."""
        change = self._change
        if self.stage == "leave" and self.groups.have_emptied(change.leaving):
            self._complete(change)
        elif self.stage == "stop" and self.groups[WORLD].phase == "empty":
            change.end_phase("leave")
            change.leaving, change.origin = [], "moved"
            self._begin(change)
        elif self.stage == "clear" and all(g.phase in ("empty", "parked") for g in self.groups):
            for host in change.lost:
                self.groups.drop(host)
            self._begin(change)
        elif self.stage == "finish" and self.groups.all_emptied():
            self.stage = "over"
            self._notify(JobEnded(self.state, self.reason))

    def _complete(self, change: Reconfiguration) -> None:
        self.groups.release(change.leaving)
        if change.leaving:
            change.end_phase("leave")
        self.stage = "idle"
        answer = change.notice(self.epoch, self.members, self.iteration)
        if answer is not None:
            self._notify(answer)
        if not self.restarts:
            self.groups.start_warm()

    def _answer(self, reason: str) -> None:
        """Refuse the command under way, if there is one."""
        command, self._change.command = self._change.command, None
        if command is not None and self.stage not in ("idle", "over"):
            self._notify(ResizeRefused(command.epoch, reason))

    def _refuse(self, reason: str) -> None:
        """Give a command up before anything changed."""
        if not self.restarts:
            self.groups.give_up(self._change.joining)
        self._answer(reason)
        self.stage = "idle"

    def _give_up(self, reason: str) -> None:
        """Refuse a command, or end a launch."""
        if self.stage == "launch":
            self._end("failed", reason)
        else:
            self._refuse(reason)

    def _finish(self) -> None:
        """See all groups end: the program has finished."""
        self._answer("the job finished first")
        self._finished = True
        self._change = Reconfiguration(None, (), self.members)
        self.stage, self.state = "finish", "finished"
        for group in self.groups:
            if group.phase in ("starting", "parked", "joining"):
                group.end()

    def _end(self, state: StateName, reason: str) -> None:
        """End everything now."""
        if self.stage in ("finish", "over"):
            return
        self._answer(f"the job {state}: {reason}" if reason else f"the job was {state}")
        self.state, self.reason = state, reason
        self.stage, self._change = "finish", Reconfiguration(None, (), self.members)
        self.groups.end()

    def _on_lost(self, group: ProcessGroup, why: str) -> None:
        """Decide what the loss of a group means: nothing, a refusal, the end of the job, or a rollback."""
        joins = self.stage in ("launch", "start", "change") and group.host in self._change.joining
        if self.stage in ("finish", "over") or group.phase == "leaving":
            group.end()
        elif self.stage == "start" and joins:
            self._refuse(f"{group.host}: {why}")
        elif group.phase in ("parked", "starting") and not joins:
            self.groups.groups.pop(group.host).kill()
        elif self.stage == "launch" and self._change.origin == "start":
            self._end("failed", f"{group.host}: {why}")
        else:
            self._recover(group.host, why)

    def _recover(self, host: str, why: str) -> None:
        """End all ranks; what is left then starts again from the last commit."""
        change = self._change
        reason = f"{host} was lost: {why}" if host else why
        lost = (*change.lost, host) if self.stage in ("launch", "change", "clear") else (host,)
        self._answer(reason)
        left = tuple(m for m in self.members or change.new if m.host not in lost)
        self._rollbacks += 1
        if len(left) < max(1, self.job.minimum):
            self._end(
                "failed", f"{reason}; {len(left)} hosts are left of {self.job.minimum} needed"
            )
        elif self._rollbacks > MOST_ROLLBACKS:
            self._end("failed", f"{reason}; {self._rollbacks} losses without a commit between")
        else:
            shares = tuple(HostShare(one.host, one.weight) for one in left)
            self._change = Reconfiguration(
                None, shares, left, origin="commit", lost=tuple(filter(None, lost)), reason=why
            )
            self.stage = "clear"
            self.groups.end(spare_parked=True)


def restarts(job: JobFile) -> bool:
    """Whether changes are made by restarts: asked for, or because processes can only be started all at once."""
    return job.engine == "restart" or (job.engine == "auto" and bool(job.world))
