"""The saved page of one run: the content of ``apples.run/1`` as text and drawings.

The order is fixed: the verdict, where the time went, plan against run per host, notes, why these hosts,
how to repeat.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from markupsafe import Markup

from apples.agent.pages import charts
from apples.agent.text.run import VERDICTS
from apples.agent.text.verified import verified_page
from apples.agent.text.words import reasons, slow_host_lines, spending, words_of
from apples.jobs.pages.timeline_chart import drawn_hosts, timeline_chart
from apples.jobs.text.timeline import KINDS as SPENT
from apples.jobs.text.timeline import Events, timeline_document
from apples.ui.formats import Formatted, count, coverage_sentence, seconds, sentence, share, size
from apples.ui.shell import page

if TYPE_CHECKING:
    from apples.agent.documents import ExecutionInfo, HostRun
    from apples.jobs.documents import RunDocument

Document = Mapping[str, Any]

MAX_DRAWN, MAX_ROWS, MAX_EPOCHS = 24, 100, 20
"""Limits of drawn hosts, table rows and epochs; the busiest hosts and the last epochs stay. JSON has all."""
KINDS = {True: "good", False: "bad", None: "watch"}
MATRIX_ROWS = 24
"""Rows and columns of a table; more hosts or ranks share rows with their neighbours."""
MATRIX_PAIRS = 10
"""Number of pairs that are listed by name if neighbours share a row."""
# The steps are unequal because ranks of one host often exchange a hundred times as much as hosts do.
SHADES = (1 / 2, 1 / 8, 1 / 32, 0.0)
"""Lower bound of each shade, darkest first, as a share of the largest amount between a pair."""

Numbers = Sequence[Sequence[int]]


def run_page(document: RunDocument, events: Events = ()) -> str:
    """Return the page: one self-contained HTML file.

    Parameters
    ----------
    document
        The run, as ``apples.run/1``; every number is from it.
    events
        The events of its record, if the document has no `timeline`.
    """
    return page("run.html.j2", run_parts(document, events))


def run_parts(document: RunDocument, events: Events = ()) -> dict[str, Any]:
    """Return the variables for the template of the page."""
    plan, execution = document["plan"], document["execution"]
    timeline = document.get("timeline") or timeline_document(plan, events)
    return {
        "document": document,
        "plan": plan,
        "execution": execution,
        "verdict": _verdict(document),
        "verified": verified_page(document) if execution else None,
        "reasons": reasons(plan),
        "made_by": document.get("made_by"),
        "timeline": timeline,
        "job": None,
        **(_over_time(timeline) if timeline else {}),
        **(_measured(document) if execution else {}),
    }


def _so_far(document: Document) -> Document | None:
    """Return the prediction of an unfinished run, and its duration at the pace so far; None if it has a result."""
    plan, execution = document["plan"], document["execution"]
    if "state" not in document or not execution["iterations"]:
        return None
    chosen, total = plan["chosen"], plan["application"]["iterations"]
    at_this_pace = execution["measured_seconds"] / execution["iterations"] * total
    return {
        "at_this_pace": at_this_pace,
        "interval": chosen["interval"],
        "predicted_seconds": chosen["execution_seconds"],
        "measured_seconds": execution["measured_seconds"],
    }


def _measured(document: Document) -> Document:
    """Return the variables of the page that only an executed run has."""
    plan, execution, so_far = document["plan"], document["execution"], _so_far(document)
    tiled = (
        len(plan["chosen"]["strips"]) <= MAX_ROWS and "rectangle" in plan["chosen"]["strips"][0]
    )
    drawn = _busiest(execution["hosts"], MAX_DRAWN)
    shown = cast("ExecutionInfo", {**execution, "hosts": drawn})
    limit = max([execution["iteration_seconds"], *(_busy(host) for host in drawn)]) * 1.02
    return {
        "coverage": coverage_sentence(execution.get("coverage")),
        "so_far": so_far,
        "promise_chart": charts.promise(
            so_far or execution, so_far["at_this_pace"] if so_far else None
        ),
        "times_chart": charts.times("times", shown, limit) if drawn else "",
        "times_finding": _times_finding(drawn),
        "time_words": words_of([shown]),
        "rectangles_chart": charts.rectangles("rectangles", plan["chosen"]) if tiled else "",
        "fewer": len(drawn) < len(execution["hosts"]),
        "hosts": _hosts(plan, execution),
        "cut": len(execution["hosts"]) > MAX_ROWS,
        **matrix_tables(execution.get("messages")),
        "notes": notes(plan, execution),
        "slow_hosts": list(slow_host_lines(execution.get("slow_hosts"))),
    }


def _over_time(timeline: Document) -> Document:
    """Return the variables of the part of the page that shows the run over time."""
    moves, drawn = timeline["moves"], drawn_hosts(timeline)
    return {
        "timeline_chart": timeline_chart(timeline),
        "timeline_kinds": {word: f"fill-{SPENT[word]}" for word in timeline["kinds"]},
        "timeline_cut": len(drawn) < len(timeline["hosts"]),
        "timeline_epochs": timeline["epochs"][-MAX_EPOCHS:],
        "timeline_moves": moves[-MAX_EPOCHS:],
    }


def _verdict(document: Document) -> Document:
    """Return the kind, word and headline of the verdict."""
    execution = document["execution"]
    name = document["plan"]["application"]["name"]
    if "state" in document and document["plan"]["chosen"]:  # the run has no result yet
        done = sentence("{} is {}: nothing was measured", name, document["state"])
        if execution is not None:
            done = sentence(
                "{} is {}: {} of {} iterations in {}, predicted {}",
                name, document["state"], count(execution["iterations"]),
                count(document["plan"]["application"]["iterations"]),
                seconds(execution["measured_seconds"]), seconds(execution["predicted_seconds"]),
            )  # fmt: skip
        return {"kind": "watch", "word": "no result", "head": done}
    if execution is None and "command" in document:
        return {"kind": "watch", "word": "a dry run", "head": sentence("{} was not started", name)}
    if execution is None:
        return {"kind": "bad", "word": "no plan", "head": sentence("No plan for {}", name)}
    inside = execution["inside"]
    head = sentence(
        "{} took {}, predicted {}",
        name,
        seconds(execution["measured_seconds"]),
        seconds(execution["predicted_seconds"]),
    )
    return {"kind": KINDS[inside], "word": VERDICTS[inside], "head": head}


def _hosts(plan: Document, execution: Document) -> list[Document]:
    """Return a row for each host: the plan's figures beside the measured figures."""
    strips = {strip["host"]: strip for strip in plan["chosen"]["strips"]}
    return [
        {
            **host,
            "got": host["cpu_got"],
            "strip": strips.get(host["host"]),
            "spent": {word: value for word, value, _ in spending(host)},
        }
        for host in _busiest(execution["hosts"], MAX_ROWS)
    ]


def _busiest(hosts: Sequence[HostRun], most: int) -> list[HostRun]:
    """Return the `most` hosts with the longest busy time, in strip order."""
    ranked = sorted(range(len(hosts)), key=lambda k: -_busy(hosts[k]))
    return [hosts[k] for k in sorted(ranked[:most])]


def _busy(host: HostRun) -> float:
    return sum(value for _, value, _ in spending(host))


def _times_finding(hosts: Sequence[HostRun]) -> Markup:
    if not hosts:
        return Markup("The program did not report how it spent its time.")
    longest = max(hosts, key=lambda host: float(host["compute_per_iteration"]))
    edge = max(hosts, key=lambda host: float(host["communicate_per_iteration"]))
    return sentence(
        "{} computed longest, {} an iteration; {} spent most on its {}, {}.",
        longest["host"],
        seconds(longest["compute_per_iteration"]),
        edge["host"],
        _halo(edge),
        seconds(edge["communicate_per_iteration"]),
    )


def _halo(host: Document) -> str:
    """Return the label of a host's communication time; it includes waits if the program does not report them."""
    return "halo and waiting" if host.get("wait_per_iteration") is None else "halo"


# ---------------------------------------------------------------------------------- notes
# A note is a deviation from the plan of at least 3 % of the time: its share, a sentence and an advice.
Note = tuple[float, Markup, str]

MIN_EFFECT = 0.03
MAX_NOTES = 6

LIVE = "Plan with live weather (--weather live): this share is the host list's, not a forecast."
RISK = "A risk above zero in user.toml plans for forecasts that turn out too good."
SPEED = "Measure its speed again: apples calibrate."
SPARE = "Run again with live weather: measurements of this run correct the next plan."
BORDERS = (
    "If the program cannot separate waiting, this includes it; plans with live weather learn it."
)
STARTING = "More iterations in one run share that cost."


def notes(plan: Document, execution: Document) -> list[tuple[Markup, str]]:
    """Return the sentence and the advice of each note, the largest effect first."""
    found = [note for note in _found(plan, execution) if note[0] >= MIN_EFFECT]
    found.sort(key=lambda note: -note[0])
    return [(message, advice) for _, message, advice in found[:MAX_NOTES]]


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
    message = sentence(
        "{} computed {} an iteration, planned {}",
        host["host"],
        seconds(measured),
        seconds(planned),
    )
    if measured <= planned:
        return (planned - measured) / whole, message + ".", SPARE
    if got is None or got >= cpu - error:
        return (measured - planned) / whole, message + ".", SPEED
    message += sentence(
        ": it got {} of its CPU, the forecast was {} \u00b1 {}.",
        share(got),
        share(cpu),
        share(error),
    )
    return (measured - planned) / whole, message, RISK if strip["cpu_samples"] else LIVE


def _borders(host: Document, whole: float) -> Note:
    planned = host["predicted_communicate_per_iteration"]
    measured = host["communicate_per_iteration"]
    message = sentence(
        "{} spent {} an iteration on its {}, planned {}.",
        host["host"],
        seconds(measured),
        _halo(host),
        seconds(planned),
    )
    return (measured - planned) / whole, message, BORDERS


@dataclass(frozen=True, slots=True)
class Sent:
    """The data that one host or rank sent another; `shade` is 4 for at least half of the maximum, 0 for none."""

    bytes: Formatted
    messages: Formatted
    shade: int


@dataclass(frozen=True, slots=True)
class MatrixTable:
    """A matrix of messages as a page shows it.

    Attributes
    ----------
    labels
        Label of each row and of the same column: the first and the last host or rank that share it.
    rows
        Cells of each row: the data that the row's hosts sent to the hosts of each column.
    together
        Number of hosts that share a row; 1: each host has its own row.
    pairs
        The pairs of hosts that sent most, by name, if neighbours share a row. No host is paired with itself.
    """

    labels: Sequence[tuple[Document, Document]]
    rows: Sequence[Sequence[Sent]]
    together: int
    pairs: Sequence[tuple[Document, Document, Sent]]


def matrix_tables(found: Document | None) -> dict[str, MatrixTable | None]:
    """Return the tables of ``execution.messages``: between hosts, and between ranks if a host has several."""
    if found is None:
        return {"host_matrix": None, "rank_matrix": None}
    ranks = found["ranks"]
    told = ranks and len(ranks) > len(found["hosts"])
    return {
        "host_matrix": matrix_table(
            [{"host": name} for name in found["hosts"]], found["bytes"], found["messages"]
        ),
        "rank_matrix": matrix_table(ranks, found["rank_bytes"], found["rank_messages"])
        if told
        else None,
    }


def matrix_table(labels: Sequence[Document], sent: Numbers, messages: Numbers) -> MatrixTable:
    """Return a matrix as a table of at most `MATRIX_ROWS` rows and columns.

    Examples
    --------
    >>> two = [{"host": "ada"}, {"host": "bob"}]
    >>> table = matrix_table(two, [[0, 800], [100, 0]], [[0, 2], [1, 0]])
    >>> [[one.shade for one in row] for row in table.rows], table.together
    ([[0, 4], [3, 0]], 1)
    """
    together = max(1, math.ceil(len(labels) / MATRIX_ROWS))
    starts = range(0, len(labels), together)
    sums, counts = (_added_up(each, starts, together) for each in (sent, messages))
    most = max((one for row in sums for one in row), default=0)
    rows = [
        [_sent(amount, number, most) for amount, number in zip(a, b, strict=True)]
        for a, b in zip(sums, counts, strict=True)
    ]
    pairs: list[tuple[Document, Document, Sent]] = []
    if together > 1:
        apart = [
            (amount, row, column)
            for row, line in enumerate(sent)
            for column, amount in enumerate(line)
            if amount and row != column
        ]
        largest = sorted(apart, key=lambda one: -one[0])[:MATRIX_PAIRS]
        pairs = [
            (labels[row], labels[column], _sent(amount, messages[row][column], largest[0][0]))
            for amount, row, column in largest
        ]
    ends = [(labels[start], labels[min(start + together, len(labels)) - 1]) for start in starts]
    return MatrixTable(ends, rows, together, pairs)


def _added_up(matrix: Numbers, starts: Sequence[int], together: int) -> list[list[int]]:
    """Return the sums of the blocks of a matrix."""
    return [
        [
            sum(sum(line[column : column + together]) for line in matrix[row : row + together])
            for column in starts
        ]
        for row in starts
    ]


def _sent(amount: int, messages: int, most: int) -> Sent:
    shade = 0
    if amount:
        shade = len(SHADES) - next(k for k, least in enumerate(SHADES) if amount >= least * most)
    return Sent(size(amount), count(messages), shade)
