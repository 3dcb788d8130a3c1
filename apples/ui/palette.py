"""The colours of every page, with measured contrast: at least 3:1 on their background, distinct for all viewers.

Two series, plan and run, have the same colours everywhere. Colour is never the only sign: a word, a shape or a
pattern has the same meaning. `tests/ui/test_palette.py` recomputes contrasts and distances.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

Colours = Mapping[str, str]

LIGHT: Colours = {
    "paper": "#FFFFFF",
    "ink": "#1B1B1B",
    "quiet": "#5A5A5A",
    "rule": "#D5D5D5",
    "plan": "#0072B2",
    "run": "#D55E00",
    "compute": "#0077BB",
    "communicate": "#C97B00",
    "wait": "#949494",
    "other": "#882255",
    "good": "#0072B2",
    "watch": "#B06000",
    "bad": "#882255",
}
DARK: Colours = {
    "paper": "#1B1B1B",
    "ink": "#F2F2F2",
    "quiet": "#B4B4B4",
    "rule": "#444444",
    "plan": "#3D9BDC",
    "run": "#F07A24",
    "compute": "#33BBEE",
    "communicate": "#FFB000",
    "wait": "#9A9A9A",
    "other": "#AA4499",
    "good": "#56B4E9",
    "watch": "#FFC04D",
    "bad": "#E0508A",
}

FILLS = ("compute", "communicate", "wait", "other")
"""The fills of up to four kinds of box, in order; each also has its own pattern."""


def css() -> str:
    """Return the colours as custom properties: light, dark if the reader prefers it, light in print."""
    light, dark = (
        "".join(f"--{name}:{value};" for name, value in colours.items())
        for colours in (LIGHT, DARK)
    )
    return (
        f":root{{color-scheme:light dark;{light}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"
    )


def fixed(style: str) -> str:
    """Return a style with the light colours instead of custom properties, for pictures of charts."""
    return re.sub(
        r"var\(--(\w+)\)", lambda found: LIGHT.get(found.group(1), found.group(0)), style
    )
