"""The live scheduler for the terminal: its queue, why a job waits, what was submitted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from apples.units import duration
from apples.views.columns import in_columns

Document = Mapping[str, Any]
OVER = frozenset({"finished", "failed", "cancelled", "lost"})
SHOWN_OVER = 10


def submitted_text(document: Document) -> str:
    """Return where a job is that was just submitted, and what to type next."""
    job = document["job"]
    if document["state"] in {"starting", "running"}:
        return f"{job} is started\nnext: apples wait {job}"
    return (
        f"{job} waits: {document['reason']} (place {document['position']})\nnext: apples why {job}"
    )


def queue_text(document: Document) -> str:
    """Return hosts, then jobs: those that wait, those that run, and the last that are over."""
    jobs = document["jobs"]
    running = [one for one in jobs if one["hosts"] and one["state"] not in OVER]
    waiting = [one for one in jobs if one["state"] in {"queued", "held", "placing"}]
    free = sum(one["state"] == "free" for one in document["hosts"])
    first = (
        f"{document['name']}: {len(document['hosts'])} hosts, {free} free; {len(running)} jobs on hosts, "
        f"{len(waiting)} waiting; policy {document['policy']}"
    )
    lines = [first, *_troubles(document), ""]
    hosts = [
        (one["host"], one["state"], one["job"] or "", one["reason"]) for one in document["hosts"]
    ]
    lines += in_columns([("host", "state", "job", ""), *hosts])
    over = [one for one in jobs if one["state"] in OVER]
    shown = [*(one for one in jobs if one["state"] not in OVER), *over[-SHOWN_OVER:]]
    if shown:
        head = ("job", "state", "name", "kind", "hosts", "iteration", "")
        rows = [
            (one["job"], one["state"], one["name"], one["kind"], _hosts(one), _iteration(one), one["reason"])
            for one in shown
        ]  # fmt: skip
        lines += ["", *in_columns([head, *rows])]
    return "\n".join(lines)


def _troubles(document: Document) -> Iterator[str]:
    if document["trouble"]:
        yield (
            f"nothing can be recorded, and nothing new is started: {document['trouble']}; this is what was "
            "recorded last"
        )
    for one in document["alarms"][-3:]:
        yield f"{duration(max(0.0, document['time'] - one['time']))} ago: {one['text']}"


def _hosts(one: Document) -> str:
    if one["hosts"]:
        return ", ".join(one["hosts"])
    if one["minimum"] == one["maximum"]:
        return str(one["maximum"])
    return f"{one['minimum']}-{one['maximum']}"


def _iteration(one: Document) -> str:
    if one["iteration"] is None:
        return ""
    return f"{one['iteration']}" + (f"/{one['iterations']}" if one["iterations"] else "")


def why_text(document: Document) -> str:
    """Return why a job waits, with the two numbers, and who is before it."""
    job = document["job"]
    if document["position"] is None:
        reason = f": {document['reason']}" if document["reason"] else ""
        return f"{job} is {document['state']}{reason}"
    lines = [
        f"{job} waits: {document['reason']}; it is number {document['position']} in the queue"
    ]
    if document["before"]:
        lines.append(f"before it: {', '.join(document['before'])}")
    lines += [f"{one['job']} holds {', '.join(one['hosts'])}" for one in document["holding"]]
    if document["with"]:
        lines.append(f"with --min {document['with']['minimum']} it would fit on what is free now")
    return "\n".join(lines)


def history_text(document: Document) -> str:
    """Return a line a job that is over."""
    head = ("job", "state", "name", "waited", "ran", "attempts", "resizes", "")
    rows = [
        (
            one["job"], one["state"], one["name"],
            _between(one["submitted"], one["started"]), _between(one["started"], one["ended"]),
            str(one["attempt"]), str(one["resizes"]), one["reason"],
        )
        for one in document["jobs"]
    ]  # fmt: skip
    return "\n".join(in_columns([head, *rows])) if rows else "no job is over"


def _between(begin: float | None, end: float | None) -> str:
    return "" if begin is None or end is None else duration(max(0.0, end - begin))


STATUS = {
    "finished": 1,
    "cancelled": 5,
}
"""The standard workload format's number of a state; 0: it failed."""


def swf_lines(history: Mapping[str, Any]) -> Iterator[str]:
    """Yield a history in the standard workload format, a processor a host: a log for `apples simulate`.

    Allocated processors are the mean of what a job had over its time, rounded; requested ones the most that it
    could use. A job that never ran has no run time, and is left out of a simulation.
    """
    yield f"; Computer: {history['name']}"
    yield f"; MaxProcs: {history['hosts']}"
    yield f"; UnixStartTime: {int(history['begin'])}"
    for one in history["jobs"]:
        submitted = one["submitted"] - history["begin"]
        started, ended = one["started"], one["ended"]
        ran = started is not None and ended is not None
        wait = max(0.0, started - one["submitted"]) if ran else -1
        run = max(0.0, ended - started) if ran else -1
        number = one["job"].rpartition(".")[2]
        fields = [-1.0] * 18
        had = max(1.0, float(round(one["mean_hosts"] or one["maximum"]))) if ran else -1.0
        fields[:5] = [float(number), submitted, wait, run, had]
        fields[7], fields[8] = float(one["maximum"]), one["requested"]
        fields[10] = float(STATUS.get(one["state"], 0))
        yield " ".join(f"{value:.6f}".rstrip("0").rstrip(".") for value in fields)
