"""Drawings in SVG: pure functions that return markup, all text escaped.

Across, places are percentages of the width and sizes of letters are pixels, so that one drawing is
readable on a telephone and on paper; down, everything is pixels. No ``viewBox``: letters never shrink.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from apples.views.formats import Number

LONGEST_NAME = 18


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis from zero to `limit`; what lies beyond is drawn at its end, with an arrow.

    Examples
    --------
    >>> scale = Scale(20.0)
    >>> scale.at(5.0), scale.at(40.0), scale.beyond(40.0)
    (25.0, 100.0, True)
    """

    limit: float

    @classmethod
    def over(cls, measured: Iterable[float], others: Iterable[float]) -> Scale:
        """Return a scale for all values, but never more than 2.5 times the largest measured one."""
        firm = max((value for value in measured if math.isfinite(value)), default=0.0)
        rest = max((value for value in others if math.isfinite(value)), default=0.0)
        largest = max(firm, min(rest, 2.5 * firm) if firm > 0 else rest)
        return cls(largest * 1.02 if largest > 0 else 1.0)

    def at(self, value: float) -> float:
        """Return the place of a value in percent."""
        if math.isnan(value):
            return 0.0
        return 100.0 * min(1.0, max(0.0, value / self.limit))

    def beyond(self, value: float) -> bool:
        """Return whether the value does not fit."""
        return not value <= self.limit

    def ticks(self) -> list[float]:
        """Return round values from zero on, four to eight of them."""
        step = 10.0 ** math.floor(math.log10(self.limit))
        for factor in (2.0, 1.0, 0.5, 0.2):
            if self.limit / (step * factor) >= 3.0:
                step *= factor
                break
        return [k * step for k in range(int(self.limit / step + 1e-9) + 1)]


def drawing(name: str, title: str, description: str, height: float, *parts: Markup) -> Markup:
    """Return a whole drawing; `name` is unique on its page and made of letters."""
    return Markup(
        '<svg role="img" aria-labelledby="{0}-t {0}-d" width="100%" height="{1:.0f}">'
        '<title id="{0}-t">{2}</title><desc id="{0}-d">{3}</desc>{4}</svg>'
    ).format(name, height, title, description, Markup("").join(parts))


def box(x: float, y: float, width: float, height: float, kind: str) -> Markup:
    """Return a rectangle: percent across, pixels down."""
    return Markup(
        '<rect x="{:.2f}%" y="{:.1f}" width="{:.2f}%" height="{:.1f}" class="{}"/>'
    ).format(x, y, max(0.0, width), max(0.0, height), kind)


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    """Return a straight line."""
    return Markup('<line x1="{:.2f}%" y1="{:.1f}" x2="{:.2f}%" y2="{:.1f}" class="{}"/>').format(
        x1, y1, x2, y2, kind
    )


def dot(x: float, y: float, kind: str) -> Markup:
    """Return a round mark: what was predicted."""
    return Markup('<circle cx="{:.2f}%" cy="{:.1f}" r="4" class="{}"/>').format(x, y, kind)


def diamond(x: float, y: float, kind: str) -> Markup:
    """Return a square mark on its corner: what was measured."""
    return _at(x, y, "M0-5.5 5.5 0 0 5.5-5.5 0Z", kind)


def arrow(x: float, y: float, kind: str) -> Markup:
    """Return an arrow head: what is meant goes on beyond the axis."""
    return _at(x, y, "M0-5 8 0 0 5Z", kind)


def _at(x: float, y: float, path: str, kind: str) -> Markup:
    return Markup('<svg x="{:.2f}%" y="{:.1f}"><path d="{}" class="{}"/></svg>').format(
        x, y, path, kind
    )


def text(
    x: float, y: float, parts: Sequence[object], kind: str = "", *, anchor: str = "start"
) -> Markup:
    """Return words and numbers in one line; the base line at `y`."""
    inside = Markup("").join(_part(part) for part in parts)
    return Markup('<text x="{:.2f}%" y="{:.1f}" text-anchor="{}" class="{}">{}</text>').format(
        x, y, anchor, kind, inside
    )


def _part(part: object) -> Markup:
    if isinstance(part, Number):
        return Markup('<tspan data-value="{}">{}</tspan>').format(repr(part.value), part.text)
    return Markup("<tspan>{}</tspan>").format(str(part))


def axis(scale: Scale, top: float, bottom: float, unit: tuple[float, str]) -> Markup:
    """Return grid lines with their values in a unit (its size, its name) below."""
    parts = []
    for tick in scale.ticks():
        x = scale.at(tick)
        anchor = "start" if tick == 0 else "end" if x > 92 else "middle"
        parts.append(line(x, top, x, bottom, "grid"))
        parts.append(
            text(x, bottom + 14, [f"{tick / unit[0]:g} {unit[1]}".rstrip()], "tick", anchor=anchor)
        )
    return Markup("").join(parts)


def spread(places: Sequence[float], gap: float, bottom: float) -> list[float]:
    """Return the places moved as little down or up as keeps them `gap` apart and above `bottom`.

    Examples
    --------
    >>> spread([10.0, 12.0, 95.0], 16.0, 100.0)
    [10.0, 26.0, 95.0]
    """
    moved: list[float] = []
    for place in places:
        moved.append(max(place, moved[-1] + gap) if moved else place)
    edge = bottom
    for k in range(len(moved) - 1, -1, -1):
        moved[k] = min(moved[k], edge)
        edge = moved[k] - gap
    return moved


def short(name: str) -> str:
    """Return a name that fits into a drawing; tables have it whole."""
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "\u2026"


def patterns() -> Markup:
    """Return the patterns that fills refer to: the hatch of plans, and one for each kind of box."""
    cuts = {
        "hatch-plan": '<path d="M0 0V7" class="cut"/>',
        "fill-0": "",
        "fill-1": '<path d="M0 0V7" class="cut"/>',
        "fill-2": '<path d="M0 0V7M0 0H7" class="cut"/>',
        "fill-3": '<circle cx="3" cy="3" r="1.4" class="cutout"/>',
    }
    forms = [
        f'<pattern id="{name}" width="7" height="7" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate(45)"><rect width="7" height="7" class="{name}"/>{cut}</pattern>'
        for name, cut in cuts.items()
    ]
    # Constants of this function: no text of a document is in them.
    return Markup(  # noqa: S704
        '<svg width="0" height="0" class="defs" aria-hidden="true"><defs>'
        + "".join(forms)
        + "</defs></svg>"
    )
