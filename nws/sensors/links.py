"""What a link does: time to connect, one-way latency, and the rate of a long transfer."""

import os
import socket
import time
from collections.abc import Callable
from typing import Final

from nws.measurement import BANDWIDTH_TCP, CONNECT_TIME_TCP, LATENCY_TCP, Measurement, SeriesName
from nws.sensor import Sensor, SensorError
from nws.sensors.link_protocol import ECHO, LENGTH, MESSAGE, SINK, DeadlineConnection, probing


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
            raise SensorError(f"no connection to {place}: {error}", transient=True) from error
        return (Measurement(self._series, self._clock(), seconds),)


class LatencySensor(Sensor):
    """Measures ``latencyTcp`` from `host` to `peer` in seconds: half of the least round trip.

    The least of several, since all that can disturb a round trip makes it longer. Half, since
    without synchronised clocks the two ways cannot be told apart. (NWS 2.x reports the whole
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
        if messages < 1:
            raise ValueError(f"{messages} messages measure nothing")
        self._series = SeriesName(LATENCY_TCP, host, peer)
        self._address = address
        self._secret = secret
        self._messages = messages
        self._deadline = deadline
        self._clock = clock
        self._timer = timer

    @property
    def series(self) -> tuple[SeriesName, ...]:
        """``latencyTcp`` of the ordered pair."""
        return (self._series,)

    def measure(self) -> tuple[Measurement, ...]:
        """Connect, send small messages to and fro, take half of the shortest."""
        with probing(self._address, self._secret, ECHO, self._deadline) as channel:
            least = min(self._round_trip(channel) for _ in range(self._messages))
        return (Measurement(self._series, self._clock(), least / 2),)

    def _round_trip(self, channel: DeadlineConnection) -> float:
        start = self._timer()
        channel.send(bytes(MESSAGE))
        channel.receive(MESSAGE)
        return self._timer() - start


FIRST_SIZE: Final = 1 << 14
LEAST_SECONDS: Final = 0.05
LEAST_ROUND_TRIPS: Final = 10
PIECE: Final = 1 << 18


def is_meaningful(seconds: float, round_trip: float) -> bool:
    """Return whether a transfer that took `seconds` says something about the bandwidth.

    At least 50 ms, or buffers and token buckets are measured; at least ten round trips, or slow
    start and the wait for the answer are.
    """
    return seconds >= max(LEAST_SECONDS, LEAST_ROUND_TRIPS * round_trip)


def bandwidth(size: int, seconds: float, round_trip: float) -> float:
    """Return bytes per second, the wait for the acknowledgement taken off.

    The cost model is seconds = round trip + size / bandwidth. Where the round trip is half of it
    all or more the difference is noise, and nothing is taken off.
    """
    return size / (seconds - round_trip if seconds > 2 * round_trip else seconds)


class BandwidthSensor(Sensor):
    """Measures ``bandwidthTcp`` from `host` to `peer` in bytes per second.

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
        What one measurement may send altogether; at most what the endpoint takes.
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
        if most_bytes < FIRST_SIZE:
            raise ValueError(f"a transfer has {FIRST_SIZE} bytes or more, not {most_bytes}")
        self._series = SeriesName(BANDWIDTH_TCP, host, peer)
        self._address = address
        self._secret = secret
        self._most_bytes = most_bytes
        self._deadline = deadline
        self._clock = clock
        self._timer = timer
        self.sent = 0
        self._piece = memoryview(os.urandom(PIECE))  # a link that compresses gains nothing

    @property
    def series(self) -> tuple[SeriesName, ...]:
        """``bandwidthTcp`` of the ordered pair."""
        return (self._series,)

    def measure(self) -> tuple[Measurement, ...]:
        """Connect, transfer more and more, judge by the last transfer."""
        self.sent = 0
        with probing(self._address, self._secret, SINK, self._deadline) as channel:
            round_trip = min(self._transfer(channel, 0) for _ in range(3))
            size = FIRST_SIZE
            seconds = self._transfer(channel, size)
            while not is_meaningful(seconds, round_trip) and self._affordable(2 * size):
                size *= 2
                seconds = self._transfer(channel, size)
        value = bandwidth(size, seconds, round_trip)
        return (Measurement(self._series, self._clock(), value),)

    def _affordable(self, size: int) -> bool:
        return self.sent + size <= self._most_bytes

    def _transfer(self, channel: DeadlineConnection, size: int) -> float:
        """Send `size` bytes and return the seconds until they were acknowledged."""
        start = self._timer()
        channel.send(size.to_bytes(LENGTH))
        for begin in range(0, size, PIECE):
            channel.send(self._piece[: size - begin])
        self.sent += size
        if int.from_bytes(channel.receive(LENGTH)) != size:
            raise SensorError(
                f"{self._series}: {size} bytes were not acknowledged", transient=True
            )
        return self._timer() - start
