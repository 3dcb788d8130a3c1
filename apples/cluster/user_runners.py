"""Jobs of several users: each user's own process, the shepherd, carries out the orders to that user's jobs.

The scheduler says which hosts, and never runs anything. A shepherd asks for orders and says what has become of
them; here they wait until it does. An order that is lost on the way is given again, as any that is not answered.
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
    Order,
    Report,
    ResizeOrder,
    RunTimeEstimate,
    SelectedHosts,
    SelectOrder,
    ShepherdAnswer,
    StartOrder,
)
from apples.errors import UsageError

POLL_SECONDS: Final = 5.0
"""For so long a question for orders waits where there are none."""
SILENT_SECONDS: Final = 15.0
"""After so long without a question a shepherd is away."""
MOST_AT_ONCE: Final = 200
MOST_ORDERS: Final = 10_000
"""Of one user; older ones are given again when they are not answered."""
LONGEST_REASON: Final = 1000
MOST_NUMBER: Final = 1 << 31

ORDERS: Mapping[str, type[Order]] = {
    "start": StartOrder, "resize": ResizeOrder, "end": EndOrder, "ask": AskOrder,
    "estimate": EstimateOrder, "select": SelectOrder,
}  # fmt: skip
JobNews = JobReport | HostLeft | RunTimeEstimate | SelectedHosts
"""What a shepherd reports."""
REPORTS: Mapping[str, type[JobNews]] = {
    "job": JobReport, "left": HostLeft, "run_time": RunTimeEstimate,
    "selected": SelectedHosts,
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
        It is none of these kinds.
    """
    kind = found.get("kind") if isinstance(found, dict) else None
    if not isinstance(kind, str) or kind not in kinds:
        raise UsageError(
            f"a message is an object whose kind is one of {', '.join(kinds)}",
            code="message-invalid", field="kind", known=list(kinds),
        )  # fmt: skip
    try:
        json.dumps(found, ensure_ascii=False).encode()  # half a surrogate cannot be shown
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
    """Return a message of the right form whose numbers are within their bounds."""
    if isinstance(message, RunTimeEstimate):
        seconds = message.seconds
        if seconds is not None and not 0 < seconds < MOST_NUMBER:
            raise _invalid(kind, "above 0, or null", "seconds")
    if isinstance(message, SelectedHosts) and not (
        0 <= message.seconds < MOST_NUMBER and 0 <= (message.otherwise or 0.0) < MOST_NUMBER
    ):
        raise _invalid(kind, f"from 0 to {MOST_NUMBER}", "seconds and otherwise")
    if isinstance(message, JobReport):
        if message.asks is not None and not 0 < message.asks[0] <= message.asks[1] < MOST_NUMBER:
            raise _invalid(kind, "from fewest to most hosts", "asks")
        if len(message.speeds) > MOST_AT_ONCE or not all(
            0.0 < speed < inf for speed in message.speeds.values()
        ):
            raise _invalid(kind, f"rows a second, of at most {MOST_AT_ONCE} hosts", "speeds")
        if len(message.messages) > MOST_AT_ONCE or not all(
            0.0 <= sent < inf for _, _, sent in message.messages
        ):
            raise _invalid(kind, f"bytes of at most {MOST_AT_ONCE} pairs of hosts", "messages")
        return replace(message, reason=message.reason[:LONGEST_REASON])
    return message


@dataclass
class _Box:
    """What waits for one user's shepherd.

    Attributes
    ----------
    life
        Which start of it asked last.
    seen
        When.
    here
        Whether it was said to be there.
    """

    orders: dict[tuple[type, int, int], Order] = field(default_factory=dict)
    life: str = ""
    seen: float = 0.0
    here: bool = False


class ShepherdExecutor(JobExecutor):
    """Keeps orders for the shepherds of users; what they report reaches the scheduler as requests.

    Parameters
    ----------
    clock
        Seconds; never goes back.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._boxes: dict[str, _Box] = {}
        self._answers: list[Report] = []
        self._changed = threading.Condition()
        self._closed = False

    def carry_out(self, orders: Sequence[Order]) -> None:
        """Keep orders until they are asked for; one that is given again takes the place of the first."""
        with self._changed:
            for order in orders:
                box = self._boxes.setdefault(order.user, _Box())
                if box.here and len(box.orders) < MOST_ORDERS:
                    box.orders[type(order), order.job, order.attempt] = order
            self._changed.notify_all()

    def reports(self) -> list[Report]:
        """Return which shepherds have come or gone; what they say of jobs is asked of the scheduler itself."""
        with self._changed:
            for user, box in self._boxes.items():
                if box.here and self._clock() > box.seen + SILENT_SECONDS:
                    box.here = False
                    box.orders.clear()
                    self._answers.append(ShepherdAnswer(user, False))
            found, self._answers = self._answers, []
            return found

    def take(self, user: str, life: str, seconds: float = POLL_SECONDS) -> list[Order]:
        """Return the orders for a user's shepherd, after waiting for the first; none of them is given to another.

        Parameters
        ----------
        life
            Tells one start of the shepherd from the next, which has to be told anew where its jobs are.
        """
        with self._changed:
            box = self._boxes.setdefault(user, _Box())
            box.seen = self._clock()
            if not box.here or box.life != life:
                box.here, box.life = True, life
                self._answers.append(ShepherdAnswer(user, True))
            self._changed.wait_for(lambda: box.orders or self._closed, seconds)
            box.seen = self._clock()
            return [box.orders.pop(key) for key in list(box.orders)[:MOST_AT_ONCE]]

    def close(self) -> None:
        """Let those go who wait; jobs and shepherds go on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
