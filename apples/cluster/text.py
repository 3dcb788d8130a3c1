"""Terminal output of the live scheduler: its queue, a waiting job, a submission, the history."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from apples.jobs.scheduler_client import OVER
from apples.ui.tables import fitted, in_columns
from apples.ui.units import counted, duration

if TYPE_CHECKING:
    from apples.cluster.documents import (
        HistoryDocument,
        PredictionDocument,
        QueueDocument,
        ReplayDocument,
        ScheduledJob,
        SubmittedAnswer,
        WaitingDocument,
        WhatIfDocument,
    )

SHOWN_OVER = 10
SHOWN_STARTS = 20
NO_HOSTS = "no hosts yet: nodes join when an allocation runs"


def submitted_text(document: SubmittedAnswer, why: WaitingDocument | None) -> str:
    """Return the state of a new job, its reason to wait and predicted start, and the next command."""
    job = document["job"]
    if (document if why is None else why)["state"] in {"starting", "running"}:
        return f"{job} is started\nnext: apples wait {job}"
    if why is None or why["position"] is None:
        lines = [f"{job} waits: {document['reason']} (place {document['position']})"]
    else:
        lines = [
            f"{job} waits: {why['reason']} (place {why['position']})",
            *_future_lines(why, why["time"]),
        ]
    return "\n".join([*lines, f"next: apples queue {job}"])


def prediction_text(document: PredictionDocument) -> str:
    """Return start and finish of a job that is not submitted, and the source of its run time."""
    now, start, finish = document["time"], document["start"], document["finish"]
    if start is None or finish is None:
        first = f"{document['name']}: the job would not start: too few hosts are in service"
    elif document["basis"] == "history":
        first = (
            f"{document['name']}: the job would start {interval_text(start, now)} and finish "
            f"{interval_text(finish, now)}; eight of ten times are meant to be inside"
        )
    else:
        first = (
            f"{document['name']}: the job would start in {duration(max(0.0, start[1] - now))} and finish in "
            f"{duration(max(0.0, finish[1] - now))} by the estimated run times; an interval needs at least "
            "10 ended jobs"
        )
    by = "--seconds" if document["estimated_by"] == "user" else "the application's model"
    return (
        f"{first}\nestimated run time: {duration(document['requested'])}, by {by}; nothing is submitted\n"
        "next: the same command without --dry-run"
    )


def queue_text(document: QueueDocument) -> str:
    """Return hosts, then jobs: running and waiting jobs, and the last ended jobs."""
    jobs = document["jobs"]
    running = [one for one in jobs if one["hosts"] and one["state"] not in OVER]
    waiting = [one for one in jobs if one["state"] in {"queued", "held"}]
    free = sum(one["state"] == "free" for one in document["hosts"])
    first = (
        f"{document['name']}: {counted(len(document['hosts']), 'host')}, {free} free; "
        f"{counted(len(running), 'job')} on hosts, "
        f"{len(waiting)} waiting; policy {document['policy']}"
    )
    lines = [first, *_troubles(document), ""]
    hosts = [
        (one["host"], one["state"], one["job"] or "", one["reason"]) for one in document["hosts"]
    ]
    lines += in_columns([("host", "state", "job", ""), *hosts]) if hosts else [NO_HOSTS]
    over = [one for one in jobs if one["state"] in OVER]
    shown = [*(one for one in jobs if one["state"] not in OVER), *over[-SHOWN_OVER:]]
    if shown:
        head = ("job", "state", "name", "kind", "hosts", "iteration", "")
        rows = [
            (
                one["job"], one["state"], one["name"], one["kind"], _hosts(one), _iteration(one),
                _said(one, document["time"]),
            )
            for one in shown
        ]  # fmt: skip
        lines += ["", *in_columns([head, *rows])]
    return "\n".join(lines)


NARROW, WIDE = 60, 100
"""Least widths in columns of a medium and of a wide terminal (`watched_text`)."""


def watched_text(document: QueueDocument, columns: int, lines: int) -> str:
    """Return as much of a queue as a terminal of this size shows, the most needed first.

    A wide terminal shows the output of `queue_text`, a medium one omits kinds and names, a narrow one
    shows a line for each job.
    """
    hosts = Counter(one["state"] for one in document["hosts"])
    jobs = [one for one in document["jobs"] if one["state"] not in OVER]
    counts = ", ".join(f"{count} {state}" for state, count in sorted(hosts.items()))
    head = [
        f"{document['name']}: hosts {counts or 'none'}; policy {document['policy']}",
        *_troubles(document),
    ]
    if columns >= WIDE:
        found = queue_text(document).splitlines()
    elif columns >= NARROW:
        rows = [
            (one["job"], one["state"], _hosts(one), _iteration(one), _said(one, document["time"]))
            for one in jobs
        ]
        titles = ("job", "state", "hosts", "iteration", "")
        found = [*head, "", *in_columns([titles, *rows])]
    else:
        found = [*head, *(f"{one['job']} {one['state']} {_hosts(one)}" for one in jobs)]
    return fitted(found, columns, lines)


def _troubles(document: QueueDocument) -> Iterator[str]:
    if document["trouble"]:
        yield (
            f"the journal cannot be written, and no job starts: {document['trouble']}; this is the last "
            "recorded state"
        )
    for one in document["alarms"][-3:]:
        yield f"{duration(max(0.0, document['time'] - one['time']))} ago: {one['text']}"


def _hosts(one: ScheduledJob) -> str:
    if one["hosts"]:
        return ", ".join(one["hosts"])
    if one["minimum"] == one["maximum"]:
        return str(one["maximum"])
    return f"{one['minimum']}-{one['maximum']}"


def _said(one: ScheduledJob, now: float) -> str:
    """Return the reason that a job waits, its requirement on CPUs, and its predicted start or end."""
    said = [str(one["reason"])] if one["reason"] else []
    if one["state"] in {"queued", "held"} and (estimate := estimate_text(one)):
        said.append(estimate)
    if one["state"] not in OVER and one.get("require"):
        said.append(f"CPUs: {' '.join(one['require'].split())}")
    if one["start"]:
        said.append(f"starts {interval_text(one['start'], now)}")
    if rest := rest_text(one, now):
        said.append(f"ends {rest}")
    return "; ".join(said)


def rest_text(one: Mapping[str, Any], now: float) -> str:
    """Return the expected end of a running job, by its iterations so far; empty: not known.

    Examples
    --------
    >>> rest_text({"state": "running", "expected_end": 1090.0}, 1000.0)
    'in about 90.0 s'
    """
    end = one.get("expected_end")  # absent from answers of an older scheduler
    if end is None or one["state"] in OVER:
        return ""
    return f"in about {duration(max(0.0, end - now))}"


def asks_text(one: Mapping[str, Any]) -> str:
    """Return the number of hosts that a running job has asked for; empty: it has not asked.

    Examples
    --------
    >>> asks_text({"state": "running", "asks": [2, 4]}), asks_text({"state": "running", "asks": [3, 3]})
    ('2 to 4', '3')
    """
    if not one.get("asks") or one["state"] in OVER:
        return ""
    least, most = one["asks"]
    return f"{least}" if least == most else f"{least} to {most}"


def estimate_text(one: ScheduledJob | WaitingDocument) -> str:
    """Return the run time by the model, if the user gave none; answers of an older scheduler lack it."""
    if one.get("estimated_by") == "model":
        return f"runs about {duration(one['requested'])} by its model"
    return "run time unknown" if one.get("estimated_by") == "nobody" else ""


def _iteration(one: ScheduledJob) -> str:
    if one["iteration"] is None:
        return ""
    return f"{one['iteration']}" + (f"/{one['iterations']}" if one["iterations"] else "")


def why_text(document: WaitingDocument) -> str:
    """Return the reason that a job waits, its place in the queue, the jobs before it, and its predicted start."""
    job = document["job"]
    if document["position"] is None:
        reason = f": {document['reason']}" if document["reason"] else ""
        where = f" on {document['placed']}" if document["placed"] else ""
        if where and document.get("placed_by"):
            where += f" (chosen by {document['placed_by']})"
        return f"{job} is {document['state']}{where}{reason}"
    lines = [
        f"{job} waits: {document['reason']}; it is number {document['position']} in the queue"
    ]
    if estimate := estimate_text(document):
        lines.append(estimate)
    if document["before"]:
        lines.append(f"before it: {', '.join(document['before'])}")
    for one in document["holding"]:
        waits = " (it waits for this)" if one["job"] in document["blocking"] else ""
        end = f", ends {interval_text(one['end'], document['time'])}" if one["end"] else ""
        lines.append(f"{one['job']} holds {', '.join(one['hosts'])}{end}{waits}")
    return "\n".join([*lines, *_future_lines(document, document["time"])])


def _future_lines(why: WaitingDocument, now: float) -> Iterator[str]:
    """Yield the predicted start of a waiting job, and the changes that would start it now."""
    if why["start"]:
        yield f"it starts {interval_text(why['start'], now)}"
    else:
        yield f"start time unknown: {why['start_unknown']}"
    changes = why["changes"]
    words = []
    if "hosts" in changes:
        words.append(f"{changes['hosts']} host{'s' * (changes['hosts'] > 1)}")
    if "seconds" in changes:
        words.append(f"--seconds {changes['seconds']:.4g}")
    if "priority" in changes:
        words.append(f"--priority {changes['priority']:g}")
    if words:
        yield f"it would start now with {', or with '.join(words)}"


def interval_text(interval: Sequence[float], now: float) -> str:
    """Return a time interval relative to now as text.

    Examples
    --------
    >>> interval_text((130.0, 220.0, 700.0), 100.0)
    'in about 120 s (30.0 s to 600 s)'
    """
    first, middle, last = (duration(max(0.0, one - now)) for one in interval)
    return f"in about {middle} ({first} to {last})"


def what_if_text(document: WhatIfDocument, now: float) -> str:
    """Return the queue's future as it is and after the changes, side by side."""
    both = document["now"], document["then"]
    rows: list[tuple[str, ...]] = [
        ("", "now", "then"),
        ("policy", *(one["policy"] for one in both)),
        ("hosts in service", *(str(one["hosts"]) for one in both)),
        ("mean wait", *(duration(one["wait"]) for one in both)),
        ("mean time to the end", *(duration(one["response"]) for one in both)),
        ("all are over in", *(duration(one["over"]) for one in both)),
    ]
    jobs = list(document["then"]["starts"])
    for job in jobs[:SHOWN_STARTS]:
        starts = [one["starts"].get(job) for one in both]
        rows.append(
            (job, *("unknown" if one is None else interval_text(one, now) for one in starts))
        )
    lines = [*in_columns(rows)]
    if len(jobs) > SHOWN_STARTS:
        lines.append(f"and {len(jobs) - SHOWN_STARTS} more jobs: --json")
    if document["basis"] == "estimates":
        lines.append(
            "too few finished runs for intervals: each job is assumed to take its estimated time"
        )
    return "\n".join(lines)


def history_text(document: HistoryDocument) -> str:
    """Return one line for each ended job."""
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


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def replay_text(document: ReplayDocument) -> str:
    """Return the verdict of a replay, then a line for each decision."""
    logged, made = document["logged"], document["reproduced"]
    first = (
        f"{document['name']}: the replay reproduces {made} of {counted(logged, 'decision')} "
        f"of {document['policy']} since {_moment(document['since'])}"
    )
    lines = [first]
    if document["difference"]:
        lines.append(f"first difference: {document['difference']}")
    rows = [
        (
            _moment(one["time"]), one["decision"], one["job"], ", ".join(one["hosts"]), one["reason"],
            one["runner_up"],
        )
        for one in document["decisions"]
    ]  # fmt: skip
    head = ("time", "decision", "job", "hosts", "reason", "runner-up")
    return "\n".join([*lines, "", *in_columns([head, *rows])] if rows else lines)


STATUS = {
    "finished": 1,
    "cancelled": 5,
}
"""State -> its number in the standard workload format; others are 0, failed."""


def swf_lines(history: HistoryDocument) -> Iterator[str]:
    """Yield a history in the standard workload format, a processor a host: a log for `apples simulate`.

    Allocated processors are the rounded mean of a job's hosts over its time; requested processors are the most
    that it could use. A job that never ran has no run time; a simulation omits it.
    """
    yield f"; Computer: {history['name']}"
    yield f"; MaxProcs: {history['hosts']}"
    yield f"; UnixStartTime: {int(history['begin'])}"
    for one in history["jobs"]:
        submitted = one["submitted"] - history["begin"]
        started, ended = one["started"], one["ended"]
        wait = run = had = -1.0
        if started is not None and ended is not None:
            wait, run = max(0.0, started - one["submitted"]), max(0.0, ended - started)
            had = max(1.0, float(round(one["mean_hosts"] or one["maximum"])))
        number = one["job"].rpartition(".")[2]
        fields = [-1.0] * 18
        fields[:5] = [float(number), submitted, wait, run, had]
        fields[7], fields[8] = float(one["maximum"]), one["requested"]
        fields[10] = float(STATUS.get(one["state"], 0))
        if one["after"]:
            fields[16] = float(one["after"][-1].rpartition(".")[2])
        yield " ".join(f"{value:.6f}".rstrip("0").rstrip(".") for value in fields)
