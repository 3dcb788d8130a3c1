"""`Engine`: carries out commands: starts groups, tells ranks what to become, answers when it is so.

*Merge*: every host has a world of its own and worlds are merged. *Restart*: all ranks are one world, as a
rigid allocation starts them; a change commits, ends it and starts another. After the loss of a host both
start again on the survivors from the last commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from selectors import BaseSelector

from apples.malleable.command import (
    Command,
    Ended,
    Member,
    Notice,
    Refused,
    Requested,
    State,
    Status,
)
from apples.malleable.fleet import WORLD, Fleet
from apples.malleable.group import Group, Message
from apples.malleable.job_file import JobFile
from apples.malleable.strips import members
from apples.malleable.turn import Stage, Turn

START_SECONDS = 60.0
"""A cold group may take so long to park."""
CHANGE_SECONDS = 60.0
FAREWELL_SECONDS = 5.0
MOST_ROLLBACKS = 3  # in a row, without a commit between them


class Engine:
    """One job's processes: what happens goes to `notify`, guards of this machine use `folder`."""

    def __init__(
        self,
        job: JobFile,
        selector: BaseSelector,
        notify: Callable[[Notice], None],
        folder: Path = Path(),
    ) -> None:
        self.job, self._notify = job, notify
        self.restarts = restarts(job)
        self.fleet = Fleet(job, selector, folder, self._hear, self._lose)
        self.slots = {place.host: place.slots for place in job.hosts}
        self.stage: Stage = "launch"
        self.state: State = "starting"
        self.reason = ""
        self.epoch = self.iteration = 0
        self.members: tuple[Member, ...] = ()
        self._rows = self._rollbacks = 0
        self._finished = False
        self._turn = Turn(None, members(job.members, 0, self.slots), [], [], "start")
        self._begin(self._turn)

    @property
    def status(self) -> Status:
        """The job now."""
        busy = self.stage not in ("idle", "over")
        limits = (self.job.minimum, self.job.maximum or len(self.slots))
        found = (self.state, self.members, self.epoch, self.iteration, *limits, busy)
        return Status(*found, warm=self.fleet.warm())

    def command(self, command: Command) -> None:
        """Begin a command; asked only while idle. Answered by one `Done` or `Refused`."""
        need = sum(self.slots[share.host] for share in command.hosts)
        if self._rows and need > self._rows:
            self._notify(Refused(command.epoch, f"{self._rows} rows for {need} ranks"))
            return
        self._turn = Turn.of(command, self.members, self._rows, self.slots)
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

    def _begin(self, turn: Turn) -> None:
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

    def _launch(self, first: Group, joining: int) -> None:
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

    def _hear(self, group: Group, rank: int, message: Message) -> None:
        word = message["say"]
        if word == "parked":
            group.parked(message)
            self._started()
        elif word == "invite":
            self.fleet.invite([] if self.restarts else self._turn.joining, message["port"])
        elif word == "failed":
            self._end("failed", f"rank {rank} on {group.host}: {message['message']}")
        elif word == "request":
            self._notify(Requested(message["minimum"], message["maximum"]))
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
            self._notify(Ended(self.state, self.reason))

    def _complete(self, turn: Turn) -> None:
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
            self._notify(Refused(command.epoch, reason))

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
        self._turn = Turn(None, self.members, [], [])
        self.stage, self.state = "finish", "finished"
        for group in self.fleet:
            if group.phase in ("starting", "parked", "joining"):
                group.end()

    def _end(self, state: State, reason: str) -> None:
        """End everything now."""
        if self.stage in ("finish", "over"):
            return
        self._answer(f"the job {state}: {reason}" if reason else f"the job was {state}")
        self.state, self.reason = state, reason
        self.stage, self._turn = "finish", Turn(None, self.members, [], [])
        self.fleet.end()

    def _lose(self, group: Group, why: str) -> None:
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
            self._turn = Turn(None, left, [], [], "commit", tuple(filter(None, lost)), why)
            self.stage = "clear"
            self.fleet.end(spare_parked=True)


def restarts(job: JobFile) -> bool:
    """Whether changes are made by restarts: asked for, or because processes can only be started all at once."""
    return job.engine == "restart" or (job.engine == "auto" and bool(job.world))
