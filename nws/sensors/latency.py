"""How long a small message takes one way."""

import time
from collections.abc import Callable

from nws.measurement import LATENCY_TCP, Measurement, SeriesName
from nws.sensor import Sensor
from nws.tcp import ECHO, Channel, probing
from nws.tcp.endpoint import MESSAGE


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
        Of the peer's `nws.tcp.Endpoint`.
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

    def _round_trip(self, channel: Channel) -> float:
        start = self._timer()
        channel.send(bytes(MESSAGE))
        channel.receive(MESSAGE)
        return self._timer() - start
