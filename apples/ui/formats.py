"""Numbers on pages: each includes the exact value of the document."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from markupsafe import Markup

from apples.ui.units import amount, digits, duration

UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class Number:
    """A number of the document and its readable form."""

    value: float
    text: str

    def __html__(self) -> Markup:
        """Return the number as HTML that includes its exact value."""
        return Markup('<data value="{}">{}</data>').format(repr(self.value), self.text)


Formatted = Number | str


CLASSES = {"alone": "on one host alone", "site": "on one site", "sites": "on several sites"}


def coverage_words(coverage: Mapping[str, Any] | None) -> str:
    """Return the number of recent similar runs that ended inside their predicted interval; empty if unknown."""
    pattern, numbers = _coverage(coverage)
    return pattern.format(*(number.text for number in numbers))


def coverage_sentence(coverage: Mapping[str, Any] | None) -> Markup:
    """Return the number of recent runs inside their predicted interval, for a page."""
    pattern, numbers = _coverage(coverage)
    return sentence(pattern, *numbers)


def _coverage(coverage: Mapping[str, Any] | None) -> tuple[str, list[Number]]:
    """Return a text pattern about the predicted intervals, and the numbers to insert."""
    if coverage is None:
        return "", []
    like = CLASSES.get(coverage["class"], "like this")
    level = Number(coverage["level"], f"{coverage['level'] * 100:.0f} %")
    if not coverage["of"] or coverage["runs"] < coverage.get("needed", 0):
        return "", []
    inside, last = (Number(coverage[key], str(coverage[key])) for key in ("inside", "of"))
    runs = "runs" if coverage["of"] > 1 else "run"
    return f"{{}} of the last {{}} {runs} {like} ended inside ({{}} should)", [inside, last, level]


def seconds(value: float | None) -> Formatted:
    """Return seconds in the unit that suits them; words for an unknown value."""
    return _formatted(value, duration)


def count(value: float | None) -> Formatted:
    """Return a whole number."""
    return _formatted(value, lambda number: f"{number:.0f}")


def size(value: float | None) -> Formatted:
    """Return bytes in the unit that suits them."""
    return _formatted(value, amount)


def share(value: float | None) -> Formatted:
    """Return a fraction with two decimals, for example a share of a CPU."""
    return _formatted(value, lambda number: f"{number:.2f}")


def percent(value: float | None) -> Formatted:
    """Return a fraction in percent, one decimal."""
    return _formatted(value, lambda number: f"{number * 100:.1f} %")


def signed(value: float | None) -> Formatted:
    """Return a deviation in percent with its sign; never a signed zero."""
    return _formatted(value, _signed)


def plain(value: float | None) -> Formatted:
    """Return a number with three significant digits."""
    return _formatted(value, digits)


def number(value: float | None) -> Formatted:
    """Return a number with five significant digits."""
    return _formatted(value, lambda one: f"{one:.5g}")


def moment(time: float | None) -> str:
    """Return a time in this machine's time zone; empty if it is unknown."""
    if time is None:
        return ""
    return datetime.fromtimestamp(time).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def exact(value: str | float | bool) -> Formatted:
    """Return a setting as the user gave it."""
    if isinstance(value, str | bool):
        return str(value)
    return _formatted(value, str)


def _formatted(value: Any, text: Callable[[float], str]) -> Formatted:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return UNKNOWN
    if not math.isfinite(value):
        return UNKNOWN if math.isnan(value) else "without limit"
    return Number(value, text(value))


def _signed(value: float) -> str:
    text = f"{abs(value) * 100:.1f}"
    if float(text) == 0:
        return f"{text} %"
    sign = "+" if value > 0 else "\u2212"
    return f"{sign}{text} %"


def sentence(form: str, /, *parts: object, **named: object) -> Markup:
    """Return a sentence with its parts inserted: numbers with their values, other parts escaped."""
    return Markup(form).format(*parts, **named)  # noqa: S704 - `form` is a constant of the caller


def listed(parts: list[Markup]) -> Markup:
    """Return the parts with commas between them."""
    return Markup(", ").join(parts)
