"""The contract of a sensor: it returns measurements of now, or raises an error with the reason."""

from abc import ABC, abstractmethod

from nws.errors import CodedError
from nws.measurement import Measurement, SeriesName


class SensorError(CodedError):
    """A sensor could not measure.

    Parameters
    ----------
    message
        The problem, with its value.
    transient
        True: the next measurement may succeed. False: it will not, until someone changes
        something (a file that this machine lacks, a secret that is wrong).
    code, fields
        As of a `CodedError`.
    """

    code = "sensor-failed"

    def __init__(self, message: str, *, transient: bool, code: str = "", **fields: object) -> None:
        super().__init__(message, code=code, **fields)
        self.transient = transient


class Sensor(ABC):
    """Measures one or more series of one host or one ordered pair of hosts.

    One act of measuring may give several series (the run queue gives three), so `measure` answers
    with a tuple. ``nws.checks.SENSOR_CHECKS`` holds the promises as functions that run.
    """

    @property
    @abstractmethod
    def series(self) -> tuple[SeriesName, ...]:
        """The series this sensor measures; at least one, always the same."""

    @abstractmethod
    def measure(self) -> tuple[Measurement, ...]:
        """Return one measurement for each of `series`, in that order, taken now.

        Blocks while it measures, never longer than the sensor's own deadline. The values are
        finite and not negative; the times never go back from one call to the next as long as
        the clock does not.

        Raises
        ------
        SensorError
            Transient or permanent, by its attribute. Nothing was measured.
        """
