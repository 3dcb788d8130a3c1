"""The shepherd: runs one user's jobs with that user's rights, for a scheduler of several users.

It asks the scheduler for orders and carries them out as the scheduler of one user does (`JobServiceExecutor`). It
obeys no order to start, or to look into, what its user has not submitted, and none of a scheduler that has been
replaced. Jobs go on without it, as without a scheduler.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
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
    SelectOrder,
    StartOrder,
)
from apples.cluster.seals import unsealed
from apples.cluster.user_runners import ORDERS, message_document, message_of
from apples.errors import ApplesError, UsageError
from apples.jobs.scheduler_client import SchedulerClient

AGAIN_SECONDS: Final = 1.0
"""Until a scheduler is asked again that did not answer."""
MOST_AT_ONCE: Final = 200
MOST_KEPT: Final = 10_000
"""Reports that wait for a scheduler to answer; it asks again for what was lost."""


class Shepherd:
    """Carries a scheduler's orders out.

    Parameters
    ----------
    client
        Of the scheduler, on its UNIX socket.
    executor
        Carries out; given what to call when there is something new.
    talk
        Hears what is worth saying.
    """

    def __init__(
        self,
        client: SchedulerClient,
        executor: Callable[[Callable[[], None]], JobServiceExecutor],
        talk: Callable[[str], None],
    ) -> None:
        self._client, self._talk = client, talk
        self._life = secrets.token_hex(8)
        self._incarnation = 0
        self._stopping, self._news = threading.Event(), threading.Event()
        self.kept: deque[Report] = deque(maxlen=MOST_KEPT)
        self._executor = executor(self._news.set)
        self._away = False

    def run(self) -> None:
        """Serve until `stop`; the jobs go on when this returns."""
        threading.Thread(target=self._report, name="report", daemon=True).start()
        while not self._stopping.is_set():
            try:
                self.obey(self._asked())
            except UsageError:
                raise  # it will never let this user in
            except ApplesError as error:
                if not self._away:
                    self._talk(f"{error}; jobs go on")
                self._away = True
                self._stopping.wait(AGAIN_SECONDS)
        self._executor.close()

    def stop(self) -> None:
        """Have `run` return soon; may be called by a signal handler."""
        self._stopping.set()
        self._news.set()

    def _asked(self) -> list[Order]:
        answer = self._client.ask("POST", "/v1/shepherd/orders", {"life": self._life})
        if self._away:
            self._talk("the scheduler answers again")
        self._away = False
        return [message_of(found, ORDERS) for found in answer["orders"]]

    def obey(self, orders: list[Order]) -> None:
        """Carry out what may be: nothing of a scheduler that was replaced, or that its user did not submit."""
        obeyed: list[Order] = []
        for order in orders:
            if order.incarnation < self._incarnation:
                continue
            self._incarnation = order.incarnation
            if not isinstance(order, StartOrder | EstimateOrder | SelectOrder):
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
            self._news.wait(AGAIN_SECONDS)
            self._news.clear()
            self.kept.extend(self._executor.reports())
            try:
                while self.kept:
                    said = [self.kept[place] for place in range(min(len(self.kept), MOST_AT_ONCE))]
                    body = {"reports": [message_document(one) for one in said]}
                    self._client.ask("POST", "/v1/shepherd/reports", body)
                    for _ in said:
                        self.kept.popleft()
            except ApplesError:
                self._stopping.wait(AGAIN_SECONDS)
