"""Drawings in SVG: pure functions that return markup, all text escaped.

Across, places are percentages of the width and sizes of letters are pixels, so that one drawing is
readable on a telephone and on paper; down, everything is pixels. No ``viewBox``: letters never shrink.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from apples.ui.formats import Number

LONGEST_NAME = 18


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis from `low` to `limit`; what lies beyond is drawn at its end, with an arrow.

    Examples
    --------
    >>> scale = Scale(20.0)
    >>> scale.at(5.0), scale.at(40.0), scale.beyond(40.0)
    (25.0, 100.0, True)
    >>> Scale(1.0, low=-1.0).at(0.0), Scale(1.0, low=-1.0).ticks()
    (50.0, [-1.0, -0.5, 0.0, 0.5, 1.0])
    """

    limit: float
    low: float = 0.0

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
        return 100.0 * min(1.0, max(0.0, (value - self.low) / (self.limit - self.low)))

    def beyond(self, value: float) -> bool:
        """Return whether the value does not fit."""
        return not value <= self.limit

    def ticks(self) -> list[float]:
        """Return round values from end to end, four to eight of them."""
        span = self.limit - self.low
        step = 10.0 ** math.floor(math.log10(span))
        for factor in (2.0, 1.0, 0.5, 0.2):
            if span / (step * factor) >= 3.0:
                step *= factor
                break
        first = math.ceil(self.low / step - 1e-9)
        return [k * step for k in range(first, math.floor(self.limit / step + 1e-9) + 1)]


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
    return escape(str(part))


def axis(scale: Scale, top: float, bottom: float, unit: tuple[float, str]) -> Markup:
    """Return grid lines with their values in a unit (its size, its name) below."""
    places = [(scale.at(tick), tick) for tick in scale.ticks()]
    steps = "".join(f"M{x / 100 * STRETCH:.0f} 0v{bottom - top:g}" for x, _ in places)
    words = [
        text(
            x,
            bottom + 14,
            [f"{tick / unit[0]:g} {unit[1]}".rstrip()],
            "tick",
            anchor="start" if x < 4 else "end" if x > 92 else "middle",
        )
        for x, tick in places
    ]
    return Markup("").join([stretched(top, bottom - top, path(steps, "grid")), *words])


def levels(scale: Scale, top: float, bottom: float) -> Markup:
    """Return level grid lines with their values left of the drawing, where `.plot.levelled` has room."""
    tall = bottom - top
    places = [(tall * (1 - scale.at(tick) / 100), tick) for tick in scale.ticks()]
    steps = "".join(f"M0 {y:.1f}h{STRETCH}" for y, _ in places)
    words = [
        Markup('<text x="-6" y="{:.1f}" text-anchor="end" class="tick">{}</text>').format(
            top + y + 4, abbreviated(tick)
        )
        for y, tick in places
    ]
    return Markup("").join([stretched(top, tall, path(steps, "grid")), *words])


def abbreviated(value: float) -> str:
    """Return a number in few characters.

    Examples
    --------
    >>> abbreviated(1234567), abbreviated(0.25), abbreviated(1024)
    ('1.23M', '0.25', '1024')
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):.3g}{letter}"
    return f"{value:.4g}" if value == int(value) else f"{value:.3g}"


STRETCH = 1000
"""Units across a `stretched` part of a drawing."""


def stretched(y: float, height: float, *parts: Markup) -> Markup:
    """Return paths across the whole width: `STRETCH` units across, pixels down from `y`."""
    return Markup(
        '<svg y="{:g}" width="100%" height="{:g}" viewBox="0 0 {} {:g}" preserveAspectRatio="none">{}</svg>'
    ).format(y, height, STRETCH, height, Markup("").join(parts))


def path(steps: str, kind: str) -> Markup:
    """Return a path of a `stretched` part."""
    return Markup('<path d="{}" class="{}"/>').format(steps, kind)


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
    """Return a name that fits into a drawing, with both its ends; tables have it whole.

    Names that are alike differ by their ends: host numbers, fractions of malleable jobs.

    Examples
    --------
    >>> short("equipartition malleable=0.2")
    'equipart…eable=0.2'
    """
    if len(name) <= LONGEST_NAME:
        return name
    end = LONGEST_NAME // 2
    return f"{name[: LONGEST_NAME - 1 - end]}\u2026{name[-end:]}"


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


def picture(drawn: Markup, style: str, width: float = 860.0) -> str:
    """Return a drawing as a file of its own, `style` with it, with room for what stands beside it."""
    height = float(re.search(r' height="([\d.]+)"', drawn).group(1))  # type: ignore[union-attr]
    inner = str(drawn).replace('width="100%"', f'x="64" y="10" width="{width - 100:g}"', 1)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height + 24:g}" '
        f'viewBox="0 0 {width:g} {height + 24:g}" font-family="sans-serif"><style>{escape(style)}</style>'
        f'<rect width="100%" height="100%" class="paper"/>{patterns()}{inner}</svg>'
    )
