"""`ReconfigurationEngine`: the state machine that carries out the commands of one job.

It starts process groups, sends ranks what to become, and notifies what came of it. Every host has an MPI world
of its own, and a change merges worlds. After the loss of a host the survivors start again from the last commit.

The stages of a change, and what ends each:

    change   idle -> start (new groups have parked) -> merge (their MPI worlds have merged)
             [-> wait -> prefetch (constant arrays are in their new places, while the program computes)]
             -> wait (rank 0 asks, at a safe point, what there is to do) -> change (all data is in its new places)
             -> leave (released hosts are empty) -> idle
    back     change -> save (every member has saved what it had at the safe point) -> clear -> launch -> ..
    loss     any -> clear (every rank has been killed) -> launch -> change -> leave -> idle
    end      any -> finish (every host is empty) -> over

Whoever joins is a member from the moment the manager says that the new map holds, at the end of ``change``. The
loss of anybody who is not yet a member refuses the command. Before the safe point nobody of the job hears of it.
After it the change is taken back: its members start again on their old map with what they had at the safe point.
Only the loss of a member costs iterations, those since the last commit. A spare of the job's list takes its place.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from selectors import BaseSelector
from typing import Literal

from apples.launch.host_spec import HostSpec
from apples.malleable.control.change_cost import CHANGE_SECONDS, MIN_MEASURED_BYTES, ChangeCost
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
from apples.malleable.manager.hosts import Message, ProcessGroup, ProcessGroups

Stage = Literal["launch", "idle", "start", "merge", "wait", "prefetch", "change", "leave", "save", "clear",
                "finish", "over"]  # fmt: skip


@dataclass
class Reconfiguration:
    """One change of a job's hosts, from its beginning to its answer.

    Attributes
    ----------
    command
        What asked for it; None for a launch, after a loss that met no command, and once it has been answered.
    shares, new
        The map to come, and its strips. The strips of a launch have no rows until the program has said how
        many it has.
    origin
        Where the data comes from, as in `ChangePlan`.
    lost, reason, code
        Hosts whose loss it is about, and why; or why the command is refused, where it goes back to the old map.
        The code names the condition.
    phase_started
        When the phase under way began.
    safe
        When the safe point was reached; 0 before.
    seconds
        How long it may take from there until the new map holds.
    port
        Where those that join have met, and the job connects to them.
    secret
        With which ranks serve parts of constant arrays before the change; empty: none are served.
    fetched
        Ranks that have got all they are to have of these.
    rate_bytes
        Those of `moved_bytes` that moved while the job stood still.
    """

    command: ResizeCommand | None
    shares: tuple[HostShare, ...]
    new: tuple[HostRows, ...]
    joining: list[str] = field(default_factory=list)
    leaving: list[str] = field(default_factory=list)
    origin: ChangeOrigin = "live"
    lost: tuple[str, ...] = ()
    reason: str = ""
    code: str = ""
    phases: dict[str, float] = field(default_factory=dict)
    begun: float = field(default_factory=time.monotonic)
    phase_started: float = field(default_factory=time.monotonic)
    safe: float = 0.0
    seconds: float = CHANGE_SECONDS
    port: str = ""
    secret: str = ""
    fetched: list[tuple[str, int]] = field(default_factory=list)
    moved_rows: int = 0
    moved_bytes: int = 0
    rate_bytes: int = 0

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
        """End the phase under way and begin the next; one that comes twice is counted together."""
        now = time.monotonic()
        self.phases[name] = self.phases.get(name, 0.0) + now - self.phase_started
        self.phase_started = now

    def assign_rows(self, rows: int, slots: Mapping[str, int]) -> None:
        """Give the new strips their rows, now that it is known how many the program has."""
        by_host = {share.host: share for share in self.shares}
        self.new = strips([by_host[one.host] for one in self.new], rows, slots)

    def reverted(self, members: Sequence[HostRows], origin: ChangeOrigin) -> Reconfiguration:
        """Return the start of the old map again, by which this change is taken back."""
        shares = tuple(HostShare(one.host, one.weight, rows=one.rows) for one in members)
        return Reconfiguration(
            self.command, shares, tuple(members), origin=origin,
            reason=self.reason, code=self.code, safe=self.safe,
        )  # fmt: skip

    @property
    def aborted(self) -> bool:
        """Whether it goes back to the old map of a command that could not be carried out."""
        return self.origin == "saved" and bool(self.reason)

    def complete(self, message: Message, old: Sequence[HostRows]) -> None:
        """Take rank 0's report that all data is in its new places."""
        self.moved_bytes, self.rate_bytes = message["bytes"] + message["fetched"], message["bytes"]
        self.moved_rows = rows_moved(old, self.new) if old and self.origin == "live" else 0

    def notice(
        self, epoch: int, now: Sequence[HostRows], iteration: int
    ) -> ResizeDone | ResizeRefused | RolledBack | None:
        """Return what is notified when it is complete; None for the launch."""
        seconds = time.monotonic() - (self.safe or self.begun)
        if self.origin == "commit":
            found = (epoch, self.lost, self.reason, tuple(now), iteration, seconds)
            return RolledBack(*found, code=self.code)
        if self.command is None:
            return None
        if self.aborted:
            return ResizeRefused(epoch, self.reason, self.code)
        # Its own count of epochs, which begins with the launch, is none of the agent's.
        done = (self.command.epoch, tuple(now), seconds, self.phases)
        return ResizeDone(*done, self.moved_rows, self.moved_bytes)


MAX_CODE = 60
"""Characters of a program's own error code."""
START_SECONDS = 60.0
"""Groups that were started for a change must have parked and met by then; twice as long at the launch."""
SAFE_POINT_SECONDS = 300.0
"""A safe point must come by then, or within `SAFE_POINT_GAPS` of the longest time between reports of progress."""
SAFE_POINT_GAPS = 4.0
CLEAR_SECONDS = 60.0
"""For ranks to be killed before they start again: only one that waits inside the kernel takes longer."""
SAVE_SECONDS = 60.0
"""For members to save what they have, beside the time that a slow memory takes for it."""
SAVE_RATE = 1e8
BROKEN_SECONDS = 10.0
"""From a rank's word that MPI failed until it is taken for the cause: mostly word of a loss behind it comes."""
ABORTED_SECONDS = 3.0
"""From the end of a rank with an exit code until its host counts as lost: the loss that caused it may be reported
later, as its supervisor waits up to two seconds for mpiexec to print how its rank ended."""
LEAVE_SECONDS = 5.0
"""Released ranks may take so long to end by themselves before they are killed."""
PREPARING = ("start", "merge", "wait", "prefetch")
"""Stages of a change before the job stands still for it."""
COMPUTING = ("idle", *PREPARING)
"""Stages in which the program computes, and no loss but that of a member is any of its business."""
MAX_ROLLBACKS = 3
"""In a row, without a commit between them."""
MAX_REPAIRS = 3
"""Of a job: what breaks MPI again and again where no process is lost is the program's own fault."""


class ReconfigurationEngine:
    """Carries out the commands of one job.

    Parameters
    ----------
    notify
        Takes what happened.
    folder
        Where supervisors of this machine put their files.
    on_output
        As for `ProcessGroup`.

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
        on_output: Callable[[str, list[bytes]], None] = lambda _event, _lines: None,
    ) -> None:
        self.job, self._notify = job, notify
        self.groups = ProcessGroups(
            job, selector, folder, self._on_message, self.on_lost, on_output
        )
        self.slots = {place.host: place.slots for place in job.hosts}
        self.stage: Stage = "launch"
        self.state: StateName = "starting"
        self.reason = self.code = ""
        self.epoch, self.iteration = job.epoch, 0
        self.members: tuple[HostRows, ...] = ()
        self._rows = self._row_bytes = self._block_bytes = self._rollbacks = 0
        self._constant_bytes = 0
        self._rate, self._warned = 0.0, ""
        # Time of the last report of progress, and the longest time between two: at least an iteration.
        self._progress_at = self._progress_gap = 0.0
        # Ranks that have not yet saved, or left the old map, or have not answered the prefetch.
        self._awaited: set[tuple[str, int]] = set()
        # The report of a rank that cannot go on: time of the first one, host, reason and code.
        self.broken: tuple[float, str, str, str] | None = None
        # A loss that another loss may have caused: its time, its host and why.
        self._aborted: tuple[float, str, str] | None = None
        self._repairs = 0
        self._finished = False
        again = job.attempt > 1
        self._committed = self.groups.on_disk = again
        change = Reconfiguration.launched(job.members, self.slots, "commit" if again else "start")
        change.reason = "the job was started again" if again else ""
        self._begin(change)

    @property
    def status(self) -> ManagerStatus:
        """The job now."""
        busy = self.stage not in ("idle", "over")
        limits = (self.job.minimum, self.job.maximum or len(self.slots))
        found = (self.state, self.members, self.epoch, self.iteration, *limits, busy)
        return ManagerStatus(
            *found,
            warm=self.groups.warm(),
            row_bytes=self._row_bytes,
            block_bytes=self._block_bytes,
            rate=self._rate,
            constant_bytes=self._constant_bytes,
        )

    @property
    def ranks(self) -> int:
        """How many ranks the job has when the change under way is complete."""
        now = self.members if self.stage in ("idle", "over") else self.change.new
        return sum(self.slots[one.host] for one in now)

    def command(self, command: ResizeCommand) -> None:
        """Begin a command; asked only while idle. Answered by a `ResizeDone`, `ResizeRefused` or `RolledBack`."""
        self._learn(command.places)
        need = sum(self.slots[share.host] for share in command.hosts)
        if self._rows and need > self._rows:
            reason = f"{self._rows} rows for {need} ranks"
            self._notify(ResizeRefused(command.epoch, reason, code="rows-too-few"))
            return
        self.change = Reconfiguration.commanded(command, self.members, self._rows, self.slots)
        moved = rows_moved(self.members, self.change.new)
        self.change.seconds = self._cost(moved, command.rate).limit
        self.stage = "start"
        self.groups.start_on(*self.change.joining)
        self._on_parked()

    def _learn(self, places: Sequence[HostSpec]) -> None:
        """Take up how hosts are reached where nothing of the job is."""
        there = {*self.groups.groups, *(one.host for one in self.members)}
        new = [place for place in places if place.host not in there]
        self.job = self.groups.job = self.job.knowing(new)
        self.slots |= {place.host: place.slots for place in new}

    def tick(self) -> None:
        """Check every group, and end a stage that takes too long."""
        now = time.monotonic()
        for group in self.groups:
            group.check(now)
        self.judge_mpi_failure(now)
        if self._aborted and now - self._aborted[0] >= ABORTED_SECONDS:
            (_, host, why) = self._aborted
            self._recover(host, why=why, code="host-lost")
        if now - self.change.phase_started > self.stage_limit:
            self._end_stage()
        self._advance_when_empty()

    @property
    def stage_limit(self) -> float:
        """How long the stage under way may take; without limit if no change is under way."""
        change = self.change
        if self.stage == "leave":
            return change.seconds if self._awaited else LEAVE_SECONDS
        saving = SAVE_SECONDS + (self._rows * self._row_bytes + self._block_bytes) / SAVE_RATE
        # Wall time, unlike `peer.Silence`: a manager that got no CPU for longer finds its stage
        # over.
        limits = {"start": START_SECONDS, "merge": START_SECONDS, "launch": 2 * START_SECONDS,
                  "wait": max(SAFE_POINT_SECONDS, SAFE_POINT_GAPS * self._progress_gap),
                  "clear": CLEAR_SECONDS, "prefetch": change.seconds, "change": change.seconds, "save": saving,
                  "finish": LEAVE_SECONDS}  # fmt: skip
        return limits.get(self.stage, math.inf)

    def _end_stage(self) -> None:
        """End a stage that takes too long."""
        change, limit = self.change, f"{self.stage_limit:.3g} s"
        slow = [group.host for group in self.groups if group.phase == "starting"]
        if self.stage in PREPARING:
            self._end_preparation(slow, limit)
        elif self.stage == "clear":
            left = ", ".join(g.host for g in self.groups if g.phase not in ("empty", "parked"))
            self._end("failed", f"{left}: ranks not ended within {limit}", code="processes-left")
        elif self.stage == "launch" and change.origin != "start":
            self._recover(*slow[:1], why=f"not ready within {limit}", code="hosts-late")
        elif self.stage in ("launch", "change"):
            starts = change.origin == "start"
            what = "the job was not ready within" if starts else "the change took more than"
            self._abort_change(f"{what} {limit}", code="change-timeout")
        elif self.stage == "save":
            reason = f"{change.reason}; its state was not saved within {limit}"
            self._recover(why=reason, code="change-timeout")
        elif self.stage == "leave" and self._awaited:
            reason = f"the old communicators were not left within {limit}"
            self._recover(why=reason, code="change-timeout")
        elif self.stage == "leave":
            for host in change.leaving:
                self.groups[host].end()
        elif self.stage == "finish":
            self.groups.end()

    def _end_preparation(self, slow: Sequence[str], limit: str) -> None:
        """End a stage of a change before its safe point; `slow` are hosts whose ranks are not up."""
        if self.stage == "prefetch":
            self._end_prefetch()
        elif self.stage == "wait":
            self._refuse(f"no safe point within {limit}", code="safe-point-late")
        else:
            late = slow if self.stage == "start" else self.change.joining
            self._refuse(f"{', '.join(late)}: not ready within {limit}", code="hosts-late")

    def cancel(self) -> None:
        """End the job."""
        if self.stage != "over" and not self._finished:
            self._end("cancelled", "")

    def _begin(self, change: Reconfiguration) -> None:
        """Start all groups of a map whose data no live member holds."""
        self.change, self.groups.declared, self.stage = change, None, "launch"
        self.broken = None  # reports of the earlier ranks do not apply to the new ones
        change.joining = [one.host for one in change.new]
        self.groups.start_on(*change.joining)
        self._on_parked()  # a spare may have parked long ago

    def _on_parked(self) -> None:
        """Go on when every group that is to join has parked."""
        keys = self.change.joining
        if self.stage not in ("launch", "start"):
            return
        if any(self.groups[key].phase != "parked" for key in keys):
            return
        host, why = self.groups.unfit(keys)
        if host:
            self._give_up(host, why)
            return
        if self.stage == "launch":
            self._launch(keys)
        elif keys:
            self.stage = "merge"
            self.groups.merge_worlds("join", keys, plan=self.plan_document())
        else:
            self._on_merged("")

    def _on_merged(self, port: str) -> None:
        """Go on when the groups that are to join, if any, have merged and wait for the job at a port."""
        self.change.port = port
        self.change.end_phase("start")
        self._wait()

    def _wait(self) -> None:
        """Let rank 0 ask at the next safe point what there is to do."""
        self.stage = "wait"
        self.groups[self.members[0].host].send({"order": "ask"}, 0)

    def _launch(self, keys: Sequence[str]) -> None:
        """Let all groups merge and share out the data."""
        first = self.groups[keys[0]]
        self._rows = int(first.declared["rows"])
        self._row_bytes = int(first.declared["row_bytes"])
        self._constant_bytes = int(first.declared["constant_bytes"])
        need = sum(self.slots[member.host] for member in self.change.new)
        if self._rows and need > self._rows:
            self._end("failed", f"{self._rows} rows for {need} ranks", code="rows-too-few")
            return
        self.change.end_phase("start")
        self.change.assign_rows(self._rows, self.slots)
        self.change.seconds = self._cost(self._rows).limit
        self.stage = "change"
        self.groups.merge_worlds("launch", keys, plan=self.plan_document())

    def _cost(self, moved: int, rate: float = 0.0) -> ChangeCost:
        """Return what it costs to move so many rows, at this rate or that of the last change."""
        data = (self._rows, self._row_bytes, self._block_bytes)
        return ChangeCost.of(moved, *data, rate or self._rate, self._constant_bytes)

    def _answer_at_safe_point(self, group: ProcessGroup, rank: int) -> None:
        """Tell rank 0, which stands at a safe point with all others, what there is to do."""
        if self.stage != "wait":  # what there was has been given up
            group.send({"order": "none"}, rank)
            return
        change = self.change
        change.end_phase("wait")
        if self.prefetches:
            self.stage, change.secret = "prefetch", secrets.token_hex(16)
            self._awaited = self.groups.ranks_of("member", "joining")
            group.send(
                {"order": "prefetch", "plan": self.plan_document(), "secret": change.secret}, rank
            )
            return
        change.safe = time.monotonic()
        self.stage = "change"
        order = {"order": "resize", "prefetched": bool(change.secret)}
        self.groups.accept(change.joining)
        group.send({**order, "plan": self.plan_document(), "port": change.port}, rank)

    @property
    def prefetches(self) -> bool:
        """Whether constant arrays are to go to their new places before the change under way."""
        change = self.change
        if change.secret or change.origin != "live":
            return False
        return self._cost(rows_moved(self.members, change.new)).prefetched > 0

    def on_given(self, message: Message) -> None:
        """Take rank 0's word that the members give their parts of constant arrays: those that join fetch them."""
        order = {"order": "fetch", "plan": self.plan_document(), "secret": self.change.secret}
        for host in self.change.joining:
            found = {name: message[name] for name in ("sources", "located")}
            self.groups[host].send({**order, **found})

    def _on_fetched(self, group: ProcessGroup, rank: int, message: Message) -> None:
        """Take a rank's word of whether it has got what it is to have of constant arrays."""
        self._awaited.discard((group.host, rank))
        if message["whole"]:
            self.change.fetched.append((group.host, rank))
        if not self._awaited:
            self._end_prefetch()

    def _end_prefetch(self) -> None:
        """Go on to the change; who has not got everything yet gets it there."""
        self.change.end_phase("prefetch")
        self._awaited = set()
        self._wait()

    def plan_document(self) -> dict[str, object]:
        """Return the plan of the change under way, as the ranks get it."""
        change, command = self.change, self.change.command
        return ChangePlan(
            epoch=max(command.epoch if command else 0, self.epoch + 1),
            old=self.members,
            new=change.new,
            slots=self.slots,
            origin=change.origin,
            lost=change.lost,
            commits=self.groups.directory,
            attempt=self.job.attempt,
            prefetched=tuple(change.fetched),
            distances=self.job.task.get("distances", {}),
            cpus={share.host: share.cpus for share in command.hosts if share.cpus}
            if command and not change.reason
            else {},
        ).dump()

    def _on_message(self, group: ProcessGroup, rank: int, message: Message) -> None:
        """Take a message of a rank."""
        event = message["event"]
        if event == "parked":
            group.parked(message)
            self._on_parked()
        elif event in ("relay", "merged", "gives", "fetched"):
            self._on_preparation(group, rank, message)
        elif event == "failed" and self.stage != "clear":
            code = str(message.get("code") or "program-failed")[:MAX_CODE]
            self._end("failed", f"rank {rank} on {group.host}: {message['message']}", code=code)
        elif event == "safepoint":
            self._answer_at_safe_point(group, rank)
        elif event in ("broken", "saved", "unsaved"):
            self._on_fault(group, rank, message)
        elif event == "settled" and self.stage == "leave":
            self._on_settled(group, rank, message)
        elif event == "limits":
            self._notify(LimitsRequested(message["minimum"], message["maximum"]))
        elif event in ("progress", "finished", "committed", "changed"):
            self.iteration = message["iteration"]
            self._on_progress()
        self._advance(event, message)

    def _on_progress(self) -> None:
        """Measure the time between two reports of progress while the program computes."""
        now = time.monotonic()
        computes = self.stage in COMPUTING
        if computes and self._progress_at:
            self._progress_gap = max(self._progress_gap, now - self._progress_at)
        self._progress_at = now if computes else 0.0

    def _on_preparation(self, group: ProcessGroup, rank: int, message: Message) -> None:
        """Take reports of ranks before a change: of those that join and merge, of all that prefetch."""
        event = message["event"]
        if event == "relay" and self.stage in ("merge", "change"):
            self.groups.relay(group, self.change.joining, message)
        elif event == "merged" and self.stage == "merge":
            self._on_merged(message["port"])
        elif event == "gives" and self.stage == "prefetch":
            self.on_given(message)
        elif event == "fetched" and self.stage == "prefetch":
            self._on_fetched(group, rank, message)

    def _on_fault(self, group: ProcessGroup, rank: int, message: Message) -> None:
        """Take a rank's word that it cannot go on, or that it has saved what it had."""
        event = message["event"]
        if event == "broken":
            said = f"rank {rank} on {group.host}: {message['message']}"
            since = time.monotonic() - (BROKEN_SECONDS if message["certain"] else 0.0)
            self.broken = self.broken or (since, group.host, said, "mpi-failed")
        elif event == "unsaved" and self.stage == "save":
            reason = f"{self.change.reason}; no state was saved: {message['reason']}"
            self._recover(why=reason, code="state-not-saved")
        elif event == "saved" and self.stage == "save":
            self._awaited.discard((group.host, rank))
            if not self._awaited:
                self._restart_old_map("saved")

    def _on_settled(self, group: ProcessGroup, rank: int, message: Message) -> None:
        """Take a rank's word that it has left the old communicators; the first one's says what took how long."""
        self._awaited.discard((group.host, rank))
        self._row_bytes, self._constant_bytes = message["row_bytes"], message["constant_bytes"]
        self._block_bytes += message["block_bytes"]
        self.change.phases.update(message.get("phases", {}))
        if not self._awaited:
            self.change.phase_started, self.broken = time.monotonic(), None

    def _advance(self, event: str, message: Message) -> None:
        """Take the step of the state machine that a message of rank 0 calls for."""
        if event == "changed" and self.stage == "change" and self._lacks_commit(message):
            where = self.groups.directory
            reason = f"no commit in {where} is complete and matches the program's declarations"
            self._end("failed", reason, code="commit-unusable")
        elif event == "changed" and self.stage == "change":
            # From here on the new map holds, whatever happens to the hosts that leave.
            self.change.complete(message, self.members)
            self.change.phase_started = time.monotonic()
            self.groups.commit_change(self.change.leaving)
            self.members, self.epoch = self.change.new, message["epoch"]
            self.stage, self.state = "leave", "running"
            self._awaited, self._block_bytes = self.groups.ranks_of("member"), 0
        elif event == "committed":
            self._rollbacks, self._committed, self._warned = 0, True, ""
            self.groups.on_disk |= message["on_disk"]
        elif event == "uncommitted" and message["reason"] != self._warned:
            self._warned = message["reason"]
            line = f"warning: no commit at iteration {message['iteration']}: {self._warned}"
            self.groups.on_output("error", [f"{line}; the last one stays".encode()])
        elif event == "finished":
            self._finish()
        self._advance_when_empty()

    def _lacks_commit(self, message: Message) -> bool:
        """Whether a job that was started again found nothing to go on from: it is not to compute all once more."""
        return self.job.attempt > 1 and self.change.origin == "commit" and not message["commit"]

    def _advance_when_empty(self) -> None:
        """Take the step that waited until groups were empty."""
        change = self.change
        if self.stage == "leave":
            if self.groups.all_empty_on(change.leaving) and not self._awaited:
                self._complete(change)
        elif self.stage == "clear" and all(g.phase in ("empty", "parked") for g in self.groups):
            self.groups.retain([one.host for one in change.new])
            self._begin(change)
        elif self.stage == "finish" and self.groups.all_empty():
            self.stage = "over"
            self._notify_result(change)
            self._notify(JobEnded(self.state, self.reason, self.code))

    def _complete(self, change: Reconfiguration) -> None:
        self.groups.release(change.leaving)
        if change.leaving:
            change.end_phase("leave")
        self.stage = "idle"
        if change.origin == "live" and change.rate_bytes >= MIN_MEASURED_BYTES:
            self._rate = change.rate_bytes / max(change.phases["redistribute"], 1e-6)
        self._notify_result(change)
        self.groups.start_warm()

    def _notify_result(self, change: Reconfiguration) -> None:
        """Notify what came of a change whose map holds."""
        notice = change.notice(self.epoch, self.members, self.iteration)
        if notice is not None:
            self._notify(notice)

    def _answer(self, reason: str, *, code: str) -> None:
        """Refuse the command under way, if there is one."""
        command, self.change.command = self.change.command, None
        if command is not None and self.stage not in ("idle", "over"):
            self._notify(ResizeRefused(command.epoch, reason, code))

    def _abort_change(self, reason: str, *, code: str) -> None:
        """Give a change up whose safe point is reached and that does not hold yet."""
        change = self.change
        if change.origin == "live":
            self.groups.discard_newcomers(change.joining, keep_parked=False)
            # The rows are still in memory, but MPICH is not usable: accept never returns for a dead
            # newcomer, and old communicators share progress with new ones. So members save without
            # MPI and restart.
            change.reason, change.code = reason, code
            change.phase_started, self.stage = time.monotonic(), "save"
            self._awaited = self.groups.ranks_of("member")
            self.groups.save()
        elif change.origin == "start":
            self._end("failed", reason, code=code)
        else:
            self._recover(why=reason, code=code)

    def _restart_old_map(self, origin: ChangeOrigin) -> None:
        """Start the old map again, with the data of the safe point."""
        self.change = self.change.reverted(self.members, origin)
        self._clear()

    def _clear(self) -> None:
        """End every rank, to begin the change under way then."""
        self.stage, self._aborted = "clear", None
        self.groups.end(keep_parked=True)

    def judge_mpi_failure(self, now: float) -> None:
        """Take a rank's word that MPI failed for the cause, where no loss was heard of behind it."""
        # A rank whose peer was killed reports an MPI error before the loss itself is known: wait
        # for the loss.
        if self.broken is None or self.stage == "clear" or now - self.broken[0] < BROKEN_SECONDS:
            return
        (_, host, reason, code), self.broken = self.broken, None
        if self.stage in ("merge", "wait", "prefetch") and host in self.change.joining:
            self._refuse(reason, code=code)
        elif self.stage == "change":
            self._abort_change(reason, code=code)
        elif self.stage == "leave":
            self._recover(why=reason, code=code)
        # Without a commit a restart would repeat all of the work, and a wrong MPI call of the
        # program would fail there again.
        elif self.stage in COMPUTING and self._committed:
            self._repair(reason, code=code)
        elif self.stage in COMPUTING:
            self._end("failed", reason, code=code)

    def _repair(self, reason: str, *, code: str) -> None:
        """Start all ranks again from the last commit: MPI failed, and no process was lost; not again and again."""
        self._repairs += 1
        if self._repairs > MAX_REPAIRS:
            self._end("failed", reason, code=code)
        else:
            self._recover(why=reason, code=code)

    def _refuse(self, reason: str, *, code: str) -> None:
        """Give a command up before anything changed."""
        self._answer(reason, code=code)
        self.stage = "idle"
        joining, self.change.joining = self.change.joining, []
        if self.change.secret:  # rank 0 asks, and all members forget what they have got
            self.groups[self.members[0].host].send({"order": "ask"}, 0)
        if self.broken is not None and self.broken[1] in joining:
            self.broken = None
        self.groups.discard_newcomers(joining)
        self.groups.start_warm()

    def _give_up(self, host: str, why: str) -> None:
        """Refuse a command, go on without a host that cannot take a commit, or end a launch."""
        if self.stage != "launch":
            self._refuse(f"{host}: {why}", code="host-unfit")
        elif self.change.origin == "commit":
            self._recover(host, why=why, code="host-unfit")
        else:
            self._end("failed", f"{host}: {why}", code="host-unfit")

    def _finish(self) -> None:
        """See all groups end: the program has finished."""
        if self.stage == "leave":
            # The map holds, which is said once the hosts that leave are empty.
            self.change.phase_started = time.monotonic()
        else:
            self._answer("the job finished first", code="job-ended")
            self.change = Reconfiguration(None, (), self.members)
        self._finished, self._aborted = True, None
        self.stage, self.state = "finish", "finished"
        for group in self.groups:
            if group.phase in ("starting", "parked", "joining"):
                group.end()

    def _end(self, state: StateName, reason: str, *, code: str = "") -> None:
        """End everything now."""
        if self.stage in ("finish", "over"):
            return
        self.state, self.reason, self.code = state, reason, code
        self.stage, self.change = "finish", Reconfiguration(None, (), self.members)
        self._aborted = None
        self.groups.end()

    def on_lost(self, group: ProcessGroup, why: str) -> None:
        """Act on the loss of a group; where its ranks aborted, wait first for the loss that may have caused it.

        For example, a rank on bob is killed, and MPI aborts the rank on ada that receives from it. Where the
        report from ada comes first, bob is the host that was lost all the same.
        """
        others = (one for one in self.groups if one is not group and one.phase == "member")
        if group.aborted and self.stage in COMPUTING and group.phase == "member" and any(others):
            self._aborted = self._aborted or (time.monotonic(), group.host, why)
        else:
            self._lose(group, why)

    def _lose(self, group: ProcessGroup, why: str) -> None:
        """Decide what the loss of a group means: nothing, a refusal, the end of the job, or a rollback."""
        change, said = self.change, f"{group.host}: {why}"
        joins = group.host in change.joining
        undecided = joins and change.origin == "live"
        waits = group.phase in ("parked", "starting")
        if self.stage in ("finish", "over") or group.phase == "leaving":
            group.end()
            if self.stage == "leave" and self._awaited:  # may be they wait for it
                self.broken = self.broken or (time.monotonic(), group.host, said, "host-lost")
        elif self.stage in PREPARING and undecided:
            self.groups.discard(group.host)
            self._refuse(said, code="host-lost")
        elif self.stage in ("launch", "change") and undecided:
            self._abort_change(said, code="host-lost")
        elif waits and not (joins and self.stage in ("launch", "change")):
            self.groups.discard(group.host)
        elif self.stage == "launch" and change.origin == "start":
            self._end("failed", said, code="host-lost")
        else:
            self._recover(group.host, why=why, code="host-lost")

    def _recover(self, host: str = "", *, why: str, code: str) -> None:
        """End all ranks; what is left without a host, or with all, starts again from the last commit."""
        change = self.change
        reason = f"{host} was lost: {why}" if host else why
        lost = (*change.lost, host) if self.stage in ("launch", "change", "clear") else (host,)
        command = None if self.stage == "idle" else change.command
        self.groups.lost.update(filter(None, lost))
        left = self._map_without(lost)
        self._rollbacks += 1
        if len(left) < max(1, self.job.minimum):
            self._end(
                "failed",
                f"{reason}; {len(left)} hosts are left of {self.job.minimum} needed",
                code="too-few-hosts-left",
            )
        elif self._rollbacks > MAX_ROLLBACKS:
            reason = f"{reason}; {self._rollbacks} losses without a commit between"
            self._end("failed", reason, code="losses-repeated")
        else:
            shares = tuple(HostShare(one.host, one.weight) for one in left)
            lost = tuple(filter(None, lost))
            self.change = Reconfiguration(
                command, shares, left, origin="commit", lost=lost, reason=why, code=code
            )
            self._clear()

    def _map_without(self, lost: Sequence[str]) -> tuple[HostRows, ...]:
        """Return the map with a spare in place of each host that was lost, or without it where there is none.

        A spare gets what the lost host had, by the number of its slots: how fast it is the manager does not know.
        """
        before = self.members or self.change.new
        spares = self.groups.standby_hosts({*lost, *(one.host for one in before)})
        room = self._rows - sum(self.slots[m.host] for m in before) if self._rows else math.inf
        found = []
        for one in before:
            fits = (s for s in spares if self.slots[s] - self.slots[one.host] <= room)
            spare = next(fits, None) if one.host in lost else one.host
            if spare is None:
                room += self.slots[one.host]
                continue
            if spare != one.host:
                spares.remove(spare)
                room -= self.slots[spare] - self.slots[one.host]
            weight = one.weight * self.slots[spare] / self.slots[one.host]
            found.append(replace(one, host=spare, weight=weight))
        return tuple(found)
