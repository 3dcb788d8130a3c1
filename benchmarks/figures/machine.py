"""The machine beneath a lab: its kernels calibrated once, its speed looked at again and again.

A virtual machine was seen to change its speed by a factor of 1.7 within minutes, which no emulated host is
meant to do. So it is measured outside all quotas: as the median of several strips, for one strip alone may be
some per cent off by where its memory happens to lie.
"""

import time
from statistics import median

from apples.agent import SpeedFunction, load_information, program_of, store_speeds
from apples.errors import ApplesError
from apples.launch.calibrate import calibrate
from apples.resources import Host

SHARES = (0.02, 0.1, 0.3, 0.6, 1.0)
"""Strips that are calibrated, as shares of the largest grid."""
SAMPLES = 5
"""Strips of nearly one size that each is the median of."""
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
        self.information = load_information(*files, settings={"grid": grid})
        self._unit = self._calibrate()
        self.drift, self._then, self._looked = 1.0, self._speed(), time.monotonic()

    def look(self):
        """Return the drift of this moment."""
        if time.monotonic() - self._looked > FRESH_SECONDS:
            self.drift, self._looked = self._speed() / self._then, time.monotonic()
        return self.drift

    def _calibrate(self):
        """Measure the kernels for all hosts; return the fastest."""
        template, known = self.information.template, {}
        for one in template.implementations:
            try:
                measured = [self._measured(one.name, max(1, int(self.grid * s))) for s in SHARES]
            except ApplesError as error:
                self.talk(f"{one.name}: {error}")
                continue
            known[one.name] = SpeedFunction.measured(measured, self.grid)
        for host in self.information.hosts:
            store_speeds(template.name, template.version, host.identity, known)
        return min(known, key=lambda name: known[name].at(self.grid * UNIT))

    def _measured(self, implementation, rows):
        """Return rows, seconds a point and its error."""
        found = self._points(implementation, range(rows, rows + SAMPLES))
        return rows, median(p.seconds_per_point for p in found), median(p.error for p in found)

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
