"""`compare`: differences between plans, or between recorded runs, and whether they exceed the spread of each run.

A run has many measurements: each stretch between two progress reports has its own seconds an iteration. Two
figures differ clearly if the ranges that hold four fifths of their stretches do not overlap. This does not measure
the variation between repeated runs: for that, compare several runs of each kind.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, floor, isclose
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from apples.errors import UsageError
from apples.jobs import store
from apples.jobs.records import RUN_SCHEMA, RunRecord, document_so_far
from apples.ui.units import in_one_line, some

if TYPE_CHECKING:  # results load NumPy; a comparison of runs does not need it
    from apples.agent.session.results import PlanResult, RunResult
    from apples.jobs.documents import (
        AnyComparison,
        ComparedFigure,
        ComparedFigures,
        ComparedHost,
        CompareDocument,
        ComparedPlan,
        ComparePlansDocument,
        FigureName,
        MeasuredFigure,
        RecordedRun,
    )

Document = dict[str, Any]
Compared: TypeAlias = "PlanResult | RunResult | RunRecord | Mapping[str, Any] | str | Path"

PLAN_SCHEMA = "apples.plan/1"
MIN_STRETCHES = 5
"""Smallest number of stretches for which a range is computed."""
OUTSIDE = 0.1
"""Share of the stretches that lie below the range; the same share lies above it."""


@dataclass(frozen=True, slots=True)
class ComparisonEntry:
    """A plan or a run, with its name in a comparison.

    Attributes
    ----------
    document
        ``apples.plan/1`` or ``apples.run/1``.
    record
        The record of a recorded run; else None.
    """

    name: str
    document: Mapping[str, Any]
    record: RunRecord | None = None

    @property
    def plan(self) -> Mapping[str, Any]:
        """The ``apples.plan/1`` document; empty if nothing was planned."""
        of_plan = self.document["schema"] == PLAN_SCHEMA
        return self.document if of_plan else self.document.get("plan") or {}

    @classmethod
    def of_record(cls, record: RunRecord) -> ComparisonEntry:
        """Return the entry of a recorded run.

        Raises
        ------
        UsageError
            The run has no plan. Permanent.
        """
        document = document_so_far(record)
        if not document.get("plan"):
            raise UsageError(
                f"{record.id} ({record.summary['kind']}, {record.state}): has no plan of a grid to compare",
                code="plan-missing",
                run=record.id,
            )
        return cls(record.id, document, record)

    @classmethod
    def of_file(cls, path: Path) -> ComparisonEntry:
        """Return the entry of a file with the output of ``apples plan --json`` or ``apples run --json``.

        Raises
        ------
        UsageError
            The file cannot be read, or is not such a document. Permanent.
        """
        try:
            document = json.loads(path.read_bytes())
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            raise UsageError(
                f"{path}: {error.strerror}: neither a file nor the id of a run",
                code="file-missing" if missing else "file-unreadable",
                file=path,
            ) from None
        except ValueError:
            document = None
        return cls.of_document(str(path), document)

    @classmethod
    def of_document(cls, name: str, document: object) -> ComparisonEntry:
        """Return the entry of a document.

        Raises
        ------
        UsageError
            The document is neither ``apples.plan/1`` nor ``apples.run/1``, or lacks a part. Permanent.
        """
        schema = document.get("schema") if isinstance(document, Mapping) else None
        if not isinstance(document, Mapping) or schema not in (PLAN_SCHEMA, RUN_SCHEMA):
            raise UsageError(
                f"{name}: must be {PLAN_SCHEMA} or {RUN_SCHEMA}, as `apples plan --json` prints it "
                f"(is {schema or 'no JSON document of apples'})",
                code="file-invalid",
                file=name,
                value=schema,
            )
        entry = cls(name, document)
        try:
            _plans_document([entry])
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise UsageError(
                f"{name}: lacks a part of {schema}: {type(error).__name__}: {error}",
                code="file-invalid",
                file=name,
                value=schema,
            ) from None
        return entry


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences between plans or runs; all others are compared with the first.

    `str` gives the text of ``apples report``, a notebook shows a table, and `to_frame` returns a data frame.
    """

    entries: tuple[ComparisonEntry, ...]

    def document(self) -> AnyComparison:
        """Return ``apples.compare/1`` of recorded runs, else ``apples.compare-plans/1``."""
        records = [one.record for one in self.entries if one.record is not None]
        if len(records) == len(self.entries):
            return _runs_document(self.entries, records)
        return _plans_document(self.entries)

    def __repr__(self) -> str:
        """Return the names of the compared plans or runs."""
        return in_one_line(self, f"of {some([one.name for one in self.entries])}")

    def __str__(self) -> str:
        """Return the text of ``apples report``."""
        from apples.jobs.text.comparison import text_of  # noqa: PLC0415 - the command has it already

        return text_of(self.document())

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: the answer, and a column for each plan or run."""
        from apples.jobs.pages.comparison import notebook_html  # noqa: PLC0415 - for a notebook only

        return notebook_html(self.document())

    def to_frame(self) -> Any:
        """Return a `pandas.DataFrame` with a row for each plan or run; seconds are of one iteration.

        Raises
        ------
        UsageError
            pandas is not installed. Permanent.
        """
        from apples.agent.session.frames import frame_of  # noqa: PLC0415 - for frames only

        rows = _plans_document(self.entries)["plans"]
        return frame_of(rows, "name")

    def page(self) -> str:
        """Return the page of the comparison: one file that opens offline."""
        from apples.jobs.pages.comparison import compared_page  # noqa: PLC0415 - templates, for a page only

        return compared_page(self.document())


def compare(*given: Compared, **named: Compared) -> Comparison:
    """Compare plans or runs with the first of them.

    Parameters
    ----------
    given, named
        Two or more: results of `plan` or `run`, their documents, files that ``apples plan --json`` printed, ids or
        records of runs. A keyword is the name of a plan: ``compare(calm=one, storm=other)``. If all are recorded
        runs, their ids are their names.

    Raises
    ------
    UsageError
        Fewer than two are given, the plans are of different applications, or one is not a plan. Permanent.
    """
    if len(given) + len(named) < 2:
        raise UsageError(
            "compare needs at least two plans or runs (`apples jobs` lists runs, "
            "`apples plan --json > FILE` keeps a plan)",
            code="value-missing",
            field="names",
            bound=2,
        )
    entries = [_entry(one, f"plan {k}") for k, one in enumerate(given, 1)]
    entries += [replace(_entry(one, name), name=name) for name, one in named.items()]
    short = [Path(one.name).name for one in entries]
    if len(set(short)) == len(short):
        entries = [replace(one, name=name) for one, name in zip(entries, short, strict=True)]
    _check_same_application(entries)
    return Comparison(tuple(entries))


def _entry(given: Compared, name: str) -> ComparisonEntry:
    if isinstance(given, RunRecord):
        return ComparisonEntry.of_record(given)
    if isinstance(given, Mapping):
        return ComparisonEntry.of_document(name, given)
    if isinstance(given, str | Path):
        if store.names_record(str(given)):
            return ComparisonEntry.of_record(RunRecord.of(store.record(str(given))))
        return ComparisonEntry.of_file(Path(given))
    record = getattr(given, "record", None)  # of a `RunResult`
    if record is not None:
        return ComparisonEntry.of_record(RunRecord.of(store.record(record)))
    return ComparisonEntry(name, given.document())


def _check_same_application(entries: Sequence[ComparisonEntry]) -> None:
    """Reject plans of different applications: their iterations have nothing in common.

    Recorded runs are compared in any case, as far as possible.
    """
    if all(one.record for one in entries):
        return
    names = [one.plan.get("application", {}).get("name") for one in entries]
    for entry, name in zip(entries[1:], names[1:], strict=True):
        if name != names[0]:
            raise UsageError(
                f"{entry.name}: is a plan of {name}, and {entries[0].name} of {names[0]}; compare plans of one "
                "application",
                code="application-differs",
                value=name,
                expected=names[0],
            )


def _runs_document(
    entries: Sequence[ComparisonEntry], records: Sequence[RunRecord]
) -> CompareDocument:
    documents = [one.document for one in entries]
    same, differ = _told_apart([_facts(one.plan) for one in entries])
    return {
        "schema": "apples.compare/1",
        "runs": [cast("RecordedRun", dict(one.summary)) for one in records],
        "same": same,
        "differ": differ,
        "figures": [
            _figure(name, [_of(*pair, key) for pair in zip(records, documents, strict=True)])
            for name, key in FIGURES.items()
        ],
        "hosts": _hosts([one.plan for one in entries]),
    }


def _plans_document(entries: Sequence[ComparisonEntry]) -> ComparePlansDocument:
    facts = [_facts(one.plan) | _wishes(one.plan) for one in entries]
    shown = ("hosts", "rows", "weather", "blueprint")  # the document has its own fields for these
    facts = [{name: value for name, value in one.items() if name not in shown} for one in facts]
    same, differ = _told_apart(facts)
    return {
        "schema": "apples.compare-plans/1",
        "plans": [_planned(one, entries[0]) for one in entries],
        "same": same,
        "differ": differ,
        "hosts": _hosts([one.plan for one in entries]),
    }


def _planned(entry: ComparisonEntry, first: ComparisonEntry) -> ComparedPlan:
    """Return the figures of a plan; for a run also its measured figures."""
    plan, chosen = entry.plan, entry.plan["chosen"] or {}
    low, high = chosen.get("iteration_interval", (0.0, 0.0))
    base = first.plan["chosen"]
    execution = {} if plan is entry.document else entry.document["execution"] or {}
    seconds = chosen.get("iteration_seconds")
    return {
        "name": entry.name,
        "blueprint": plan["blueprint"],
        "weather": plan["weather"]["kind"],
        "weather_source": plan["weather"].get("source", ""),
        "weather_time": plan["weather"].get("time")
        if plan["weather"]["kind"] != "static"
        else None,
        "hosts": chosen.get("hosts"),
        "iteration_seconds": seconds,
        "ratio": _ratio(seconds, base and base["iteration_seconds"]),
        "iteration_interval": None if isclose(low, high) else [low, high],
        "execution_seconds": chosen.get("execution_seconds"),
        "measured_iteration_seconds": execution.get("iteration_seconds"),
        "refusal": "" if chosen else _refusal(plan),
    }


def _refusal(plan: Mapping[str, Any]) -> str:
    reasons = [one["reason"] for one in plan["rejected"]]
    return "; ".join([*reasons[:1], *([plan["remedy"]] if plan.get("remedy") else [])])


def _hosts(plans: Sequence[Mapping[str, Any]]) -> list[ComparedHost]:
    """Return each host of any plan, with its rows in each plan, or the plan's reason to leave it out."""
    rows = [
        {strip["host"]: int(strip["rows"]) for strip in plan["chosen"]["strips"]}
        if plan["chosen"]
        else {}
        for plan in plans
    ]
    reasons = [_left_out(plan) for plan in plans]
    return [
        {
            "host": host,
            "rows": [own.get(host) for own in rows],
            "reasons": [
                "" if host in own else why.get(host, "")
                for own, why in zip(rows, reasons, strict=True)
            ],
        }
        for host in dict.fromkeys(name for own in rows for name in own)
    ]


def _left_out(plan: Mapping[str, Any]) -> dict[str, str]:
    """Return the reason why a plan does not use a host, by host."""
    refused = {
        one["hosts"][0]: one["reason"] for one in plan["rejected"] if len(one["hosts"]) == 1
    }
    return refused | {one["host"]: one["reason"] for one in plan["left_out"]}


def _wishes(plan: Mapping[str, Any]) -> Document:
    chosen = plan["chosen"] or {}
    return {
        "iterations": plan["application"]["iterations"],
        "planner": chosen.get("planner"),
        "objective": chosen.get("objective", {}).get("measure"),
        "risk": plan.get("risk"),
    }


def _told_apart(facts: Sequence[Document]) -> tuple[Document, dict[str, list[Any]]]:
    """Return the facts that are equal in all entries, and each other fact with its value in each entry."""
    names = list(dict.fromkeys(name for one in facts for name in one))
    rows = {name: [one.get(name) for one in facts] for name in names}
    same = {name: values[0] for name, values in rows.items() if _all_equal(values)}
    return same, {name: values for name, values in rows.items() if name not in same}


def _facts(plan: Mapping[str, Any]) -> Document:
    """Return the input and the plan of a run, by name."""
    application, chosen = plan["application"], plan["chosen"]
    return {
        "application": application["name"],
        "version": application["version"],
        **application["parameters"],
        "blueprint": plan["blueprint"],
        "hosts": chosen["hosts"] if chosen else None,
        "rows": chosen["rows"] if chosen else None,
        "weather": plan["weather"]["kind"],
        **({"partitions": plan["partitions"]["decomposition"]} if "partitions" in plan else {}),
    }


def _all_equal(values: Sequence[Any]) -> bool:
    return all(value == values[0] for value in values)


# ------------------------------------------------------------------------------ figures
def _predicted(document: Mapping[str, Any]) -> float | None:
    chosen = document["plan"]["chosen"]
    return chosen["iteration_seconds"] if chosen else None


def _longest(hosts: Sequence[Mapping[str, Any]], *keys: str) -> float:
    """Return the largest sum of these seconds over the hosts."""
    return max((sum(one.get(key) or 0.0 for key in keys) for one in hosts), default=0.0)


Measured = Callable[[Mapping[str, Any]], float]
"""Returns cumulative seconds of a progress report, or of a whole execution."""


def _loop(told: Mapping[str, Any]) -> float:
    return float(told.get("seconds", told.get("measured_seconds", 0.0)))


def _compute(told: Mapping[str, Any]) -> float:
    return _longest(told["hosts"], "compute_seconds")


def _communicate(told: Mapping[str, Any]) -> float:
    return _longest(told["hosts"], "communicate_seconds", "wait_seconds")


FIGURES: Mapping[FigureName, Measured | None] = {
    "predicted": None,
    "measured": _loop,
    "compute": _compute,
    "communicate": _communicate,
}
"""Seconds of one iteration: predicted; measured; the longest computation of a host; the longest border exchange of
a host, with its waits."""


def _of(record: RunRecord, document: Mapping[str, Any], key: Measured | None) -> MeasuredFigure:
    """Return a figure of a run, with the range of its stretches."""
    if key is None:
        return {"value": _predicted(document), "range": None, "stretches": 0}
    execution = document["execution"]
    if not execution:
        return {"value": None, "range": None, "stretches": 0}
    each = sorted(stretches(record.events, key))
    span = None
    if len(each) >= MIN_STRETCHES:
        span = [
            each[floor(OUTSIDE * (len(each) - 1))],
            each[ceil((1 - OUTSIDE) * (len(each) - 1))],
        ]
    return {
        "value": key(execution) / max(1, execution["iterations"]),
        "range": span,
        "stretches": len(each),
    }


def stretches(events: Sequence[Mapping[str, Any]], key: Measured) -> list[float]:
    """Return the seconds of an iteration in each stretch between two progress reports.

    Examples
    --------
    >>> told = [{"event": "progress", "iteration": k, "seconds": s} for k, s in ((1, 1.0), (3, 5.0), (4, 6.5))]
    >>> stretches(told, lambda one: one["seconds"])
    [2.0, 1.5]
    """
    told = [one for one in events if one["event"] == "progress"]
    return [
        (key(after) - key(before)) / (after["iteration"] - before["iteration"])
        for before, after in pairwise(told)
        if after["iteration"] > before["iteration"]
    ]


def _figure(name: FigureName, values: list[MeasuredFigure]) -> ComparedFigures:
    """Return a figure of all runs, its ratio to the first run, and whether the difference is clear."""
    first = values[0]
    runs: list[ComparedFigure] = [
        {**value, "ratio": _ratio(value["value"], first["value"]), "clear": clearly(first, value)}
        for value in values
    ]
    return {"figure": name, "runs": runs}


def _ratio(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None


def clearly(one: MeasuredFigure, other: MeasuredFigure) -> bool | None:
    """Return whether the ranges of two figures do not overlap; None if a range is unknown."""
    if one["range"] is None or other["range"] is None:
        return None
    return bool(one["range"][1] < other["range"][0] or other["range"][1] < one["range"][0])
