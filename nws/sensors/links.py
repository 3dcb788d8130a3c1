"""What a link does: time to connect, latency and its jitter, the rate of a long transfer, losses."""

import contextlib
import os
import socket
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from nws.errors import InputError
from nws.measurement import (
    BANDWIDTH_TCP,
    CONNECT_TIME_TCP,
    JITTER_TCP,
    JITTER_UDP,
    LATENCY_TCP,
    LATENCY_UDP,
    LOSS_TCP,
    LOSS_UDP,
    Measurement,
    SeriesName,
)
from nws.sensor import Sensor, SensorError
from nws.sensors.link_protocol import (
    DATAGRAM,
    DATAGRAM_BYTES,
    ECHO,
    LENGTH,
    MARK,
    MESSAGE,
    MOST_DATAGRAMS,
    SINK,
    DeadlineConnection,
    probing,
    tells_losses,
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
    """A sensor of some kinds of an ordered pair, by what the peer's endpoint does for it."""

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
    cannot be told apart. (NWS 2.x reports the whole
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
            raise InputError(
                f"messages: must be at least 1 (is {messages})",
                code="value-range",
                field="messages",
                value=messages,
                bound=1,
            )
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


DATAGRAMS: Final = 50
SPACING: Final = 0.004


class UdpSensor(_EndpointSensor):
    """Measures ``latencyUdp``, ``jitterUdp`` and ``lossUdp`` from `host` to `peer`.

    Datagrams of 64 bytes leave at an even pace and are sent back by the peer's endpoint, which was
    asked over TCP first: it answers nobody else. What does not come back was lost on either way.

    Parameters
    ----------
    host, peer, address, secret, deadline, clock, timer
        As of `LatencySensor`.
    datagrams, spacing, patience
        How many, at least 2, the seconds between them, and those in which the last may come back. Fewer are
        sent, and it is waited for half of what is left, where the deadline would pass.
    """

    def __init__(
        self,
        host: str,
        peer: str,
        address: tuple[str, int],
        secret: str,
        *,
        datagrams: int = DATAGRAMS,
        spacing: float = SPACING,
        patience: float = 0.5,
        deadline: float = 5.0,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        if not 2 <= datagrams <= MOST_DATAGRAMS:
            raise InputError(
                f"datagrams: must be 2 to {MOST_DATAGRAMS} (is {datagrams})",
                code="value-range",
                field="datagrams",
                value=datagrams,
                bound=MOST_DATAGRAMS,
            )
        kinds = (LATENCY_UDP, JITTER_UDP, LOSS_UDP)
        super().__init__(kinds, host, peer, address, secret, deadline, clock, timer)
        self._datagrams = datagrams
        self._spacing = spacing
        self._patience = patience

    def measure(self) -> tuple[Measurement, ...]:
        """Send datagrams and see which come back.

        Raises
        ------
        SensorError
            Transient: the endpoint does not answer, or none came back: a firewall may let no
            datagram through, which says nothing of losses.
        """
        begun = self._timer()
        family = socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET
        with (
            probing(self._address, self._secret, DATAGRAM, self._deadline) as channel,
            socket.socket(family, socket.SOCK_DGRAM) as out,
        ):
            out.connect((self._address[0], int.from_bytes(channel.receive(LENGTH))))
            mark = channel.receive(MARK)
            left = max(0.0, self._deadline - (self._timer() - begun))
            patience = min(self._patience, left / 2)
            count = min(self._datagrams, max(2, int((left - patience) / self._spacing)))
            trips = self._exchange(out, mark, count, patience)
        if not trips:
            place = f"{self._address[0]}:{self._address[1]}"
            raise SensorError(
                f"no datagram came back from {place}; a firewall may block UDP",
                transient=True,
                code="datagrams-lost",
                address=place,
            )
        return self._measured(min(trips) / 2, jitter(trips), (count - len(trips)) / count)

    def _exchange(
        self, out: socket.socket, mark: bytes, count: int, patience: float
    ) -> list[float]:
        """Return the round trips of those of `count` datagrams that came back, in the order they were sent."""
        sent: list[float] = []
        trips: dict[int, float] = {}
        start = self._timer()
        waiting = True
        while waiting and len(trips) < count:
            now = self._timer()
            all_sent = len(sent) == count
            due = sent[-1] + patience if all_sent else start + self._spacing * len(sent)
            if not all_sent and now >= due:
                number = len(sent).to_bytes(LENGTH)
                sent.append(self._timer())
                with contextlib.suppress(OSError):  # the last one met nobody: it is lost
                    out.send((mark + number).ljust(DATAGRAM_BYTES, b"\0"))
                continue
            # What has come back is here even if this process was kept from looking: then it is
            # late, but not lost. So the buffer is emptied before the wait ends.
            out.settimeout(max(0.0, due - now))
            try:
                data = out.recv(DATAGRAM_BYTES)
            except OSError:  # nothing yet; or nobody is there, as one that was sent has met
                waiting = not all_sent or now < due
                continue
            place = int.from_bytes(data[MARK : MARK + LENGTH])
            if data[:MARK] == mark and place < len(sent):
                trips.setdefault(place, self._timer() - sent[place])
        return [trips[place] for place in sorted(trips)]


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
        if most_bytes < FIRST_SIZE:
            raise InputError(
                f"most_bytes: must be at least {FIRST_SIZE} (is {most_bytes})",
                code="value-range",
                field="most_bytes",
                value=most_bytes,
                bound=FIRST_SIZE,
            )
        kinds = (BANDWIDTH_TCP, LOSS_TCP) if tells_losses() else (BANDWIDTH_TCP,)
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
        finally:  # one that fails costs the link as much
            seconds = self._timer() - start
            self.seconds += seconds
        return seconds
