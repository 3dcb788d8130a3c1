"""``apples demo``: the four methods of the paper back to back on unequal hosts made of this machine."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from apples.errors import VerificationError
from apples.jobs import store
from apples.jobs.commands.foreground import make_folder, write_page
from apples.jobs.demo.comparison import compare
from apples.jobs.documents import DemoDocument
from apples.jobs.pages.demo import demo_page
from apples.jobs.recorder import recorded
from apples.jobs.text.demo import METHODS, demo_document, demo_text
from apples.ui.command_line import command, say, show_answer
from apples.ui.options import json_option
from apples.ui.parameters import FILE, INTEGER, integer, option


@command()
@option("--report", type=FILE, default=Path("runs/demo.html"), help="Page to write.")
@option("--repeat", type=integer(1, 100), default=3, help="Runs of each method.")
@option("--grid", type=INTEGER, default=0, help="Side of the grid; else by memory.")
@json_option
def demo(report: Path, repeat: int, grid: int, json: bool) -> int:
    """Run the four methods of the paper on unequal hosts made of this machine, without root.

    Example: apples demo
    """
    make_folder(report)
    with recorded({"repeat": repeat, "grid": grid}, say, kind=store.DEMO) as record:
        record.note(name="demo")
        runs = compare(METHODS, repeat, grid, record.logging(say))
        document = demo_document(runs, shlex.join(["apples", *sys.argv[1:]]))
        document["record"] = record.id
        record.finished(document)
        _answer(document, report, json)
        if document["verified"] is False:
            raise VerificationError(
                "a result differs from the sequential run's", code="result-differs"
            )
    return 0


def _answer(document: DemoDocument, report: Path, json: bool) -> None:
    """Print the results of the runs, then write the page."""
    try:
        show_answer(document, lambda: demo_text(document), json)
    finally:
        write_page(report, demo_page(document))
