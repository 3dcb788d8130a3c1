"""The saved page of a demo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from apples.agent.pages import charts
from apples.agent.pages.charts import Case
from apples.agent.text.words import kinds_of, reasons, spending, verified_words, words_of
from apples.jobs.text.demo import KINDS, with_interval
from apples.ui.formats import count, listed, percent, seconds, sentence, share
from apples.ui.page import render

Document = dict[str, Any]
TEMPLATES = "apples.jobs"

OURS = "minimum_execution_time"
MOST_ROWS = 60
"""Rows of the table of all runs; what is beyond is in the JSON document."""


def demo_page(document: Document) -> str:
    """Return the page: one HTML file that needs nothing else, every number from the document."""
    rows = document["methods"]
    runs = {row["method"]: _done(document, row["method"]) for row in rows}
    last = {name: own[-1] for name, own in runs.items() if own}
    cases = _cases(runs.get(OURS, []))
    kinds = kinds_of([run["plan"] for run in last.values()])
    longest = max((run["execution"]["iteration_seconds"] for run in last.values()), default=1.0)
    return render(
        "demo.html.j2",
        TEMPLATES,
        document=document,
        verdict=_verdict(document),
        verified=verified_words([run["verified"] for own in runs.values() for run in own]),
        application=document["runs"][0]["plan"]["application"] if document["runs"] else None,
        rows=rows,
        titles={row["method"]: row["title"] for row in rows},
        methods_chart=charts.methods(rows, runs) if last else "",
        methods_finding=_methods_finding(rows),
        few=any(len(own) > charts.DRAWN for own in runs.values()),
        strip_charts=[
            (row, last[row["method"]], _strips(row["method"], last[row["method"]], kinds))
            for row in rows
            if row["method"] in last
        ],
        strips_finding=_strips_finding(last.get(OURS)),
        kinds=kinds,
        cases=cases,
        forecasts_chart=charts.forecasts("forecasts", cases) if cases else "",
        forecasts_finding=_forecasts_finding(cases),
        time_charts=[
            (
                row,
                last[row["method"]]["execution"],
                _times(row["method"], last[row["method"]], longest),
            )
            for row in rows
            if row["method"] in last
        ],
        times_finding=_times_finding(last.get(OURS)),
        spending=spending,
        with_interval=with_interval,
        time_words=words_of([run["execution"] for run in last.values()]),
        table=document["runs"][:MOST_ROWS],
        more=len(document["runs"]) > MOST_ROWS,
        reasons=[(row, reasons(_last_plan(document, row["method"]))) for row in rows],
        made_by=document.get("made_by"),
    )


def _done(document: Document, method: str) -> list[Document]:
    return [
        run
        for run in document["runs"]
        if run["plan"]["blueprint"] == method and run["execution"] is not None
    ]


def _last_plan(document: Document, method: str) -> Document | None:
    own = [run["plan"] for run in document["runs"] if run["plan"]["blueprint"] == method]
    return own[-1] if own else None


def _verdict(document: Document) -> Document:
    """Return the headline: its sign, its word, and the sentence with the interval."""
    ratio = document["ratio_to_blocked"]
    if not ratio:
        return {"kind": "watch", "word": "nothing to compare", "ratio": None, "rest": ""}
    rest: Markup | str = ""
    if ratio["interval"]:
        low, high = ratio["interval"]
        rest = sentence(
            "{} to {} in {} repetitions, pair by pair",
            share(low),
            share(high),
            count(ratio["repetitions"]),
        )
    word = ratio["verdict"]
    return {
        "kind": KINDS.get(word, "watch"),
        "word": word,
        "ratio": share(ratio["median"]),
        "rest": rest,
    }


def _methods_finding(rows: Sequence[Document]) -> Markup:
    done = [row for row in rows if row["runs"]]
    if not done:
        return Markup("No method had a plan.")
    fastest = min(done, key=lambda row: float(row["iteration_seconds"]))
    worst = max(done, key=lambda row: float(row["median_error"]))
    return sentence(
        "Quickest here: {}, {} an iteration. Furthest from its prediction: {}, by {} of the "
        "predicted time (median).",
        fastest["title"],
        seconds(fastest["iteration_seconds"]),
        worst["title"],
        percent(worst["median_error"]),
    )


def _strips(method: str, run: Document, kinds: Sequence[str]) -> Markup:
    return charts.strips(f"strips-{method}", run["plan"]["chosen"], kinds)


def _times(method: str, run: Document, longest: float) -> Markup:
    return charts.times(f"times-{method}", run["execution"], longest * 1.02)


def _strips_finding(run: Document | None) -> Markup:
    if run is None:
        return Markup("Run-time AppLeS had no plan.")
    own = sorted(run["plan"]["chosen"]["strips"], key=lambda strip: int(strip["rows"]))
    rows = count(run["plan"]["application"]["rows"])
    if len(own) == 1:
        return sentence("Run-time AppLeS gave all {} rows to {}.", rows, own[0]["host"])
    return sentence(
        "Of the {} rows, run-time AppLeS gave most to {} ({}) and fewest to {} ({}).",
        rows,
        own[-1]["host"],
        count(own[-1]["rows"]),
        own[0]["host"],
        count(own[0]["rows"]),
    )


def _cases(runs: Sequence[Document]) -> list[Case]:
    cases = []
    for run in runs[-charts.DRAWN :]:
        got = {host["host"]: host["cpu_got"] for host in run["execution"]["hosts"]}
        cases += [
            Case(
                strip["host"],
                strip["cpu"],
                strip["cpu_error"],
                got.get(strip["host"]),
                strip["cpu_method"],
                strip["cpu_samples"],
            )
            for strip in run["plan"]["chosen"]["strips"]
        ]
    return sorted(cases, key=lambda case: case.host)


def _forecasts_finding(cases: Sequence[Case]) -> Markup:
    known = [(abs(case.got - case.cpu), case) for case in cases if case.got is not None]
    if not known:
        return Markup("What the hosts got was not measured.")
    _, worst = max(known, key=lambda pair: pair[0])
    return sentence(
        "Largest miss: {}, forecast {} \u00b1 {} of its CPU, got {} while computing.",
        worst.host,
        share(worst.cpu),
        share(worst.error),
        share(worst.got),
    )


def _times_finding(run: Document | None) -> Markup:
    if run is None:
        return Markup("Run-time AppLeS did not run.")
    hosts = sorted(
        run["execution"]["hosts"], key=lambda host: float(host["compute_per_iteration"])
    )
    whole = seconds(run["execution"]["iteration_seconds"])
    parts = [
        sentence("{} {}", host["host"], seconds(host["compute_per_iteration"]))
        for host in (hosts[-1], hosts[0])[: len(hosts)]
    ]
    return sentence(
        "Of run-time AppLeS\u2019s {} an iteration, computing took (longest and shortest) {}.",
        whole,
        listed(parts),
    )
