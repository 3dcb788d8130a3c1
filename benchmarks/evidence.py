"""Write the tables of ``docs/evidence.md`` from the results in ``benchmarks/results``.

``make evidence`` runs it. The block after each ``<!-- results: NAME .. -->`` is written; the other text stays.
"""

from __future__ import annotations

import json
import re
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from benchmarks.common import Row

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "evidence.md"
RESULTS = Path(__file__).parent / "results"
BLOCK = re.compile(r"(<!-- results: ([^>]*) -->\n)[\s\S]*?(<!-- end -->)")
HEADER = "| figure | paper | here | bar | source |\n|---|---|---|---|---|\n"
ROWS = {
    "kale_figures": "*better*",
    "sd_figures.[cer]*": "slowdown, [DM]*[1D]*",
    "sd_figures.curie": "*MAX_SLOWDOWN 10",
    "sd_figures.depth": "*protected",
    "resize.tables": "* 10 MB",
    "forecast_accuracy.public": "*[!y]",
    "migration": "*",
    "owners*": "*",
}
"""The rows on the page by result, where it has more than the page needs."""
SIMULATED = (
    "kale_figures",
    "sd_figures.*",
    "topology.mix",
    "topology.hops",
    "forecast_accuracy.*",
)


def written(page: str) -> str:
    """Return the page with the present results."""
    return BLOCK.sub(lambda block: block[1] + tables(block[2].split()) + block[3], page)


def tables(patterns: list[str]) -> str:
    """Return the table of the results with these names, and the list of its sources."""
    paths = [path for pattern in patterns for path in sorted(RESULTS.glob(f"{pattern}.json"))]
    documents = [json.loads(path.read_text("utf-8")) for path in paths]
    lines, sources = [], []
    for number, document in enumerate(documents, 1):
        rows = [Row(**row) for row in document["rows"]]
        lines += [line(row, number) for row in rows if on_page(document["name"], row)]
        sources.append(f"{number}. {source(document)}\n")
    return f"\n{HEADER}{''.join(lines)}\n{''.join(sources)}\n"


def on_page(result: str, row: Row) -> bool:
    """Return whether the page shows a row: if `ROWS` has no pattern, a row with a bar, a paper or a peer."""
    patterns = [rows for name, rows in ROWS.items() if fnmatch(result, name)]
    return fnmatch(row.name, patterns[-1]) if patterns else bool(row.bar or row.paper or row.peer)


def line(row: Row, number: int) -> str:
    """Return the line of a row; a missed bar is in bold."""
    verdict = {"missed": ": **missed**", "met": ": met"}.get(row.verdict, "")
    here = row.shown + (f"; {row.peer}" if row.peer else "")
    return f"| {row.measures} | {row.paper} | {here} | {row.bar}{verdict} | {number} |\n"


def source(document: dict[str, Any]) -> str:
    """Return command, machine and date of a result."""
    commit = f", commit {document['commit']}" if document["commit"] else ""
    command = (
        document["command"]
        .removeprefix("python -m benchmarks ")
        .removeprefix("python experiments/")
    )
    return f"`{command}`: {machine(document)}, {document['date']}{commit}"


def machine(document: dict[str, Any]) -> str:
    """Return the machine of a result, or that its clock does not matter."""
    known = document["machine"]
    if known is None or any(fnmatch(document["name"], name) for name in SIMULATED):
        return "any machine"
    cpus = f"{known['cpus']} CPUs"
    if "note" in known:
        return f"{cpus}, {known['note']}"
    return f"{cpus} ({known['cpu']}), load {known['load'][0]} to {known['load'][1]}"


if __name__ == "__main__":
    text = PAGE.read_text("utf-8")
    if "--check" in sys.argv[1:]:
        sys.exit(0 if written(text) == text else f"{PAGE}: not up to date; run `make evidence`")
    PAGE.write_text(written(text), "utf-8")
