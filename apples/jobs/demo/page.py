"""The demo: its runs and what they say together, as ``apples.demo/1``, as text and as a saved page."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from apples.agent.models.conformal import LEVEL
from apples.jobs.pages import charts
from apples.jobs.pages.charts import Case
from apples.jobs.pages.words import kinds_of, reasons, verified_words
from apples.ui.formats import count, listed, percent, seconds, sentence, share
from apples.ui.page import render
from apples.ui.provenance import made_by
from apples.ui.units import duration

Document = dict[str, Any]
TEMPLATES = "apples.jobs"

SCHEMA = "apples.demo/1"
METHODS = ("blocked", "compile_time", "all_resources", "minimum_execution_time")
"""Section 3 of Berman et al. 1996: methods 1 to 4. `blocked` is equal strips here, not square blocks."""
TITLES = {
    "blocked": "compile-time blocked (equal strips)",
    "compile_time": "compile-time AppLeS",
    "all_resources": "run-time AppLeS, no selection",
    "minimum_execution_time": "run-time AppLeS",
}


def demo_document(runs: Sequence[Document], command: str = "apples demo") -> Document:
    """Return the runs with the summary: a row per method, the ratio to blocked, the median error."""
    done = [run for run in runs if run["execution"] is not None]
    offs = [abs(run["execution"]["off"]) for run in done]
    return {
        "schema": SCHEMA,
        "made_by": made_by(command),
        "runs": list(runs),
        "executed": len(done),
        "methods": [_method(name, runs) for name in METHODS],
        "median_prediction_error": statistics.median(offs) if offs else None,
        "ratio_to_blocked": _ratio(runs),
        "inside": sum(run["execution"]["inside"] is True for run in done),
        "level": LEVEL,
        "verified": _verified(done),
    }


def _verified(done: Sequence[Document]) -> bool | None:
    """Return whether every result equals the sequential one; None where nobody asked or nothing ran."""
    answers = {run["verified"] for run in done}
    if False in answers:
        return False
    return None if None in answers or not answers else True


def _method(name: str, runs: Sequence[Document]) -> Document:
    own = [run for run in runs if run["plan"]["blueprint"] == name]
    done = [run["execution"] for run in own if run["execution"] is not None]
    if not done:
        reason = own[0]["rejection"] if own else "not run"
        return {"method": name, "title": TITLES[name], "runs": 0, "rejection": reason}
    seconds = [one["iteration_seconds"] for one in done]
    predicted = [one["predicted_iteration_seconds"] for one in done]
    chosen = next(run for run in reversed(own) if run["execution"])["plan"]["chosen"]
    middle = sorted(done, key=lambda one: float(one["iteration_seconds"]))[(len(done) - 1) // 2]
    return {
        "method": name,
        "title": TITLES[name],
        "runs": len(done),
        "hosts": chosen["hosts"],
        "rows": chosen["rows"],
        "iteration_seconds": statistics.median(seconds),
        "least": min(seconds),
        "largest": max(seconds),
        "predicted_iteration_seconds": statistics.median(predicted),
        "middle": {
            key: middle[key] for key in ("iteration_seconds", "predicted_iteration_seconds", "off")
        },
        "median_error": statistics.median(abs(one["off"]) for one in done),
        "inside": sum(one["inside"] is True for one in done),
    }


def _ratio(runs: Sequence[Document]) -> Document | None:
    """Return run-time AppLeS over blocked: the median of the repetitions, pair by pair, and the range."""
    series = {
        name: [
            run["execution"]["iteration_seconds"]
            for run in runs
            if run["plan"]["blueprint"] == name and run["execution"] is not None
        ]
        for name in ("minimum_execution_time", "blocked")
    }
    pairs = list(zip(series["minimum_execution_time"], series["blocked"], strict=False))
    if not pairs:
        return None
    ratios = [ours / theirs for ours, theirs in pairs]
    low, high = min(ratios), max(ratios)
    verdict = UNCLEAR
    if len(ratios) == 1:
        verdict = ONCE
    elif high < 1:
        verdict = FASTER
    elif low > 1:
        verdict = SLOWER
    return {
        "median": statistics.median(ratios),
        "interval": [low, high] if len(ratios) > 1 else None,
        "repetitions": len(ratios),
        "verdict": verdict,
    }


FASTER, SLOWER = "faster in every repetition", "slower in every repetition"
UNCLEAR, ONCE = "no clear difference", "one repetition says nothing of the next"
KINDS = {FASTER: "good", SLOWER: "bad"}


RESULTS = {
    True: "all results verified",
    False: "A RESULT DIFFERS FROM THE SEQUENTIAL ONE",
    None: "results not verified",
}


def demo_text(document: Document) -> str:
    """Return the answer first, then a row per method, then what to type next.

    The row of a method is its middle repetition: prediction, measurement and what that is off are of one run.
    """
    ratio, error = document["ratio_to_blocked"], document["median_prediction_error"]
    lines = []
    if ratio:
        line = f"Run-time AppLeS takes {ratio['median']:.2f} of blocked's time: {ratio['verdict']}"
        if ratio["interval"]:
            low, high = ratio["interval"]
            line += f" ({low:.2f} to {high:.2f} in {ratio['repetitions']})"
        lines.append(line)
    if error is not None:
        done = [run for run in document["runs"] if run["execution"] is not None]
        results = RESULTS[document["verified"]]
        lines.append(
            f"Median error of the predicted iteration time: {error:.1%} over {len(done)} runs, "
            f"{document['inside']} inside their {document['level']:.0%} interval; {results}"
        )
    lines += [
        "",
        f"{'method':36}{'predicted':>10}{'measured':>10}{'off':>7}{'inside':>8}  strips",
    ]
    for one in document["methods"]:
        if not one["runs"]:
            lines.append(f"{one['title']:36}no plan: {one['rejection']}")
            continue
        strips = ", ".join(
            f"{host} {rows}" for host, rows in zip(one["hosts"], one["rows"], strict=True)
        )
        lines.append(
            f"{one['title']:36}{duration(one['middle']['predicted_iteration_seconds']):>10}"
            f"{duration(one['middle']['iteration_seconds']):>10}{one['middle']['off']:>+7.0%}"
            f"{one['inside']:>3} of {one['runs']}  {strips}"
        )
    lines += ["", "next:  hat new heat   (an agent of your own)"]
    return "\n".join(lines)


OURS, THEIRS = "minimum_execution_time", "blocked"
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
        spending=charts.spending,
        time_words=charts.words_of([run["execution"] for run in last.values()]),
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
