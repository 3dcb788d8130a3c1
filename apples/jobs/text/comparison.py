"""A comparison of plans or runs for the terminal: the answer, then a column for each plan or run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from apples.ui.formats import moment
from apples.ui.tables import in_columns
from apples.ui.units import duration, listed

if TYPE_CHECKING:
    from apples.jobs.documents import (
        AnyComparison,
        ComparedFigure,
        CompareDocument,
        ComparedPlan,
        ComparePlansDocument,
    )

CLEAR = {True: "", False: "no clear difference", None: "too few values"}


def text_of(document: AnyComparison) -> str:
    """Return the text of a comparison, of plans or of runs."""
    if document["schema"] == "apples.compare-plans/1":
        return plans_text(document)
    return comparison_text(document)


def sentences_of(document: AnyComparison) -> Iterator[str]:
    """Yield the answer of a comparison: a sentence for each plan or run but the first."""
    if document["schema"] == "apples.compare-plans/1":
        return plan_sentences(document)
    return comparison_sentences(document)


def rows_of(document: AnyComparison) -> list[tuple[str, ...]]:
    """Return the table of a comparison: a column for each plan or run."""
    if document["schema"] == "apples.compare-plans/1":
        return plan_rows(document)
    return comparison_rows(document)


def names_of(document: AnyComparison) -> list[str]:
    """Return the names of the plans or runs."""
    if document["schema"] == "apples.compare-plans/1":
        return [plan["name"] for plan in document["plans"]]
    return [run["id"] for run in document["runs"]]


# -------------------------------------------------------------------------------- plans
def plans_text(document: ComparePlansDocument) -> str:
    """Return the answer, a column for each plan, and the reasons to leave out hosts."""
    reasons = list(reason_lines(document))
    same = ", ".join(f"{name} {_value(value)}" for name, value in document["same"].items())
    return "\n".join([
        *plan_sentences(document), "", *in_columns(plan_rows(document)), "",
        *reasons, *([""] if reasons else []), f"same: {same or 'nothing'}",
    ])  # fmt: skip


def plan_rows(document: ComparePlansDocument) -> list[tuple[str, ...]]:
    """Return the names of the plans, then a row for each figure and fact."""
    plans = document["plans"]
    rows = [
        ("", *(one["name"] for one in plans)),
        ("iteration", *(_iteration(one, k) for k, one in enumerate(plans))),
        ("likely", *(_span(one["iteration_interval"]) for one in plans)),
        ("execution", *(_seconds(one["execution_seconds"]) for one in plans)),
    ]
    if any(one["measured_iteration_seconds"] is not None for one in plans):
        rows.append(("measured", *(_seconds(one["measured_iteration_seconds"]) for one in plans)))
    rows += [
        ("hosts", *(listed(one["hosts"]) if one["hosts"] else "no plan" for one in plans)),
        ("weather", *(_weather(one) for one in plans)),
        ("blueprint", *(one["blueprint"] for one in plans)),
    ]
    rows += [(name, *map(_value, values)) for name, values in document["differ"].items()]
    return rows + [
        (f"rows of {host['host']}", *("-" if n is None else str(n) for n in host["rows"]))
        for host in document["hosts"]
    ]


def plan_sentences(document: ComparePlansDocument) -> Iterator[str]:
    """Yield a sentence for each plan: its iteration time relative to the first plan, and its hosts."""
    first, *others = document["plans"]
    if first["hosts"] is None:
        yield f"{first['name']}: no plan: {first['refusal']}"
    for one in others:
        if one["hosts"] is None:
            yield f"{one['name']}: no plan: {one['refusal']}"
        elif first["hosts"] is None or one["ratio"] is None:
            yield f"{one['name']}: {_seconds(one['iteration_seconds'])} an iteration."
        else:
            yield (
                f"{one['name']}: {_seconds(one['iteration_seconds'])} an iteration, {one['ratio']:.2f} times as "
                f"long as {first['name']}, {_other_hosts(first['hosts'], one['hosts'])}."
            )


def _other_hosts(before: Sequence[str], after: Sequence[str]) -> str:
    gone = [name for name in before if name not in after]
    new = [name for name in after if name not in before]
    words = [f"without {listed(gone)}"] if gone else []
    words += [f"with {listed(new)}"] if new else []
    return " and ".join(words) or "on the same hosts"


def _iteration(plan: ComparedPlan, place: int) -> str:
    text = _seconds(plan["iteration_seconds"])
    return text if not place or plan["ratio"] is None else f"{text}  x {plan['ratio']:.2f}"


def _span(interval: Sequence[float] | None) -> str:
    return "no interval" if interval is None else " to ".join(map(duration, interval))


def _weather(plan: ComparedPlan) -> str:
    at = moment(plan["weather_time"])
    return f"{plan['weather']} ({plan['weather_source']}){f', {at}' if at else ''}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else duration(value)


def reason_lines(document: AnyComparison) -> Iterator[str]:
    """Yield a line for each host that only some plans use, with the reason of the others."""
    names = names_of(document)
    for host in document["hosts"]:
        for name, rows, reason in zip(names, host["rows"], host["reasons"], strict=True):
            if rows is None:
                yield f"{host['host']}, not in {name}: {reason or 'its plan gives no reason'}"


# --------------------------------------------------------------------------------- runs
def comparison_text(document: CompareDocument) -> str:
    """Return the answer, the differences, a column for each run, and the reasons to leave out hosts."""
    same = ", ".join(f"{name} {_value(value)}" for name, value in document["same"].items())
    reasons = list(reason_lines(document))
    return "\n".join([
        *comparison_sentences(document), "", *in_columns(comparison_rows(document)), "",
        *reasons, *([""] if reasons else []), f"seconds are of one iteration; same: {same}",
    ])  # fmt: skip


def comparison_rows(document: CompareDocument) -> list[tuple[str, ...]]:
    """Return the ids of the runs, then a row for each fact that differs and for each figure."""
    rows = [("", *names_of(document))]
    rows += [(name, *map(_value, values)) for name, values in document["differ"].items()]
    for figure in document["figures"]:
        cells = [_cell(one, first=k == 0, measured=figure["figure"] != "predicted")
                 for k, one in enumerate(figure["runs"])]  # fmt: skip
        rows.append((figure["figure"], *cells))
    return rows


def comparison_sentences(document: CompareDocument) -> Iterator[str]:
    """Yield a sentence for each run: its iteration time relative to the first run."""
    first = document["runs"][0]["id"]
    (figure,) = (one for one in document["figures"] if one["figure"] == "measured")
    for run, one in zip(document["runs"][1:], figure["runs"][1:], strict=True):
        if one["ratio"] is None:
            yield f"{run['id']} and {first}: nothing was measured to compare."
        elif one["clear"]:
            yield f"{run['id']} took {one['ratio']:.2f} times as long an iteration as {first}."
        else:
            why = CLEAR[one["clear"]]
            yield f"{run['id']} and {first}: {why} ({one['ratio']:.2f} times as long an iteration)."


def _cell(one: ComparedFigure, *, first: bool, measured: bool) -> str:
    if one["value"] is None:
        return "-"
    text = duration(one["value"])
    if first or one["ratio"] is None:
        return text
    words = CLEAR[one["clear"]] if measured else ""
    return f"{text}  x {one['ratio']:.2f}{', ' if words else ''}{words}"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "-" if value is None else str(value)
