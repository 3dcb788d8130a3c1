"""A run over time: the rows and kinds of time of each host, and the moves with their gain.

`timeline_document` computes it from the events of a run's record. This module has its text,
`apples.jobs.pages.timeline_chart` the drawing. Times are seconds since the first barrier.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from apples.ui.units import duration

if TYPE_CHECKING:
    from apples.agent.documents import Chosen, PlanDocument
    from apples.jobs.documents import (
        Promise,
        Timeline,
        TimelineEpoch,
        TimelineMove,
        TimelineSlice,
    )

Document = dict[str, Any]
Events = Sequence[Mapping[str, Any]]

KINDS = {"compute": 0, "halo": 1, "halo and wait": 1, "wait": 2, "other": 3}
"""Kind of a host's time -> number of its fill and mark. The shares of all kinds add up to one."""
MAX_SLICES, MAX_CELLS = 56, 1400
"""Largest number of time slices, and of slices times hosts, that fit a page and a line of a terminal."""


def timeline_document(plan: PlanDocument | None, events: Events) -> Timeline | None:
    """Return the run over time; None if it has too few progress reports, or no plan.

    Parameters
    ----------
    plan
        The plan of the run; None for a program without a plan.
    events
        The events of its record: ``running``, ``progress``, ``moved``, ``decision``, ``measured``.
    """
    reports = _reports(events)
    if len(reports) < 2 or not plan or not plan["chosen"]:
        return None
    end = reports[-1]["time"]
    epochs = _epochs(plan["chosen"], events, reports, end)
    tells = any(
        h.get("wait_seconds") is not None for one in reports for h in one["hosts"].values()
    )
    keys = SECONDS if tells else SECONDS[:2]
    parts = [_part(before, after, keys) for before, after in pairwise(reports)]
    hosts = list(dict.fromkeys(host for epoch in epochs for host in epoch["hosts"]))
    number = max(8, min(MAX_SLICES, MAX_CELLS // len(hosts)))
    edges = [end * k / number for k in range(number + 1)]
    for epoch in epochs:
        mine = _over(parts, epoch["from"], epoch["to"])
        # A part with a move belongs to two epochs; it is used only if an epoch has no other part.
        whole = [(s, one) for s, one in mine if s >= 0.999 * (one["to"] - one["from"])]
        epoch["iteration_seconds"] = _iteration_seconds(whole) or _iteration_seconds(mine)
        epoch["spent"] = [_spent(mine, host) for host in epoch["hosts"]]
    return {
        "seconds": end,
        "iterations": reports[-1]["iteration"],
        "hosts": hosts,
        "kinds": ["compute", "halo", "wait", "other"]
        if tells
        else ["compute", "halo and wait", "other"],
        "epochs": epochs,
        "moves": list(_moves(epochs, parts)),
        "stayed": sum(one["event"] == "decision" and not one.get("moved") for one in events),
        "slices": [_slice(parts, epochs, low, high) for low, high in pairwise(edges)],
    }


# ------------------------------------------------------------------- from events to parts
def _reports(events: Events) -> list[Document]:
    """Return the program's reports in order; drop a report if its time or its seconds do not increase."""
    told = [one for one in events if one["event"] in {"progress", "measured"}]
    if not told:
        return []
    origin = told[0]["at"] - told[0]["seconds"]
    zero = {"time": 0.0, "seconds": 0.0, "iteration": 0, "hosts": {}}
    found: list[Document] = [zero]
    for one in told:
        measured = one["event"] == "measured"
        # The final report arrives with the result, after the end of the loop.
        time = (
            found[-1]["time"] + one["seconds"] - found[-1]["seconds"]
            if measured
            else one["at"] - origin
        )
        report = {
            "time": time,
            "seconds": one["seconds"],
            "iteration": one["iterations"] if measured else one["iteration"],
            "hosts": {host["host"]: host for host in one["hosts"]},
        }
        if report["time"] > found[-1]["time"] and report["seconds"] > found[-1]["seconds"]:
            found.append(report)
    return found


SECONDS = ("compute_seconds", "communicate_seconds", "wait_seconds")
"""Seconds that a host reports; a program without separate waits leaves out the last."""


def _part(before: Document, after: Document, keys: Sequence[str]) -> Document:
    """Return the part between two reports: its iterations, and the shares of each host's time."""
    took = after["seconds"] - before["seconds"]
    return {
        "from": before["time"],
        "to": after["time"],
        "iterations": max(0, after["iteration"] - before["iteration"]),
        "hosts": {
            name: _shares(before["hosts"].get(name, {}), host, took, keys)
            for name, host in after["hosts"].items()
        },
    }


def _shares(
    before: Mapping[str, Any], after: Mapping[str, Any], took: float, keys: Sequence[str]
) -> list[float]:
    """Return the shares of the reported kinds, then of the rest, in the time between two reports."""
    then = [before.get(key) or 0.0 for key in keys]
    now = [after.get(key) or 0.0 for key in keys]
    if any(late < early for late, early in zip(now, then, strict=True)):
        then = [0.0] * len(keys)  # the host has new ranks, which count from 0
    spent = [(late - early) / took for late, early in zip(now, then, strict=True)]
    whole = max(1.0, sum(spent))
    return [*(one / whole for one in spent), max(0.0, 1.0 - sum(spent))]


def _over(parts: Sequence[Document], low: float, high: float) -> list[tuple[float, Document]]:
    """Return the parts that overlap a stretch of time, each with the seconds of its overlap."""
    overlaps = ((min(high, one["to"]) - max(low, one["from"]), one) for one in parts)
    return [(seconds, one) for seconds, one in overlaps if seconds > 0]


def _iteration_seconds(parts: Sequence[tuple[float, Document]]) -> float | None:
    """Return the mean seconds of an iteration; None if no iteration was completed."""
    done = _iterations_in(parts)
    return sum(seconds for seconds, _ in parts) / done if done else None


def _iterations_in(parts: Sequence[tuple[float, Document]]) -> float:
    return float(
        sum(one["iterations"] * seconds / (one["to"] - one["from"]) for seconds, one in parts)
    )


def _spent(parts: Sequence[tuple[float, Document]], host: str) -> list[float] | None:
    """Return the shares of each kind in a host's time; None if the host reported nothing."""
    mine = [(seconds, one["hosts"][host]) for seconds, one in parts if host in one["hosts"]]
    whole = sum(seconds for seconds, _ in mine)
    if not whole:
        return None
    return [
        sum(seconds * share for (seconds, _), share in zip(mine, of_kind, strict=True)) / whole
        for of_kind in zip(*(shares for _, shares in mine), strict=True)
    ]


def _slice(
    parts: Sequence[Document], epochs: Sequence[TimelineEpoch], low: float, high: float
) -> TimelineSlice:
    """Return one column of the drawing."""
    mine, middle = _over(parts, low, high), (low + high) / 2
    epoch = next((one for one in reversed(epochs) if one["from"] <= middle), epochs[0])
    return {
        "from": low,
        "to": high,
        "iteration_seconds": _iteration_seconds(mine),
        "hosts": list(epoch["hosts"]),
        "rows": list(epoch["rows"]),
        "spent": [_spent(mine, host) for host in epoch["hosts"]],
    }


# -------------------------------------------------------------------------------- epochs
def _epochs(
    chosen: Chosen, events: Events, reports: Sequence[Document], end: float
) -> list[TimelineEpoch]:
    """Return the stretches in which each host kept its rows, each with its predicted iteration time."""
    first: TimelineEpoch = {
        "from": 0.0,
        "to": end,
        "hosts": list(chosen["hosts"]),
        "rows": list(chosen["rows"]),
        "promised": {
            "iteration_seconds": chosen["iteration_seconds"],
            "interval": list(chosen["iteration_interval"]),
        },
        "move": None,
        "iteration_seconds": None,
        "spent": [],
    }
    epochs = [first]
    for one in sorted(
        events, key=lambda one: one.get("at", 0.0)
    ):  # the event of a move follows the move
        decided = one["event"] == "decision" and one.get("moved")
        if not (decided or one["event"] == "moved") or not one.get("hosts"):
            continue
        now = epochs[-1]
        place = (list(one["hosts"]), list(one["rows"]))
        if place == (now["hosts"], now["rows"]):
            if decided and now["move"] is not None:  # the job itself has reported the move already
                _note_decision(now["move"], one)
                now["promised"] = _promised(one)
            elif now["move"] is not None and now["move"]["phases"] is None:
                now["move"]["phases"] = one.get("phases")
            continue
        at = min(_time_of(one, events, reports), end)
        if not decided:
            at = _seen_at(at, set(place[0]), now, reports)
        move: TimelineMove = {
            "iteration": one.get("iteration"),
            "seconds": one.get("resize_seconds" if decided else "seconds"),
            "phases": one.get("phases"),
            "gain_seconds": None,
            "cost_seconds": None,
            "reason": "",
        }
        if decided:
            _note_decision(move, one)
        epochs.append({
            "from": max(at, now["from"]),
            "to": end,
            "hosts": place[0],
            "rows": place[1],
            "promised": _promised(one) if decided else None,
            "move": move,
            "iteration_seconds": None,
            "spent": [],
        })  # fmt: skip
    for now, after in pairwise(epochs):
        now["to"] = after["from"]
    return [one for one in epochs if one["to"] > one["from"]] or epochs[-1:]


def _seen_at(
    at: float, hosts: set[str], before: TimelineEpoch, reports: Sequence[Document]
) -> float:
    """Return the time of a move by the reports; the supervisor's event is up to a second later."""
    if hosts == set(before["hosts"]):
        return at
    for old, new in reversed(list(pairwise(one for one in reports if one["time"] <= at))):
        if set(new["hosts"]) != hosts:
            break
        if set(old["hosts"]) != hosts and old["time"] >= before["from"]:
            return float(old["time"])
    return at


def _note_decision(move: TimelineMove, decision: Mapping[str, Any]) -> None:
    """Add the expected gain, cost and reason of the decision to a move."""
    move["gain_seconds"] = decision.get("gain_seconds")
    move["cost_seconds"] = decision.get("cost_seconds")
    move["reason"] = decision.get("breach") or decision.get("explanation") or ""


def _promised(decision: Mapping[str, Any]) -> Promise | None:
    seconds, error = decision.get("predicted_seconds"), decision.get("error")
    if seconds is None:
        return None
    off = seconds * (error or 0.0)
    return {"iteration_seconds": seconds, "interval": [seconds - off, seconds + off]}


def _time_of(event: Mapping[str, Any], events: Events, reports: Sequence[Document]) -> float:
    """Return the time of an event: by the record's clock, else by its iteration."""
    told = [one for one in events if one["event"] == "progress"]
    if "at" in event and told:
        return max(0.0, float(event["at"] - (told[0]["at"] - told[0]["seconds"])))
    iteration = event.get("iteration") or 0
    before = [one for one in reports if one["iteration"] <= iteration]
    return float(before[-1]["time"])


def _moves(epochs: Sequence[TimelineEpoch], parts: Sequence[Document]) -> Iterator[TimelineMove]:
    """Yield each move with its cost and its gain."""
    for before, after in pairwise(epochs):
        done = _iterations_in(_over(parts, after["from"], after["to"]))
        then, now = before["iteration_seconds"], after["iteration_seconds"]
        move = after["move"]
        if move is None:
            continue
        came = (then - now) * done - (move["seconds"] or 0.0) if then and now else None
        yield {
            "at": after["from"],
            "hosts_before": before["hosts"],
            "rows_before": before["rows"],
            "hosts": after["hosts"],
            "rows": after["rows"],
            "iteration_before": then,
            "iteration_after": now,
            "came_seconds": came,
            **move,
        }


# ---------------------------------------------------------------------------------- text
MARKS = "#=.~"
"""The characters of the kinds, by their number in `KINDS`."""
GONE = " "
LEVELS = "_.-=*#"


def timeline_text(timeline: Timeline | None) -> str:
    """Return the run over time for a terminal: a line for each host, the iteration time, the moves."""
    if timeline is None:
        return "no timeline: the run reported nothing, or its record could not be kept"
    slices = timeline["slices"]
    wide = max(len("iteration"), *(len(host) for host in timeline["hosts"]))
    lines = [f"{'':{wide}}  0 s{duration(timeline['seconds']):>{len(slices) - 3}}"]
    for host in timeline["hosts"]:
        marks = "".join(_mark(timeline, one, host) for one in slices)
        lines.append(f"{host:{wide}}  {marks}  {_rows_of(timeline, host)}".rstrip())
    each = [one["iteration_seconds"] for one in slices]
    known = [one for one in each if one is not None]
    if known:
        most = max(known)
        marks = "".join(
            " " if one is None else LEVELS[min(5, int(6 * one / most))] for one in each
        )
        lines.append(f"{'iteration':{wide}}  {marks}  up to {duration(most)}")
    moves = timeline["moves"]
    if moves:
        row = [" "] * len(slices)
        for number, move in enumerate(moves, 1):
            row[min(len(row) - 1, int(len(row) * move["at"] / timeline["seconds"]))] = str(
                number % 10
            )
        lines.append(f"{'moved':{wide}}  {''.join(row)}".rstrip())
    told = "  ".join(f"{MARKS[KINDS[kind]]} {kind}" for kind in timeline["kinds"])
    lines.append(f"{'':{wide}}  {told}: the longest activity of each moment")
    lines += [f"{number}  {move_words(move)}" for number, move in enumerate(moves, 1)]
    return "\n".join(lines)


def _mark(timeline: Timeline, one: TimelineSlice, host: str) -> str:
    """Return the character of the kind with the largest share of a host's time in a slice."""
    if host not in one["hosts"]:
        return GONE
    spent = one["spent"][one["hosts"].index(host)]
    if spent is None:
        return GONE
    return MARKS[KINDS[timeline["kinds"][spent.index(max(spent))]]]


def _rows_of(timeline: Timeline, host: str) -> str:
    """Return the numbers of rows that a host had, in order."""
    found: list[int] = []
    for epoch in timeline["epochs"]:
        rows = dict(zip(epoch["hosts"], epoch["rows"], strict=True)).get(host, 0)
        if not found or found[-1] != rows:
            found.append(rows)
    shown = [str(rows) for rows in (found if len(found) <= 4 else [*found[:2], found[-1]])]
    return " > ".join(shown if len(found) <= 4 else [*shown[:2], "..", shown[2]]) + " rows"


def phases_words(phases: Mapping[str, float]) -> str:
    """Return the phases of a resize with their durations.

    Examples
    --------
    >>> phases_words({"start": 0.25, "wait": 0.001})
    'start 250 ms, wait 1.00 ms'
    """
    return ", ".join(f"{name} {duration(spent)}" for name, spent in phases.items())


BEFORE_SAFE_POINT = ("start", "wait", "prefetch")
"""Phases of a resize in which the job still computes; the resize's seconds exclude them."""


def resize_words(seconds: float, phases: Mapping[str, float] | None) -> str:
    """Return the seconds of a resize with its phases, then the phases before the safe point.

    Examples
    --------
    >>> resize_words(0.222, {"start": 1.35, "wait": 0.02, "redistribute": 0.2, "rebuild": 0.02})
    '222 ms (redistribute 200 ms, rebuild 20.0 ms); before that, while it computed: start 1.35 s, wait 20.0 ms'
    """
    phases = phases or {}
    before = {name: spent for name, spent in phases.items() if name in BEFORE_SAFE_POINT}
    inside = {name: spent for name, spent in phases.items() if name not in before}
    words = duration(seconds)
    if inside:
        words += f" ({phases_words(inside)})"
    if before:
        words += f"; before that, while it computed: {phases_words(before)}"
    return words


def move_words(move: TimelineMove) -> str:
    """Return a move, its duration and its gain in a sentence."""
    there = ", ".join(f"{h} {r}" for h, r in zip(move["hosts"], move["rows"], strict=True))
    words = [f"at {duration(move['at'])} to {there}"]
    seconds, came, gain = move["seconds"], move["came_seconds"], move["gain_seconds"]
    if seconds is not None:
        words.append(f"took {resize_words(seconds, move['phases'])}")
    if move["iteration_before"] and move["iteration_after"]:
        words.append(
            f"{duration(move['iteration_before'])} an iteration before, "
            f"{duration(move['iteration_after'])} after"
        )
    if came is not None:
        text = f"{'gained' if came >= 0 else 'lost'} {duration(abs(came))} since"
        if gain is not None:
            text += f" ({duration(gain)} expected of the whole rest)"
        words.append(text)
    return "; ".join(words)
