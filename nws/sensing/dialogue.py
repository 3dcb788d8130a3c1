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

A ``bias`` in a question comes from recent probes of this host: then it is not probed again. The ``bias`` of a
reply includes the new probes. ``measurements`` can be sent to ``POST /v1/measurements`` of the service as it is.
Both sides check each field. Standard library only.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from nws.errors import InputError
from nws.measurement import Measurement, batch, read_measurement

SCHEMA: Final = "nws.stdio/1"
MAX_LINE_BYTES: Final = 1 << 18
MAX_MEASUREMENTS: Final = 1000
SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class SensorReply:
    """An answer of a sensor process.

    Attributes
    ----------
    id
        Number of the question; 0 for the greeting.
    now
        Time of the answer by its clock, in seconds since the epoch.
    measurements
        The measurements.
    failures
        Failed sensors, one line each.
    listening
        Address of its endpoint, in the answer to ``listen``.
    remarks
        Parts that the sensors could not read, one line each: the values are valid.
    bias
        Bias of its CPU probes (`nws.ProbeCorrection`); None without a probe.
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
    return _line(
        {
            "schema": SCHEMA,
            "id": number,
            "now": now,
            "measurements": batch(measurements)["measurements"],
            "failures": list(failures),
            "listening": listening,
            "remarks": list(remarks),
            "bias": bias,
        }
    )


def question(line: bytes) -> dict[str, Any]:
    """Return the question in a line; ValueError if it is not of this version."""
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
    if not isinstance(samples, list) or len(samples) > MAX_MEASUREMENTS:
        raise _invalid("measurements", f"must be a list of at most {MAX_MEASUREMENTS}")
    return SensorReply(
        document["id"],
        _number("now", document.get("now")),
        tuple(
            read_measurement(sample, f"measurements[{place}]")
            for place, sample in enumerate(samples)
        ),
        _lines("failures", document.get("failures")),
        _place(document.get("listening")),
        _lines("remarks", document.get("remarks", [])),
        bias_of(document),
    )


def bias_of(document: dict[str, Any]) -> float | None:
    """Return the bias of a question or a reply, or None; ValueError if it is invalid."""
    found = document.get("bias")
    if found is None:
        return None
    bias = _number("bias", found)
    if abs(bias) > 1:
        raise _invalid("bias", f"must be in -1..1 (is {bias})")
    return bias


def _lines(name: str, found: object) -> tuple[str, ...]:
    if not isinstance(found, list) or len(found) > MAX_MEASUREMENTS:
        raise _invalid(name, f"must be a list of at most {MAX_MEASUREMENTS}")
    return tuple(_text(each) for each in found)


def _document(line: bytes) -> dict[str, Any]:
    if len(line) > MAX_LINE_BYTES:
        raise InputError(
            f"a line has at most {MAX_LINE_BYTES} bytes (has {len(line)})",
            code="message-too-long",
            bound=MAX_LINE_BYTES,
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


MAX_BEFORE_GREETING: Final = 1 << 16
"""Bytes that a login may print before the greeting."""


class SensorDialogue:
    r"""Numbers questions, and takes replies out of a stream.

    Examples
    --------
    >>> dialogue = SensorDialogue()
    >>> number, line = dialogue.ask("sense", host="ada", rounds=1)
    >>> greeting = b'{"schema":"nws.stdio/1","id":0,"now":5.0,"measurements":[],"failures":[]}\n'
    >>> [reply.id for reply in dialogue.feed(b"Welcome to ada!\n" + greeting)], dialogue.greeted
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
        if len(self._buffer) > MAX_LINE_BYTES:
            raise InputError(
                f"a line has at most {MAX_LINE_BYTES} bytes",
                code="message-too-long",
                bound=MAX_LINE_BYTES,
            )
        return [reply for line in lines if (reply := self._reply(line)) is not None]

    def _reply(self, line: bytes) -> SensorReply | None:
        try:
            reply = decode(line)
        except ValueError:
            self._skipped += len(line) + 1
            if self.greeted or self._skipped > MAX_BEFORE_GREETING:
                raise
            return None
        self.greeted = True
        return reply
