"""The saved page of a demo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from apples.agent.pages import charts
from apples.agent.pages.charts import Case
from apples.agent.text.words import kinds_of, reasons, spending, verified_words, words_of
from apples.jobs.text.demo import KINDS, with_interval
from apples.ui.formats import sentence, share
from apples.ui.shell import page

if TYPE_CHECKING:
    from apples.agent.documents import PlanDocument

Document = Mapping[str, Any]

OURS = "minimum_execution_time"
MAX_ROWS = 60
"""Largest number of rows of the table of runs; the JSON document has all."""


def demo_page(document: Document) -> str:
    """Return the page: one self-contained HTML file; every number comes from the document."""
    rows = document["methods"]
    runs = {row["method"]: _done(document, row["method"]) for row in rows}
    last = {name: own[-1] for name, own in runs.items() if own}
    cases = _cases(runs.get(OURS, []))
    kinds = kinds_of([run["plan"] for run in last.values()])
    longest = max((run["execution"]["iteration_seconds"] for run in last.values()), default=1.0)
    drawn = [(row, last[row["method"]]) for row in rows if row["method"] in last]
    model = {
        "document": document,
        "kinds_of_verdict": KINDS,
        "verified": verified_words([run["verified"] for own in runs.values() for run in own]),
        "titles": {row["method"]: row["title"] for row in rows},
        "methods_chart": charts.methods(rows, runs) if last else "",
        "few": any(len(own) > charts.DRAWN for own in runs.values()),
        "strip_charts": [
            (row, run, charts.strips(f"strips-{row['method']}", run["plan"]["chosen"], kinds))
            for row, run in drawn
        ],
        "ours": last.get(OURS),
        "kinds": kinds,
        "cases": cases,
        "forecasts_chart": charts.forecasts("forecasts", cases) if cases else "",
        "forecasts_finding": _forecasts_finding(cases),
        "time_charts": [
            (row, run["execution"], charts.times(f"times-{row['method']}", run["execution"], longest * 1.02))
            for row, run in drawn
        ],
        "spending": spending,
        "with_interval": with_interval,
        "time_words": words_of([run["execution"] for run in last.values()]),
        "table": document["runs"][:MAX_ROWS],
        "reasons": [(row, reasons(_last_plan(document, row["method"]))) for row in rows],
    }  # fmt: skip
    return page("demo.html.j2", model)


def _done(document: Document, method: str) -> list[Document]:
    return [
        run
        for run in document["runs"]
        if run["plan"]["blueprint"] == method and run["execution"] is not None
    ]


def _last_plan(document: Document, method: str) -> PlanDocument | None:
    own = [run["plan"] for run in document["runs"] if run["plan"]["blueprint"] == method]
    return own[-1] if own else None


def _cases(runs: Sequence[Document]) -> list[Case]:
    cases = []
    for run in runs[-charts.DRAWN :]:
        got = {host["host"]: host["cpu_got"] for host in run["execution"]["hosts"]}
        cases += [
            Case(
                strip["host"], strip["cpu"], strip["cpu_error"], got.get(strip["host"]),
                strip["cpu_method"], strip["cpu_samples"],
            )
            for strip in run["plan"]["chosen"]["strips"]
        ]  # fmt: skip
    return sorted(cases, key=lambda case: case.host)


def _forecasts_finding(cases: Sequence[Case]) -> Markup:
    known = [(abs(case.got - case.cpu), case) for case in cases if case.got is not None]
    if not known:
        return Markup("The CPU shares of the hosts were not measured.")
    _, worst = max(known, key=lambda pair: pair[0])
    return sentence(
        "Largest miss: {}, forecast {} \u00b1 {} of its CPU, got {} while computing.",
        worst.host, share(worst.cpu), share(worst.error), share(worst.got),
    )  # fmt: skip
