"""A pipeline of tasks as text."""

from __future__ import annotations

from apples.applications.documents import PipelineDocument, TaskHost
from apples.ui.units import counted, duration


def pipeline_text(document: PipelineDocument) -> str:
    """Return ``apples.pipeline/1`` as lines."""
    seconds = duration(document["predicted_seconds"])
    how = f"{document['mode']}, {document['unit']} at a time"
    lines = [f"{document['name']}: {counted(document['items'], 'item')} in {seconds}, {how}"]
    slowest = document["bottleneck"]
    for stage in document["stages"]:
        told = f"  {stage['stage']}: {duration(stage['seconds'])} a unit"
        lines.append(told + (" (the slowest)" if stage["stage"] == slowest else ""))
        for task in document["tasks"]:
            if task["task"] == stage["stage"]:
                lines += [f"    {_host(each)}" for each in task["hosts"]]
    lines.append(_why(document))
    if done := document["execution"]:
        right = {True: "verified: one process comes to the same", None: "not verified"}
        lines.append(
            f"run {done['mode']}: {duration(done['measured_seconds'])}, "
            f"{duration(done['predicted_seconds'])} predicted; {right[done['verified']]}"
        )
    if document["unused"]:
        lines.append(f"not used: {', '.join(document['unused'])}")
    return "\n".join([*lines, *(f"assumed: {line}" for line in document["assumed"])])


def _why(document: PipelineDocument) -> str:
    """Return the reason of the mode: the times of both modes, and the bottleneck of each."""
    mode = document["mode"]
    if not document["others"]:
        where = "on one set in turn" if mode == "pipelined" else "on hosts of its own"
        return (
            f"why {mode}: {where} not each task has hosts with an implementation, rows and memory"
        )
    (other,) = document["others"]
    return (
        f"why {mode}: {duration(document['predicted_seconds'])}, bound by {document['bottleneck']}, against "
        f"{duration(other['predicted_seconds'])} {other['mode']}, {other['unit']} at a time, bound by "
        f"{other['bottleneck']}"
    )


def _host(each: TaskHost) -> str:
    how = f" by {each['implementation']}" if each["implementation"] else ""
    return f"{each['host']}: {counted(each['rows'], 'row')}{how}"
