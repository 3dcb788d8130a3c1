"""What a live scheduler knows, as the records of its log make it: pure, so reading the log gives it again.

A record holds what it changes as it is afterwards: one that is lost is made good by the next about the same job.
"""

from __future__ import annotations

import json
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Final

from apples.cluster.live_job import (
    JobSubmission,
    LiveJob,
    LiveJobState,
    submission_document,
    submission_of,
)
from apples.errors import UsageError

Record = dict[str, Any]

MOST_ANSWERS: Final = 20_000
ANSWER_SECONDS: Final = 86_400.0
"""For so long a request of the same id is answered as it was the first time."""
LOST_SUBMISSION = (
    "its submission cannot be read in the log: it is held where it is and not started again"
)


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Why nothing is started on a host: something of an attempt may be there.

    Attributes
    ----------
    epoch
        The order by which the attempt was to leave it (`HostLeft.epoch`).
    """

    job: int
    attempt: int
    folder: str
    epoch: int
    reason: str


@dataclass
class SchedulerState:
    """Jobs and hosts.

    Attributes
    ----------
    jobs
        By number, in the order of their submission.
    hosts
        The host list, in its order, and those it does not have any more and that a job holds.
    holders
        Host -> the jobs that hold it: one, or an owner and its guest, in the order of their numbers.
    drained
        Hosts that get no job, since somebody said so.
    quarantined
        Hosts that get no job, since something of an earlier one may be there.
    incarnation
        How often the scheduler was started.
    time
        Of the last record, seconds of the scheduler's clock.
    wall
        The world's time at second 0 of that clock, as of its last start.
    last
        The highest number of a job so far.
    waiting, waiting_of
        How many jobs are in the queue, and of each user.
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
    _answers: OrderedDict[str, tuple[str, int, float]] = field(default_factory=OrderedDict)

    # ----------------------------------------------------------------------------- records
    def apply(self, record: Record) -> None:
        """Take in a record.

        Raises
        ------
        ValueError, TypeError, KeyError, AttributeError
            It is none; nothing was taken in.
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
        if job is not None:
            self.put(job)
        for number in map(int, record.get("forget", ())):
            self.jobs.pop(number, None)
        for host, why in quarantined.items():
            if why is None:
                self.quarantined.pop(host, None)
            else:
                self.quarantined[host] = why
        self.hosts, self.drained, self.wall = hosts, drained, wall
        self.incarnation = max(self.incarnation, incarnation)
        self.last = max(self.last, last)
        self.time = max(self.time, at)
        if remembered is not None:
            self._remember(*remembered)

    def _job(self, record: Record) -> LiveJob | None:
        """Return the job of a record, None: it is about none."""
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
        """Return records that make this state from nothing."""
        found: list[Record] = [{
            "do": "state", "at": self.time, "wall": self.wall, "incarnation": self.incarnation,
            "hosts": list(self.hosts), "drained": sorted(self.drained), "last": self.last,
            "quarantined": {host: quarantine_document(why) for host, why in self.quarantined.items()},
        }]  # fmt: skip
        found += [{"do": "job", **submitted_record(job)} for job in self.jobs.values()]
        found += [
            {"do": "answer", "answer": [key, *answer]} for key, answer in self._answers.items()
        ]
        return found

    # ------------------------------------------------------------------------------ changes
    def put(self, job: LiveJob) -> None:
        """Have a job be as it is now."""
        before = self.jobs.get(job.number)
        for host in before.holds - job.holds if before is not None else ():
            self._let_go(host, job.number)
        more = job.waits - (before is not None and before.waits)
        self.waiting += more
        self.waiting_of[job.submission.user] += more
        for host in job.holds:
            self.holders[host] = tuple(sorted({*self.holders.get(host, ()), job.number}))
        self.jobs[job.number] = job if before is None else self._parted(job)
        self.last = max(self.last, job.number)

    def _let_go(self, host: str, number: int) -> None:
        """Take a host from a job; who was its guest there has it alone."""
        rest = tuple(one for one in self.holders.pop(host, ()) if one != number)
        if rest:
            self.holders[host] = rest
        for one in rest:
            self.jobs[one] = self._parted(self.jobs[one])

    def _parted(self, job: LiveJob) -> LiveJob:
        """Return a job without those of its mates with which it has no host in common any more."""
        there = {one for host in job.holds for one in self.holders.get(host, ())}
        if there.issuperset(job.mates):
            return job
        return replace(job, mates=tuple(mate for mate in job.mates if mate in there))

    def answered(self, request: str, digest: str) -> int | None:
        """Return the job that a request to submit was answered with; None: it is new.

        Raises
        ------
        UsageError
            The id was used for another submission. Permanent.
        """
        found = self._answers.get(request)
        if found is None:
            return None
        if found[0] != digest:
            raise UsageError(
                f"request {request}: this id was used for another submission",
                code="request-id-reused", request=request,
            )  # fmt: skip
        return found[1]

    def _remember(self, request: str, digest: str, job: int, at: float) -> None:
        self._answers[request] = (digest, job, at)
        while len(self._answers) > MOST_ANSWERS or (
            next(iter(self._answers.values()))[2] < at - ANSWER_SECONDS
        ):
            self._answers.popitem(last=False)

    # ------------------------------------------------------------------------------ looking
    def is_free(self, host: str) -> bool:
        """Whether a job may be started on a host."""
        return not (host in self.holders or host in self.drained or host in self.quarantined)

    def owner(self, host: str) -> int:
        """Return the job that holds a host and is no guest there, 0: there is none."""
        held = self.holders.get(host, ())
        return next((one for one in held if not {*self.jobs[one].mates} & {*held}), 0)

    def host_state(self, host: str) -> str:
        """Return where a host is in its life, but for what is only decided and not ordered."""
        if host in self.quarantined:
            return "quarantined"
        job = self.jobs.get(self.owner(host))
        if host in self.drained:
            return "drained" if job is None else "draining"
        if job is None:
            return "free"
        return "leaving" if host in job.leaving or job.state is LiveJobState.ENDING else "held"


def unknown_job(job: str, where: str = "") -> UsageError:
    """Return the error of a job's id that no job has."""
    return UsageError(f"{where}{job}: there is no such job", code="job-unknown", job=job)


def digest_of(submission: JobSubmission) -> str:
    """Return by what two submissions of the same request id are told apart."""
    text = json.dumps(submission_document(submission), sort_keys=True)
    return sha256(text.encode()).hexdigest()[:32]


def submitted_record(job: LiveJob) -> Record:
    """Return what makes a job from nothing."""
    return {
        "job": job.number,
        "submitted": job.submitted,
        "submission": submission_document(job.submission),
        "is": job.document(),
    }


def quarantine_document(why: Quarantine) -> Mapping[str, Any]:
    """Return a quarantine as it stands in a record."""
    return {
        "job": why.job, "attempt": why.attempt, "folder": why.folder, "epoch": why.epoch,
        "reason": why.reason,
    }  # fmt: skip
