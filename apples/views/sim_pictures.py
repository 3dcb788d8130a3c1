"""Writes charts as SVG files, and as PNG where a converter is installed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from apples.errors import UsageError

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
