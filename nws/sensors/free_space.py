"""How much memory a new process can have, and how many bytes a file system still takes."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from nws.measurement import FREE_DISK, FREE_MEMORY, Measurement, SeriesName
from nws.sensor import Sensor, SensorError
from nws.sensors.cgroups import available_memory
from nws.sensors.linux import parse_available_memory

ROOT = Path("/")


class FreeMemorySensor(Sensor):
    """Measures ``freeMemory`` in bytes: the minimum of the machine and the cgroups.

    Of the machine it is MemAvailable (not MemFree, which counts a full cache as used); of a cgroup
    its limit less its working set.

    Parameters
    ----------
    host
        The name of the host.
    clock
        Seconds since the epoch.
    root
        The root of the tree in which /proc and /sys are read.
    """

    def __init__(
        self, host: str, *, clock: Callable[[], float] = time.time, root: Path = ROOT
    ) -> None:
        self._series = SeriesName(FREE_MEMORY, host)
        self._clock = clock
        self._root = root

    @property
    def series(self) -> tuple[SeriesName, ...]:
        """``freeMemory`` of the host."""
        return (self._series,)

    def measure(self) -> tuple[Measurement, ...]:
        """Read both and take the lesser.

        Raises
        ------
        SensorError
            Permanent: /proc/meminfo is missing or not as on Linux.
        """
        try:
            machine = parse_available_memory((self._root / "proc/meminfo").read_text())
            group = available_memory(self._root)
        except (OSError, ValueError, LookupError) as error:
            raise SensorError(
                f"free memory cannot be read: {error}",
                transient=False,
                code="system-unreadable",
                reason=str(error),
            ) from error
        free = float(machine) if group is None else min(float(machine), group)
        return (Measurement(self._series, self._clock(), free),)


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
            Permanent: the path does not exist.
        """
        try:
            found = os.statvfs(self._path)
        except OSError as error:
            raise SensorError(
                f"{self._path}: {error.strerror}",
                transient=False,
                code="file-missing" if isinstance(error, FileNotFoundError) else "file-unreadable",
                file=str(self._path),
            ) from error
        free = float(found.f_bavail) * found.f_frsize
        return (Measurement(self._series, self._clock(), free),)
