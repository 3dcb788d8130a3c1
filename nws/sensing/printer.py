"""In the place of a service: whoever reads our standard output, such as the other end of ssh."""

from collections.abc import Iterable
from typing import Any, TextIO

from nws.batches import line
from nws.measurement import Measurement


class Printer:
    """Writes each round as one line (`nws.batches`); there is nobody to register with.

    Parameters
    ----------
    stream
        Where to.

    Examples
    --------
    >>> import sys
    >>> from nws.measurement import SeriesName
    >>> ada = Measurement(SeriesName("availableCpu", "ada"), 10.0, 0.5)
    >>> receipt = Printer(sys.stdout).store([ada])
    {"schema":"nws.measurements/1","measurements":[{"series":"availableCpu/ada","time":10.0,"value":0.5}]}
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def store(self, measurements: Iterable[Measurement]) -> dict[str, Any]:
        """Write a line at once; BrokenPipeError when nobody reads any more."""
        self._stream.write(line(measurements))
        self._stream.flush()
        return {"refused": []}
