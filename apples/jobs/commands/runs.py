"""``apples runs | compare | report``: what was recorded of runs and jobs, and pages of it and of simulations."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from apples.errors import UsageError
from apples.io.documents import put_page
from apples.jobs import store
from apples.jobs.commands.completion import run_ids
from apples.jobs.commands.scheduled import is_scheduled, record_of
from apples.ui.command_line import say, show, show_answer
from apples.ui.options import Json
from apples.ui.units import amount

KEPT_DAYS, KEPT_BYTES = 90.0, 1_000_000_000


def runs(
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove old records, never of what runs.")
    ] = False,
    older: Annotated[
        float, typer.Option("--older", min=0.0, help="With --prune: than so many days.")
    ] = KEPT_DAYS,
    most: Annotated[
        int, typer.Option("--most", min=0, help="With --prune: the oldest beyond so many bytes.")
    ] = KEPT_BYTES,
    json: Json = False,
) -> int:
    """Show what was recorded of every run and job.

    Example: apples runs; apples runs --prune --older 30
    """
    from apples.jobs.text.runs import runs_text  # noqa: PLC0415 - text only

    document: dict[str, object] = {"schema": "apples.runs/1"}
    if prune:
        removed, freed = store.prune(older * 86400.0, most, time.time())
        document |= {"pruned": removed, "freed_bytes": freed}
        say(f"removed {len(removed)} records, {amount(freed)}")
    found = [one.summary() for one in store.records()]
    show_answer(document | {"runs": found}, lambda: runs_text(found) if found else "", json)
    if not (found or json):
        say("no runs; start one: apples run")
    return 0


def compare(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="PLAN-OR-RUN ..",
            help="Files of `apples plan --json`, and ids of runs.",
            autocompletion=run_ids,
        ),
    ],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Page to write, too.")] = None,
    json: Json = False,
) -> int:
    """Show what differs between plans, or between runs and whether it is more than their own spread.

    Example: apples compare calm.json storm.json; apples compare 1f2e3d4c 9a8b7c6d
    """
    from apples.jobs.comparison import compare as compared  # noqa: PLC0415 - not for a list of runs
    from apples.jobs.text.comparison import text_of  # noqa: PLC0415 - text only

    comparison = compared(*(record_of(name) if is_scheduled(name) else name for name in names))
    document = comparison.document()
    show_answer(document, lambda: text_of(document), json)
    if out is not None:
        page = comparison.page()
        put_page(out, page)
        say(f"{out}: {len(page.encode())} bytes")
    return 0


def report(
    source: Annotated[
        str,
        typer.Argument(
            help="A run or job by its id; or a log, a model, a sweep's file of results.",
            autocompletion=run_ids,
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page to write; of a run, ID.html.")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="May be repeated; the first is the baseline. Of a sweep: the baseline."),
    ] = None,
    processors: Annotated[int | None, typer.Option(help="Processors of the machine.")] = None,
    nodes: Annotated[int | None, typer.Option(help="Whole nodes are given to jobs.")] = None,
    cores_per_node: Annotated[int | None, typer.Option(help="Cores inside a node.")] = None,
    malleable: Annotated[
        list[float] | None,
        typer.Option(help="Fraction of jobs that can be resized [default: 1]; may be repeated."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of everything drawn at random.")] = 0,
    option: Annotated[
        list[str] | None, typer.Option(help="name=value, or POLICY:name=value; may be repeated.")
    ] = None,
    pictures: Annotated[Path | None, typer.Option(help="Folder for the charts as SVG.")] = None,
    png: Annotated[bool, typer.Option("--png", help="PNG beside the SVG.")] = False,
    timeline: Annotated[
        bool, typer.Option("--timeline", help="Of a run: show it over time here, too.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Write the page of a run or a job, at any time, or of simulations: one file that opens offline.

    Example: apples report 1f2e3d4c -o run.html
    """
    if is_record(source):
        report_run(source, out, json, timeline)
        return
    if out is None:
        raise UsageError(
            "--out is required for simulations: the file of the page",
            code="option-missing",
            option="--out",
        )
    from apples.simulation.commands.report import report_simulation  # noqa: PLC0415 - the simulator, for its pages only

    report_simulation(
        source, out, policy, processors, nodes, cores_per_node, malleable, seed, option, pictures, png, json
    )  # fmt: skip


def is_record(name: str) -> bool:
    """Whether a word names a record, and no file."""
    return store.names_record(name) or is_scheduled(name)


def report_run(name: str, out: Path | None, json: bool, timeline: bool = False) -> None:
    """Write the page of a recorded run, of as much of it as there is; show it over time where that is asked."""
    from apples.jobs import run_record  # noqa: PLC0415 - for a page only, as what follows
    from apples.jobs.pages.record import has_own_page, record_page  # noqa: PLC0415

    record = run_record(record_of(name))
    page = record_page(record)
    path = out or Path(f"{record.id}.html")
    size = len(page.encode())
    answer = {"schema": "apples.report/1", "page": str(path), "bytes": size, "record": record.id}
    text = ""
    if timeline:
        from apples.jobs.records import document_so_far  # noqa: PLC0415 - text only, as what follows
        from apples.jobs.text.timeline import timeline_document, timeline_text  # noqa: PLC0415

        document = document_so_far(record)
        if has_own_page(document):
            raise UsageError(
                f"{record.id}: a {record.summary['kind']} has no timeline",
                code="option-not-applicable",
                option="--timeline",
                value=record.id,
            )
        drawn = timeline_document(document, record.events)
        answer["timeline"] = drawn
        text = f"{timeline_text(drawn)}\n"
    show_answer(answer, text, json)
    put_page(path, page)
    if not json:
        show(f"{path}: {size} bytes, of {record.id}")
