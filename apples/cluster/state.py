"""The state of a live scheduler, derived from the records of its log alone, so that reading the log restores it.

A record holds the new values of the fields that it changes, so the next record of the same job repairs a loss.
"""

from __future__ import annotations

import json
from collections import Counter, OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Final

from apples.cluster.documents import HostState
from apples.cluster.live_job import (
    JobSubmission,
    LiveJob,
    LiveJobState,
    submission_document,
    submission_of,
)
from apples.errors import UsageError
from apples.scheduling.usage import UserUsage

Record = dict[str, Any]

MAX_ANSWERS: Final = 20_000
ANSWER_SECONDS: Final = 86_400.0
"""For this time the scheduler repeats its first answer to a request with the same id."""
PROMISES_PER_RECORD: Final = 5000
"""The journal could not read a longer record again."""
LOST_SUBMISSION = (
    "its submission cannot be read in the log: it is held where it is and not started again"
)


@dataclass(frozen=True, slots=True)
class Quarantine:
    """A host that gets no job because processes of an attempt may be there.

    Attributes
    ----------
    epoch
        Number of the order by which the attempt was to leave it (`HostLeft.epoch`).
    """

    job: int
    attempt: int
    folder: str
    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class _Decided:
    """Promises and usage in a record."""

    promises: Mapping[int, float]
    usage: UserUsage | None
    half_life: float | None

    @classmethod
    def parse(cls, record: Record) -> _Decided:
        half_life = record.get("half_life")
        return cls(
            {int(job): float(time) for job, time in record.get("promises", {}).items()},
            UserUsage.parse(record["usage"]) if "usage" in record else None,
            None if half_life is None else float(half_life),
        )


@dataclass
class SchedulerState:
    """Jobs and hosts.

    Attributes
    ----------
    jobs
        By number, in the order of their submission.
    hosts
        The host list, in its order, then hosts that were removed from it and that a job still holds.
    holders
        Host -> the jobs that hold it: one, or an owner and its guest, in the order of their numbers.
    drained
        Hosts that get no job because an operator drained them.
    quarantined
        Hosts that get no job because processes of an earlier job may be there.
    incarnation
        Number of starts of the scheduler.
    time
        Time of the last record, in seconds of the scheduler's clock.
    wall
        Time since the epoch at second 0 of that clock, as of its last start.
    last
        The highest number of a job so far.
    waiting, waiting_of
        Number of jobs in the queue, in all and by user.
    held
        Numbers of the waiting jobs that the policy took out of the queue.
    policy, cpus
        The name of the policy, and CPUs of each host if jobs share hosts, as of the last start.
    promises
        Waiting job -> time for which the policy has promised it hosts.
    usage
        Use of the hosts by each user; None: no policy that reads it was ever started.
    """

    jobs: dict[int, LiveJob] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    holders: dict[str, tuple[int, ...]] = field(default_factory=dict)
    drained: set[str] = field(default_factory=set)
    quarantined: dict[str, Quarantine] = field(default_factory=dict)
    incarnation: int = 0
    time: float = 0.0
    wall: float = 0.0
    last: int = 0
    waiting: int = 0
    waiting_of: Counter[str] = field(default_factory=Counter)
    content_bytes: int = 0
    held: set[int] = field(default_factory=set)
    policy: str = ""
    cpus: int = 0
    promises: dict[int, float] = field(default_factory=dict)
    usage: UserUsage | None = None
    _answers: OrderedDict[str, tuple[str, int, float]] = field(default_factory=OrderedDict)

    # ----------------------------------------------------------------------------- records
    def apply(self, record: Record) -> None:
        """Apply a record.

        Raises
        ------
        ValueError, TypeError, KeyError, AttributeError
            The record is invalid; the state did not change.
        """
        at = float(record.get("at", self.time))
        answer = record.get("answer")
        remembered = (
            None
            if answer is None
            else (str(answer[0]), str(answer[1]), int(answer[2]), float(answer[3]))
        )
        quarantined = {
            str(host): None if found is None else Quarantine(**found)
            for host, found in record.get("quarantined", {}).items()
        }
        hosts = tuple(map(str, record["hosts"])) if "hosts" in record else self.hosts
        drained = set(map(str, record["drained"])) if "drained" in record else self.drained
        job = self._job(record)
        last = int(record.get("last", 0))
        incarnation, wall = int(record.get("incarnation", 0)), float(record.get("wall", self.wall))
        decided = _Decided.parse(record)
        self.time = max(self.time, at)
        if job is not None:
            self.put(job)
        forgotten = {*map(int, record.get("forget", ()))}
        if forgotten:
            self.jobs = {
                number: job for number, job in self.jobs.items() if number not in forgotten
            }
            for request in self.requests_of(forgotten).values():
                del self._answers[request[0]]
        for host, why in quarantined.items():
            if why is None:
                self.quarantined.pop(host, None)
            else:
                self.quarantined[host] = why
        self.hosts, self.drained, self.wall = hosts, drained, wall
        self.incarnation = max(self.incarnation, incarnation)
        self.last = max(self.last, last)
        self._take(decided, record)
        if remembered is not None:
            self._remember(*remembered)

    def _take(self, decided: _Decided, record: Record) -> None:
        """Apply the policy, its promises and the usage of a record."""
        self.cpus = int(record.get("cpus", self.cpus))
        policy = str(record.get("policy", self.policy))
        if policy != self.policy:
            self.policy, self.promises = policy, {}
        for number, time in decided.promises.items():
            if number in self.jobs and self.jobs[number].waits:
                self.promises[number] = time
        if decided.usage is not None:
            self.usage = decided.usage
        if decided.half_life is not None:
            self.usage = (self.usage or UserUsage(decided.half_life)).copy(decided.half_life)

    def _job(self, record: Record) -> LiveJob | None:
        """Return the job of a record; None: the record is about no job."""
        if "job" not in record:
            return None
        number, known = int(record["job"]), self.jobs.get(int(record["job"]))
        if "submission" in record:
            submission, submitted = submission_of(record["submission"]), float(record["submitted"])
        elif known is not None:
            submission, submitted = known.submission, known.submitted
        else:
            submission, submitted = JobSubmission(1, 1, name=LOST_SUBMISSION), 0.0
        return LiveJob.parse(number, submission, submitted, record.get("is", {}))

    def records(self) -> list[Record]:
        """Return records that restore this state."""
        found: list[Record] = [{
            "do": "state", "at": self.time, "wall": self.wall, "incarnation": self.incarnation,
            "hosts": list(self.hosts), "drained": sorted(self.drained), "last": self.last,
            "quarantined": {host: quarantine_document(why) for host, why in self.quarantined.items()},
            "policy": self.policy, "cpus": self.cpus,
        }]  # fmt: skip
        if self.usage is not None:
            found[0]["usage"] = self.usage.document()
        found += [{"do": "job", **submitted_record(job)} for job in self.jobs.values()]
        promises = [*self.promises.items()]
        found += [
            {"do": "promise", "promises": {str(job): time for job, time in promises[k : k + PROMISES_PER_RECORD]}}
            for k in range(0, len(promises), PROMISES_PER_RECORD)
        ]  # fmt: skip
        found += [
            {"do": "answer", "answer": [key, *answer]} for key, answer in self._answers.items()
        ]
        return found

    # ------------------------------------------------------------------------------ changes
    def put(self, job: LiveJob) -> None:
        """Set the new state of a job and update the values derived from it."""
        before = self.jobs.get(job.number)
        if before is not None and (before.hosts, before.mates) != (job.hosts, job.mates):
            self._charge(before)
        if (
            self.usage is not None and not job.holds
        ):  # the ledger of a pass charges for hosts being left
            self.usage.forget(job.number)
        self.content_bytes -= 0 if before is None else before.submission.content_bytes
        if job.is_over:
            job = replace(job, submission=job.submission.without_contents())
        self.content_bytes += job.submission.content_bytes
        for host in before.holds - job.holds if before is not None else ():
            self._let_go(host, job.number)
        more = job.waits - (before is not None and before.waits)
        self.waiting += more
        self.waiting_of[job.submission.user] += more
        if not job.waits:
            self.promises.pop(job.number, None)
        if job.waits and job.held:
            self.held.add(job.number)
            self.promises.pop(job.number, None)
        else:
            self.held.discard(job.number)
        for host in job.holds:
            self.holders[host] = tuple(sorted({*self.holders.get(host, ()), job.number}))
        self.jobs[job.number] = job if before is None else self._parted(job)
        self.last = max(self.last, job.number)

    def _let_go(self, host: str, number: int) -> None:
        """Take a host from a job; its guest there then has the host alone."""
        rest = tuple(one for one in self.holders.pop(host, ()) if one != number)
        if rest:
            self.holders[host] = rest
        for one in rest:
            parted = self._parted(self.jobs[one])
            if parted is not self.jobs[one]:
                self._charge(self.jobs[one])
                self.jobs[one] = parted

    def _charge(self, job: LiveJob) -> None:
        """Charge a user for a job's hosts until now; for hosts that it shares as a guest, by its share."""
        if self.usage is None or not job.hosts or job.started is None:
            return
        shared = sum(host in self.jobs[mate].hosts for mate in job.mates for host in job.hosts)
        own = len(job.hosts) - shared * (1.0 - job.share)
        user = job.submission.user
        self.usage.enter(job.number, user, job.started, self.time, own * (self.cpus or 1))

    def _parted(self, job: LiveJob) -> LiveJob:
        """Return a job without the mates that have no host in common with it any more."""
        there = {one for host in job.holds for one in self.holders.get(host, ())}
        if there.issuperset(job.mates):
            return job
        return replace(job, mates=tuple(mate for mate in job.mates if mate in there))

    def answered(self, request: str, digest: str) -> int | None:
        """Return the number of the job that an earlier request with this id submitted; None: the id is new.

        Raises
        ------
        UsageError
            The id was used for another submission. Permanent.
        """
        found = self._answers.get(request)
        return None if found is None else same_request(request, digest, found[0], found[1])

    def requests_of(self, jobs: Collection[int]) -> dict[int, tuple[str, str]]:
        """Return request id and digest of those jobs that were submitted with an id."""
        return {
            job: (request, digest)
            for request, (digest, job, _) in self._answers.items()
            if job in jobs
        }

    def _remember(self, request: str, digest: str, job: int, at: float) -> None:
        self._answers[request] = (digest, job, at)
        while len(self._answers) > MAX_ANSWERS or (
            next(iter(self._answers.values()))[2] < at - ANSWER_SECONDS
        ):
            self._answers.popitem(last=False)

    # ------------------------------------------------------------------------------ queries
    def is_free(self, host: str) -> bool:
        """Whether a job may be started on a host."""
        return not (host in self.holders or host in self.drained or host in self.quarantined)

    def owner(self, host: str) -> int:
        """Return the job that holds a host and is no guest there; 0: none."""
        held = self.holders.get(host, ())
        return next((one for one in held if not {*self.jobs[one].mates} & {*held}), 0)

    def host_state(self, host: str) -> HostState:
        """Return the state of a host from the records; they do not show whether it is lost."""
        if host in self.quarantined:
            return "quarantined"
        job = self.jobs.get(self.owner(host))
        if host in self.drained:
            return "drained" if job is None else "draining"
        if job is None:
            return "free"
        return "leaving" if host in job.leaving or job.state is LiveJobState.ENDING else "held"


def unknown_job(job: str, where: str = "") -> UsageError:
    """Return the error for the id of an unknown job."""
    return UsageError(f"{where}{job}: no such job", code="job-unknown", job=job)


def digest_of(submission: JobSubmission) -> str:
    """Return a digest that distinguishes submissions with the same request id."""
    text = json.dumps(submission_document(submission), sort_keys=True)
    return sha256(text.encode()).hexdigest()[:32]


def same_request(request: str, digest: str, known: str, job: int) -> int:
    """Return the job of a known request id, if the digests agree.

    Raises
    ------
    UsageError
        The id was used for another submission. Permanent.
    """
    if digest != known:
        raise UsageError(
            f"request {request}: this id was used for another submission",
            code="request-id-reused", request=request,
        )  # fmt: skip
    return job


def submitted_record(job: LiveJob) -> Record:
    """Return a record that restores a job."""
    return {
        "job": job.number,
        "submitted": job.submitted,
        "submission": submission_document(job.submission),
        "is": job.document(),
    }


def quarantine_document(why: Quarantine) -> Mapping[str, Any]:
    """Return a quarantine as a part of a record."""
    return {
        "job": why.job, "attempt": why.attempt, "folder": why.folder, "epoch": why.epoch,
        "reason": why.reason,
    }  # fmt: skip
