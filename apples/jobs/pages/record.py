"""`record_page`: the page of anything that was recorded."""

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
    """Whether a record's document is none of a run, and has a page of another kind."""
    return "runs" in document or document.get("schema") in TEXTS


def record_page(record: RunRecord) -> str:
    """Return the page of as much as there is.

    Raises
    ------
    UsageError
        It came to no plan.
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
    """Return the page of what runs by another model than a run: how it ended, and what its command says of it."""
    kind, text = TEXTS[document["schema"]]
    began, ended = record.summary["started"], record.summary["ended"]
    # A sweep is planned when its hosts are reached, a moment after its record says what is to be done.
    planned = document["execution"] or document.get("heuristic", "") is not None
    model = {
        "kind": kind, "summary": record.summary, "over": document["execution"] is not None,
        "took": duration(ended - began) if began and ended else "",
        "lines": text(document).splitlines() if planned else [],
    }  # fmt: skip
    return page("application.html.j2", model)
