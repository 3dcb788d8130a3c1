"""The saved page of one run: what ``apples.run/1`` says, drawn.

The order is fixed: the verdict, where the time went, plan against run per host, notes, why these hosts,
how to repeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from apples.views import charts
from apples.views.notes import notes
from apples.views.page import render
from apples.views.reasons import reasons, verified_words
from apples.views.run_text import VERDICTS
from apples.views.shown import seconds, sentence

Document = dict[str, Any]

MOST_DRAWN, MOST_ROWS = 24, 100
"""Hosts that are drawn, and rows of the table; beyond, the busiest ones. All are in the JSON document."""
KINDS = {True: "good", False: "bad", None: "watch"}


def run_page(document: Document) -> str:
    """Return the page: one HTML file that needs nothing else, every number from the document."""
    plan, execution = document["plan"], document["execution"]
    return render(
        "run.html.j2",
        document=document,
        plan=plan,
        execution=execution,
        verdict=_verdict(document),
        verified=verified_words([document["verified"]] if execution else []),
        reasons=reasons(plan),
        made_by=document.get("made_by"),
        **(_measured(plan, execution) if execution else {}),
    )


def _measured(plan: Document, execution: Document) -> Document:
    """Return what there is to say only of a run that took place."""
    drawn = _busiest(execution["hosts"], MOST_DRAWN)
    shown = {**execution, "hosts": drawn}
    limit = max([execution["iteration_seconds"], *(_busy(host) for host in drawn)]) * 1.02
    return {
        "promise_chart": charts.promise(execution),
        "times_chart": charts.times("times", shown, limit) if drawn else "",
        "times_finding": _times_finding(drawn),
        "time_words": charts.words_of([shown]),
        "fewer": len(drawn) < len(execution["hosts"]),
        "hosts": _hosts(plan, execution),
        "cut": len(execution["hosts"]) > MOST_ROWS,
        "notes": notes(plan, execution),
    }


def _verdict(document: Document) -> Document:
    """Return kind, word and headline."""
    execution = document["execution"]
    name = document["plan"]["application"]["name"]
    if execution is None and "command" in document:
        return {"kind": "watch", "word": "a dry run", "head": sentence("{} was not started", name)}
    if execution is None:
        return {"kind": "bad", "word": "no plan", "head": sentence("No plan for {}", name)}
    inside = execution["inside"]
    head = sentence(
        "{} took {}, predicted {}",
        name,
        seconds(execution["measured_seconds"]),
        seconds(execution["predicted_seconds"]),
    )
    return {"kind": KINDS[inside], "word": VERDICTS[inside], "head": head}


def _hosts(plan: Document, execution: Document) -> list[Document]:
    """Return a row a host: what the plan said of it beside what the run measured."""
    strips = {strip["host"]: strip for strip in plan["chosen"]["strips"]}
    return [
        {**host, "got": host["cpu_got"], "strip": strips.get(host["host"])}
        for host in _busiest(execution["hosts"], MOST_ROWS)
    ]


def _busiest(hosts: Sequence[Document], most: int) -> list[Document]:
    """Return the hosts that worked longest, in strip order."""
    ranked = sorted(range(len(hosts)), key=lambda k: -_busy(hosts[k]))
    return [hosts[k] for k in sorted(ranked[:most])]


def _busy(host: Document) -> float:
    return sum(value for _, value, _ in charts.spending(host))


def _times_finding(hosts: Sequence[Document]) -> Markup:
    if not hosts:
        return Markup("The program did not say where its time went.")
    longest = max(hosts, key=lambda host: float(host["compute_per_iteration"]))
    edge = max(hosts, key=lambda host: float(host["communicate_per_iteration"]))
    return sentence(
        "{} computed longest, {} an iteration; {} spent most on its borders, {}.",
        longest["host"],
        seconds(longest["compute_per_iteration"]),
        edge["host"],
        seconds(edge["communicate_per_iteration"]),
    )
