"""A comparison of plans or runs as a page of one file, and in a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apples.agent.pages.notebook import output
from apples.jobs.text.comparison import (
    CLEAR,
    comparison_rows,
    names_of,
    plan_rows,
    reason_lines,
    sentences_of,
)
from apples.ui.page import render

Document = Mapping[str, Any]

TEMPLATES = "apples.jobs"
MAX_HOSTS = 200
"""Rows of the table of hosts; the JSON document has all."""


def comparison_parts(document: Document) -> dict[str, Any]:
    """Return what the templates of a comparison are given, on a page of its own or a served one."""
    return {
        "document": document,
        "of_plans": "plans" in document,
        "names": names_of(document),
        "answers": list(sentences_of(document)),
        "words": CLEAR,
        "hosts": document["hosts"][:MAX_HOSTS],
        "more_hosts": len(document["hosts"]) > MAX_HOSTS,
    }


def compared_page(document: Document) -> str:
    """Return the page of a comparison: one file that opens offline."""
    return render("compared.html.j2", TEMPLATES, made_by=None, **comparison_parts(document))


def notebook_html(document: Document) -> str:
    """Return the answer of a comparison, a column for each plan or run, and why hosts are in one only."""
    rows = plan_rows if "plans" in document else comparison_rows
    return output([*sentences_of(document), *reason_lines(document)], rows(document))
