"""Run benchmarks, print one table, and write the raw results.

A missed bar does not end the run, and neither does a benchmark that fails. Exit code 1: a benchmark failed to run.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.common import DATA, Row, Settings, Skipped

NAMES = (
    "planner", "start_up", "kernel", "topology", "resize", "simulator", "kale_figures", "sd_figures",
    "forecast_accuracy", "forecast_speed", "nws_service",
    "figure6", "figure7", "figure9", "subsets", "changing_load",
)  # fmt: skip
HEADER = ("name", "measures", "value", "bar", "peer", "paper", "verdict")
ROOT = Path(__file__).parents[1]


def options() -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="benchmark or BENCHMARK.PART; default: all"
    )
    parser.add_argument("--quick", action="store_true", help="small cases, without verdicts")
    parser.add_argument(
        "--json", type=Path, metavar="DIR", help="write the raw results here, one file a part"
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", default=DATA, help="folder with data files"
    )
    parser.add_argument("--list", action="store_true", help="print the benchmarks and their parts")
    return parser.parse_args()


def selected(names: list[str]) -> list[tuple[str, str]]:
    """Return benchmark and part of each name, in the order of the command line.

    Raises
    ------
    SystemExit
        A name is unknown.
    """
    chosen = []
    for name in names or NAMES:
        benchmark, _, part = name.partition(".")
        if benchmark not in NAMES:
            sys.exit(f"benchmarks: unknown benchmark '{benchmark}'; known: {', '.join(NAMES)}")
        parts = importlib.import_module(f"benchmarks.{benchmark}").PARTS
        if part and part not in parts:
            sys.exit(
                f"benchmarks: unknown part '{name}'; {benchmark} has {', '.join(filter(None, parts))}"
            )
        chosen += [(benchmark, each) for each in ([part] if part else parts)]
    return chosen


def main() -> int:
    """Return the exit code."""
    asked = options()
    cells, failed = [], 0
    chosen = selected(asked.names)
    if asked.list:
        for benchmark, part in chosen:
            module = sys.modules[f"benchmarks.{benchmark}"]
            doc = module.PARTS[part].__doc__ if part else module.__doc__
            print(f"{full_name(benchmark, part):32} {doc.splitlines()[0]}")
        return 0
    for place, (benchmark, part) in enumerate(chosen, 1):
        name = full_name(benchmark, part)
        print(f"[{place}/{len(chosen)}] {name}", file=sys.stderr, flush=True)
        document = result(benchmark, part, Settings(asked.quick, asked.data))
        rows = [Row(**row) for row in document["rows"]]
        cells += [
            (f"{name}: {row.name}", row.measures, row.shown, row.bar, row.peer, row.paper,
             "quick" if asked.quick and row.bar else row.verdict)
            for row in rows
        ]  # fmt: skip
        for state in ("skipped", "failed"):
            if reason := document[state]:
                cells.append((name, f"{state}: {reason}", "", "", "", "", state))
        failed += bool(document["failed"])
        pictures = document.pop("pictures")
        if asked.json and rows:
            write(asked.json, name, document, pictures)
    print(table([HEADER, *cells]))
    return 1 if failed else 0


def full_name(benchmark: str, part: str) -> str:
    """Return the name that selects a part on the command line."""
    return f"{benchmark}.{part}" if part else benchmark


def result(benchmark: str, part: str, settings: Settings) -> dict[str, Any]:
    """Run a part and return its document: rows, raw data, machine, date, and the reason of a skip or a failure."""
    run = sys.modules[f"benchmarks.{benchmark}"].PARTS[part]
    before, rows, skipped, failed = os.getloadavg()[0], [], "", ""
    try:
        for row in run(settings):
            rows.append(asdict(row))
            print(f"  {row.measures}: {row.shown}", file=sys.stderr, flush=True)
    except Skipped as reason:
        skipped = str(reason)
    except Exception as error:  # noqa: BLE001 - the other benchmarks run all the same
        traceback.print_exc()
        failed = f"{type(error).__name__}: {error}"[:200]
    name = full_name(benchmark, part)
    return {
        "schema": "apples.benchmark/1",
        "name": name,
        "command": f"python -m benchmarks {name}" + (" --quick" if settings.quick else ""),
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit(),
        "machine": machine(before),
        "rows": rows,
        "skipped": skipped,
        "failed": failed,
        "raw": settings.raw,
        "pictures": settings.pictures,
    }


def machine(load_before: float) -> dict[str, Any]:
    """Return the CPU model, the number of CPUs, the load and the versions."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), ""
    )
    return {
        "cpu": model,
        "cpus": len(os.sched_getaffinity(0)),
        "load": [round(load_before, 1), round(os.getloadavg()[0], 1)],
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
    }


def commit() -> str | None:
    """Return the commit of the tree, with a plus sign after it if files differ; None outside a repository."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words],  # noqa: S607 - the git of the PATH
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.strip() if done.returncode == 0 else ""

    head = git("rev-parse", "--short=12", "HEAD")
    changed = git(
        "status",
        "--porcelain",
        "--untracked-files=no",
        "apples",
        "nws",
        "hat",
        "blueprints",
        "benchmarks",
    )
    return f"{head}{'+' if changed else ''}" if head else None


def write(folder: Path, name: str, document: dict[str, Any], pictures: dict[str, str]) -> None:
    """Write a part's document and pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")
    for picture, text in pictures.items():
        (folder / f"{picture}.svg").write_text(text)


def table(lines: list[tuple[str, ...]]) -> str:
    """Return lines of cells as columns; the text of a skip is not counted as a column's width."""
    widths = [
        max(len(line[k]) for line in lines if line[2] or line is lines[0])
        for k in range(len(HEADER))
    ]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


if __name__ == "__main__":
    sys.exit(main())
