"""Where measurements are taken: to the service, as they come or a whole history; or to standard output."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol, TextIO

from nws.client import ServiceError
from nws.measurement import Measurement, SeriesName, line

MOST_KEPT: Final = 20_000
AT_ONCE: Final = 2000


class Store(Protocol):
    """The service side of a delivery, such as `nws.client.Client`."""

    def store(self, measurements: Sequence[Measurement]) -> dict[str, Any]:
        """Store, or raise `ServiceError`."""


class DeliveryQueue:
    """A bounded queue to the service. When it is full the oldest are lost, and counted.

    Sending again is safe, since storing is idempotent: nothing leaves the queue before the service
    has said that it is on its disk.

    Parameters
    ----------
    store
        Who takes them.
    most
        How many are kept.

    Attributes
    ----------
    lost
        How many had to go.
    refused
        The last reason for which the service would not have one.
    """

    def __init__(self, store: Store, most: int = MOST_KEPT) -> None:
        self._store = store
        self._waiting: deque[Measurement] = deque()
        self._most = most
        self.lost = 0
        self.refused: str | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, measurements: Iterable[Measurement]) -> None:
        """Queue measurements."""
        self._waiting.extend(measurements)
        while len(self._waiting) > self._most:
            self._waiting.popleft()
            self.lost += 1

    def deliver(self) -> None:
        """Send what waits; ServiceError if the service does not take it, and it goes on waiting.

        What the service will never take as it is (a refusal that is not transient) is dropped: of
        a message with something of the kind the rest is sent again, in halves.
        """
        most = AT_ONCE
        while self._waiting:
            piece = [self._waiting[place] for place in range(min(most, len(self._waiting)))]
            try:
                receipt = self._store.store(piece)
            except ServiceError as error:
                # Without a status nothing was refused: a certificate that ended may be renewed.
                if error.transient or error.status in {None, 401, 403, 421}:
                    raise
                if len(piece) > 1:
                    most = len(piece) // 2
                    continue
                self.refused = str(error)
            else:
                most = min(2 * most, AT_ONCE)
                if receipt["refused"]:
                    self.refused = receipt["refused"][0]["reason"]
            for _ in piece:
                self._waiting.popleft()


HISTORY_AT_ONCE: Final = 5000
OF_A_SERIES: Final = 250
"""Of a history in one message: half of what a service with ``--keep 500`` has room for."""
REFUSED, BUSY = 422, 429
PAUSE_SECONDS: Final = 5.0
MOST_PAUSES: Final = 120


def store_history(
    store: Store, measurements: Iterable[Measurement], wait: Callable[[float], object]
) -> Iterator[dict[str, Any]]:
    """Yield the receipts of measurements, each counted once, as they are stored.

    Few of a series go into one message, so that the service can archive in between. Of a message
    that is refused the halves are sent, down to what is wrong in it. A service that is too busy is
    waited for, ten minutes for a message.

    Raises
    ------
    ServiceError
        It does not answer, does not let us, or is busy for too long; what was yielded is stored.
    """
    for message in _messages(measurements):
        yield from _halved(store, message, wait)


def _messages(measurements: Iterable[Measurement]) -> Iterator[list[Measurement]]:
    message: list[Measurement] = []
    counts: Counter[SeriesName] = Counter()
    for measurement in measurements:
        if len(message) == HISTORY_AT_ONCE or counts[measurement.series] == OF_A_SERIES:
            yield message
            message = []
            counts.clear()
        message.append(measurement)
        counts[measurement.series] += 1
    if message:
        yield message


def _halved(
    store: Store, message: list[Measurement], wait: Callable[[float], object]
) -> Iterator[dict[str, Any]]:
    try:
        yield _patiently(store, message, wait)
    except ServiceError as error:
        if error.status != REFUSED:
            raise
        if len(message) == 1:
            refused = [{"index": 0, "reason": str(error)}]
            yield {"stored": 0, "duplicates": 0, "refused_total": 1, "refused": refused}
            return
        half = len(message) // 2
        yield from _halved(store, message[:half], wait)
        yield from _halved(store, message[half:], wait)


def _patiently(
    store: Store, message: list[Measurement], wait: Callable[[float], object]
) -> dict[str, Any]:
    waits = 0
    while True:
        try:
            return store.store(message)
        except ServiceError as error:
            if error.status != BUSY or waits == MOST_PAUSES:
                raise
        wait(PAUSE_SECONDS)
        waits += 1


class LineWriter:
    """Writes each round as one line (`nws.measurement`); no service, hence no lease.

    Parameters
    ----------
    stream
        Where to.

    Examples
    --------
    >>> import sys
    >>> from nws.measurement import SeriesName
    >>> ada = Measurement(SeriesName("availableCpu", "ada"), 10.0, 0.5)
    >>> receipt = LineWriter(sys.stdout).store([ada])
    {"schema":"nws.measurements/1","measurements":[{"series":"availableCpu/ada","time":10.0,"value":0.5}]}
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def store(self, measurements: Iterable[Measurement]) -> dict[str, Any]:
        """Write a line at once; BrokenPipeError when the reader has gone."""
        self._stream.write(line(measurements))
        self._stream.flush()
        return {"refused": []}
