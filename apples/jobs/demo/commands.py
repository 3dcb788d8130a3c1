"""``apples demo``: the four methods of the paper back to back on unequal hosts made of this machine."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from apples.agent.session.results import Document
from apples.errors import VerificationError
from apples.jobs import store
from apples.jobs.commands.foreground import make_folder, write_page
from apples.jobs.demo.comparison import compare
from apples.jobs.pages.demo import demo_page
from apples.jobs.recorder import recorded
from apples.jobs.text.demo import METHODS, demo_document, demo_text
from apples.ui.command_line import say, show_answer
from apples.ui.options import Json


def demo(
    report: Annotated[Path, typer.Option("--report", help="Page to write.")] = Path(
        "runs/demo.html"
    ),
    repeat: Annotated[int, typer.Option("--repeat", min=1, max=100)] = 3,
    grid: Annotated[int, typer.Option("--grid", help="Side of the grid; else by memory.")] = 0,
    json: Json = False,
) -> int:
    """Run the four methods of the paper on unequal hosts made of this machine, without root.

    Example: apples demo
    """
    make_folder(report)
    with recorded({"repeat": repeat, "grid": grid}, say, kind=store.DEMO) as record:
        record.note(name="demo")
        runs = compare(METHODS, repeat, grid, record.heard(say))
        document = demo_document(runs, shlex.join(["apples", *sys.argv[1:]]))
        document["record"] = record.id
        record.finished(document)
        _answer(document, report, json)
        if document["verified"] is False:
            raise VerificationError(
                "a result differs from the sequential run's", code="result-differs"
            )
    return 0


def _answer(document: Document, report: Path, json: bool) -> None:
    """Show what the runs did, and write the page after that."""
    try:
        show_answer(document, lambda: demo_text(document), json)
    finally:
        write_page(report, demo_page(document))
