"""Delivery of measurements: to the service, as they come or a whole history, or to standard output."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from threading import Lock
from typing import Any, Final, Protocol, TextIO

from nws.client import ServiceError
from nws.measurement import Measurement, SeriesName, line

MAX_WAITING: Final = 20_000
MAX_MESSAGE: Final = 2000
TOO_LARGE, REFUSED, BUSY = 413, 422, 429


class Store(Protocol):
    """The service side of a delivery, such as `nws.client.Client`."""

    def store(self, measurements: Sequence[Measurement]) -> dict[str, Any]:
        """Store, or raise `ServiceError`."""


class DeliveryQueue:
    """A bounded queue to the service. When it is full, the oldest measurements are dropped and counted.

    Storing is idempotent, so sending again is safe: a measurement leaves the queue only after the service
    acknowledged that it is on its disk. One thread may take measurements while another delivers.

    Parameters
    ----------
    store
        The service.
    most
        Capacity in measurements.

    Attributes
    ----------
    lost
        Number of dropped measurements.
    refused
        The last reason for which the service refused a measurement.
    """

    def __init__(self, store: Store, most: int = MAX_WAITING) -> None:
        self._store = store
        self._waiting: deque[Measurement] = deque()
        self._most = most
        self._lock = Lock()
        self.lost = 0
        self.refused: str | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, measurements: Iterable[Measurement]) -> None:
        """Queue measurements."""
        with self._lock:
            self._waiting.extend(measurements)
            while len(self._waiting) > self._most:
                self._waiting.popleft()
                self.lost += 1

    def deliver(self) -> None:
        """Send the waiting measurements.

        A measurement that the service refuses as invalid (422) is dropped. Of a message that contains such
        a measurement, or is too large, the halves are sent.

        Raises
        ------
        ServiceError
            The service does not take them. They go on waiting.
        """
        most = MAX_MESSAGE
        while self._waiting:
            with self._lock:
                piece = list(islice(self._waiting, most))
                lost = self.lost
            try:
                receipt = self._store.store(piece)
            except ServiceError as error:
                # Another status may come from a proxy or another server, which judges no measurement.
                if error.status not in {REFUSED, TOO_LARGE}:
                    raise
                if len(piece) > 1:
                    most = len(piece) // 2
                    continue
                if error.status == TOO_LARGE:
                    raise
                self.refused = str(error)
            else:
                most = min(2 * most, MAX_MESSAGE)
                if receipt["refused"]:
                    self.refused = receipt["refused"][0]["reason"]
            with self._lock:  # the queue may have dropped a part of the piece meanwhile
                for _ in range(len(piece) - (self.lost - lost)):
                    self._waiting.popleft()


MAX_HISTORY_MESSAGE: Final = 5000
MAX_OF_A_SERIES: Final = 250
"""Measurements of a series in one message of a history: half of the room of ``--keep 500``."""
PAUSE_SECONDS: Final = 5.0
MAX_PAUSES: Final = 120


def store_history(
    store: Store, measurements: Iterable[Measurement], wait: Callable[[float], object]
) -> Iterator[dict[str, Any]]:
    """Yield the receipts of measurements, each counted once, as they are stored.

    A message has few measurements of a series, so that the service can move old measurements into slots in
    between. A refused message is sent in halves, down to the invalid measurement. If the service is too busy,
    each message is sent again for up to ten minutes.

    Raises
    ------
    ServiceError
        The service does not answer, rejects the token, or is busy for too long. Measurements of the yielded
        receipts are stored.
    """
    for message in _messages(measurements):
        yield from _split_on_rejection(store, message, wait)


def _messages(measurements: Iterable[Measurement]) -> Iterator[list[Measurement]]:
    message: list[Measurement] = []
    counts: Counter[SeriesName] = Counter()
    for measurement in measurements:
        if len(message) == MAX_HISTORY_MESSAGE or counts[measurement.series] == MAX_OF_A_SERIES:
            yield message
            message = []
            counts.clear()
        message.append(measurement)
        counts[measurement.series] += 1
    if message:
        yield message


def _split_on_rejection(
    store: Store, message: list[Measurement], wait: Callable[[float], object]
) -> Iterator[dict[str, Any]]:
    try:
        yield _retry_when_busy(store, message, wait)
    except ServiceError as error:
        if error.status != REFUSED:
            raise
        if len(message) == 1:
            refused = [{"index": 0, "reason": str(error)}]
            yield {"stored": 0, "duplicates": 0, "refused_total": 1, "refused": refused}
            return
        half = len(message) // 2
        yield from _split_on_rejection(store, message[:half], wait)
        yield from _split_on_rejection(store, message[half:], wait)


def _retry_when_busy(
    store: Store, message: list[Measurement], wait: Callable[[float], object]
) -> dict[str, Any]:
    waits = 0
    while True:
        try:
            return store.store(message)
        except ServiceError as error:
            if error.status != BUSY or waits == MAX_PAUSES:
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
