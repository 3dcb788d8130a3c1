"""The orders of a live scheduler, derived from the states of jobs, for the first time or again."""

from __future__ import annotations

from math import inf

from apples.cluster.live_job import LiveJob, LiveJobState
from apples.cluster.orders import (
    AskOrder,
    EndOrder,
    Order,
    ResizeOrder,
    StartOrder,
)
from apples.cluster.state import Quarantine
from apples.scheduling.jobs import JobKind


class OrderSender:
    """Collects orders until the records of the decisions are on the disk.

    Parameters
    ----------
    cpus
        CPUs of each host if jobs share hosts; 0: they share none.

    Attributes
    ----------
    incarnation
        Incarnation of the scheduler; executors ignore orders of an earlier one.
    """

    def __init__(self, cpus: int) -> None:
        self.incarnation = 0
        self._cpus = cpus
        self._orders: list[Order] = []
        self._sent: dict[int, float] = {}
        self._sent_of_hosts: dict[str, float] = {}

    def add(self, order: Order) -> None:
        """Send an order."""
        self._orders.append(order)

    def take(self) -> list[Order]:
        """Return the orders and remove them."""
        orders, self._orders = self._orders, []
        return orders

    def send(self, job: LiveJob, now: float, ask: bool = False) -> None:
        """Send the order that the state of a job requires, for the first time or again."""
        self._sent[job.number] = now
        attempt = job.number, job.attempt, self.incarnation, job.folder
        user = job.submission.user
        if job.state is LiveJobState.ENDING:
            self.add(EndOrder(*attempt, tuple(job.leaving), user))
        elif ask or job.state is LiveJobState.RUNNING:
            begun = job.state is not LiveJobState.STARTING
            self.add(AskOrder(*attempt, begun, tuple(job.leaving.items()), user))
        elif job.state is LiveJobState.STARTING:
            work, cpus = job.submission.work, self.shared_cpus(job)
            self.add(StartOrder(*attempt, job.hosts, work, user, cpus))
        else:
            cpus = self.shared_cpus(job)
            self.add(ResizeOrder(*attempt, job.epoch, job.wanted, user, cpus))

    def end_again(self, job: LiveJob, hosts: tuple[str, ...]) -> None:
        """Send the order to end an attempt that is over for the scheduler but was reported as running."""
        attempt = job.number, job.attempt, self.incarnation, job.folder
        self.add(EndOrder(*attempt, hosts, job.submission.user))

    def is_due(self, job: LiveJob, now: float, interval: float) -> bool:
        """Whether the last order to a job was sent at least `interval` seconds ago."""
        return now - self._sent.get(job.number, -inf) >= interval

    def forget(self, number: int) -> None:
        """Forget the time of the last order to a job."""
        self._sent.pop(number, None)

    def ask_of_quarantine(
        self, host: str, why: Quarantine, user: str, now: float, interval: float
    ) -> None:
        """Ask whether a quarantined host was left, unless the last question is too recent."""
        if now - self._sent_of_hosts.get(host, -inf) >= interval:
            self._sent_of_hosts[host] = now
            self.add(
                AskOrder(
                    why.job, why.attempt, self.incarnation, why.folder, True, ((host, why.epoch),), user
                )
            )  # fmt: skip

    def shared_cpus(self, job: LiveJob) -> int:
        """Return the number of CPUs of a job's hosts if the job may share them; 0: it shares none."""
        return self._cpus if job.submission.kind is JobKind.MALLEABLE else 0
