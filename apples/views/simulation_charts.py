"""The charts of a simulation report, as SVG text: curves, bars, heat maps, the Gantt chart; and pictures of them.

Every chart is a figure with a caption that says what it shows; what colour says is also said by
position, dash or words. Colours: `palette`, as on paper; the page is light for every reader.
"""

from __future__ import annotations

import base64
import gzip
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, isfinite, log10
from pathlib import Path

import numpy as np

from apples.errors import UsageError
from apples.simulation.gantt import GanttBar
from apples.storage.naming import naming
from apples.views.palette import LIGHT

FIRST, SECOND, GREY, BAR = (LIGHT[name] for name in ("plan", "run", "quiet", "wait"))
PAPER, INK, RULE = (LIGHT[name] for name in ("paper", "ink", "rule"))
DASHES = ("", "7 4", "2 3", "9 3 2 3")
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 860, 240, 70, 34, 14


@dataclass(frozen=True)
class ChartSeries:
    """Points of a line; `half` draws intervals around them."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    half: Sequence[float | None] = ()


def figure(svg: str, caption: str, table: str = "") -> str:
    """Return a chart with its caption and, folded, its numbers."""
    details = f"<details><summary>numbers</summary>{table}</details>" if table else ""
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption>{details}</figure>"


def document(title: str, body: str, width: float = WIDTH, height: float = HEIGHT) -> str:
    """Return an SVG image with a title for those who do not see it."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'style="max-width:{width:g}px" '
        f'font-family="sans-serif" font-size="12"><title>{escape(title)}</title>'
        f'<rect width="{width:g}" height="{height:g}" fill="{PAPER}"/>{body}</svg>'
    )


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return round numbers between two.

    Examples
    --------
    >>> ticks(0, 9)
    [0, 2, 4, 6, 8]
    """
    if not high > low:
        return [low]
    raw = (high - low) / count
    power = 10 ** floor(log10(raw))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= raw * 0.999)
    first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


def short(value: float) -> str:
    """Return a number in few characters.

    Examples
    --------
    >>> short(1234567), short(0.25), short(12)
    ('1.23M', '0.25', '12')
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):.3g}{letter}"
    return f"{value:.3g}" if value != int(value) else str(int(value))


def lines(
    title: str,
    x_name: str,
    y_name: str,
    series: Sequence[ChartSeries],
    bars: ChartSeries | None = None,
) -> str:
    """Return lines over a common axis; `bars`, if any, have their own axis on the right."""
    shown = [one for one in series if len(one.x)]
    every_x = [x for one in shown for x in one.x]
    tops = [
        y + (h or 0)
        for one in shown
        for y, h in zip(one.y, one.half or [0] * len(one.y), strict=True)
        if isfinite(y)
    ]
    low, high, top = min(every_x), max(every_x), max([*tops, 1e-9]) * 1.05
    span = (high - low) or 1.0
    right = WIDTH - 60

    def px(x: float) -> float:
        return LEFT + (x - low) / span * (right - LEFT)

    def py(y: float) -> float:
        return HEIGHT - BOTTOM - y / top * (HEIGHT - BOTTOM - TOP)

    body = [_axes(x_name, y_name, right)]
    body += [
        f'<text x="{px(x):.1f}" y="{HEIGHT - 18}" text-anchor="middle">{short(x)}</text>'
        for x in ticks(low, high, 8)
    ]
    body += [
        f'<line x1="{LEFT}" x2="{right}" y1="{py(y):.1f}" y2="{py(y):.1f}" stroke="{RULE}"/>'
        f'<text x="{LEFT - 6}" y="{py(y) + 4:.1f}" text-anchor="end">{short(y)}</text>'
        for y in ticks(0, top)
    ]
    if bars is not None and len(bars.x):
        body.append(_bars(bars, px, right))
    for k, one in enumerate(shown):
        colour = (FIRST, SECOND, GREY, LIGHT["other"])[k % 4]
        points = " ".join(
            f"{px(x):.1f},{py(y):.1f}" for x, y in zip(one.x, one.y, strict=True) if isfinite(y)
        )
        body.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2" '
            f'stroke-dasharray="{DASHES[k % 4]}"/>'
        )
        for x, y, half in zip(one.x, one.y, one.half, strict=False):
            if half:
                body.append(
                    f'<line x1="{px(x):.1f}" x2="{px(x):.1f}" y1="{py(max(0, y - half)):.1f}" '
                    f'y2="{py(y + half):.1f}" stroke="{colour}"/>'
                )
        body.append(
            f'<text x="{LEFT + 8 + 200 * k}" y="{TOP}" fill="{colour}">'
            f"{'─┄┈╌'[k % 4]} {escape(one.name)}</text>"
        )
    return document(title, "".join(body))


def _axes(x_name: str, y_name: str, right: float) -> str:
    return (
        f'<line x1="{LEFT}" x2="{right}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM}" '
        f'stroke="{GREY}"/><text x="{(LEFT + right) / 2}" y="{HEIGHT - 3}" '
        f'text-anchor="middle">{escape(x_name)}</text>'
        f'<text x="14" y="{HEIGHT / 2}" text-anchor="middle" '
        f'transform="rotate(-90 14 {HEIGHT / 2})">{escape(y_name)}</text>'
    )


def _bars(bars: ChartSeries, place: Callable[[float], float], right: float) -> str:
    most = max([*bars.y, 1])
    wide = max(1.0, (right - LEFT) / max(1, len(bars.x)) * 0.7)
    body = []
    for x, y in zip(bars.x, bars.y, strict=True):
        tall = y / most * (HEIGHT - BOTTOM - TOP) * 0.6
        left = max(place(x) - wide / 2, LEFT)
        broad = min(place(x) + wide / 2, right) - left
        body.append(
            f'<rect x="{left:.1f}" y="{HEIGHT - BOTTOM - tall:.1f}" width="{broad:.1f}" '
            f'height="{tall:.1f}" fill="{BAR}" fill-opacity="0.5"/>'
        )
    body.append(
        f'<text x="{WIDTH - 8}" y="{HEIGHT / 2}" text-anchor="middle" fill="{GREY}" '
        f'transform="rotate(90 {WIDTH - 8} {HEIGHT / 2})">{escape(bars.name)} (bars, to '
        f"{most:g})</text>"
    )
    return "".join(body)


def changes(title: str, rows: Sequence[tuple[str, float, float, float]]) -> str:
    """Return relative changes as points with their intervals on one axis, zero in the middle.

    A row is a name, the change, and the ends of its interval; infinite where none is known.
    """
    rows = [
        (name, mean, low if isfinite(low) else mean, high if isfinite(high) else mean)
        for name, mean, low, high in rows
    ]
    reach = max([max(-low, high) for _, _, low, high in rows] + [0.05]) * 1.1
    height = 40 + 26 * len(rows)
    left, right = 260, WIDTH - 190
    middle = (left + right) / 2
    scale = (right - left) / 2 / reach
    body = [f'<line x1="{middle}" x2="{middle}" y1="8" y2="{height - 24}" stroke="{GREY}"/>']
    body += [
        f'<text x="{middle + x * scale:.1f}" y="{height - 8}" text-anchor="middle">{x:+.0%}</text>'
        for x in ticks(-reach, reach, 6)
    ]
    for k, (name, mean, low, high) in enumerate(rows):
        y = 24 + 26 * k
        colour = GREY if low <= 0 <= high else FIRST if mean < 0 else SECOND
        body.append(
            f'<text x="{left - 10}" y="{y + 4}" text-anchor="end">{escape(name)}</text>'
            f'<line x1="{middle + low * scale:.1f}" '
            f'x2="{middle + high * scale:.1f}" y1="{y}" y2="{y}" stroke="{colour}" '
            f'stroke-width="2"/><circle cx="{middle + mean * scale:.1f}" cy="{y}" r="5" '
            f'fill="{colour}"/><text x="{right + 10}" y="{y + 4}">{mean:+.1%}'
            f"{'' if low == high else f' ({low:+.1%} .. {high:+.1%})'}</text>"
        )
    return document(title, "".join(body), height=height)


def heat(
    title: str,
    columns: Sequence[str],
    rows: Sequence[str],
    ratio: Sequence[Sequence[float | None]],
    counts: Sequence[Sequence[int]],
) -> str:
    """Return ratios as a table of coloured cells: over 1 (better) blue, under 1 (worse) orange."""
    wide, tall, left = 90, 34, 130
    body = []
    for i, name in enumerate(rows):
        y = 24 + i * tall
        body.append(f'<text x="{left - 8}" y="{y + 21}" text-anchor="end">{escape(name)}</text>')
        for k in range(len(columns)):
            value = ratio[i][k]
            x = left + k * wide
            if value is None:
                continue
            strength = min(1.0, abs(log10(value))) if value > 0 else 1.0
            colour = FIRST if value >= 1 else SECOND
            ink = PAPER if strength > 0.55 else INK
            body.append(
                f'<rect x="{x}" y="{y}" width="{wide - 2}" height="{tall - 2}" fill="{colour}" '
                f'fill-opacity="{0.08 + 0.9 * strength:.2f}"/><text x="{x + wide / 2}" '
                f'y="{y + 15}" text-anchor="middle" fill="{ink}">{value:.2f}</text>'
                f'<text x="{x + wide / 2}" y="{y + 28}" text-anchor="middle" font-size="9" '
                f'fill="{ink}">{counts[i][k]} jobs</text>'
            )
    body += [
        f'<text x="{left + k * wide + wide / 2}" y="16" text-anchor="middle">{escape(name)}</text>'
        for k, name in enumerate(columns)
    ]
    return document(title, "".join(body), left + wide * len(columns), 30 + tall * len(rows))


MOST_MARKS = 5000
GANTT_WIDTH, GANTT_HEIGHT = 860, 360
CLASSES = ((FIRST, "static"), (SECOND, "guest or resized"), (BAR, "mate"))


def gantt(title: str, bars: list[GanttBar], rows: int, classes: list[int]) -> str:
    """Return the chart; `classes` gives by job 0 static, 1 guest or resized, 2 mate."""
    legend = " · ".join(
        f'<span class="key" style="border-color:{colour}">{name}</span>'
        for colour, name in CLASSES
    )
    chart = (
        _svg(title, bars, rows, classes)
        if len(bars) <= MOST_MARKS
        else _canvas(title, bars, rows, classes)
    )
    return f"{chart}<p>{legend}</p>"


def _svg(title: str, bars: list[GanttBar], rows: int, classes: list[int]) -> str:
    low = min(bar.begin for bar in bars)
    span = max(bar.end for bar in bars) - low
    body = [
        f'<rect x="{(bar.begin - low) / span * GANTT_WIDTH:.2f}" '
        f'y="{GANTT_HEIGHT * (1 - (bar.row + bar.rows) / rows):.2f}" '
        f'width="{max(0.3, (bar.end - bar.begin) / span * GANTT_WIDTH):.2f}" '
        f'height="{max(0.3, bar.rows / rows * GANTT_HEIGHT):.2f}" fill="{CLASSES[classes[bar.job]][0]}" '
        f'stroke="{PAPER}" stroke-width="0.4"><title>job {bar.job}</title></rect>'
        for bar in bars
    ]
    return document(title, "".join(body), GANTT_WIDTH, GANTT_HEIGHT)


def _canvas(title: str, bars: list[GanttBar], rows: int, classes: list[int]) -> str:
    """Return a canvas and its numbers: x, width, y, height as 16-bit parts of the whole, class."""
    low = min(bar.begin for bar in bars)
    span = max(bar.end for bar in bars) - low
    numbers = np.array([(b.begin, b.end, b.row, b.rows, classes[b.job]) for b in bars])
    order = np.argsort(numbers[:, 0], kind="stable")
    numbers = numbers[order]
    table = np.empty((5, len(bars)), dtype="<u2")
    table[0] = (numbers[:, 0] - low) / span * 65535
    table[1] = (numbers[:, 1] - numbers[:, 0]) / span * 65535
    table[2] = numbers[:, 2] / rows * 65535
    table[3] = numbers[:, 3] / rows * 65535
    table[4] = numbers[:, 4]
    # Differences of begins, and columns one after the other, pack far better.
    table[0, 1:] = np.diff(table[0])
    packed = base64.b64encode(gzip.compress(table.tobytes(), 9, mtime=0)).decode()
    colours = ",".join(f"'{colour}'" for colour, _ in CLASSES)
    return f"""<canvas class="gantt" width="1720" height="720" role="img"
aria-label="{title}"></canvas>
<script type="application/octet-stream" class="gantt-data">{packed}</script>
<script>
(async () => {{
  const script = document.currentScript || [...document.querySelectorAll('.gantt-data')].pop();
  const data = [...document.querySelectorAll('.gantt-data')].pop().textContent;
  const canvas = [...document.querySelectorAll('canvas.gantt')].pop();
  const bytes = Uint8Array.from(atob(data), c => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  const all = new Uint16Array(await new Response(stream).arrayBuffer()), n = all.length / 5;
  const pen = canvas.getContext('2d'), w = canvas.width / 65535, h = canvas.height / 65535;
  const colours = [{colours}];
  let x = 0;
  for (let i = 0; i < n; i++) {{
    x += all[i];
    pen.fillStyle = colours[all[4 * n + i]];
    pen.fillRect(x * w, canvas.height - (all[2 * n + i] + all[3 * n + i]) * h,
                 Math.max(0.5, all[n + i] * w), Math.max(0.5, all[3 * n + i] * h));
  }}
}})();
</script>"""


CONVERTERS: Mapping[str, tuple[str, ...]] = {
    "rsvg-convert": ("-o", "{png}", "{svg}"),
    "inkscape": ("--export-filename={png}", "{svg}"),
    "chromium": (
        "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        "--window-size=860,480", "--screenshot={png}", "{svg}",
    ),
}  # fmt: skip


def write_pictures(folder: Path, charts: Mapping[str, tuple[str, str]], png: bool) -> list[Path]:
    """Write one file a chart; return their names.

    Raises
    ------
    UsageError
        PNG is asked for and no converter (rsvg-convert, inkscape, chromium) is found or it fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    converter = next((name for name in CONVERTERS if shutil.which(name)), None)
    if png and converter is None:
        raise UsageError(f"PNG needs one of {', '.join(CONVERTERS)}; SVG needs none")
    written = []
    for name, (svg, _) in charts.items():
        path = folder / f"{name}.svg"
        with naming(path):
            path.write_text(svg, encoding="utf-8")
        written.append(path)
        if png and converter is not None:
            target = path.with_suffix(".png")
            words = [word.format(svg=path.resolve(), png=target.resolve())
                     for word in CONVERTERS[converter]]  # fmt: skip
            done = subprocess.run(
                [converter, *words], capture_output=True, text=True, check=False, timeout=60
            )
            if done.returncode or not target.exists():
                raise UsageError(f"{converter} failed on {path}: {done.stderr.strip()[-200:]}")
            written.append(target)
    return written
