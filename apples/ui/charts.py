"""All charts: lanes of marks over a common scale, drawn as SVG.

A caller declares lanes and marks in the units of its data; only this module computes positions. Horizontal
positions are percentages of the width; text and heights are in pixels. The SVG has no ``viewBox``, so text
keeps its size on a telephone and on paper. All text is escaped.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup, escape

from apples.ui.formats import Formatted, Number

Words = Sequence[Formatted]
"""Texts and numbers of one line."""

MAX_NAME = 18
LINE, GAP, LETTER = 16.0, 4.0, 7.0
"""Pixels of a line of text, between the parts of a lane, and of a letter of the legend."""
NARROWEST = 240.0
"""Width in pixels of the plot on a page of 320 pixels; the legend must fit into it."""
STRETCH = 1000
"""Horizontal units of a path."""
SEEN = 0.15
"""Pixels below which a box of a path is not drawn."""
MIN_WIDTH = 0.1
"""Least width of a box in percent: SVG draws no outline of an empty box."""
ARROWS = {"plan": "end-plan", "run": "end-run", "band": "end-plan", "whisker": "end-ink"}
"""Classes of boxes and lines -> the class of the arrow at their end if they extend beyond the axis."""
UNITS = (
    (86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"),
)  # fmt: skip


def time_unit(span: float, largest: str = "d") -> tuple[float, str]:
    """Return the unit of an axis of this many seconds, its size and its name; at most the unit `largest`.

    Examples
    --------
    >>> time_unit(600.0), time_unit(600.0, "s"), time_unit(0.02)
    ((60.0, 'min'), (1.0, 's'), (0.001, 'ms'))
    """
    most = next(size for size, name in UNITS if name == largest)
    fits = (unit for unit in UNITS if unit[0] <= most and span >= unit[0] * (1 + (unit[0] > 1)))
    return next(fits, UNITS[-1])


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis from `low` to `limit`; a value beyond it is drawn at its end, with an arrow.

    `unit` is the size and the name of the unit in which the axis is printed.

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
    unit: tuple[float, str] = (1.0, "")

    @classmethod
    def over(cls, measured: Iterable[float], others: Iterable[float]) -> Scale:
        """Return a scale for all values, but never more than 2.5 times the largest measured one."""
        firm = max((value for value in measured if math.isfinite(value)), default=0.0)
        rest = max((value for value in others if math.isfinite(value)), default=0.0)
        largest = max(firm, min(rest, 2.5 * firm) if firm > 0 else rest)
        return cls(largest * 1.02 if largest > 0 else 1.0)

    def timed(self, largest: str = "d") -> Scale:
        """Return the same axis of seconds in the unit that suits its length."""
        return replace(self, unit=time_unit(self.limit - self.low, largest))

    def at(self, value: float) -> float:
        """Return the position of a value in percent."""
        if math.isnan(value):
            return 0.0
        return 100.0 * min(1.0, max(0.0, (value - self.low) / (self.limit - self.low)))

    def beyond(self, value: float) -> bool:
        """Return whether the value is beyond the axis."""
        return not value <= self.limit

    def ticks(self) -> list[float]:
        """Return three to seven values that are round in the unit, from end to end."""
        size = self.unit[0]
        low, limit = self.low / size, self.limit / size
        step = 10.0 ** math.floor(math.log10(limit - low))
        for factor in (2.0, 1.0, 0.5, 0.2):
            if (limit - low) / (step * factor) > 2.5:
                step *= factor
                break
        first = math.ceil(low / step - 1e-9)
        return [k * step * size for k in range(first, math.floor(limit / step + 1e-9) + 1)]

    def word(self, tick: float) -> str:
        """Return a tick in the unit."""
        return f"{tick / self.unit[0]:g} {self.unit[1]}".rstrip()


# ---------------------------------------------------------------------------------- marks


@dataclass(frozen=True, slots=True)
class Place:
    """The band of a lane in a drawing: converts values into horizontal percentages and vertical pixels."""

    across: Scale
    up: Scale
    top: float
    height: float

    def x(self, value: float) -> float:
        """Return the horizontal percentage of a value."""
        return self.across.at(value)

    def y(self, value: float) -> float:
        """Return the vertical pixels of a value."""
        return self.top + self.height * (1 - self.up.at(value) / 100)

    def path(self, steps: str, kind: str) -> Markup:
        """Return a path; its steps are in horizontal units (`STRETCH`) and in pixels below the band's top."""
        return Markup(
            '<svg y="{:g}" width="100%" height="{:g}" viewBox="0 0 {} {:g}" preserveAspectRatio="none">'
            '<path d="{}" class="{} level"/></svg>'
        ).format(self.top, self.height, STRETCH, self.height, steps, kind)

    def steps(self, points: Iterable[tuple[float, float]], end: str = "") -> str:
        """Return the steps of a line through values; a single value gives a short dash."""
        places = [
            (round(self.x(x) * STRETCH / 100), round(self.y(y) - self.top, 1)) for x, y in points
        ]
        found, last = "", (math.nan, math.nan)
        for x, y in places:
            if not found:
                found = f"M{x} {y:g}"
            elif y == last[1]:
                found += "" if x == last[0] else f"H{x}"
            else:
                found += f"V{y:g}" if x == last[0] else f"L{x} {y:g}"
            last = x, y
        return found + ("h2" if len(places) == 1 else end)


Mark = Callable[[Place], Markup]
"""Draws a mark in the band of a lane. Horizontal positions are in the chart's scale, vertical in the lane's."""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle; a pointer on it shows `name`."""

    left: float
    right: float
    kind: str
    low: float = 0.0
    high: float = 1.0
    name: str = ""

    def __call__(self, at: Place) -> Markup:
        """Draw the rectangle."""
        x, y = at.x(self.left), at.y(self.high)
        width, height = max(MIN_WIDTH, at.x(self.right) - x), at.y(self.low) - y
        rect = Markup(
            '<rect x="{:.2f}%" y="{:.1f}" width="{:.2f}%" height="{:.1f}" class="{}"/>'
        ).format(x, y, width, height, self.kind)
        if self.name:
            rect = Markup("<g><title>{}</title>{}</g>").format(self.name, rect)
        return rect + _arrow_beyond(at, self.right, self.kind, y + height / 2)


@dataclass(frozen=True, slots=True)
class Line:
    """A straight line from (left, low) to (right, high): a whisker, or if vertical, a stem."""

    left: float
    right: float
    kind: str
    low: float = 0.5
    high: float = 0.5

    def __call__(self, at: Place) -> Markup:
        """Draw the line."""
        start, end = (at.x(self.left), at.y(self.low)), (at.x(self.right), at.y(self.high))
        return _line(*start, *end, self.kind) + _arrow_beyond(at, self.right, self.kind, end[1])


SHAPES = {"diamond": "M0-5.5 5.5 0 0 5.5-5.5 0Z", "arrow": "M0-5 8 0 0 5Z"}


@dataclass(frozen=True, slots=True)
class Point:
    """A circle for a prediction, a diamond for a measurement, or an arrow. Beyond the axis, an arrow."""

    x: float
    kind: str
    y: float = 0.5
    shape: str = "dot"

    def __call__(self, at: Place) -> Markup:
        """Draw the mark."""
        x, y = at.x(self.x), at.y(self.y)
        shape = "arrow" if at.across.beyond(self.x) else self.shape
        if shape == "dot":
            return Markup('<circle cx="{:.2f}%" cy="{:.1f}" r="4" class="{}"/>').format(
                x, y, self.kind
            )
        return _shape(x, y, shape, self.kind)


@dataclass(frozen=True, slots=True)
class Path:
    """Lines through points, or with `closed` areas, as a single element."""

    lines: Sequence[Sequence[tuple[float, float]]]
    kind: str
    closed: bool = False

    def __call__(self, at: Place) -> Markup:
        """Draw the lines."""
        end = "z" if self.closed else ""
        return at.path("".join(at.steps(points, end) for points in self.lines), self.kind)


def area(
    x: Sequence[float], low: Sequence[float], high: Sequence[float]
) -> list[tuple[float, float]]:
    """Return the points around the area between two lines."""
    return [*zip(x, low, strict=True), *reversed([*zip(x, high, strict=True)])]


@dataclass(frozen=True, slots=True)
class Boxes:
    """Rectangles (left, right, low, high) in one element.

    `crisp`: their edges are on whole pixels, and each box is at least a pixel wide and high.
    """

    rectangles: Sequence[tuple[float, float, float, float]]
    kind: str
    crisp: bool = False

    def __call__(self, at: Place) -> Markup:
        """Draw the rectangles."""
        steps = []
        for left, right, low, high in self.rectangles:
            x, end = (round(at.x(value) * STRETCH / 100) for value in (left, right))
            y, bottom = at.y(high) - at.top, at.y(low) - at.top
            if self.crisp:
                y = round(y)
                end, bottom = max(x + 1, end), max(y + 1, round(bottom))
            elif bottom - y < SEEN:
                continue
            steps.append(f"M{x} {round(y, 1):g}H{end}V{round(bottom, 1):g}H{x}z")
        return at.path("".join(steps), self.kind) if steps else Markup()


@dataclass(frozen=True, slots=True)
class Tag:
    """Words at a position; without an anchor, on the side that has room."""

    x: float
    words: Words
    kind: str = "label"
    y: float = 0.5
    anchor: str = ""

    def __call__(self, at: Place) -> Markup:
        """Draw the words."""
        anchor = self.anchor or _anchor(at.x(self.x), 25, 75)
        return _text(at.x(self.x), at.y(self.y) + GAP, self.words, self.kind, anchor)


@dataclass(frozen=True, slots=True)
class Stack:
    """A stack of boxes from the top down, to scale; each is (size, kind, words) with its words beside it."""

    parts: Sequence[tuple[float, str, Words]]

    def __call__(self, at: Place) -> Markup:
        """Draw the boxes and their words."""
        total = sum(size for size, _, _ in self.parts) or 1
        drawn, middles, y = Markup(), [], at.top
        for size, kind, _ in self.parts:
            height = at.height * size / total
            drawn += Box(0, 0.38, kind)(Place(Scale(1.0), Scale(1.0), y, height))
            middles.append(y + height / 2)
            y += height
        places = spread(middles, LINE, at.top + at.height - LINE / 2)
        for (_, _, words), middle, place in zip(self.parts, middles, places, strict=True):
            drawn += _line(38, middle, 45, place, "leader")
            drawn += _text(47, place + 4, words, "label")
        return drawn


def _arrow_beyond(at: Place, value: float, kind: str, y: float) -> Markup:
    if kind not in ARROWS or not at.across.beyond(value):
        return Markup()
    return _shape(100, y, "arrow", ARROWS[kind])


# ---------------------------------------------------------------------------------- charts


@dataclass(frozen=True, slots=True)
class Lane:
    """Lines of words, and below them a band with marks.

    Attributes
    ----------
    words
        Lines, each with its class: `strong`, `label` or `quiet`.
    height
        Pixels of the band; 0: no band.
    up
        Scale of the band, from its bottom to its top.
    levels
        Whether the scale is printed left of the drawing, where `.plot.levelled` has room.
    base
        Whether a line ends the band.
    """

    words: Sequence[tuple[Words, str]] = ()
    height: float = 0.0
    marks: Sequence[Mark] = ()
    up: Scale = Scale(1.0)
    levels: bool = False
    base: bool = False

    def drawn(self, across: Scale, y: float) -> tuple[Markup, Markup, float]:
        """Return the band, the words and the end of the lane below `y`."""
        words, band = Markup(), Markup()
        for line, kind in self.words:
            y += LINE + (GAP if kind == "strong" else 0)
            words += _text(0, y, line, kind)
        y += GAP if self.words else 0
        if self.height:
            at = Place(across, self.up, y, self.height)
            band += self._levels(at) if self.levels else ""
            band += Markup("").join(mark(at) for mark in self.marks)
            y += self.height
            band += _line(0, y, 100, y, "frame") if self.base else ""
        return band, words, y + (GAP if self.words and self.height else 0)

    def _levels(self, at: Place) -> Markup:
        ticks = self.up.ticks()
        grid = at.path(
            "".join(f"M0 {at.y(tick) - at.top:.1f}h{STRETCH}" for tick in ticks), "grid"
        )
        form = Markup('<text x="-6" y="{:.1f}" text-anchor="end" class="tick">{}</text>')
        return grid + Markup("").join(
            form.format(at.y(tick) + 4, abbreviated(tick / self.up.unit[0])) for tick in ticks
        )

    def twin(self) -> Markup:
        """Return the words of the lane."""
        lines = [words for words, _ in self.words]
        for mark in self.marks:
            if isinstance(mark, Tag):
                lines.append(mark.words)
            elif isinstance(mark, Stack):
                lines += [words for _, _, words in mark.parts]
        return Markup(", ").join(Markup("").join(words) for words in lines)


@dataclass(frozen=True, slots=True)
class Rule:
    """A vertical line through all lanes, with a word above."""

    x: float
    word: str = ""
    kind: str = "moved"


@dataclass(frozen=True, slots=True)
class Key:
    """An entry of a legend: the class of a box or line, and its word."""

    kind: str
    word: str
    line: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """Lanes over a common horizontal scale.

    Attributes
    ----------
    name
        Unique on its page, made of letters; empty: the title is the whole label.
    title, description
        For users of screen readers; the words of all lanes follow the description.
    axis
        Whether the horizontal scale is printed.
    ticks
        Values and their words, instead of round values.
    below
        Words below the horizontal scale.
    """

    name: str
    title: str
    description: str
    across: Scale
    lanes: Sequence[Lane]
    legend: Sequence[Key] = ()
    rules: Sequence[Rule] = ()
    axis: bool = True
    ticks: Sequence[tuple[float, str]] = ()
    below: str = ""

    def twin(self) -> Markup:
        """Return the text twin: the words of the legend and of each lane, numbers with their values."""
        legend = Markup(", ").join(key.word for key in self.legend)
        lines = [legend, *(lane.twin() for lane in self.lanes)]
        return Markup("; ").join(line for line in lines if line)

    def svg(self) -> Markup:
        """Return the drawing."""
        legend, y = self._legend()
        y += LINE if any(rule.word for rule in self.rules) else 0
        top, bands, words = y, Markup(), Markup()
        for lane in self.lanes:
            band, line, y = lane.drawn(self.across, y)
            bands, words = bands + band, words + line
        behind, height = self._axis(top, y) if self.axis else (Markup(), y + GAP)
        size = Markup(' width="100%" height="{:.0f}"').format(height)
        twin = self.twin()
        if self.name:
            label = Markup(
                ' aria-labelledby="{0}-t {0}-d"{1}><title id="{0}-t">{2}</title><desc id="{0}-d">{3}{4}</desc>'
            ).format(
                self.name,
                size,
                self.title,
                self.description,
                Markup(" {}.").format(twin) if twin else "",
            )
        else:
            label = Markup(' aria-label="{}"{}>').format(self.title, size)
        return Markup('<svg role="img"{}{}{}{}{}{}</svg>').format(
            label,
            legend,
            behind,
            bands,
            self._rules(top, y),
            words,
        )

    def _legend(self) -> tuple[Markup, float]:
        """Return the entries of the legend, in as many lines as the narrowest page needs, and their end."""
        drawn, x, y = Markup(), 0.0, 0.0
        for key in self.legend:
            swatch = 30.0 if key.line else 14.0
            width = swatch + 6 + LETTER * len(key.word) + 12
            if not y or x + width > NARROWEST:
                x, y = 0.0, y + LINE + 2
            form = (
                '<line x1="{0:g}" y1="{1:g}" x2="{2:g}" y2="{1:g}" class="{3}"/>'
                if key.line
                else '<rect x="{0:g}" y="{4:g}" width="14" height="12" class="{3}"/>'
            )
            drawn += Markup(form).format(x, y - 8, x + swatch, key.kind, y - 14)  # noqa: S704 - constants
            drawn += Markup('<text x="{:g}" y="{:g}" class="label">{}</text>').format(
                x + swatch + 6, y - 4, key.word
            )
            x += width
        return drawn, y

    def _axis(self, top: float, bottom: float) -> tuple[Markup, float]:
        """Return grid lines with their words, and the height of the whole drawing."""
        ticks = self.ticks or [(tick, self.across.word(tick)) for tick in self.across.ticks()]
        at = Place(self.across, Scale(1.0), top, bottom - top)
        drawn = at.path("".join(at.steps([(tick, 1.0), (tick, 0.0)]) for tick, _ in ticks), "grid")
        for tick, word in ticks:
            x = at.x(tick)
            # Words of the caller are longer: in the right half they end at their value.
            drawn += _text(x, bottom + 14, [word], "tick", _anchor(x, 4, 60 if self.ticks else 92))
        if self.below:
            drawn += _text(100, bottom + 32, [self.below], "quiet", "end")
        return drawn, bottom + (38 if self.below else 20)

    def _rules(self, top: float, bottom: float) -> Markup:
        drawn = Markup()
        for rule in self.rules:
            x = self.across.at(rule.x)
            drawn += _line(x, top, x, bottom, rule.kind)
            drawn += _text(x, top - 5, [rule.word], "tick", _anchor(x, 4, 96)) if rule.word else ""
        return drawn


def _anchor(x: float, start: float, end: float) -> str:
    return "start" if x < start else "end" if x > end else "middle"


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return Markup('<line x1="{:.2f}%" y1="{:.1f}" x2="{:.2f}%" y2="{:.1f}" class="{}"/>').format(
        x1, y1, x2, y2, kind
    )


def _shape(x: float, y: float, shape: str, kind: str) -> Markup:
    return Markup('<svg x="{:.2f}%" y="{:.1f}"><path d="{}" class="{}"/></svg>').format(
        x, y, SHAPES[shape], kind
    )


def _text(x: float, y: float, words: Words, kind: str, anchor: str = "start") -> Markup:
    inside = Markup("").join(
        Markup('<tspan data-value="{}">{}</tspan>').format(repr(word.value), word.text)
        if isinstance(word, Number)
        else word
        for word in words
    )
    return Markup('<text x="{:.2f}%" y="{:.1f}" text-anchor="{}" class="{}">{}</text>').format(
        x, y, anchor, kind, inside
    )


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


def spread(places: Sequence[float], gap: float, bottom: float) -> list[float]:
    """Return the positions, moved as little as possible so that they are `gap` apart and above `bottom`.

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
    """Return a name shortened for a drawing, with its beginning and end; tables show the full name.

    Similar names often differ at their end: host numbers, fractions of malleable jobs.

    Examples
    --------
    >>> short("equipartition malleable=0.2")
    'equipart…eable=0.2'
    """
    if len(name) <= MAX_NAME:
        return name
    end = MAX_NAME // 2
    return f"{name[: MAX_NAME - 1 - end]}\u2026{name[-end:]}"


def patterns() -> Markup:
    """Return the patterns of fills: the hatch of plans, and a pattern for each kind of box."""
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
    # All are constants of this function, so that no text of a document is in them.
    return Markup(  # noqa: S704
        '<svg width="0" height="0" class="defs" aria-hidden="true"><defs>'
        + "".join(forms)
        + "</defs></svg>"
    )


def picture(drawn: Markup, style: str, width: float = 860.0) -> str:
    """Return a drawing as a separate SVG file, with its style and with room for text at its edges."""
    height = float(re.search(r' height="([\d.]+)"', drawn).group(1))  # type: ignore[union-attr]
    inner = str(drawn).replace('width="100%"', f'x="64" y="10" width="{width - 100:g}"', 1)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height + 24:g}" '
        f'viewBox="0 0 {width:g} {height + 24:g}" font-family="sans-serif"><style>{escape(style)}</style>'
        f'<rect width="100%" height="100%" class="paper"/>{patterns()}{inner}</svg>'
    )
