"""Sensors of a link: connect time, latency and its jitter, bandwidth of a long transfer, losses."""

import os
import socket
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from nws.measurement import (
    BANDWIDTH_TCP,
    CONNECT_TIME_TCP,
    JITTER_TCP,
    LATENCY_TCP,
    LOSS_TCP,
    Measurement,
    SeriesName,
)
from nws.sensor import Sensor, SensorError
from nws.sensors.link_protocol import (
    ECHO,
    LENGTH,
    MESSAGE,
    SINK,
    DeadlineConnection,
    counts_losses,
    probing,
)


class ConnectTimeSensor(Sensor):
    """Measures ``connectTimeTcp`` from `host` to `peer` in seconds, against any listening port.

    Nothing is sent: the connection is closed as soon as it is there. (NWS 2.x reports
    milliseconds.)

    Parameters
    ----------
    host, peer
        The names of the host this runs on and of the one at the far end.
    address
        Where something listens.
    deadline
        Seconds that a measurement may take.
    clock, timer
        Seconds since the epoch; seconds that only go forward, as fine as can be.
    """

    def __init__(
        self,
        host: str,
        peer: str,
        address: tuple[str, int],
        *,
        deadline: float = 5.0,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._series = SeriesName(CONNECT_TIME_TCP, host, peer)
        self._address = address
        self._deadline = deadline
        self._clock = clock
        self._timer = timer

    @property
    def series(self) -> tuple[SeriesName, ...]:
        """``connectTimeTcp`` of the ordered pair."""
        return (self._series,)

    def measure(self) -> tuple[Measurement, ...]:
        """Connect and hang up.

        Raises
        ------
        SensorError
            Transient: nothing listens, or not in time.
        """
        start = self._timer()
        try:
            with socket.create_connection(self._address, timeout=self._deadline):
                seconds = self._timer() - start
        except OSError as error:
            place = f"{self._address[0]}:{self._address[1]}"
            raise SensorError(
                f"no connection to {place}: {error}",
                transient=True,
                code="endpoint-unreachable",
                address=place,
            ) from error
        return (Measurement(self._series, self._clock(), seconds),)


class _EndpointSensor(Sensor):
    """A sensor of some resources of an ordered pair, against the endpoint of the peer."""

    def __init__(
        self,
        kinds: Sequence[str],
        host: str,
        peer: str,
        address: tuple[str, int],
        secret: str,
        deadline: float,
        clock: Callable[[], float],
        timer: Callable[[], float],
    ) -> None:
        self._series = tuple(SeriesName(kind, host, peer) for kind in kinds)
        self._address = address
        self._secret = secret
        self._deadline = deadline
        self._clock = clock
        self._timer = timer

    @property
    def series(self) -> tuple[SeriesName, ...]:
        """One of the ordered pair for each kind."""
        return self._series

    def _measured(self, *figures: float) -> tuple[Measurement, ...]:
        now = self._clock()
        return tuple(Measurement(s, now, v) for s, v in zip(self._series, figures, strict=True))


class LatencySensor(_EndpointSensor):
    """Measures ``latencyTcp`` and ``jitterTcp`` from `host` to `peer` in seconds.

    Latency is half of the least round trip, jitter half of the mean difference of a round trip and
    the next (RFC 3550, section 6.4.1, not smoothed). The least of several, since all that can
    disturb a round trip makes it longer. Half, since without synchronised clocks the two ways
    cannot be distinguished. (NWS 2.x reports the whole
    round trip of one message, in milliseconds.)

    Parameters
    ----------
    host, peer
        The names of the host this runs on and of the one at the far end.
    address, secret
        Of the peer's `nws.sensors.link_protocol.Endpoint`.
    messages
        How many round trips, at least 1.
    deadline
        Seconds that a measurement may take.
    clock
        Seconds since the epoch.
    timer
        Seconds that only go forward, as fine as can be.
    """

    def __init__(
        self,
        host: str,
        peer: str,
        address: tuple[str, int],
        secret: str,
        *,
        messages: int = 20,
        deadline: float = 5.0,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        kinds = (LATENCY_TCP, JITTER_TCP)
        super().__init__(kinds, host, peer, address, secret, deadline, clock, timer)
        self._messages = messages

    def measure(self) -> tuple[Measurement, ...]:
        """Connect, send small messages to and fro, take half of the shortest."""
        with probing(self._address, self._secret, ECHO, self._deadline) as channel:
            trips = [self._round_trip(channel) for _ in range(self._messages)]
        return self._measured(min(trips) / 2, jitter(trips))

    def _round_trip(self, channel: DeadlineConnection) -> float:
        start = self._timer()
        channel.send(bytes(MESSAGE))
        channel.receive(MESSAGE)
        return self._timer() - start


def jitter(round_trips: Sequence[float]) -> float:
    """Return half of the mean difference of a round trip and the next; 0 of a single one.

    Examples
    --------
    >>> jitter([0.010, 0.014, 0.012])
    0.0015
    """
    differences = [abs(after - before) for before, after in pairwise(round_trips)]
    return sum(differences) / (2 * len(differences)) if differences else 0.0


FIRST_SIZE: Final = 1 << 14
MIN_SECONDS: Final = 0.05
MIN_ROUND_TRIPS: Final = 10
PIECE: Final = 1 << 18


def is_meaningful(seconds: float, round_trip: float) -> bool:
    """Return whether a transfer of `seconds` was long enough to measure the bandwidth.

    A transfer below 50 ms measures buffers and token buckets; one below ten round trips measures slow
    start and the wait for the answer.
    """
    return seconds >= max(MIN_SECONDS, MIN_ROUND_TRIPS * round_trip)


def bandwidth(size: int, seconds: float, round_trip: float) -> float:
    """Return bytes per second, the wait for the acknowledgement taken off.

    The cost model is seconds = round trip + size / bandwidth. Where the round trip is half of it
    all or more the difference is noise, and nothing is taken off.
    """
    return size / (seconds - round_trip if seconds > 2 * round_trip else seconds)


class BandwidthSensor(_EndpointSensor):
    """Measures ``bandwidthTcp`` from `host` to `peer` in bytes per second, and on Linux ``lossTcp``.

    Over one connection, transfers that double in size until one is meaningful (`is_meaningful`)
    or the next would exceed `most_bytes`; then bytes acknowledged over time. (The 64 kB of NWS
    2.x last 0.03 ms at 17 Gbit/s.)

    Parameters
    ----------
    host, peer
        The names of the host this runs on and of the one at the far end.
    address, secret
        Of the peer's `nws.sensors.link_protocol.Endpoint`.
    most_bytes
        Bytes that one measurement may send; at most the limit of the endpoint.
    deadline
        Seconds that a measurement may take.
    clock
        Seconds since the epoch.
    timer
        Seconds that only go forward, as fine as can be.

    Attributes
    ----------
    sent
        Bytes that the last measurement sent, also if it failed.
    seconds
        How long it kept the link busy.
    """

    def __init__(
        self,
        host: str,
        peer: str,
        address: tuple[str, int],
        secret: str,
        *,
        most_bytes: int = 1 << 26,
        deadline: float = 20.0,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        kinds = (BANDWIDTH_TCP, LOSS_TCP) if counts_losses() else (BANDWIDTH_TCP,)
        super().__init__(kinds, host, peer, address, secret, deadline, clock, timer)
        self._most_bytes = most_bytes
        self.sent = 0
        self.seconds = 0.0
        self._piece = memoryview(os.urandom(PIECE))  # a link that compresses gains nothing

    def measure(self) -> tuple[Measurement, ...]:
        """Connect, transfer more and more, judge by the last transfer."""
        self.sent, self.seconds = 0, 0.0
        with probing(self._address, self._secret, SINK, self._deadline) as channel:
            round_trip = min(self._transfer(channel, 0) for _ in range(3))
            size = FIRST_SIZE
            seconds = self._transfer(channel, size)
            while not is_meaningful(seconds, round_trip) and self._affordable(2 * size):
                size *= 2
                seconds = self._transfer(channel, size)
            figures = [bandwidth(size, seconds, round_trip)]
            if len(self._series) > 1:
                figures.append(channel.sent_again())
        return self._measured(*figures)

    def _affordable(self, size: int) -> bool:
        return self.sent + size <= self._most_bytes

    def _transfer(self, channel: DeadlineConnection, size: int) -> float:
        """Send `size` bytes and return the seconds until they were acknowledged."""
        start = self._timer()
        try:
            channel.send(size.to_bytes(LENGTH))
            for begin in range(0, size, PIECE):
                channel.send(self._piece[: size - begin])
                self.sent += min(PIECE, size - begin)
            if int.from_bytes(channel.receive(LENGTH)) != size:
                raise SensorError(
                    f"{self._series[0]}: {size} bytes were not acknowledged",
                    transient=True,
                    code="transfer-unacknowledged",
                    series=str(self._series[0]),
                    value=size,
                )
        finally:  # a failed transfer keeps the link busy too
            seconds = self._timer() - start
            self.seconds += seconds
        return seconds
