"""The protocol of a sensor process over standard streams: one JSON object a line, version 1.

    asker:   {"schema": "nws.stdio/1", "id": 1, "do": "sense", "host": "ada", "rounds": 5, "bias": null}
             {.., "do": "listen", "address": "10.0.0.1", "secret": ".."}
             {.., "do": "probe", "host": "ada", "peer": "bob", "address": ["10.0.0.2", 4711],
              "secret": "..", "seconds": 5.0, "wide": true, "most_bytes": 8388608}
             {.., "do": "leave"}
    sensor:  {"schema": "nws.stdio/1", "id": 1, "now": 1700000000.0, "measurements":
              [{"series": "availableCpu/ada", "time": .., "value": ..}, ..],
              "failures": ["availableCpu/ada: the run queue cannot be read", ..], "listening": null,
              "remarks": ["2 of the processes that want to run are not seen (hidepid=2): ..", ..],
              "bias": -0.02}

A ``bias`` in a question is what probes of this host found lately: then it is not probed again. That of a reply is
what they found by now.
``measurements`` is what the service's ``POST /v1/measurements`` takes, as it stands. Standard library
only. What comes from the other side is checked field by field.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from nws.errors import InputError
from nws.measurement import Measurement, SeriesName, checked_value

SCHEMA: Final = "nws.stdio/1"
LONGEST_LINE: Final = 1 << 18
MOST_MEASUREMENTS: Final = 1000
SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class SensorReply:
    """An answer of a sensor process.

    Attributes
    ----------
    id
        Of the question; 0 is its greeting.
    now
        Its clock when it answered, in seconds since the epoch.
    measurements
        What it measured.
    failures
        What it could not, one line each.
    listening
        Where its endpoint listens, where that was asked.
    remarks
        What its sensors could not see, one line each: the values stand all the same.
    bias
        What probes of its CPUs found (`nws.ProbeCorrection`); None where there was none.
    """

    id: int
    now: float
    measurements: tuple[Measurement, ...] = ()
    failures: tuple[str, ...] = ()
    listening: tuple[str, int] | None = None
    remarks: tuple[str, ...] = ()
    bias: float | None = None


def ask(number: int, do: str, /, **what: Any) -> bytes:
    """Return a question as a line."""
    return _line({"schema": SCHEMA, "id": number, "do": do, **what})


def answer(
    number: int,
    now: float,
    measurements: Sequence[Measurement] = (),
    failures: Sequence[str] = (),
    listening: tuple[str, int] | None = None,
    remarks: Sequence[str] = (),
    bias: float | None = None,
) -> bytes:
    """Return a reply as a line.

    Examples
    --------
    >>> decode(answer(3, 5.0, failures=["too late"]))
    SensorReply(id=3, now=5.0, measurements=(), failures=('too late',), listening=None, remarks=(), bias=None)
    """
    samples = [{"series": str(m.series), "time": m.time, "value": m.value} for m in measurements]
    return _line(
        {
            "schema": SCHEMA,
            "id": number,
            "now": now,
            "measurements": samples,
            "failures": list(failures),
            "listening": listening,
            "remarks": list(remarks),
            "bias": bias,
        }
    )


def question(line: bytes) -> dict[str, Any]:
    """Return the question in a line; ValueError if it is none of this version."""
    return _document(line)


def decode(line: bytes) -> SensorReply:
    """Return the reply in a line.

    Raises
    ------
    ValueError
        Permanent: it is no reply of this version; the message names the field.
    """
    document = _document(line)
    samples = document.get("measurements")
    if not isinstance(samples, list) or len(samples) > MOST_MEASUREMENTS:
        raise _invalid("measurements", f"must be a list of at most {MOST_MEASUREMENTS}")
    return SensorReply(
        document["id"],
        _number("now", document.get("now")),
        tuple(_measurement(sample) for sample in samples),
        _lines("failures", document.get("failures")),
        _place(document.get("listening")),
        _lines("remarks", document.get("remarks", [])),
        bias_of(document),
    )


def bias_of(document: dict[str, Any]) -> float | None:
    """Return the bias of a question or a reply, None where there is none; ValueError if it can be none."""
    found = document.get("bias")
    if found is None:
        return None
    bias = _number("bias", found)
    if abs(bias) > 1:
        raise _invalid("bias", f"must be in -1..1 (is {bias})")
    return bias


def _lines(name: str, found: object) -> tuple[str, ...]:
    if not isinstance(found, list) or len(found) > MOST_MEASUREMENTS:
        raise _invalid(name, f"must be a list of at most {MOST_MEASUREMENTS}")
    return tuple(_text(each) for each in found)


def _document(line: bytes) -> dict[str, Any]:
    if len(line) > LONGEST_LINE:
        raise InputError(
            f"a line has at most {LONGEST_LINE} bytes (has {len(line)})",
            code="message-too-long",
            bound=LONGEST_LINE,
        )
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON: {error}", code="message-invalid", reason=str(error)) from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise _invalid("schema", f"must be {SCHEMA}")
    number = document.get("id")
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise _invalid("id", "must be a number of at least 0")
    return document


def _measurement(sample: object) -> Measurement:
    if not isinstance(sample, dict) or set(sample) != {"series", "time", "value"}:
        raise _invalid("measurements", "each must have series, time and value")
    series = SeriesName.parse(str(sample["series"]))
    value = checked_value(_number("value", sample["value"]))
    if value < 0:
        raise _invalid("value", f"must not be negative (is {value}, of {series})")
    return Measurement(series, checked_value(_number("time", sample["time"])), value)


def _place(place: object) -> tuple[str, int] | None:
    if place is None:
        return None
    if isinstance(place, list) and len(place) == 2:
        host, port = place
        if isinstance(host, str) and type(port) is int and 0 < port < 1 << 16:
            return host, port
    raise _invalid("listening", "must be [address, port]")


def _invalid(field: str, why: str) -> InputError:
    return InputError(f"{field}: {why}", code="message-invalid", field=field)


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _invalid(name, "must be a finite number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _invalid(name, "must be a finite number")
    return number


def _text(value: object) -> str:
    line = " ".join(str(value)[: 4 * SHOWN].split())
    return "".join(c if c.isprintable() else "?" for c in line)[:SHOWN]


def _line(document: dict[str, Any]) -> bytes:
    return json.dumps(document, allow_nan=False).encode() + b"\n"


MOST_BEFORE_GREETING: Final = 1 << 16
"""Bytes that a login may say before the sensor process does."""


class SensorDialogue:
    r"""Numbers questions, and takes replies out of a stream.

    Examples
    --------
    >>> talk = SensorDialogue()
    >>> number, line = talk.ask("sense", host="ada", rounds=1)
    >>> greeting = b'{"schema":"nws.stdio/1","id":0,"now":5.0,"measurements":[],"failures":[]}\n'
    >>> [reply.id for reply in talk.feed(b"Welcome to ada!\n" + greeting)], talk.greeted
    ([0], True)
    """

    def __init__(self) -> None:
        self.greeted = False
        self._number = 0
        self._buffer = b""
        self._skipped = 0

    def ask(self, do: str, /, **what: Any) -> tuple[int, bytes]:
        """Return the number of a question and its line."""
        self._number += 1
        return self._number, ask(self._number, do, **what)

    def feed(self, data: bytes) -> list[SensorReply]:
        """Return the replies that `data` completes.

        Raises
        ------
        ValueError
            Permanent: the other side is no sensor process of this version.
        """
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        if len(self._buffer) > LONGEST_LINE:
            raise InputError(
                f"a line has at most {LONGEST_LINE} bytes",
                code="message-too-long",
                bound=LONGEST_LINE,
            )
        return [reply for line in lines if (reply := self._reply(line)) is not None]

    def _reply(self, line: bytes) -> SensorReply | None:
        try:
            reply = decode(line)
        except ValueError:
            self._skipped += len(line) + 1
            if self.greeted or self._skipped > MOST_BEFORE_GREETING:
                raise
            return None
        self.greeted = True
        return reply
