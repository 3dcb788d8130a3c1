"""A job of the live scheduler as its log knows it: a frozen value, and the steps from one state to the next.

    queued -> starting -> running <-> resizing | unsettled -> ending -> finished | failed | cancelled | lost
       ^------------------------------------------------------- (its hosts failed it: the next attempt)

What a job holds is never given to another: where it is, where an order under way may put it, and what it has been
told to leave until the host itself has said that nothing of the job is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from apples.cluster.orders import LAST, HostChoice, attached_requirement
from apples.scheduling.jobs import Job, JobKind

MAX_RESTARTS = 2
"""How often a job is queued again whose hosts failed it."""


class LiveJobState(StrEnum):
    """Where a job is in its life."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    RESIZING = "resizing"
    UNSETTLED = "unsettled"
    """It was told to resize and has not said in time what became of it."""
    ENDING = "ending"
    """It is over or told to end; some host has not said that nothing of it is there."""
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"
    """It ran, and whoever ran it knows nothing of it any more."""


MAX_TALKING, MAX_TALK = 32, 1000
"""Hosts whose messages a submission may tell, and the most that each number may be: only ratios count."""
OVER = frozenset({
    LiveJobState.FINISHED, LiveJobState.FAILED, LiveJobState.CANCELLED, LiveJobState.LOST,
})  # fmt: skip
CHANGING = frozenset({LiveJobState.RESIZING, LiveJobState.UNSETTLED})


@dataclass(frozen=True, slots=True)
class JobSubmission:
    """What was submitted; never changes.

    Attributes
    ----------
    minimum, maximum
        Hosts that it can run on; a rigid job on as many only.
    requested
        Estimate of its run time on `maximum` hosts, seconds.
    modelled
        Whether its user has not estimated that: what the application's model says takes the place of `requested`.
    user
        Whose it is.
    name
        What it is called in lists.
    work
        What is to be run, for whoever runs it.
    after
        Jobs that have to be finished before it waits for hosts.
    messages
        Square: what each of its hosts sends each, in any unit, as a run of it on so many hosts told; empty: not
        known.
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
        """The bytes of the files that the order carries."""
        contents = self.work.get("contents")
        return len(str(contents).encode()) if contents else 0

    def without_contents(self) -> JobSubmission:
        """Return the submission without the files that its order carries, which no ended job reads again."""
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
        Seconds of the scheduler's clock; of the last attempt.
    attempt, folder
        Which attempt to run it this is, from 1 on, and the name of the attempt's folder.
    epoch
        Number of the last order to resize this attempt.
    hosts
        Where it is, or is being started.
    wanted
        Where the order under way will have it; empty: there is none.
    leaving
        Host -> number of the order by which it leaves; whoever runs it has not said yet that it has left.
    outcome
        What it becomes when it has left all hosts; `QUEUED`: the next attempt.
    over
        Whether this attempt is known to be over.
    restarts
        How often it was queued again because its hosts failed it.
    resizes
        Orders to resize that were carried out, in all.
    reason
        Why it ended, or of one that runs, why it was moved to where it is.
    host_seconds
        What this attempt has used until `placed`, when it came to the hosts where it is.
    asks
        Fewest and most hosts that its program has asked for while it runs (``job.request``); None: it has not.
    estimate
        Its run time on all hosts that it may have, by its application's model; 0: the model cannot estimate it, or
        the user has. None: the model was not asked, or has not answered.
    host_choices
        The sets of hosts that suit it best by its application's model, the best first; None: not asked.
    held
        Why its policy took it out of the queue; empty: it has not.
    placed_by
        Who has chosen its hosts, in words, where its application's model was asked; empty: the host list.
    mates, share
        Jobs in whose hosts this attempt is a guest, and the part of their CPUs that it has there.
    delay
        Seconds that this attempt takes longer since it shares hosts, as its policy estimates.
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

    # ----------------------------------------------------------------------------- looking
    @property
    def holds(self) -> frozenset[str]:
        """The hosts that no other job may have."""
        return frozenset((*self.hosts, *self.wanted, *self.leaving))

    @property
    def is_over(self) -> bool:
        """Whether nothing will change any more."""
        return self.state in OVER

    @property
    def waits(self) -> bool:
        """Whether it is in the queue."""
        return self.state is LiveJobState.QUEUED

    @property
    def settled(self) -> bool:
        """Whether it runs where it is to run, and nothing of it is anywhere else."""
        return self.state in {LiveJobState.STARTING, LiveJobState.RUNNING} and not self.leaving

    @property
    def requested(self) -> float:
        """The estimate of its run time on all hosts that it may have: its user's, else the model's once known."""
        return self.estimate or self.submission.requested

    @property
    def unestimated(self) -> bool:
        """Whether the model has still to say how long it runs."""
        return self.submission.modelled and self.estimate is None and not self.is_over

    @property
    def wants(self) -> int | None:
        """How many hosts an evolving job wants: of those that it asks for the nearest to what it has.

        Never fewer or more than it was submitted for. None: it is content.
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
        """Return the job as a policy sees it, on hosts of so many CPUs that jobs share.

        0: it shares its hosts with no other (`exclusive`), and a host counts as one processor. An evolving job
        asks for its fewest hosts at first. What a malleable one has asked for bounds what it is given; nothing
        takes a host from it that it has for that.
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
        """Return it with its next attempt ordered, as a guest in the hosts of its mates if it has some."""
        return replace(
            self, state=LiveJobState.STARTING, attempt=self.attempt + 1, folder=folder, epoch=0, hosts=hosts,
            started=now, ended=None, reason="", exit_code=None, outcome=None, over=False, asks=None,
            mates=mates, share=share, delay=delay, placed_by=placed_by, started_on=hosts, held="",
        )  # fmt: skip

    def run(self) -> LiveJob:
        """Return it as one that runs."""
        return replace(self, state=LiveJobState.RUNNING)

    def resize(self, hosts: tuple[str, ...], reason: str = "") -> LiveJob:
        """Return it with an order to be on other hosts, and why."""
        return replace(
            self, state=LiveJobState.RESIZING, epoch=self.epoch + 1, wanted=hosts, reason=reason
        )

    def unsettle(self) -> LiveJob:
        """Return it as one that has not answered an order in time."""
        return replace(self, state=LiveJobState.UNSETTLED)

    def settle(self, done: bool) -> LiveJob:
        """Return it with its order answered; it leaves what it had, or what it did not get."""
        stays, goes = (self.wanted, self.hosts) if done else (self.hosts, self.wanted)
        gone = dict.fromkeys((host for host in goes if host not in stays), self.epoch)
        return replace(
            self, state=LiveJobState.RUNNING, hosts=stays, wanted=(), leaving={**self.leaving, **gone},
            resizes=self.resizes + done, reason=self.reason if done else "",
        )  # fmt: skip

    def lose(self, hosts: tuple[str, ...]) -> LiveJob:
        """Return it on those of its hosts that it still has, by its own word."""
        gone = {host: self.epoch for host in self.hosts if host not in hosts}
        return replace(self, hosts=hosts, leaving={**self.leaving, **gone})

    def end(self, outcome: LiveJobState, reason: str, now: float, over: bool) -> LiveJob:
        """Return it as one that ends; the first reason to end is kept."""
        if self.state is LiveJobState.ENDING:
            return replace(self, over=self.over or over)._closed()
        return replace(
            self, state=LiveJobState.ENDING, outcome=outcome, reason=reason, ended=now, over=over,
            hosts=(), wanted=(), leaving=dict.fromkeys(sorted(self.holds), LAST),
        )._closed()  # fmt: skip

    def leave(self, host: str) -> LiveJob:
        """Return it without a host that it has left."""
        leaving = {each: epoch for each, epoch in self.leaving.items() if each != host}
        return replace(self, leaving=leaving)._closed()

    def _closed(self) -> LiveJob:
        """Return it over, or queued again, if it is known to be over and has left all hosts."""
        if self.state is not LiveJobState.ENDING or self.leaving or not self.over:
            return self
        if self.outcome is LiveJobState.QUEUED:
            return replace(self, state=LiveJobState.QUEUED, outcome=None, started=None, ended=None)
        return replace(self, state=self.outcome or LiveJobState.LOST, outcome=None)

    def counted(self, before: LiveJob, now: float) -> LiveJob:
        """Return it with the host seconds that its attempt has used, where its hosts are others than before."""
        if self.hosts == before.hosts:
            return self
        used = 0.0
        if self.attempt == before.attempt and before.placed is not None:
            used = before.host_seconds + len(before.hosts) * (now - before.placed)
        return replace(self, host_seconds=used, placed=now)

    # ----------------------------------------------------------------------------- records
    def document(self) -> dict[str, Any]:
        """Return what can change of it, as JSON."""
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
            It is none.
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
        It is none.
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
