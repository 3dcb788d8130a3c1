"""Measurements as a message: the body of the ingest, and a line of a sensor on standard streams.

    {"schema": "nws.measurements/1", "measurements": [
        {"series": "availableCpu/ada", "time": 1763600000.0, "value": 0.5}]}

Times are seconds since the epoch on the clock of the sender. A line is one message; what is wrong
with one says nothing of the next.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from nws.measurement import Measurement, SeriesName, checked_value

SCHEMA: Final = "nws.measurements/1"
MOST: Final = 20_000
"""Measurements in one message."""
MOST_BYTES: Final = 8 << 20
"""Bytes of one message."""


def batch(measurements: Iterable[Measurement]) -> dict[str, Any]:
    """Return the message of some measurements.

    Examples
    --------
    >>> ada = Measurement(SeriesName("availableCpu", "ada"), 10.0, 0.5)
    >>> read_batch(json.dumps(batch([ada]))) == [ada]
    True
    """
    rows = [{"series": str(m.series), "time": m.time, "value": m.value} for m in measurements]
    return {"schema": SCHEMA, "measurements": rows}


def line(measurements: Iterable[Measurement]) -> str:
    """Return the message as one line, ended."""
    return json.dumps(batch(measurements), separators=(",", ":"), allow_nan=False) + "\n"


def read_batch(text: str | bytes) -> list[Measurement]:
    """Return the measurements of a message that somebody else wrote.

    Raises
    ------
    ValueError
        Permanent: it is no such message; says which field is wrong, and never repeats it.
    """
    if len(text) > MOST_BYTES:
        raise ValueError(f"a message of {len(text)} bytes: at most {MOST_BYTES} are read")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("a message is one document of JSON") from None
    if not isinstance(document, dict) or set(document) != {"schema", "measurements"}:
        raise ValueError("a message is an object of schema and measurements")
    if document["schema"] != SCHEMA:
        raise ValueError(f"schema: {SCHEMA!r} is wanted")
    rows = document["measurements"]
    if not isinstance(rows, list) or len(rows) > MOST:
        raise ValueError(f"measurements: a list of at most {MOST} is wanted")
    return [_measurement(row, f"measurements[{place}]") for place, row in enumerate(rows)]


def _measurement(row: object, where: str) -> Measurement:
    if not isinstance(row, Mapping) or set(row) != {"series", "time", "value"}:
        raise ValueError(f"{where}: an object of series, time and value is wanted")
    series, time, value = row["series"], row["time"], row["value"]
    if not isinstance(series, str) or len(series) > 400:
        raise ValueError(f"{where}.series: a text of at most 400 characters is wanted")
    for field, number in (("time", time), ("value", value)):
        if not isinstance(number, int | float) or isinstance(number, bool):
            raise ValueError(f"{where}.{field}: a number is wanted")
    try:
        name = SeriesName.parse(series)
        return Measurement(name, checked_value(float(time)), checked_value(float(value)))
    except (ValueError, OverflowError):
        raise ValueError(f"{where}: a series, a finite time and a finite value") from None
