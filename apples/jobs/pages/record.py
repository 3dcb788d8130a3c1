"""`record_page`: the page of any record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from apples.errors import UsageError
from apples.jobs.pages.demo import demo_page
from apples.jobs.pages.run import run_page
from apples.jobs.records import RunRecord, document_so_far
from apples.jobs.text.applications import TEXTS
from apples.ui.shell import page
from apples.ui.units import duration

if TYPE_CHECKING:
    from apples.jobs.documents import RunDocument

Document = dict[str, Any]


def has_own_page(document: Document) -> bool:
    """Whether a record's document is not of a run and has a page of another kind."""
    return "runs" in document or document.get("schema") in TEXTS


def record_page(record: RunRecord) -> str:
    """Return the page of a record, also of an unfinished run.

    Raises
    ------
    UsageError
        The run has no plan.
    """
    document = document_so_far(record)
    if "runs" in document:
        return demo_page(document)
    if document.get("schema") in TEXTS:
        return _page(document, record)
    if document["plan"] is None:
        raise UsageError(
            f"{record.id}: is {record.state} and has no plan to draw a page of",
            code="plan-missing",
            run=record.id,
        )
    return run_page(cast("RunDocument", document), record.events)


def _page(document: Document, record: RunRecord) -> str:
    """Return the page of a recorded sweep, master/worker run or pipeline: its end, and its command's output."""
    kind, text = TEXTS[document["schema"]]
    began, ended = record.summary["started"], record.summary["ended"]
    # The record of a sweep exists shortly before its plan, which is made once its hosts are reached.
    planned = document["execution"] or document.get("heuristic", "") is not None
    model = {
        "kind": kind, "summary": record.summary, "over": document["execution"] is not None,
        "took": duration(ended - began) if began and ended else "",
        "lines": text(document).splitlines() if planned else [],
    }  # fmt: skip
    return page("application.html.j2", model)
