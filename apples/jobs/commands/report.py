"""``apples report``: the page of a run, a job or simulations, and the comparison of runs or plans."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from apples.errors import UsageError
from apples.io.documents import put_page
from apples.jobs import store
from apples.jobs.commands.completion import run_ids
from apples.jobs.commands.scheduled import (
    connection_given,
    is_scheduled,
    not_scheduled,
    record_of,
    scheduler_options,
)
from apples.ui.command_line import command, say, show, show_answer
from apples.ui.options import json_option
from apples.ui.parameters import (
    FILE,
    INTEGER,
    NUMBER,
    argument,
    option,
    reject_unused,
)

RECORD_OPTIONS = frozenset(
    {"--out", "--timeline", "--json", "--scheduler", "--token-file", "--ca"}
)
"""Options that apply to a run or a job."""
COMPARISON_OPTIONS = RECORD_OPTIONS - {"--timeline"}
"""Options that apply to several runs or plans."""
SIMULATION_OPTIONS = frozenset(
    {
        *("--out", "--json", "--policy", "--processors", "--nodes", "--cores-per-node"),
        *("--malleable-fraction", "--seed", "--option", "--pictures"),
    }
)
"""Options that apply to a workload log or model."""
GRID_OPTIONS = frozenset({"--out", "--json", "--policy", "--pictures"})
"""Options that apply to the results of `apples simulate --grid`."""


@command()
@argument(
    "names",
    nargs=-1,
    required=True,
    metavar="NAME ..",
    help="A run or job by its id; several runs, or files of `apples plan --json`, to compare; or a workload log, "
    "a workload model, or the results of apples simulate --grid.",
    shell_complete=run_ids,
)
@option("--out", "-o", type=FILE, help="The page to write; of a run, ID.html unless named.")
@option(
    "--policy",
    metavar="NAME",
    multiple=True,
    help="Policy to simulate; may be repeated, the first is the baseline. With results of --grid: the baseline.",
)
@option("--processors", type=INTEGER, help="Processors of the machine.")
@option("--nodes", type=INTEGER, help="Whole nodes are given to jobs.")
@option("--cores-per-node", type=INTEGER, help="Cores inside a node.")
@option(
    "--malleable-fraction",
    "malleable",
    metavar="FRACTION",
    type=NUMBER,
    multiple=True,
    help="Fraction of jobs that can be resized [default: 1]; may be repeated.",
)
@option("--seed", type=INTEGER, default=0, help="Seed of all random numbers.")
@option(
    "--option",
    metavar="NAME=VALUE",
    multiple=True,
    help="name=value, or POLICY:name=value; may be repeated.",
)
@option("--pictures", metavar="FOLDER", type=FILE, help="Folder for the charts as SVG.")
@option("--timeline", is_flag=True, help="Of a run: also print its timeline.")
@json_option
@scheduler_options
def report(
    names: tuple[str, ...],
    out: Path | None,
    policy: tuple[str, ...],
    processors: int | None,
    nodes: int | None,
    cores_per_node: int | None,
    malleable: tuple[float, ...],
    seed: int,
    option: tuple[str, ...],
    pictures: Path | None,
    timeline: bool,
    json: bool,
) -> None:
    """Write the page of a run, a job or simulations; compare several runs or plans.

    A page is one file that opens offline. A comparison is printed; --out writes its page too.

    Example: apples report 1f2e3d4c -o run.html; apples report 1f2e3d4c 9a8b7c6d
    """
    context, source = click.get_current_context(), names[0]
    if len(names) > 1:
        reject_unused(context, COMPARISON_OPTIONS, "a comparison")
        _reject_connection(names)
        _compare(names, out, json)
        return
    if is_record(source):
        reject_unused(context, RECORD_OPTIONS, f"{source}, a run or a job")
        _reject_connection(names)
        report_run(source, out, json, timeline)
        return
    is_grid = source.endswith(".jsonl")
    applicable = GRID_OPTIONS if is_grid else SIMULATION_OPTIONS
    reject_unused(
        context, applicable, f"{source}, {'a grid of' if is_grid else 'one of'} simulations"
    )
    if is_grid and len(policy) > 1:
        raise UsageError(
            f"{source}: a grid has one baseline; give one --policy (got {len(policy)})",
            code="option-not-applicable",
            option="--policy",
            value=list(policy),
        )
    if out is None:
        from apples.simulation.sources import is_generated  # noqa: PLC0415 - the simulator, for its pages only

        if not (is_generated(source) or Path(source).exists()):
            store.record(source)  # raises: no run has the name
        raise UsageError(
            "--out is required for simulations: the file of the page",
            code="option-missing",
            option="--out",
        )
    from apples.simulation.commands.report import report_simulation  # noqa: PLC0415 - the simulator, for its pages only

    report_simulation(
        source, out, policy, processors, nodes, cores_per_node, malleable, seed, option, pictures, json
    )  # fmt: skip


def _reject_connection(names: Sequence[str]) -> None:
    """Raise `UsageError` for an option that selects a scheduler if no name is a scheduler's job."""
    if connection_given() and not any(map(is_scheduled, names)):
        raise not_scheduled(" ".join(names))


def _compare(names: Sequence[str], out: Path | None, json: bool) -> None:
    """Print the differences between plans, or between runs and whether they exceed the spread of the runs."""
    from apples.jobs.comparison import compare as compared  # noqa: PLC0415 - not for one page
    from apples.jobs.text.comparison import text_of  # noqa: PLC0415 - text only

    comparison = compared(*(record_of(name) if is_scheduled(name) else name for name in names))
    document = comparison.document()
    try:
        if out is not None:
            page = comparison.page()
            put_page(out, page)
            say(f"{out}: {len(page.encode())} bytes")
    finally:  # the answer is printed also if the file cannot be written
        show_answer(document, lambda: text_of(document), json)


def is_record(name: str) -> bool:
    """Whether a word is the id of a record, and not a file."""
    return store.names_record(name) or is_scheduled(name)


def report_run(name: str, out: Path | None, json: bool, timeline: bool = False) -> None:
    """Write the page of a recorded run, also of an unfinished run; with `timeline`, print the run over time."""
    from apples.jobs import run_record  # noqa: PLC0415 - for a page only, as the next imports
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
        drawn = timeline_document(document["plan"], record.events)
        answer["timeline"] = drawn
        text = f"{timeline_text(drawn)}\n"
    try:
        put_page(path, page)
    finally:  # the answer is printed also if the file cannot be written
        show_answer(answer, text, json)
    if not json:
        show(f"{path}: {size} bytes, of {record.id}")
