"""What takes the steps of a single series: compiled, or with NumPy."""

from typing import Protocol

import numpy as np

from nws.bank.rhythms import look_for_rhythm
from nws.bank.scoring import Array
from nws.bank.single import SingleRunner
from nws.bank.vectors import Series


class Runner(Protocol):
    """Takes the steps of one series, whose fields others may read after `settle`."""

    def step(self, tick: int, value: float) -> None:
        """Take in the value of `tick`, in the engine's unit; NaN: there is none."""

    def final(self, which: int) -> float:
        """Return the answer of the first rung, in the engine's unit."""

    def look_for_rhythm(self, tick: int) -> None:
        """Look for the rhythm, `tick` being the latest."""

    def settle(self) -> None:
        """See to it that the fields hold all that is known."""

    def resume(self, tick: int) -> None:
        """Go on from fields that were changed, `tick` being the next."""


class CompiledRunner:
    """Steps in machine code."""

    def __init__(self, series: Series, wide: Array, narrow: Array) -> None:
        from nws.bank.compiled import step_all  # noqa: PLC0415 - numba loads for a second

        self._run = step_all
        self._series = series
        self._wide, self._narrow = wide, narrow
        self._rungs = np.array(series.ladder, dtype=np.int64)
        self._value = np.empty(1)
        self._final = series.step.final[0, :, 0]

    def step(self, tick: int, value: float) -> None:
        """Run the kernel."""
        self._value[0] = value
        self._run(self._wide, self._narrow, self._rungs, tick, self._value)

    def final(self, which: int) -> float:
        """Read the answer."""
        return float(self._final[which])

    def look_for_rhythm(self, tick: int) -> None:
        """Give the auto-lag regression new lags."""
        look_for_rhythm(self._series, 0, tick)

    def settle(self) -> None:
        """Nothing is kept elsewhere."""

    def resume(self, tick: int) -> None:
        """Nothing is kept elsewhere."""


def make_runner(engine: str, series: Series, wide: Array, narrow: Array) -> Runner:
    """Return what runs a single series with this engine."""
    return CompiledRunner(series, wide, narrow) if engine == "numba" else SingleRunner(series)
