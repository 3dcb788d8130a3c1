"""How long it takes to be connected."""

import socket
import time
from collections.abc import Callable

from nws.measurement import CONNECT_TIME_TCP, Measurement, SeriesName
from nws.sensor import Sensor, SensorError


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
            Transient: nobody listens, or not in time.
        """
        start = self._timer()
        try:
            with socket.create_connection(self._address, timeout=self._deadline):
                seconds = self._timer() - start
        except OSError as error:
            place = f"{self._address[0]}:{self._address[1]}"
            raise SensorError(f"no connection to {place}: {error}", transient=True) from error
        return (Measurement(self._series, self._clock(), seconds),)
