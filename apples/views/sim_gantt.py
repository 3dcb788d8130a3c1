"""The Gantt chart of a report: SVG up to 5,000 bars, one canvas fed by packed numbers above."""

from __future__ import annotations

import base64
import gzip

import numpy as np

from apples.simulation.gantt import Bar
from apples.views.sim_charts import BAR, FIRST, PAPER, SECOND, document

MOST_MARKS = 5000
WIDTH, HEIGHT = 860, 360
CLASSES = ((FIRST, "static"), (SECOND, "guest or resized"), (BAR, "mate"))


def gantt(title: str, bars: list[Bar], rows: int, classes: list[int]) -> str:
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


def _svg(title: str, bars: list[Bar], rows: int, classes: list[int]) -> str:
    low = min(bar.begin for bar in bars)
    span = max(bar.end for bar in bars) - low
    body = [
        f'<rect x="{(bar.begin - low) / span * WIDTH:.2f}" '
        f'y="{HEIGHT * (1 - (bar.row + bar.rows) / rows):.2f}" '
        f'width="{max(0.3, (bar.end - bar.begin) / span * WIDTH):.2f}" '
        f'height="{max(0.3, bar.rows / rows * HEIGHT):.2f}" fill="{CLASSES[classes[bar.job]][0]}" '
        f'stroke="{PAPER}" stroke-width="0.4"><title>job {bar.job}</title></rect>'
        for bar in bars
    ]
    return document(title, "".join(body), WIDTH, HEIGHT)


def _canvas(title: str, bars: list[Bar], rows: int, classes: list[int]) -> str:
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
