"""The speed of the machine below a lab, and the calibration of the lab's hosts.

A virtual machine can change its speed by a factor of 1.7 within minutes, which no emulated host does. So the
speed is measured outside all quotas, as the median of several strips: one strip alone can be several per cent
off because of its place in memory. The time of a host's kernels is measured on the host, below its quota, because
caches are cold after each stop of the quota: a kernel then takes 1.2 to 1.3 times as long as it takes alone.
"""

import time
from statistics import median

from apples.agent import load_information, program_of
from apples.agent.calibration import calibrate_hosts, looked_at
from apples.errors import ApplesError
from apples.launch.calibrate import calibrate
from apples.resources import Host

SHARES = (0.02, 0.1, 0.3, 0.6, 1.0)
"""Calibrated strips, as shares of the largest grid."""
SAMPLES = 5
"""Strips of nearly one size; their median selects the fastest kernel."""
UNIT, UNITS = 0.5, 10
"""The machine's speed is the median of UNITS strips of this share of the grid."""
FRESH_SECONDS = 3.0
"""A speed is used again for this long."""


class Machine:
    """The one machine that runs all hosts of a lab.

    Attributes
    ----------
    drift
        Time of the fastest kernel at the last measurement over that at the calibration.
    """

    def __init__(self, files, grid, log):
        self.grid, self.log = grid, log
        self.information = load_information(*files, settings={"grid": grid}, weather="static")
        self._unit = self._fastest()
        self.drift, self._first, self._measured = 1.0, self._speed(), time.monotonic()
        rows = [max(1, int(grid * share)) for share in SHARES]
        calibrate_hosts(looked_at(self.information), rows, log)

    def measure(self):
        """Return the present drift."""
        if time.monotonic() - self._measured > FRESH_SECONDS:
            self.drift, self._measured = self._speed() / self._first, time.monotonic()
        return self.drift

    def _fastest(self):
        """Return the implementation that is fastest on this machine."""
        speeds, rows = {}, int(self.grid * UNIT)
        for implementation in self.information.template.implementations:
            try:
                points = self._points(implementation.name, range(rows, rows + SAMPLES))
            except ApplesError as error:
                self.log(f"{implementation.name}: {error}")
                continue
            speeds[implementation.name] = median(point.seconds_per_point for point in points)
        return min(speeds, key=speeds.__getitem__)

    def _speed(self):
        rows = int(self.grid * UNIT)
        points = self._points(self._unit, range(rows, rows + UNITS))
        return median(point.seconds_per_point for point in points)

    def _points(self, implementation, rows):
        return calibrate(
            Host("here"),
            program_of(self.information, implementation),
            implementation,
            self.information.application.parameters,
            rows,
            talk=self.log,
        )
