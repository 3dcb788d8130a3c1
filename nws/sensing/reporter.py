"""The thread that reports to the service: it delivers measurements and renews the registration."""

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from nws.client import ServiceError
from nws.errors import CodedError
from nws.sensing.delivery import DeliveryQueue, Store

MAX_WAIT_SECONDS: Final = 1.0
STOP_SECONDS: Final = 15.0
"""Time limit of the last delivery when the process stops."""


class ReportService(Store, Protocol):
    """The service side of a reporter, such as `nws.client.Client`."""

    def register(self, name: str, **registration: Any) -> dict[str, Any]:
        """Register, or renew."""

    def leave(self, name: str) -> None:
        """End the registration."""


class Reporter:
    """Delivers in a thread of its own, so that a service that hangs does not stop the measuring.

    Parameters
    ----------
    service
        Where to report; used by this thread alone.
    queue
        The measurements to deliver.
    name
        The name of the registration.
    registration
        Returns the registration as it is now.
    renew_every
        Seconds between two renewals.
    log
        Called with a name and its state, to log the state when it changes.
    """

    def __init__(
        self,
        service: ReportService,
        queue: DeliveryQueue,
        name: str,
        registration: Callable[[], dict[str, Any]],
        renew_every: float,
        log: Callable[[str, str], object],
    ) -> None:
        self._service = service
        self._queue = queue
        self._name = name
        self._registration = registration
        self._renew_every = renew_every
        self._log = log
        self._renew_at = 0.0
        self._lost = 0
        self._wake = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="nws report", daemon=True)

    def start(self) -> None:
        """Begin to report."""
        self._thread.start()

    def wake(self, *, renew: bool = False) -> None:
        """Deliver now; with `renew`, register anew first."""
        if renew:
            self._renew_at = 0.0
        self._wake.set()

    def stop(self) -> None:
        """Deliver the rest and end the registration, within `STOP_SECONDS`."""
        self._stopped = True
        self._wake.set()
        self._thread.join(STOP_SECONDS)
        if self._queue:
            self._log("delivery", f"ends; {len(self._queue)} measurements are not delivered")

    def _run(self) -> None:
        while not self._stopped:
            self._report()
            self._wake.wait(MAX_WAIT_SECONDS)
            self._wake.clear()
        self._deliver()
        with contextlib.suppress(ServiceError):
            self._service.leave(self._name)

    def _report(self) -> None:
        now = time.monotonic()
        if now >= self._renew_at:
            self._renew_at = now + self._renew_every
            self._attempt("registration", self._register)
        self._deliver()

    def _deliver(self) -> None:
        if self._queue:  # an empty delivery would not show whether the service answers
            self._attempt("delivery", self._queue.deliver)
        if self._queue.refused is not None:
            self._log("refused", self._queue.refused)
        lost = self._queue.lost
        if lost > (self._lost if self._stopped else 2 * self._lost):  # not a line every round
            self._lost = lost
            self._log("lost", f"{lost} measurements, as too many waited")

    def _register(self) -> None:
        self._service.register(self._name, **self._registration())

    def _attempt(self, what: str, act: Callable[[], object]) -> None:
        try:
            act()
        except (CodedError, OSError) as error:
            self._log(what, _without_path(error))
        else:
            self._log(what, "works")


def _without_path(error: Exception) -> str:
    """Return the message of an error without the path of the request."""
    where, colon, reason = str(error).partition(": ")
    if where.startswith(("http://", "https://")) and colon:
        parts = urlsplit(where)
        return f"{parts.scheme}://{parts.netloc}: {reason}"
    return str(error)
