r"""The framing of JSON lines: bytes -> bounded lines -> checked JSON objects, and back.

The bytes may come from a hostile peer. A line is bounded in length before it is parsed, and an object in depth
after it; `LineError` reports each violation. The caller's protocol gives the objects their meaning.

Examples
--------
>>> lines = LineBuffer()
>>> [decode(line) for line in lines.feed(b'{"do":"start"}\n{"do":')]
[{'do': 'start'}]
>>> [decode(line) for line in lines.feed(b'"end"}\n' + encode({"do": "rest"}))]
[{'do': 'end'}, {'do': 'rest'}]
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

MAX_LINE_BYTES: Final = 1 << 16
"""Default limit on the bytes of one line, without its end."""
DEEPEST: Final = 32
"""Default limit on the depth of nested objects and lists."""


class LineError(ValueError):
    """A line is too long or not a JSON object. Permanent: the rest of the stream cannot be trusted.

    Parameters
    ----------
    code
        The stable code of the error, for example ``message-too-long``.
    value, bound
        The size that is too large, and the limit; None if the error is not about a size.
    """

    # No `fields`: an uncaught LineError is a defect of apples, not an error of the user (`failure_of`).
    def __init__(
        self,
        message: str,
        *,
        code: str = "protocol-invalid",
        value: int | None = None,
        bound: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code, self.value, self.bound = code, value, bound


class LineBuffer:
    r"""Cuts a stream of bytes into lines with bounded memory.

    Parameters
    ----------
    longest
        Largest number of bytes of a line. The caller may change it between two calls of `feed`.
    truncating
        Keep the first `longest` + 1 bytes of a longer line and drop the others; the extra byte shows that the
        line was cut. For the output of programs, which is only displayed.

    Examples
    --------
    >>> talk = LineBuffer(3, truncating=True)
    >>> talk.feed(b"ab\nabcdefg"), talk.feed(b"hi\r\ncd"), talk.rest()
    ([b'ab'], [b'abcd'], b'cd')
    """

    def __init__(self, longest: int = MAX_LINE_BYTES, *, truncating: bool = False) -> None:
        self.longest = longest
        self._truncating = truncating
        self._unfinished = b""

    @property
    def unfinished(self) -> int:
        """Number of bytes received of the incomplete last line."""
        return len(self._unfinished)

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes, without their ends (LF or CR LF).

        Raises
        ------
        LineError
            A line is longer than allowed, unless `truncating`.
        """
        *lines, unfinished = (self._unfinished + data).split(b"\n")
        self._unfinished = self._bounded(unfinished)
        return [self._bounded(line).removesuffix(b"\r") for line in lines]

    def rest(self) -> bytes:
        """Return and clear the last line of a stream that ended without an end of line."""
        last, self._unfinished = self._unfinished.removesuffix(b"\r"), b""
        return last

    def _bounded(self, line: bytes) -> bytes:
        if len(line) <= self.longest:
            return line
        if not self._truncating:
            raise LineError(
                f"a line of more than {self.longest} bytes",
                code="message-too-long",
                bound=self.longest,
            )
        return line[: self.longest + 1]


class Greeting:
    r"""Drops the output of a login before the program's own output, for example a banner or a message of the day.

    Parameters
    ----------
    marker
        The bytes with which the program's output begins.
    longest
        Largest number of bytes before the marker.

    Examples
    --------
    >>> greeting = Greeting(b"hello/1\n")
    >>> greeting.skip(b"Welcome to ada!\nhel"), greeting.heard
    (b'', False)
    >>> greeting.skip(b"lo/1\n{}"), greeting.heard, greeting.skip(b"more")
    (b'{}', True, b'more')
    """

    def __init__(self, marker: bytes, longest: int = MAX_LINE_BYTES) -> None:
        self.heard = False
        self._marker = marker
        self._longest = longest
        self._before = b""

    def skip(self, data: bytes) -> bytes:
        """Return the part of `data` after the marker; empty while the marker has not arrived.

        Raises
        ------
        LineError
            More than `longest` bytes arrived before the marker.
        """
        if self.heard:
            return data
        before, marker, after = (self._before + data).partition(self._marker)
        self.heard, self._before = bool(marker), b"" if marker else before
        if len(self._before) > self._longest:
            raise LineError(
                f"more than {self._longest} bytes before the greeting",
                code="greeting-missing", bound=self._longest,
            )  # fmt: skip
        return after


def encode(document: object) -> bytes:
    r"""Return a document as one line of compact ASCII JSON, with its line end.

    Raises
    ------
    ValueError
        A number in it is not finite.

    Examples
    --------
    >>> encode({"do": "start", "ranks": 2})
    b'{"do":"start","ranks":2}\n'
    """
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii") + b"\n"


def decode(line: bytes, longest: int = MAX_LINE_BYTES, deepest: int = DEEPEST) -> dict[str, Any]:
    """Return the JSON object in a line.

    Every number is finite and every key occurs once, so that all readers get the same object.

    Raises
    ------
    LineError
        The line is not a JSON object, or is longer or deeper than allowed. The message quotes nothing of the line.

    Examples
    --------
    >>> decode(b'{"ranks": [0, 1]}')
    {'ranks': [0, 1]}
    >>> decode(b'{"seconds": 1e999}')
    Traceback (most recent call last):
    apples.io.json_lines.LineError: a number that is not finite
    """
    if len(line) > longest:
        raise LineError(
            f"a line of {len(line)} bytes, more than {longest}",
            code="message-too-long", value=len(line), bound=longest,
        )  # fmt: skip
    try:
        found = json.loads(
            line,
            parse_float=_finite,
            parse_int=_whole,
            parse_constant=_finite,
            object_pairs_hook=_object,
        )
    except LineError:
        raise
    except (ValueError, RecursionError):
        raise LineError("no JSON") from None
    if not isinstance(found, dict):
        raise LineError("no JSON object")
    if _deeper(found, deepest):
        raise LineError(f"nested deeper than {deepest}", code="message-too-deep", bound=deepest)
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise LineError("a number that is not finite")
    return number


def _whole(text: str) -> int:
    """Return an integer that is finite also as a float, because later arithmetic converts it to a float."""
    _finite(text)
    return int(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise LineError("a key occurs twice")
    return found


def _deeper(document: Mapping[str, Any], deepest: int) -> bool:
    """Whether objects and lists are nested more than `deepest` levels deep."""
    level: list[Any] = [document]
    for _ in range(deepest):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True
