"""The scheduler's side of the job runners: orders wait here until the job runner of their user asks for them.

A job runner is a process of each user that carries out the orders for that user's jobs and reports the results.
The scheduler itself runs nothing. It repeats an order that gets no report, so an order may be lost on the way.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import inf
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from apples.cluster.orders import (
    AskOrder,
    EndOrder,
    EstimateOrder,
    HostLeft,
    JobExecutor,
    JobReport,
    JobRunnerAnswer,
    Order,
    Report,
    ResizeOrder,
    RunTimeEstimate,
    StartOrder,
)
from apples.errors import UsageError

POLL_SECONDS: Final = 5.0
"""Time for which a request for orders waits for the first order."""
SILENT_SECONDS: Final = 15.0
"""A job runner is away after this time without a request."""
MAX_AT_ONCE: Final = 200
MAX_ORDERS: Final = 10_000
"""Waiting orders of one user. Further orders are dropped; the scheduler sends them again."""
MAX_REASON_CHARS: Final = 1000
NUMBER_BOUND: Final = 1 << 31
MAX_CHOICES, MAX_CHOICE_HOSTS = 8, 1000
"""Sets of hosts in an answer of a model, and hosts in a set."""

ORDERS: Mapping[str, type[Order]] = {
    "start": StartOrder, "resize": ResizeOrder, "end": EndOrder, "ask": AskOrder,
    "estimate": EstimateOrder,
}  # fmt: skip
JobNews = JobReport | HostLeft | RunTimeEstimate
"""The reports of a job runner."""
REPORTS: Mapping[str, type[JobNews]] = {
    "job": JobReport, "left": HostLeft, "run_time": RunTimeEstimate,
}  # fmt: skip
_KINDS: Mapping[type, str] = {kind: name for name, kind in {**ORDERS, **REPORTS}.items()}
_READERS = {name: TypeAdapter(kind) for name, kind in {**ORDERS, **REPORTS}.items()}


def message_document(message: Order | Report) -> dict[str, Any]:
    """Return an order or a report as JSON.

    Examples
    --------
    >>> message_of(message_document(HostLeft(1, 1, "ada", 2)), REPORTS)
    HostLeft(job=1, attempt=1, host='ada', epoch=2)
    """
    return {"kind": _KINDS[type(message)], **asdict(message)}


def message_of(found: Any, kinds: Mapping[str, Any]) -> Any:
    """Return the order or report of a document.

    Raises
    ------
    UsageError
        It has another kind, or a value out of its bounds.
    """
    kind = found.get("kind") if isinstance(found, dict) else None
    if not isinstance(kind, str) or kind not in kinds:
        raise UsageError(
            f"expected an object with a kind of {', '.join(kinds)}",
            code="message-invalid", field="kind", known=list(kinds),
        )  # fmt: skip
    try:
        json.dumps(found, ensure_ascii=False).encode()  # rejects unpaired surrogates
        message = _READERS[kind].validate_python({k: v for k, v in found.items() if k != "kind"})
    except UnicodeEncodeError:
        raise _invalid(kind, "a text that is not Unicode") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise _invalid(kind, first["msg"], ".".join(map(str, first["loc"]))) from None
    return _checked(kind, message)


def _invalid(kind: str, text: str, field: str = "") -> UsageError:
    """Return the error of a message with a bad value."""
    shown = ": ".join(filter(None, (kind, field, text)))[:300]
    return UsageError(shown, code="message-invalid", kind=kind, field=field or None)


def _checked(kind: str, message: Any) -> Any:
    """Return a message after a check that its numbers are within their bounds."""
    if isinstance(message, RunTimeEstimate):
        seconds = message.seconds
        if seconds is not None and not 0 < seconds < NUMBER_BOUND:
            raise _invalid(kind, "above 0, or null", "seconds")
        choices = message.choices or ()
        if len(choices) > MAX_CHOICES or not all(
            0 < len(hosts) <= MAX_CHOICE_HOSTS and 0 <= each < NUMBER_BOUND
            for hosts, each in choices
        ):
            raise _invalid(kind, f"at most {MAX_CHOICES} sets of hosts with seconds", "choices")
    if isinstance(message, JobReport):
        if message.asks is not None and not 0 < message.asks[0] <= message.asks[1] < NUMBER_BOUND:
            raise _invalid(kind, "from fewest to most hosts", "asks")
        if len(message.speeds) > MAX_AT_ONCE or not all(
            0.0 < speed < inf for speed in message.speeds.values()
        ):
            raise _invalid(kind, f"rows a second, of at most {MAX_AT_ONCE} hosts", "speeds")
        if len(message.messages) > MAX_AT_ONCE or not all(
            0.0 <= sent < inf for _, _, sent in message.messages
        ):
            raise _invalid(kind, f"bytes of at most {MAX_AT_ONCE} pairs of hosts", "messages")
        if not 0.0 <= (message.verifying_until or 0.0) < inf:
            raise _invalid(kind, "seconds since the epoch, or null", "verifying_until")
        return replace(message, reason=message.reason[:MAX_REASON_CHARS])
    return message


@dataclass
class _Mailbox:
    """The waiting orders of one user's job runner.

    Attributes
    ----------
    life
        Random name of the start of the job runner that asked last.
    seen
        Time of its last request.
    here
        Whether the scheduler counts it as connected.
    """

    orders: dict[tuple[type, int, int], Order] = field(default_factory=dict)
    life: str = ""
    seen: float = 0.0
    here: bool = False


class JobRunnerExecutor(JobExecutor):
    """Keeps orders for the job runners of users. Their reports reach the scheduler as requests.

    Parameters
    ----------
    clock
        Monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._mailboxes: dict[str, _Mailbox] = {}
        self._answers: list[Report] = []
        self._changed = threading.Condition()
        self._closed = False

    def carry_out(self, orders: Sequence[Order]) -> None:
        """Keep orders until the job runner asks. A repeated order replaces the first."""
        with self._changed:
            for order in orders:
                mailbox = self._mailboxes.setdefault(order.user, _Mailbox())
                if mailbox.here and len(mailbox.orders) < MAX_ORDERS:
                    mailbox.orders[type(order), order.job, order.attempt] = order
            self._changed.notify_all()

    def reports(self) -> list[Report]:
        """Return the connects and disconnects of job runners since the last call."""
        with self._changed:
            for user, mailbox in self._mailboxes.items():
                if mailbox.here and self._clock() > mailbox.seen + SILENT_SECONDS:
                    mailbox.here = False
                    mailbox.orders.clear()
                    self._answers.append(JobRunnerAnswer(user, False))
            found, self._answers = self._answers, []
            return found

    def take(self, user: str, life: str, seconds: float = POLL_SECONDS) -> list[Order]:
        """Wait for the first order for a user's job runner; return all. Each order goes to one runner.

        Parameters
        ----------
        life
            Random name of this start of the job runner. After a restart the scheduler asks for its jobs again.
        """
        with self._changed:
            mailbox = self._mailboxes.setdefault(user, _Mailbox())
            mailbox.seen = self._clock()
            if not mailbox.here or mailbox.life != life:
                mailbox.here, mailbox.life = True, life
                self._answers.append(JobRunnerAnswer(user, True))
            self._changed.wait_for(lambda: mailbox.orders or self._closed, seconds)
            mailbox.seen = self._clock()
            return [mailbox.orders.pop(key) for key in list(mailbox.orders)[:MAX_AT_ONCE]]

    def close(self) -> None:
        """End all waiting requests; jobs and job runners continue."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
