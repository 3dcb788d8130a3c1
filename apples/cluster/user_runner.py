"""The job runner: runs one user's jobs with that user's rights, for a scheduler of several users.

It polls the scheduler for orders and carries them out as the scheduler of one user does (`JobServiceExecutor`). It
rejects a job without its user's seal, and the orders of a scheduler that has been replaced. Jobs continue without
the job runner, as without a scheduler.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Final

from apples.cluster.executor import JobServiceExecutor
from apples.cluster.orders import (
    LAST,
    AttemptPhase,
    EstimateOrder,
    HostLeft,
    JobReport,
    Order,
    Report,
    StartOrder,
)
from apples.cluster.seals import unsealed
from apples.cluster.user_runners import ORDERS, message_document, message_of
from apples.errors import ApplesError, UsageError
from apples.jobs.scheduler_client import SchedulerClient

RETRY_SECONDS: Final = 1.0
"""Retry interval while the scheduler does not answer."""
MAX_REPORTS_AT_ONCE: Final = 200
MAX_REPORTS: Final = 10_000
"""Reports that wait for the scheduler. Further reports are dropped; the scheduler asks for their jobs again."""


class JobRunner:
    """Carries out the orders of a scheduler.

    Parameters
    ----------
    client
        The connection to the scheduler's UNIX socket.
    executor
        Makes the executor from the callback for new reports.
    log
        Receives a line when the scheduler stops answering, and when it answers again.
    """

    def __init__(
        self,
        client: SchedulerClient,
        executor: Callable[[Callable[[], None]], JobServiceExecutor],
        log: Callable[[str], None],
    ) -> None:
        self._client, self._log = client, log
        self._life = secrets.token_hex(8)
        self._incarnation = 0
        self._stopping, self._news = threading.Event(), threading.Event()
        self.kept: deque[Report] = deque(maxlen=MAX_REPORTS)
        self._executor = executor(self._news.set)
        self._away = False

    def run(self) -> None:
        """Serve until `stop`; the jobs continue when this returns."""
        threading.Thread(target=self._report, name="report", daemon=True).start()
        while not self._stopping.is_set():
            try:
                self.obey(self._asked())
            except UsageError:
                raise  # permanent: the scheduler rejects this user
            except ApplesError as error:
                if not self._away:
                    self._log(f"{error}; jobs go on")
                self._away = True
                self._stopping.wait(RETRY_SECONDS)
        self._executor.close()

    def stop(self) -> None:
        """End `run` soon. A signal handler may call this."""
        self._stopping.set()
        self._news.set()

    def _asked(self) -> list[Order]:
        answer = self._client.ask("POST", "/v1/job-runner/orders", {"life": self._life})
        if self._away:
            self._log("the scheduler answers again")
        self._away = False
        return [message_of(order, ORDERS) for order in answer["orders"]]

    def obey(self, orders: list[Order]) -> None:
        """Carry out orders, except those of a replaced scheduler and those without the user's seal."""
        obeyed: list[Order] = []
        for order in orders:
            if order.incarnation < self._incarnation:
                continue
            self._incarnation = order.incarnation
            if not isinstance(order, StartOrder | EstimateOrder):
                obeyed.append(order)
            elif (work := unsealed(order.work)) is not None:
                obeyed.append(replace(order, work=work))
            elif isinstance(order, StartOrder):
                self._refuse(order)
        self._executor.carry_out(obeyed)

    def _refuse(self, order: StartOrder) -> None:
        reason = "its user has not submitted this with `apples submit` on this machine: the seal is wrong"
        self.kept.append(
            JobReport(
                order.job, order.attempt, AttemptPhase.ENDED, state="failed", reason=reason,
                exit_code=UsageError.exit_code,
            )
        )  # fmt: skip
        self.kept.extend(HostLeft(order.job, order.attempt, host, LAST) for host in order.hosts)
        self._news.set()

    def _report(self) -> None:
        while not self._stopping.is_set():
            self._news.wait(RETRY_SECONDS)
            self._news.clear()
            self.kept.extend(self._executor.reports())
            try:
                while self.kept:
                    sent = list(islice(self.kept, MAX_REPORTS_AT_ONCE))
                    body = {"reports": [message_document(report) for report in sent]}
                    self._client.ask("POST", "/v1/job-runner/reports", body)
                    for _ in sent:
                        self.kept.popleft()
            except ApplesError:
                self._stopping.wait(RETRY_SECONDS)
