"""A comparison of plans or runs as a page of one file, and in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from apples.agent.pages.notebook import output
from apples.jobs.text.comparison import (
    CLEAR,
    names_of,
    reason_lines,
    rows_of,
    sentences_of,
)
from apples.ui.shell import page

if TYPE_CHECKING:
    from apples.jobs.documents import AnyComparison

MAX_HOSTS = 200
"""Largest number of rows of the table of hosts; the JSON document has all."""


def comparison_parts(document: AnyComparison) -> dict[str, Any]:
    """Return the variables for the templates of a comparison, on a saved page or a served page."""
    return {
        "document": document,
        "of_plans": "plans" in document,
        "names": names_of(document),
        "answers": list(sentences_of(document)),
        "words": CLEAR,
        "hosts": document["hosts"][:MAX_HOSTS],
        "more_hosts": len(document["hosts"]) > MAX_HOSTS,
    }


def compared_page(document: AnyComparison) -> str:
    """Return the page of a comparison: one file that opens offline."""
    return page("compared.html.j2", comparison_parts(document))


def notebook_html(document: AnyComparison) -> str:
    """Return the answer of a comparison, a column for each plan or run, and the reasons to leave out hosts."""
    return output([*sentences_of(document), *reason_lines(document)], rows_of(document))
