"""A parameter sweep as text: its plan, or its outcome."""

from __future__ import annotations

from collections import Counter

from apples.applications.documents import ParameterSweepDocument, SweepExecution
from apples.ui.units import counted, duration


def sweep_text(document: ParameterSweepDocument) -> str:
    """Return ``apples.parameter-sweep/1`` as lines."""
    done = document["execution"]
    lines = _done(document, done) if done else _planned(document)
    return "\n".join([*lines, *(f"assumed: {line}" for line in document["assumed"])])


def _planned(document: ParameterSweepDocument) -> list[str]:
    others = ", ".join(
        f"{name} {duration(seconds)}"
        for name, seconds in document["makespans"].items()
        if name != document["heuristic"]
    )
    seconds = duration(document["predicted_seconds"])
    lines = [
        f"{document['name']}: {counted(document['tasks'], 'task')} in {seconds} by {document['heuristic']}"
    ]
    lines += [f"other plans: {others}"] if others else []
    for host, count in Counter(each["host"] for each in document["planned"]).items():
        end = max(each["end"] for each in document["planned"] if each["host"] == host)
        lines.append(f"  {host}: {counted(count, 'task')}, done at {duration(end)}")
    for cache, count in Counter(each["cache"] for each in document["moves"]).items():
        end = max(each["end"] for each in document["moves"] if each["cache"] == cache)
        lines.append(f"  to {cache}: {counted(count, 'file')}, there at {duration(end)}")
    return lines


def _done(document: ParameterSweepDocument, done: SweepExecution) -> list[str]:
    before = f" ({document['resumed']} had their result before)" if document["resumed"] else ""
    lines = [
        f"{document['name']}: {done['done']} of {document['tasks']} tasks have a result{before}"
    ]
    if document["resumed"] < document["tasks"]:
        predicted = (
            f", {duration(document['predicted_seconds'])} predicted by {document['heuristic']}"
            if document["heuristic"]
            else ""
        )
        lines.append(
            f"{duration(done['measured_seconds'])}{predicted}; {counted(done['plans'], 'plan')}, "
            f"{counted(done['moved_files'], 'file')} moved, {counted(done['replicas'], 'replica')}"
        )
    lines += [f"  {host}: {counted(count, 'task')}" for host, count in done["hosts"].items()]
    lines += [f"lost: {host}: {why}" for host, why in done["lost"].items()]
    lines += [
        f"every task failed on {host}: {why}" for host, why in done.get("failing", {}).items()
    ]
    for each in done["failed"]:
        lines.append(f"  task {each['task']} has failed on {each['reason']}")
    return [*lines, f"results: {document['results']}"]
