"""The demo: its runs and their summary, as ``apples.demo/1`` and as text."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

from apples.agent.models.conformal import LEVEL
from apples.ui.provenance import made_by
from apples.ui.units import duration

if TYPE_CHECKING:
    from apples.agent.documents import AgentRunDocument, MadeBy
    from apples.jobs import documents as jobs
    from apples.jobs.documents import DemoDocument

Document = Mapping[str, Any]

SCHEMA: Literal["apples.demo/1"] = "apples.demo/1"
METHODS = ("blocked", "compile_time", "all_resources", "minimum_execution_time")
"""Section 3 of Berman et al. 1996: methods 1 to 4. `blocked` is equal strips here, not square blocks."""
TITLES = {
    "blocked": "compile-time blocked (equal strips)",
    "compile_time": "compile-time AppLeS",
    "all_resources": "run-time AppLeS, no selection",
    "minimum_execution_time": "run-time AppLeS",
}


def demo_document(runs: Sequence[AgentRunDocument], command: str = "apples demo") -> DemoDocument:
    """Return the runs with their summary: a row for each method, the ratio to blocked, the median error."""
    done = [run for run in runs if run["execution"] is not None]
    executions = [run["execution"] for run in runs if run["execution"] is not None]
    offs = [abs(one["off"]) for one in executions]
    return {
        "schema": SCHEMA,
        "made_by": cast("MadeBy", made_by(command)),
        "runs": [cast("jobs.RunDocument", run) for run in runs],
        "executed": len(done),
        "methods": [_method(name, runs) for name in METHODS],
        "median_prediction_error": statistics.median(offs) if offs else None,
        "ratio_to_blocked": _ratio(runs),
        "inside": sum(one["inside"] is True for one in executions),
        "with_interval": with_interval(runs),
        "level": LEVEL,
        "verified": _verified(done),
    }


def _verified(done: Sequence[AgentRunDocument]) -> bool | None:
    """Return whether all results equal the sequential result; None if verification was off or nothing ran."""
    answers = {run["verified"] for run in done}
    if False in answers:
        return False
    return None if None in answers or not answers else True


def _method(name: str, runs: Sequence[Document]) -> jobs.Method:
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
            "iteration_seconds": middle["iteration_seconds"],
            "predicted_iteration_seconds": middle["predicted_iteration_seconds"],
            "off": middle["off"],
        },
        "median_error": statistics.median(abs(one["off"]) for one in done),
        "inside": sum(one["inside"] is True for one in done),
        "with_interval": with_interval(own),
    }


def with_interval(runs: Iterable[Document], method: str | None = None) -> int:
    """Return the number of runs, of all methods or of one, that had a printed interval."""
    return sum(
        run["execution"] is not None
        and run["execution"]["inside"] is not None
        and method in (None, run["plan"]["blueprint"])
        for run in runs
    )


def _ratio(runs: Sequence[Document]) -> jobs.MethodRatio | None:
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


def demo_text(document: DemoDocument) -> str:
    """Return the answer first, then a row for each method, then the next command to type.

    The row of a method is its middle repetition: prediction, measurement and error are of the same run.
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
            f"Median error of the predicted iteration time: {error:.1%} over {len(done)} runs; "
            f"{_inside(document)}; {results}"
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
        counted = with_interval(document["runs"], one["method"])
        inside = f"{one['inside']} of {counted}" if counted else "-"
        lines.append(
            f"{one['title']:36}{duration(one['middle']['predicted_iteration_seconds']):>10}"
            f"{duration(one['middle']['iteration_seconds']):>10}{one['middle']['off']:>+7.0%}"
            f"{inside:>8}  {strips}"
        )
    lines += ["", "next:  hat new heat   (an agent of your own)"]
    return "\n".join(lines)


def _inside(document: DemoDocument) -> str:
    """Return the text with the number of runs that ended inside their interval."""
    counted = with_interval(document["runs"])
    if not counted:
        return "no interval yet"
    return f"{document['inside']} of {counted} inside their {document['level']:.0%} interval"
