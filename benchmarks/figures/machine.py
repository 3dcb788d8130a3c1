"""The machine beneath a lab: its speed looked at again and again; the lab's hosts calibrated once, as users do it.

A virtual machine was seen to change its speed by a factor of 1.7 within minutes, which no emulated host is
meant to do. So it is measured outside all quotas: as the median of several strips, for one strip alone may be
some per cent off by where its memory happens to lie. What a host's kernels take is measured on the host, under its
quota: a kernel that finds its cache cold after each stop of the quota takes 1.2 to 1.3 of what it takes alone.
"""

import time
from statistics import median

from apples.agent import load_information, program_of
from apples.agent.calibration import calibrate_hosts, looked_at
from apples.errors import ApplesError
from apples.launch.calibrate import calibrate
from apples.resources import Host

SHARES = (0.02, 0.1, 0.3, 0.6, 1.0)
"""Strips that are calibrated, as shares of the largest grid."""
SAMPLES = 5
"""Strips of nearly one size whose median says which kernel is the fastest."""
UNIT, UNITS = 0.5, 10
"""The machine's speed is that of the fastest kernel on strips of this share, so many."""
FRESH_SECONDS = 3.0
"""So long a look counts for the next run too."""


class Machine:
    """The one machine that all hosts of a lab are parts of.

    Attributes
    ----------
    drift
        How many times longer the fastest kernel took at the last look than when it was calibrated.
    """

    def __init__(self, files, grid, talk):
        self.grid, self.talk = grid, talk
        self.information = load_information(*files, settings={"grid": grid}, weather="static")
        self._unit = self._fastest()
        self.drift, self._then, self._looked = 1.0, self._speed(), time.monotonic()
        rows = [max(1, int(grid * share)) for share in SHARES]
        calibrate_hosts(looked_at(self.information), rows, talk)

    def look(self):
        """Return the drift of this moment."""
        if time.monotonic() - self._looked > FRESH_SECONDS:
            self.drift, self._looked = self._speed() / self._then, time.monotonic()
        return self.drift

    def _fastest(self):
        """Return the implementation that is fastest on this machine."""
        speeds, rows = {}, int(self.grid * UNIT)
        for one in self.information.template.implementations:
            try:
                found = self._points(one.name, range(rows, rows + SAMPLES))
            except ApplesError as error:
                self.talk(f"{one.name}: {error}")
                continue
            speeds[one.name] = median(point.seconds_per_point for point in found)
        return min(speeds, key=speeds.__getitem__)

    def _speed(self):
        rows = int(self.grid * UNIT)
        found = self._points(self._unit, range(rows, rows + UNITS))
        return median(one.seconds_per_point for one in found)

    def _points(self, implementation, rows):
        return calibrate(
            Host("here"),
            program_of(self.information, implementation),
            implementation,
            self.information.application.parameters,
            rows,
            talk=self.talk,
        )
