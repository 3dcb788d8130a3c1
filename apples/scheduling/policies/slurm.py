"""Slurm's scheduling: jobs in the order of a priority, and a periodic backfill scheduler."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil, floor

from apples.errors import UsageError
from apples.scheduling.jobs import Decision, Job, Start, Wake
from apples.scheduling.policy import ClusterState, SchedulingPolicy, grant_requests
from apples.scheduling.profile import Interval, Profile, releases
from apples.scheduling.reservations import Room, blocks

PUNCTUAL_SECONDS = 1e-3
"""Tolerance between the requested time of a pass and its time."""
MINUTE = 60.0

WEIGHT_OF = {"QOSPriority": "PriorityWeightQOS", "PriorityJobFactor": "PriorityWeightPartition"}
WEIGHTS = (
    "PriorityWeightAge", "PriorityWeightJobSize", "PriorityWeightFairshare", "PriorityWeightQOS",
    "PriorityWeightPartition",
)  # fmt: skip
COUNTS = (
    "bf_interval", "bf_max_job_test", "bf_resolution", "bf_window", "default_queue_depth",
    "FairShareDampeningFactor",
)  # fmt: skip
_SLURM_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


def slurm_seconds(word: str | float, what: str) -> float:
    """Return the seconds of a time in slurm.conf's notation.

    Minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes,
    days-hours:minutes:seconds.

    Raises
    ------
    UsageError
        The text has none of these forms. Permanent.

    Examples
    --------
    >>> slurm_seconds("7-0", "PriorityMaxAge"), slurm_seconds(5, "PriorityMaxAge")
    (604800.0, 300.0)
    """
    match = _SLURM_TIME.fullmatch(str(word))
    if match is None:
        raise UsageError(
            f"option {what}={word}: not a time of slurm.conf, such as 7-0 or 90 (minutes)",
            code="value-invalid", option=what, value=str(word),
        )  # fmt: skip
    days, *rest = match.groups()
    given = [float(part) for part in rest if part is not None]
    if days is None:  # minutes, minutes:seconds or hours:minutes:seconds
        given = [0.0, *given] if len(given) < 3 else given
    hours, minutes, seconds = (*given, 0.0, 0.0)[:3]
    return 86400.0 * float(days or 0) + 3600.0 * hours + 60.0 * minutes + seconds


def factors_of(words: str, what: str) -> Mapping[str, float]:
    """Return the factors, in 0 to 1, of names with priorities: `normal:10,high:40`.

    Raises
    ------
    UsageError
        The text is not a list of name:priority. Permanent.

    Examples
    --------
    >>> factors_of("normal:10,high:40", "QOSPriority")
    {'normal': 0.25, 'high': 1.0}
    """
    found = {}
    for word in filter(None, words.split(",")):
        name, colon, number = word.rpartition(":")
        if not colon or not name or not number.isdigit():
            raise UsageError(
                f"option {what}={words}: {word!r} is not of the form name:priority",
                code="value-invalid", option=what, value=word,
            )  # fmt: skip
        found[name] = float(number)
    most = max(found.values(), default=0.0) or 1.0
    return {name: priority / most for name, priority in found.items()}


@dataclass(frozen=True)
class SlurmBackfill(SchedulingPolicy):
    """Slurm's main scheduler and its backfill plugin under the multifactor priority.

    The main scheduler runs in every pass: in order of priority it starts jobs up to the first that does not fit.
    The backfill scheduler runs each `bf_interval` seconds: in the same order it gives each job the earliest place
    that the jobs before it leave, and starts a job if its place is now. These places are not promises: the next
    cycle computes them anew. The scheduler skips a cycle if no event precedes it, and a job of more nodes than are
    in service.

    Attributes
    ----------
    bf_interval
        Seconds between two cycles of the backfill scheduler, which begin at multiples of it.
    bf_max_job_test
        Maximum number of jobs that a cycle examines.
    bf_resolution
        A cycle rounds estimated ends up to multiples of this many seconds.
    bf_window
        Minutes that a cycle plans ahead: a job with a later place holds no nodes.
    default_queue_depth
        Maximum number of jobs that the main scheduler examines.
    PriorityWeightAge, PriorityWeightJobSize, PriorityWeightFairshare, PriorityWeightQOS, PriorityWeightPartition
        Weights of the factors of a job's priority, each factor in 0 to 1. Without any weight the order is that of
        submission.
    PriorityMaxAge
        Waiting time from which on the factor of age is 1.
    PriorityFavorSmall
        Whether the factor of size is 1 for the smallest job instead of the largest.
    PriorityDecayHalfLife
        Half-life of the users' usage; 0: no decay.
    FairShareDampeningFactor
        Divisor of a user's usage relative to the share.
    QOSPriority, PriorityJobFactor
        Priorities of the qualities of service and of the partitions, `name:priority,..`. The largest gives a
        factor of 1, a name that is not listed 0.

    Examples
    --------
    The second job needs three nodes at time 10; the third would hold one of them, the fourth not. Time 1 is
    between two cycles: the policy asks for a pass at the next.

    >>> from apples.scheduling.policy import RunningJob
    >>> running = {1: RunningJob(Job(1, 0.0, 2, 10.0, 2, 2), 0.0, 2, 10.0)}
    >>> queue = [Job(2, 0.0, 4, 5.0, 4, 4), Job(3, 0.0, 1, 20.0, 1, 1), Job(4, 0.0, 1, 9.0, 1, 1)]
    >>> state = ClusterState(4, free=2, queue=queue, running=running)
    >>> list(SlurmBackfill(bf_resolution=1).decide(state))
    [Start(job=4, nodes=1, mates=(), share=1.0)]
    >>> list(SlurmBackfill(bf_resolution=1).decide(state._replace(time=1.0)))
    [Wake(time=30.0)]

    References
    ----------
    Slurm's manual, slurm.conf (SchedulerParameters) and priority_multifactor.
    """

    bf_interval: int = 30
    bf_max_job_test: int = 500
    bf_resolution: int = 60
    bf_window: int = 1440
    default_queue_depth: int = 100
    PriorityWeightAge: float = 0
    PriorityWeightJobSize: float = 0
    PriorityMaxAge: str | float = "7-0"
    PriorityFavorSmall: bool = False
    PriorityWeightFairshare: float = 0
    PriorityWeightQOS: float = 0
    PriorityWeightPartition: float = 0
    PriorityDecayHalfLife: str | float = "7-0"
    FairShareDampeningFactor: float = 1
    QOSPriority: str = ""
    PriorityJobFactor: str = ""

    def __post_init__(self) -> None:
        least = dict.fromkeys(WEIGHTS, 0) | dict.fromkeys(COUNTS, 1)
        for name, low in least.items():
            if not low <= getattr(self, name) < 1e15:
                value = getattr(self, name)
                raise UsageError(
                    f"option {name}={value}: must be at least {low}",
                    code="value-range", option=name, value=value, bound=low,
                )  # fmt: skip
        if not slurm_seconds(self.PriorityMaxAge, "PriorityMaxAge") > 0:
            raise UsageError(
                f"option PriorityMaxAge={self.PriorityMaxAge}: must be more than 0",
                code="value-range", option="PriorityMaxAge", value=self.PriorityMaxAge, bound=0,
            )  # fmt: skip
        slurm_seconds(self.PriorityDecayHalfLife, "PriorityDecayHalfLife")
        for name, weight in (
            ("QOSPriority", self.PriorityWeightQOS),
            ("PriorityJobFactor", self.PriorityWeightPartition),
        ):
            if bool(factors_of(str(getattr(self, name)), name)) != bool(weight):
                needed = WEIGHT_OF[name]
                raise UsageError(
                    f"options {name} and {needed} go together",
                    code="option-missing", option=name if weight else needed, options=[name, needed],
                )  # fmt: skip

    @property
    def looks_at(self) -> tuple[str, ...]:
        """Reservations, and the attributes with a weight."""
        weighed = {
            "user": self.PriorityWeightFairshare,
            "partition": self.PriorityWeightPartition,
            "qos": self.PriorityWeightQOS,
        }
        return ("reservations", *(name for name, weight in weighed.items() if weight))

    @property
    def usage_half_life(self) -> float | None:
        """PriorityDecayHalfLife if fair share has a weight, otherwise None."""
        if not self.PriorityWeightFairshare:
            return None
        return slurm_seconds(self.PriorityDecayHalfLife, "PriorityDecayHalfLife")

    def decide(self, cluster: ClusterState) -> Iterator[Decision]:
        """Yield the starts of this pass, and a `Wake` for the next cycle of the backfill scheduler."""
        room, now = Room(cluster), cluster.time
        yield from grant_requests(cluster, room.take)
        cores = cluster.cores_per_node
        if not room.free or not cluster.queue:  # no job can start before another ends
            return
        queue = [
            (job, -(-job.processors // cores))
            for job in self.in_order(cluster)
            if job.processors <= cluster.nodes * cores
        ]
        started = []
        for job, nodes in queue[: self.default_queue_depth]:
            if not room.take(nodes, now + job.requested):
                break
            started.append((now + job.requested, nodes))
            yield Start(job.id, nodes)
        waiting, free = queue[len(started) :], room.free
        if not free or min((nodes for _, nodes in waiting), default=free + 1) > free:
            return
        # Cycles lie at multiples of bf_interval: Slurm's scheduler remembers its last cycle, a
        # policy cannot.
        cycle = floor((now + PUNCTUAL_SECONDS) / self.bf_interval) * self.bf_interval
        if now - cycle > PUNCTUAL_SECONDS:
            yield Wake(float(cycle + self.bf_interval))
        else:
            ends = [*releases(cluster), *started]
            reserved = blocks(cluster)
            yield from self._backfill(waiting[: self.bf_max_job_test], free, ends, reserved, now)

    def _backfill(
        self,
        waiting: Sequence[tuple[Job, int]],
        free: int,
        ends: Sequence[tuple[float, int]],
        reserved: Sequence[Interval],
        now: float,
    ) -> Iterator[Decision]:
        grain = self.bf_resolution
        ends = [(ceil(end / grain) * float(grain), n) for end, n in ends]
        profile = Profile(now, free, ends, blocked=reserved)
        # Fewest nodes among each job and those after it: if fewer are free, none of them can start.
        narrowest = list(accumulate((nodes for _, nodes in reversed(waiting)), min))[::-1]
        found: dict[tuple[int, float], float] = {}  # no step ever rises: equal jobs come later
        for (job, nodes), least in zip(waiting, narrowest, strict=True):
            if free < least:
                return
            alike = nodes, job.requested
            begin = found[alike] = profile.earliest(nodes, job.requested, found.get(alike))
            if begin > now + self.bf_window * MINUTE:
                continue
            profile.reserve(begin, ceil((begin + job.requested) / grain) * float(grain), nodes)
            if begin <= now and nodes <= free:
                free -= nodes
                yield Start(job.id, nodes)

    def in_order(self, cluster: ClusterState) -> Sequence[Job]:
        """Return the waiting jobs by falling priority; (submit, id) breaks ties."""
        if not any(getattr(self, weight) for weight in WEIGHTS):
            return cluster.queue
        priority = self.priorities(cluster)
        return sorted(cluster.queue, key=lambda job: (-priority[job.id], job.submit, job.id))

    def priorities(self, cluster: ClusterState) -> Mapping[int, float]:
        """Return the priority of each waiting job."""
        oldest = slurm_seconds(self.PriorityMaxAge, "PriorityMaxAge")
        nodes, cores = max(1, cluster.nodes), cluster.cores_per_node
        qos = factors_of(self.QOSPriority, "QOSPriority")
        partitions = factors_of(self.PriorityJobFactor, "PriorityJobFactor")
        shares = self.fair_shares(cluster) if self.PriorityWeightFairshare else {}
        found = {}
        for job in cluster.queue:
            age = min(1.0, (cluster.time - job.submit) / oldest)
            size = (-(-job.processors // cores) + job.processors / cores) / (2.0 * nodes)
            if self.PriorityFavorSmall:
                size = 1.0 - size
            found[job.id] = (
                self.PriorityWeightAge * age
                + self.PriorityWeightJobSize * size
                + self.PriorityWeightFairshare * shares.get(job.user, 1.0)
                + self.PriorityWeightQOS * qos.get(job.qos, 0.0)
                + self.PriorityWeightPartition * partitions.get(job.partition, 0.0)
            )
        return found

    def fair_shares(self, cluster: ClusterState) -> Mapping[str, float]:
        """Return each user's factor of fair share: 1 without usage, 1/2 if the usage equals the share.

        The factor is 2 to the power of minus usage over share, as in the classic fair share of
        priority_multifactor. All users have the same share, since a log has no accounts.
        """
        users = {*cluster.usage, *(job.user for job in cluster.queue)}
        total = sum(cluster.usage.values())
        if not total:
            return {}
        beyond = len(users) / (total * self.FairShareDampeningFactor)
        return {user: 2.0 ** (-used * beyond) for user, used in cluster.usage.items()}
