"""A job of the live scheduler as a frozen value, with the steps from one state to the next.

    queued -> starting -> running <-> resizing | unsettled -> ending -> finished | failed | cancelled | lost
       ^------------------------------------------------------- (its hosts failed it: the next attempt)

A job holds its present hosts, the hosts of an open order, and each host that it has to leave until that host
reports that nothing of the job is there. No other job gets a held host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from apples.cluster.orders import LAST, HostChoice, attached_requirement
from apples.scheduling.jobs import Job, JobKind

MAX_RESTARTS = 2
"""How often a job is queued again after a failure of its hosts."""


class LiveJobState(StrEnum):
    """The state of a job."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    RESIZING = "resizing"
    UNSETTLED = "unsettled"
    """It has not answered an order to resize in time."""
    ENDING = "ending"
    """It is over or has to end; some of its hosts have not reported that nothing of it is left there."""
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"
    """It was started, and its executor no longer finds it."""


MAX_TALKING, MAX_TALK = 32, 1000
"""Limits of a submission's message matrix: number of hosts, and value of an entry (only ratios count)."""
OVER = frozenset({
    LiveJobState.FINISHED, LiveJobState.FAILED, LiveJobState.CANCELLED, LiveJobState.LOST,
})  # fmt: skip
CHANGING = frozenset({LiveJobState.RESIZING, LiveJobState.UNSETTLED})


@dataclass(frozen=True, slots=True)
class JobSubmission:
    """The submitted description of a job; never changes.

    Attributes
    ----------
    minimum, maximum
        Hosts that it can run on; equal for a rigid job.
    requested
        Estimate of its run time on `maximum` hosts, seconds.
    modelled
        Whether its user gave no estimate: that of the application's model replaces `requested`.
    user
        User that submitted it.
    name
        Its name in lists.
    work
        The work for its executor.
    after
        Jobs that have to finish before it waits for hosts.
    messages
        Square matrix: amount that each of its hosts sends each other host, in any unit, as measured by an earlier
        run on that number of hosts; empty: not known.
    """

    minimum: int
    maximum: int
    kind: JobKind = JobKind.RIGID
    requested: float = 3600.0
    priority: float = 0.0
    user: str = ""
    name: str = ""
    work: Mapping[str, Any] = field(default_factory=dict, hash=False)
    after: tuple[int, ...] = ()
    messages: tuple[tuple[int, ...], ...] = ()
    modelled: bool = False

    @property
    def content_bytes(self) -> int:
        """Size in bytes of the files that the order carries."""
        contents = self.work.get("contents")
        return len(str(contents).encode()) if contents else 0

    def without_contents(self) -> JobSubmission:
        """Return the submission without the files that its order carries; an ended job does not need them."""
        if "contents" not in self.work:
            return self
        kept = {name: value for name, value in self.work.items() if name != "contents"}
        return replace(self, work=kept)


@dataclass(frozen=True, slots=True)
class LiveJob:
    """One job.

    Attributes
    ----------
    submitted, started, ended
        Seconds of the scheduler's clock; the last two are those of the last attempt.
    attempt, folder
        Number of the attempt, from 1, and the name of its folder.
    epoch
        Number of the last order to resize this attempt.
    hosts
        Hosts on which it runs or is being started.
    wanted
        Hosts of the open order; empty: no order is open.
    leaving
        Host -> number of the order by which it leaves, until its executor reports that it has left.
    outcome
        Its state after it has left all hosts; `QUEUED`: the next attempt.
    over
        Whether this attempt is known to be over.
    restarts
        How often it was queued again because its hosts failed it.
    resizes
        Number of resizes done, over all attempts.
    reason
        Reason of its end; for a running job, the reason of its last resize.
    host_seconds
        Host seconds that this attempt has used until `placed`, the time at which it came to its present hosts.
    asks
        Fewest and most hosts that its running program has asked for (``job.request``); None: it has not.
    estimate
        Run time on `maximum` hosts by its application's model, in seconds; 0: the model cannot estimate it, or
        the user gave an estimate. None: the model was not asked, or has not answered.
    host_choices
        The best sets of hosts by its application's model, the best first; None: not asked.
    held
        Reason that its policy took it out of the queue; empty: it did not.
    placed_by
        Source of its hosts, in words, if its application's model was asked; empty: the host list.
    mates, share
        Jobs that share their hosts with this attempt as their guest, and its part of the CPUs there.
    delay
        Seconds that sharing its hosts adds to this attempt, as its policy estimates.
    started_on
        The hosts on which this attempt was started; empty: the record of an older version.
    """

    number: int
    submission: JobSubmission
    submitted: float
    state: LiveJobState = LiveJobState.QUEUED
    attempt: int = 0
    folder: str = ""
    epoch: int = 0
    hosts: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    leaving: Mapping[str, int] = field(default_factory=dict, hash=False)
    started: float | None = None
    ended: float | None = None
    reason: str = ""
    exit_code: int | None = None
    outcome: LiveJobState | None = None
    over: bool = False
    restarts: int = 0
    resizes: int = 0
    host_seconds: float = 0.0
    placed: float | None = None
    asks: tuple[int, int] | None = None
    estimate: float | None = None
    placed_by: str = ""
    mates: tuple[int, ...] = ()
    share: float = 1.0
    delay: float = 0.0
    started_on: tuple[str, ...] = ()
    host_choices: tuple[HostChoice, ...] | None = None
    held: str = ""

    # -------------------------------------------------------------------------- properties
    @property
    def holds(self) -> frozenset[str]:
        """The hosts that no other job may have."""
        return frozenset((*self.hosts, *self.wanted, *self.leaving))

    @property
    def is_over(self) -> bool:
        """Whether it is in a final state."""
        return self.state in OVER

    @property
    def waits(self) -> bool:
        """Whether it is in the queue."""
        return self.state is LiveJobState.QUEUED

    @property
    def settled(self) -> bool:
        """Whether it is on the hosts where it should run, and has left all others."""
        return self.state in {LiveJobState.STARTING, LiveJobState.RUNNING} and not self.leaving

    @property
    def requested(self) -> float:
        """Its run time on `maximum` hosts: the model's estimate, else that of the submission."""
        return self.estimate or self.submission.requested

    @property
    def unestimated(self) -> bool:
        """Whether the model has not yet estimated its run time."""
        return self.submission.modelled and self.estimate is None and not self.is_over

    @property
    def wants(self) -> int | None:
        """Number of hosts that an evolving job wants: of the requested range, the nearest to its present number.

        Stays between the bounds of its submission. None: it has enough.
        """
        if self.asks is None or self.submission.kind is not JobKind.EVOLVING or not self.hosts:
            return None
        least, most = map(self._within, self.asks)
        wanted = min(max(len(self.hosts), least), most)
        return None if wanted == len(self.hosts) else wanted

    @property
    def requirement(self) -> str:
        """The requirement on its CPUs; with one, it shares its hosts with no other job. Empty: none."""
        return attached_requirement(self.submission.work)

    def as_job(self, cpus: int = 0) -> Job:
        """Return the job as a policy sees it, on hosts with this number of CPUs that jobs share.

        0: it shares its hosts with no other (`exclusive`), and a host counts as one processor. An evolving job
        asks for its fewest hosts at first. The request of a malleable job sets its bounds; the lower bound is
        never above its present number of hosts.
        """
        one = self.submission
        least, most = one.minimum, one.maximum
        if self.asks is not None and self.hosts and one.kind is JobKind.MALLEABLE:
            least, most = map(self._within, self.asks)
            least = min(least, len(self.hosts))
        asked, each = least if one.kind is JobKind.EVOLVING else most, cpus or 1
        return Job(
            self.number, self.submitted, asked * each, self.requested, least * each, most * each, one.kind,
            user=one.user, priority=one.priority, exclusive=not cpus or bool(self.requirement),
        )  # fmt: skip

    def _within(self, hosts: int) -> int:
        return min(max(hosts, self.submission.minimum), self.submission.maximum)

    # ------------------------------------------------------------------------------- steps
    def start(
        self,
        hosts: tuple[str, ...],
        folder: str,
        now: float,
        mates: tuple[int, ...] = (),
        share: float = 1.0,
        delay: float = 0.0,
        placed_by: str = "",
    ) -> LiveJob:
        """Return the job with an order to start its next attempt, as a guest of its mates if it has any."""
        return replace(
            self, state=LiveJobState.STARTING, attempt=self.attempt + 1, folder=folder, epoch=0, hosts=hosts,
            started=now, ended=None, reason="", exit_code=None, outcome=None, over=False, asks=None,
            mates=mates, share=share, delay=delay, placed_by=placed_by, started_on=hosts, held="",
        )  # fmt: skip

    def run(self) -> LiveJob:
        """Return the job as running."""
        return replace(self, state=LiveJobState.RUNNING)

    def resize(self, hosts: tuple[str, ...], reason: str = "") -> LiveJob:
        """Return the job with an order to move to other hosts, and its reason."""
        return replace(
            self, state=LiveJobState.RESIZING, epoch=self.epoch + 1, wanted=hosts, reason=reason
        )

    def unsettle(self) -> LiveJob:
        """Return the job as unsettled: it has not answered an order in time."""
        return replace(self, state=LiveJobState.UNSETTLED)

    def settle(self, done: bool) -> LiveJob:
        """Return the job after the answer to its order: if `done`, it leaves its old hosts, else the new hosts."""
        stays, goes = (self.wanted, self.hosts) if done else (self.hosts, self.wanted)
        gone = dict.fromkeys((host for host in goes if host not in stays), self.epoch)
        return replace(
            self, state=LiveJobState.RUNNING, hosts=stays, wanted=(), leaving={**self.leaving, **gone},
            resizes=self.resizes + done, reason=self.reason if done else "",
        )  # fmt: skip

    def lose(self, hosts: tuple[str, ...]) -> LiveJob:
        """Return the job on `hosts`, the hosts that it still reports; it leaves the others."""
        gone = {host: self.epoch for host in self.hosts if host not in hosts}
        return replace(self, hosts=hosts, leaving={**self.leaving, **gone})

    def end(self, outcome: LiveJobState, reason: str, now: float, over: bool) -> LiveJob:
        """Return the job as ending; the first reason to end is kept."""
        if self.state is LiveJobState.ENDING:
            return replace(self, over=self.over or over)._closed()
        return replace(
            self, state=LiveJobState.ENDING, outcome=outcome, reason=reason, ended=now, over=over,
            hosts=(), wanted=(), leaving=dict.fromkeys(sorted(self.holds), LAST),
        )._closed()  # fmt: skip

    def leave(self, host: str) -> LiveJob:
        """Return the job without a host that it has left."""
        leaving = {each: epoch for each, epoch in self.leaving.items() if each != host}
        return replace(self, leaving=leaving)._closed()

    def _closed(self) -> LiveJob:
        """Return the job as over, or queued again, if its attempt is over and has left all hosts."""
        if self.state is not LiveJobState.ENDING or self.leaving or not self.over:
            return self
        if self.outcome is LiveJobState.QUEUED:
            return replace(self, state=LiveJobState.QUEUED, outcome=None, started=None, ended=None)
        return replace(self, state=self.outcome or LiveJobState.LOST, outcome=None)

    def counted(self, before: LiveJob, now: float) -> LiveJob:
        """Return the job with the host seconds of its attempt, if its hosts have changed."""
        if self.hosts == before.hosts:
            return self
        used = 0.0
        if self.attempt == before.attempt and before.placed is not None:
            used = before.host_seconds + len(before.hosts) * (now - before.placed)
        return replace(self, host_seconds=used, placed=now)

    # ----------------------------------------------------------------------------- records
    def document(self) -> dict[str, Any]:
        """Return the fields that can change and differ from their defaults, as JSON."""
        found = {each: getattr(self, each) for each in CHANGEABLE}
        return {each: value for each, value in found.items() if value != DEFAULTS[each]}

    @classmethod
    def parse(
        cls, number: int, submission: JobSubmission, submitted: float, found: Mapping[str, Any]
    ) -> LiveJob:
        """Return the job of a record.

        Raises
        ------
        ValueError, TypeError, KeyError
            It is invalid.
        """
        values = {**DEFAULTS, **{each: found[each] for each in found if each in CHANGEABLE}}
        values["state"] = LiveJobState(values["state"])
        values["hosts"] = tuple(map(str, values["hosts"]))
        values["started_on"] = tuple(map(str, values["started_on"]))
        values["placed_by"] = str(values["placed_by"])
        values["wanted"] = tuple(map(str, values["wanted"]))
        values["mates"] = tuple(map(int, values["mates"]))
        values["share"], values["delay"] = float(values["share"]), float(values["delay"])
        values["leaving"] = {str(host): int(epoch) for host, epoch in values["leaving"].items()}
        if values["outcome"] is not None:
            values["outcome"] = LiveJobState(values["outcome"])
        if values["estimate"] is not None:
            values["estimate"] = float(values["estimate"])
        values["held"] = str(values["held"])
        if values["host_choices"] is not None:
            values["host_choices"] = tuple(
                (tuple(map(str, hosts)), float(seconds))
                for hosts, seconds in values["host_choices"]
            )
        if values["asks"] is not None:
            least, most = map(int, values["asks"])
            values["asks"] = least, most
        return cls(number, submission, submitted, **values)


CHANGEABLE = tuple(
    each.name for each in fields(LiveJob) if each.name not in {"number", "submission", "submitted"}
)
_NEW = LiveJob(0, JobSubmission(1, 1), 0.0)
DEFAULTS: Mapping[str, Any] = {each: getattr(_NEW, each) for each in CHANGEABLE}


def submission_document(submission: JobSubmission) -> dict[str, Any]:
    """Return a submission as JSON."""
    return {each.name: getattr(submission, each.name) for each in fields(submission)}


def submission_of(found: Mapping[str, Any]) -> JobSubmission:
    """Return the submission of a record.

    Raises
    ------
    ValueError, TypeError, KeyError
        It is invalid.
    """
    after = tuple(map(int, found.get("after", ())))
    messages = tuple(tuple(map(int, row)) for row in found.get("messages", ()))
    read = {"kind": JobKind(found["kind"]), "after": after, "messages": messages}
    one = JobSubmission(**{**found, **read})
    if not 1 <= one.minimum <= one.maximum or not one.requested > 0:
        raise ValueError(f"{one.minimum} to {one.maximum} hosts for {one.requested} s")
    size = len(messages)
    if size > MAX_TALKING or any(
        len(row) != size or not all(0 <= each <= MAX_TALK for each in row) for row in messages
    ):
        raise ValueError(
            f"messages: rows of as many numbers from 0 to {MAX_TALK}, at most {MAX_TALKING}"
        )
    return one
