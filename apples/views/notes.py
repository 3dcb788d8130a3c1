"""Notes on a run: what was not as planned, its number, and what to do. None under 3 % of the time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from markupsafe import Markup

from apples.views.shown import seconds, sentence, share

Document = dict[str, Any]
Note = tuple[float, Markup, str]

LEAST_EFFECT = 0.03
MOST_NOTES = 6

LIVE = "Plan with live weather (--weather live): this share is only what the host list says."
RISK = "A risk above zero in user.toml plans for forecasts that turn out too good."
SPEED = "Measure its speed again: apples calibrate."
SPARE = "Run again with live weather: what this run measured corrects the next plan."
BORDERS = (
    "A late neighbour counts here where the program cannot tell; plans with live weather learn it."
)
STARTING = "More iterations in one run share that cost."


def notes(plan: Document, execution: Document) -> list[tuple[Markup, str]]:
    """Return sentence and advice of each note, the largest effect first."""
    found = [note for note in _found(plan, execution) if note[0] >= LEAST_EFFECT]
    found.sort(key=lambda note: -note[0])
    return [(said, advice) for _, said, advice in found[:MOST_NOTES]]


def _found(plan: Document, execution: Document) -> Iterator[Note]:
    strips = {strip["host"]: strip for strip in plan["chosen"]["strips"]}
    whole = execution["iteration_seconds"]
    if whole <= 0 or execution["measured_seconds"] <= 0:
        return
    for host in execution["hosts"]:
        strip = strips.get(host["host"])
        if strip is not None:
            yield _computing(host, strip, whole)
        yield _borders(host, whole)
    startup = execution["startup_seconds"]
    yield (
        startup / execution["measured_seconds"],
        sentence(
            "It took {} to start and {} to iterate.",
            seconds(startup),
            seconds(execution["measured_seconds"]),
        ),
        STARTING,
    )


def _computing(host: Document, strip: Document, whole: float) -> Note:
    planned, measured = host["predicted_compute_per_iteration"], host["compute_per_iteration"]
    got, cpu, error = host["cpu_got"], strip["cpu"], strip["cpu_error"]
    said = sentence(
        "{} computed {} an iteration, planned {}",
        host["host"],
        seconds(measured),
        seconds(planned),
    )
    if measured <= planned:
        return (planned - measured) / whole, said + ".", SPARE
    if got is None or got >= cpu - error:
        return (measured - planned) / whole, said + ".", SPEED
    said += sentence(
        ": it got {} of its CPU, the forecast said {} \u00b1 {}.",
        share(got),
        share(cpu),
        share(error),
    )
    return (measured - planned) / whole, said, RISK if strip["cpu_samples"] else LIVE


def _borders(host: Document, whole: float) -> Note:
    planned = host["predicted_communicate_per_iteration"]
    measured = host["communicate_per_iteration"]
    said = sentence(
        "{} spent {} an iteration at its borders, planned {}.",
        host["host"],
        seconds(measured),
        seconds(planned),
    )
    return (measured - planned) / whole, said, BORDERS
