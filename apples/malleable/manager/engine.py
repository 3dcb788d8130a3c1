"""`ReconfigurationEngine`: the state machine that carries out the commands of one job.

It starts process groups, sends orders to their ranks, and notifies the outcome. Every host has an MPI world of its
own, and a change merges worlds. After the loss of a host, the other hosts restart from the last commit.

The stages of a change, each with the event that ends it:

    change   idle -> start (new groups have parked) -> merge (their MPI worlds have merged)
             [-> wait -> prefetch (constant arrays are in their new places, while the program computes)]
             -> wait (rank 0 requests its order at a safe point) -> change (all data is in its new places)
             -> leave (released hosts are empty) -> idle
    back     change -> save (every member has saved its data of the safe point) -> clear -> launch -> ..
    loss     any -> clear (every rank has been killed) -> launch -> change -> leave -> idle
    end      any -> finish (every host is empty) -> over

A newcomer becomes a member at the end of ``change``, when the manager commits the new map. If a host is lost
before it is a member, the command is refused. Before the safe point this does not affect the program. After it the
change is aborted: the members restart on their old map with their data of the safe point. Only the loss of a
member costs iterations, those since the last commit. A standby host of the job's list replaces it.
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
    """One change of a job's hosts, from its begin to its answer.

    Attributes
    ----------
    command
        The command that caused the change; None for a launch, after a loss without a command, and after the
        answer.
    shares, new
        The new map, and its strips. The strips of a launch have no rows until the program has reported its rows.
    origin
        Source of the data, as in `ChangePlan`.
    lost, reason, code
        Lost hosts that caused the change, and the reason; or the reason to refuse the command, if the change
        restores the old map. The code names the condition.
    phase_started
        Start of the present phase.
    safe
        Time of the safe point; 0 before it.
    seconds
        Time limit from the safe point until the new map is in force.
    port
        MPI port at which the merged newcomers wait for the job's connection.
    secret
        Secret of the ranks that serve parts of constant arrays before the change; empty: no prefetch.
    fetched
        Ranks that have prefetched all their parts of constant arrays.
    rate_bytes
        Part of `moved_bytes` that moved while the job stood still.
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
        """Return the change for a command."""
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
        """Return the change that starts all hosts of a map, in its order."""
        return cls(None, tuple(shares), strips(shares, 0, slots), origin=origin)

    def end_phase(self, name: str) -> None:
        """End the present phase and begin the next; the times of a repeated phase are added up."""
        now = time.monotonic()
        self.phases[name] = self.phases.get(name, 0.0) + now - self.phase_started
        self.phase_started = now

    def assign_rows(self, rows: int, slots: Mapping[str, int]) -> None:
        """Assign rows to the new strips, after the program has reported its number of rows."""
        by_host = {share.host: share for share in self.shares}
        self.new = strips([by_host[one.host] for one in self.new], rows, slots)

    def reverted(self, members: Sequence[HostRows], origin: ChangeOrigin) -> Reconfiguration:
        """Return the change that restarts the old map, by which this change is aborted."""
        shares = tuple(HostShare(one.host, one.weight, rows=one.rows) for one in members)
        return Reconfiguration(
            self.command, shares, tuple(members), origin=origin,
            reason=self.reason, code=self.code, safe=self.safe,
        )  # fmt: skip

    @property
    def aborted(self) -> bool:
        """Whether this change restores the old map after a failed command."""
        return self.origin == "saved" and bool(self.reason)

    def complete(self, message: Message, old: Sequence[HostRows]) -> None:
        """Handle rank 0's report that all data is in its new places."""
        self.moved_bytes, self.rate_bytes = message["bytes"] + message["fetched"], message["bytes"]
        self.moved_rows = rows_moved(old, self.new) if old and self.origin == "live" else 0

    def notice(
        self, epoch: int, now: Sequence[HostRows], iteration: int
    ) -> ResizeDone | ResizeRefused | RolledBack | None:
        """Return the notice of the complete change; None for the launch."""
        seconds = time.monotonic() - (self.safe or self.begun)
        if self.origin == "commit":
            found = (epoch, self.lost, self.reason, tuple(now), iteration, seconds)
            return RolledBack(*found, code=self.code)
        if self.command is None:
            return None
        if self.aborted:
            return ResizeRefused(epoch, self.reason, self.code)
        # The engine's own epochs begin with the launch and differ from the agent's: use the command's.
        done = (self.command.epoch, tuple(now), seconds, self.phases)
        return ResizeDone(*done, self.moved_rows, self.moved_bytes)


MAX_CODE = 60
"""Largest length of a program's own error code."""
START_SECONDS = 60.0
"""Time limit for the groups of a change to park and to merge; twice as long at the launch."""
SAFE_POINT_SECONDS = 300.0
"""Time limit for a safe point, or `SAFE_POINT_GAPS` times the longest gap between progress reports, if longer."""
SAFE_POINT_GAPS = 4.0
CLEAR_SECONDS = 60.0
"""Time limit for killed ranks to end before a restart: only a rank that waits inside the kernel takes longer."""
SAVE_SECONDS = 60.0
"""Time limit for members to save their data, in addition to the time that a slow memory takes for it."""
SAVE_RATE = 1e8
BROKEN_SECONDS = 10.0
"""Delay from a rank's report of an MPI failure until that counts as the cause: mostly the report of a loss
follows."""
ABORTED_SECONDS = 3.0
"""Delay from the end of a rank with an exit code until its host counts as lost. The report of the loss that caused
it may come later, because that supervisor waits up to two seconds for mpiexec to print the exit code."""
LEAVE_SECONDS = 5.0
"""Time limit for released ranks to end by themselves before they are killed."""
PREPARING = ("start", "merge", "wait", "prefetch")
"""Stages of a change before the job stands still for it."""
COMPUTING = ("idle", *PREPARING)
"""Stages in which the program computes, and only the loss of a member affects it."""
MAX_ROLLBACKS = 3
"""Largest number of rollbacks in a row, without a commit between them."""
MAX_REPAIRS = 3
"""Largest number of restarts of a job after MPI failures without a lost process: more are a fault of the
program."""


class ReconfigurationEngine:
    """Carries out the commands of one job.

    Parameters
    ----------
    notify
        Called with each notice.
    folder
        Folder for the files of supervisors on this machine.
    on_output
        As for `ProcessGroup`.

    Attributes
    ----------
    members
        The strips of the map in force; empty until the launch is complete.
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
        # Time of the last progress report, and the longest gap between two: at least an iteration.
        self._progress_at = self._progress_gap = 0.0
        # Ranks that must still save, leave the old map, or answer the prefetch.
        self._awaited: set[tuple[str, int]] = set()
        # The report of a rank that cannot go on: time of the first one, host, reason and code.
        self.broken: tuple[float, str, str, str] | None = None
        # A loss that another loss may have caused: its time, host and reason.
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
        """The present status of the job."""
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
        """Number of the job's ranks after the change in progress."""
        now = self.members if self.stage in ("idle", "over") else self.change.new
        return sum(self.slots[one.host] for one in now)

    def command(self, command: ResizeCommand) -> None:
        """Begin a command; called only while idle. The answer is `ResizeDone`, `ResizeRefused` or `RolledBack`."""
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
        """Store the specifications of hosts on which the job has no processes."""
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
        """Time limit of the present stage; infinite if no change is in progress."""
        change = self.change
        if self.stage == "leave":
            return change.seconds if self._awaited else LEAVE_SECONDS
        saving = SAVE_SECONDS + (self._rows * self._row_bytes + self._block_bytes) / SAVE_RATE
        # Wall time, unlike `peer.Silence`: the stage also ends if the manager got no CPU for that long.
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
        """End a stage of a change before its safe point; the ranks of the `slow` hosts are not up."""
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
        """Start all groups of a map, from a state that no live member holds."""
        self.change, self.groups.declared, self.stage = change, None, "launch"
        self.broken = None  # reports of the earlier ranks do not apply to the new ranks
        change.joining = [one.host for one in change.new]
        self.groups.start_on(*change.joining)
        self._on_parked()  # all groups may be warm groups that have parked already

    def _on_parked(self) -> None:
        """Begin the next stage once every joining group has parked."""
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
        """Begin the next stage: the joining groups, if any, have merged and wait for the job at a port."""
        self.change.port = port
        self.change.end_phase("start")
        self._wait()

    def _wait(self) -> None:
        """Order rank 0 to request its order at the next safe point."""
        self.stage = "wait"
        self.groups[self.members[0].host].send({"order": "ask"}, 0)

    def _launch(self, keys: Sequence[str]) -> None:
        """Order all groups to merge and to distribute the data."""
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
        """Return the cost to move this number of rows, at this rate or at that of the last change."""
        data = (self._rows, self._row_bytes, self._block_bytes)
        return ChangeCost.of(moved, *data, rate or self._rate, self._constant_bytes)

    def _answer_at_safe_point(self, group: ProcessGroup, rank: int) -> None:
        """Send rank 0, which waits at a safe point with all other ranks, its order."""
        if (
            self._aborted
        ):  # all ranks wait for their restart: no change begins without the lost host
            return
        if self.stage != "wait":  # the change was refused meanwhile
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
        """Whether constant arrays move to their new places before the change in progress."""
        change = self.change
        if change.secret or change.origin != "live":
            return False
        return self._cost(rows_moved(self.members, change.new)).prefetched > 0

    def on_given(self, message: Message) -> None:
        """Order the joining ranks to fetch constant arrays, after rank 0 reported that the members serve them."""
        order = {"order": "fetch", "plan": self.plan_document(), "secret": self.change.secret}
        for host in self.change.joining:
            found = {name: message[name] for name in ("sources", "located")}
            self.groups[host].send({**order, **found})

    def _on_fetched(self, group: ProcessGroup, rank: int, message: Message) -> None:
        """Handle a rank's report of its prefetch of constant arrays, complete or not."""
        self._awaited.discard((group.host, rank))
        if message["whole"]:
            self.change.fetched.append((group.host, rank))
        if not self._awaited:
            self._end_prefetch()

    def _end_prefetch(self) -> None:
        """Go on to the change, in which ranks with an incomplete prefetch get the other parts."""
        self.change.end_phase("prefetch")
        self._awaited = set()
        self._wait()

    def plan_document(self) -> dict[str, object]:
        """Return the plan of the change in progress, as it is sent to the ranks."""
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
        """Handle a message of a rank."""
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
        """Measure the time between two progress reports while the program computes."""
        now = time.monotonic()
        computes = self.stage in COMPUTING
        if computes and self._progress_at:
            self._progress_gap = max(self._progress_gap, now - self._progress_at)
        self._progress_at = now if computes else 0.0

    def _on_preparation(self, group: ProcessGroup, rank: int, message: Message) -> None:
        """Handle reports before a change: of ranks that join and merge, and of ranks that prefetch."""
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
        """Handle a rank's report that it cannot continue, or that it has saved its state."""
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
        """Handle a rank's report that it left the old communicators; that of the first rank has the phases."""
        self._awaited.discard((group.host, rank))
        self._row_bytes, self._constant_bytes = message["row_bytes"], message["constant_bytes"]
        self._block_bytes += message["block_bytes"]
        self.change.phases.update(message.get("phases", {}))
        if not self._awaited:
            self.change.phase_started, self.broken = time.monotonic(), None

    def _advance(self, event: str, message: Message) -> None:
        """Take the step of the state machine for a message of rank 0."""
        if event == "changed" and self.stage == "change" and self._lacks_commit(message):
            where = self.groups.directory
            reason = f"no commit in {where} is complete and matches the program's declarations"
            self._end("failed", reason, code="commit-unusable")
        elif event == "changed" and self.stage == "change":
            # From here on the new map is in force, also if a leaving host is lost.
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
        """Whether a restarted job has no usable commit: its restart fails, so that it does not repeat all work."""
        return self.job.attempt > 1 and self.change.origin == "commit" and not message["commit"]

    def _advance_when_empty(self) -> None:
        """Take the next step if it waits for groups to be empty and they are."""
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
        """Notify the outcome of a change after its map is in force."""
        notice = change.notice(self.epoch, self.members, self.iteration)
        if notice is not None:
            self._notify(notice)

    def _answer(self, reason: str, *, code: str) -> None:
        """Refuse the command in progress, if any."""
        command, self.change.command = self.change.command, None
        if command is not None and self.stage not in ("idle", "over"):
            self._notify(ResizeRefused(command.epoch, reason, code))

    def _abort_change(self, reason: str, *, code: str) -> None:
        """Abort a change after its safe point, before the new map is in force."""
        change = self.change
        if change.origin == "live":
            self.groups.discard_newcomers(change.joining, keep_parked=False)
            # The rows are still in memory, but MPICH is not usable: accept never returns for a dead newcomer, and
            # old and new communicators share progress. So members save without MPI and restart.
            change.reason, change.code = reason, code
            change.phase_started, self.stage = time.monotonic(), "save"
            self._awaited = self.groups.ranks_of("member")
            self.groups.save()
        elif change.origin == "start":
            self._end("failed", reason, code=code)
        else:
            self._recover(why=reason, code=code)

    def _restart_old_map(self, origin: ChangeOrigin) -> None:
        """Restart the old map with the data of the safe point."""
        self.change = self.change.reverted(self.members, origin)
        self._clear()

    def _clear(self) -> None:
        """Kill every rank; the change in progress begins when all have ended."""
        self.stage, self._aborted = "clear", None
        self.groups.end(keep_parked=True)

    def judge_mpi_failure(self, now: float) -> None:
        """Act on a rank's report of an MPI failure if no loss was reported as its cause in time."""
        # After a kill, the peer's MPI error arrives before the report of the loss: wait for that report.
        if self.broken is None or self._aborted or self.stage == "clear":
            return
        if now - self.broken[0] < BROKEN_SECONDS:
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
        """Restart all ranks from the last commit after an MPI failure without a loss; at most `MAX_REPAIRS`."""
        self._repairs += 1
        if self._repairs > MAX_REPAIRS:
            self._end("failed", reason, code=code)
        else:
            self._recover(why=reason, code=code)

    def _refuse(self, reason: str, *, code: str) -> None:
        """Refuse a command before anything has changed."""
        self._answer(reason, code=code)
        self.stage = "idle"
        joining, self.change.joining = self.change.joining, []
        if (
            self.change.secret
        ):  # rank 0 requests its order, and all members drop the prefetched parts
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
        """Wait for the end of all groups: the program has finished."""
        if self.stage == "leave":
            # The map is in force; the notice follows once the leaving hosts are empty.
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
        """Act on the loss of a group; if its ranks aborted, first wait for the loss that may have caused it.

        For example, a rank on bob is killed, and MPI aborts the rank on ada that receives from it. Even if the
        report from ada arrives first, bob is the lost host. If all ranks abort, the first host is the lost host.
        """
        others = (one for one in self.groups if one is not group and one.phase == "member")
        waits = self._aborted or any(others)
        if group.aborted and self.stage in COMPUTING and group.phase == "member" and waits:
            self._aborted = self._aborted or (time.monotonic(), group.host, why)
        else:
            self._lose(group, why)

    def _lose(self, group: ProcessGroup, why: str) -> None:
        """Choose the reaction to the loss of a group: none, a refusal, the end of the job, or a rollback."""
        change, said = self.change, f"{group.host}: {why}"
        joins = group.host in change.joining
        undecided = joins and change.origin == "live"
        waits = group.phase in ("parked", "starting")
        if self.stage in ("finish", "over") or group.phase == "leaving":
            group.end()
            if (
                self.stage == "leave" and self._awaited
            ):  # the other ranks may wait for the lost group
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
        """Kill all ranks and restart from the last commit, without `host` if it is given."""
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
        """Return the map with a standby host in place of each lost host, or without it if no standby host fits.

        A standby host gets the lost host's share, scaled by its number of slots; the manager does not know its
        speed.
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
