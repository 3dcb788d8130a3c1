"""What can still be written to a file system."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from nws.measurement import FREE_DISK, Measurement, SeriesName
from nws.sensor import Sensor, SensorError


class FreeDiskSensor(Sensor):
    """Measures ``freeDisk`` in bytes: the blocks that an unprivileged process may have.

    Parameters
    ----------
    host
        The name of the host.
    path
        A file or directory on the file system.
    clock
        Seconds since the epoch.
    """

    def __init__(
        self, host: str, path: Path = Path("/"), *, clock: Callable[[], float] = time.time
    ) -> None:
        self._series = SeriesName(FREE_DISK, host)
        self._path = path
        self._clock = clock

    @property
    def series(self) -> tuple[SeriesName, ...]:
        """``freeDisk`` of the host."""
        return (self._series,)

    def measure(self) -> tuple[Measurement, ...]:
        """Ask the file system.

        Raises
        ------
        SensorError
            Permanent: there is no such path.
        """
        try:
            found = os.statvfs(self._path)
        except OSError as error:
            raise SensorError(f"{self._path}: {error.strerror}", transient=False) from error
        free = float(found.f_bavail) * found.f_frsize
        return (Measurement(self._series, self._clock(), free),)
