"""The text of a run: its prediction, its result, and its time by phase."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from apples.agent.text.verified import verified_text
from apples.agent.text.words import slow_host_lines, spending, words_of
from apples.ui.formats import coverage_words
from apples.ui.tables import in_columns, share_of_grid
from apples.ui.units import amount, duration

if TYPE_CHECKING:
    from apples.agent.documents import AgentRunDocument, ExecutionInfo, LaunchCommandInfo
    from apples.topology.documents import Messages

VERDICTS = {True: "inside the promise", False: "outside the promise", None: "no promise to check"}

SHORT_SENTENCE = 70
"""Longest sentence that is appended to a line, in letters."""
MAX_SENDERS = 8
"""Largest number of hosts with a table of the bytes between each two; the JSON document and the page have more."""
FELT_SECONDS = 0.05
"""Shorter phases are not printed."""


def run_text(document: AgentRunDocument, command: str, timeline: str = "") -> str:
    """Return the summary of a run, with `timeline` if given; the last line is the next command."""
    execution = document["execution"]
    assert execution is not None  # noqa: S101 - for the type checker: a run without an execution has another text
    lines = [
        *run_head(document, execution),
        "",
        *in_columns(run_table(execution), numbers=True),
        "",
        *_messages(execution.get("messages")),
        *([timeline, ""] if timeline else ()),
        *_phases(document),
        f"again:  {command}",
    ]
    return "\n".join(lines)


def run_head(document: AgentRunDocument, execution: ExecutionInfo) -> Iterator[str]:
    """Yield the first lines of a run: measured and promised time, and the verification of its result."""
    low, high = execution["interval"]
    predicted, waited = execution["predicted_seconds"], execution.get("queue_seconds")
    promised = "nothing" if predicted is None else duration(predicted)
    if low < high:
        promised += f" (likely {duration(low)} to {duration(high)})"
    head = f"{execution['iterations']} iterations in {duration(execution['measured_seconds'])}, "
    head += f"predicted {promised}: {execution['off']:+.1%}, {VERDICTS[execution['inside']]}"
    second = f"{duration(execution['iteration_seconds'])} an iteration, "
    second += f"{duration(execution['startup_seconds'])} to start."
    verified = verified_text(document)
    second += f"  {verified}" if len(verified) <= SHORT_SENTENCE else f"\n{verified}"
    if waited is not None:
        plan = document["plan"]
        expected = plan["chosen"]["wait_seconds"] if plan and plan["chosen"] else 0.0
        second += f"\nIt waited {duration(waited)} in the queue, expected {duration(expected)}."
    if execution.get("moved"):
        second += "\nIt was moved while it ran: the prediction was for the hosts it began on."
    for line in slow_host_lines(execution.get("slow_hosts")):
        second += f"\n{line}"
    past = coverage_words(execution.get("coverage"))
    if past:
        second += f"\nBefore it: {past}."
    yield head
    yield second


def _messages(found: Messages | None) -> Iterator[str]:
    """Yield the counted bytes between hosts; declared messages are only on the page."""
    if found is None or found["source"] != "counted":
        return
    sent, hosts = sum(map(sum, found["bytes"])), found["hosts"]
    apart = sent - sum(row[place] for place, row in enumerate(found["bytes"]))
    yield (
        f"{sum(map(sum, found['messages']))} messages, {amount(sent)}, of it {amount(apart)} between hosts "
        f"({found['source']})"
        + (f"; of {found['missed']} more the receiver is not known" if found["missed"] else "")
    )
    if len(hosts) <= MAX_SENDERS:
        rows = [("from", *(f"to {host}" for host in hosts))]
        for host, row in zip(hosts, found["bytes"], strict=True):
            rows.append((host, *map(amount, row)))
        yield from in_columns(rows, numbers=True)
    yield ""


def _phases(document: AgentRunDocument) -> Iterator[str]:
    """Yield the seconds of the command by phase, without short phases; a job's record has none."""
    if document.get("phases"):
        felt = [(n, s) for n, s in document["phases"].items() if s >= FELT_SECONDS]
        parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in felt)
        yield f"{document['seconds']:.1f} s in all{': ' if parts else ''}{parts}"


def run_table(execution: ExecutionInfo) -> list[tuple[str, ...]]:
    """Return the titles, then a row per host; compute, halo, wait and other add up to an iteration."""
    told = [{word: value for word, value, _ in spending(one)} for one in execution["hosts"]]
    after = [word for word in words_of([execution]) if word != "compute"]
    halo = after[0] if after else "halo"
    rows = [("host", "rows", "compute", "predicted", "off", halo, "predicted", *after[1:])]
    for one, spent in zip(execution["hosts"], told, strict=True):
        planned, measured = one["predicted_compute_per_iteration"], one["compute_per_iteration"]
        rows.append(
            (
                one["host"],
                share_of_grid(one),
                duration(measured),
                duration(planned),
                f"{measured / planned - 1:+.0%}" if planned else "",
                duration(one["communicate_per_iteration"]),
                duration(one["predicted_communicate_per_iteration"]),
                *(duration(spent[word]) if word in spent else "" for word in after[1:]),
            )
        )
    return rows


def dry_text(command: LaunchCommandInfo) -> str:
    """Return the text of a dry run: the files, then the command line."""
    lines = []
    for name, text in command["files"].items():
        lines += [f"# {name}", text.rstrip(), ""]
    variables = [f"{key}={shlex.quote(value)}" for key, value in command["environment"].items()]
    lines += [
        "# in the folder of these files",
        " ".join([*variables, shlex.join(command["argv"])]),
    ]
    return "\n".join(lines)
