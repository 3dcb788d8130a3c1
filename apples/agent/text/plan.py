"""Texts of plans, of measured speeds and of the learned state.

The first line of a plan is the answer, the last line is the next command.
"""

from __future__ import annotations

import math
import shlex
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from apples.agent.describe_corrections import ApplicationState, described_all
from apples.agent.documents import LEARNED_WEATHERS
from apples.agent.explanation import MAX_HOSTS
from apples.agent.information.pool import MEASURED, SIMILAR_SIZE
from apples.agent.models.corrections import START
from apples.agent.models.model import SpeedFunction
from apples.ui.formats import coverage_words
from apples.ui.tables import in_columns, share_of_grid
from apples.ui.units import amount, counted, digits, duration
from apples.weather.conditions import STATIC

if TYPE_CHECKING:
    from apples.agent.documents import (
        ArrangementInfo,
        CalibrationDocument,
        ChangeInfo,
        Chosen,
        CorrectionInfo,
        LearnedApplication,
        LearnedDocument,
        PlanDocument,
        SpeedCurve,
        StripInfo,
    )

SHOWN_HOSTS = 12
SHOWN_SETS = 8
WIDTH = 80
MIN_ERROR, MIN_START_ERROR = 5e-4, 1e-3
"""Smaller errors of corrections are shown as 0: relative errors, and seconds of a start."""
CALIBRATION_OPTIONS = frozenset(("--hosts", "--template", "--user", "--set"))
"""Options of `apples run` that `apples calibrate` has as well."""


def plan_text(document: PlanDocument, command: str) -> str:
    """Return the short text: headline, one line per host, hosts left out, assumed values.

    Parameters
    ----------
    command
        The complete command that runs the plan.
    """
    chosen = document["chosen"]
    if chosen is None:
        return "\n".join(no_plan(document))
    lines = [
        *plan_head(document, chosen),
        *_unmeasured(document, command),
        "",
        *_table(chosen),
        "",
    ]
    lines += [*_left_out_line(document, chosen), *_binding(document)]
    lines += [*_basis(document, chosen), f"run it:  {command}"]
    return "\n".join(lines)


def explained_text(document: PlanDocument, command: str) -> str:
    """Return the long text: also the compared sets, and the values at which the answer changes."""
    chosen = document["chosen"]
    if chosen is None:
        return "\n".join(no_plan(document))
    lines = [*plan_head(document, chosen), *_unmeasured(document, command), "", *_table(chosen)]
    for title, block in (
        ("WHY THESE HOSTS", _sets(document, chosen)),
        ("WHY NOT THE OTHERS", _why_not(document)),
        ("WHEN THE ANSWER CHANGES", _changes(document)),
        ("DATA AND ASSUMPTIONS", _rests_on(document, chosen)),
    ):
        content = list(block)
        if content:
            lines += ["", title, *content]
    lines += ["", *_equal(document), f"run it:  {command}"]
    return "\n".join(lines)


def no_plan(document: PlanDocument) -> Iterator[str]:
    """Yield the lines of a document without a feasible plan: the remedy, then the reasons."""
    remedy = document.get("remedy", "")
    yield f"No plan for {document['application']['name']}" + (f": {remedy}" if remedy else "")
    yield ""
    reasons = [*dict.fromkeys(rejection["reason"] for rejection in document["rejected"])]
    for reason in reasons[:SHOWN_HOSTS]:
        yield from _wrapped(reason)
    if len(reasons) > SHOWN_HOSTS or document["rejected_total"] > len(document["rejected"]):
        yield f"  {document['rejected_total']} refusals in all (--json lists them)"


def _names(names: Sequence[str], room: int = 20) -> str:
    """Return the names of a set, as many as fit into `room` columns."""
    if not names:
        return "no plan"
    return f"{names[0]} alone" if len(names) == 1 else _listed(names, room)


def _listed(names: Sequence[str], room: int) -> str:
    shown = len(names)
    while shown > 1 and len(_first(names, shown)) > room:
        shown -= 1
    return _first(names, shown)


def _first(names: Sequence[str], count: int) -> str:
    more = len(names) - count
    return ", ".join(names[:count]) + (f" and {more} more" if more else "")


def plan_head(document: PlanDocument, chosen: Chosen) -> Iterator[str]:
    """Yield the first lines of a plan: the hosts, the seconds, and the next best set."""
    low, high = chosen["iteration_interval"]
    known = not math.isclose(low, high)  # an empty interval may differ by rounding
    likely = f"likely {_between(low, high)}" if known else _no_interval(document, chosen)
    answer = f": {duration(chosen['iteration_seconds'])} an iteration ({likely})"
    threads = chosen["strips"][0].get("threads")
    answer = (f", by {counted(threads, 'thread')}" if threads else "") + answer
    yield f"Run on {_names(chosen['hosts'], WIDTH - len('Run on ' + answer))}{answer}"
    second = f"{document['application']['iterations']} iterations in "
    second += f"{duration(chosen['execution_seconds'])}."
    if chosen["wait_seconds"]:
        second = f"{second[:-1]}, after about {duration(chosen['wait_seconds'])} in the queue."
    if chosen["start_seconds"]:
        second = f"{second[:-1]}, {duration(chosen['start_seconds'])} to start."
    best = document["next_best"]
    if best:
        second += f"  Next best: {_names(best['hosts'])}, {duration(best['iteration_seconds'])}"
    yield second
    objective = chosen["objective"]
    if objective["measure"] != "execution_time":
        yield f"By {objective['measure']}, the {objective['better']} the better: {objective['value']:.4g}"
    if "arrangement" in document:
        yield _order(document["arrangement"])
    if "partitions" in document:
        cut = document["partitions"]
        many = f"{counted(cut['partitions'], 'partition')} on {counted(cut['ranks'], 'rank')}"
        longer = f"the longest computes {cut['computing']:.2f} times as long as with one each"
        yield f"{many} ({cut['decomposition']}): {longer}."


def _unmeasured(document: PlanDocument, command: str) -> list[str]:
    """Return lines about hosts without a speed measured for this application at this size."""
    ignored = _ignores_measurements(command)
    by_reason = unmeasured_speeds(document, never=not ignored)
    if not by_reason:
        return []
    alike = len(by_reason) == 1 and len(next(iter(by_reason.values()))) == len(document["speeds"])
    parts = [
        f"{'' if alike else ' of ' + _listed(hosts, 30)}: {reason}"
        for reason, hosts in by_reason.items()
    ]
    end = (
        f" ({ignored})"
        if ignored
        else f"; `{_calibrate_command(command)}` measures it (takes seconds)"
    )
    line = f"speed{';'.join(parts)}{end}"
    return textwrap.wrap(line, WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def unmeasured_speeds(document: PlanDocument, *, never: bool = True) -> dict[str, list[str]]:
    """Return hosts without a speed measured for this application at this size, by the source of their speed.

    Parameters
    ----------
    never
        Whether the plan uses measured speeds, so that the speed was never measured.
    """
    by_reason: dict[str, list[str]] = {}
    for host, speed in document.get("speeds", {}).items():
        source, factor = speed["source"], speed["factor"]
        if source != MEASURED:
            name = document["application"]["name"]
            reason = f"{source}, never measured for {name}" if never else source
        elif 1 / SIMILAR_SIZE <= factor <= SIMILAR_SIZE:
            continue
        else:
            points = f" of {speed['points']:.0f} points" if speed["points"] else ""
            reason = f"measured on a grid{points}, this one has {digits(factor, 2)} times as many"
        by_reason.setdefault(reason, []).append(host)
    return by_reason


def _ignores_measurements(command: str) -> str:
    """Return the options by which a command plans without the learned state; empty if it uses that state.

    Examples
    --------
    >>> _ignores_measurements("apples run --weather=static"), _ignores_measurements("apples run --fresh")
    ('--weather static', '')
    >>> _ignores_measurements("apples run --weather remembered")
    ''
    """
    words = [part for word in shlex.split(command) for part in word.split("=", 1)]
    if "--learned" in words or "--weather" not in words[:-1]:
        return ""
    weather = words[words.index("--weather") + 1]
    return "" if weather in LEARNED_WEATHERS else shlex.join(["--weather", weather])


def _calibrate_command(command: str) -> str:
    """Return the calibration command for the application of a command.

    Examples
    --------
    >>> _calibrate_command("apples run --hosts h.toml --weather live --set grid=9 --json")
    'apples calibrate --hosts h.toml --set grid=9'
    """
    words, kept = iter(shlex.split(command)), []
    for word in words:
        option, given, _ = word.partition("=")
        if option in CALIBRATION_OPTIONS:
            kept += [word] if given else [word, next(words, "")]
    return shlex.join(["apples", "calibrate", *kept])


def _no_interval(document: PlanDocument, chosen: Chosen) -> str:
    """Return why a plan has no interval."""
    coverage = chosen["coverage"]
    if document["weather"]["source"] == STATIC or coverage is None:
        return "no interval"
    runs, needed = coverage["runs"], coverage.get("needed", 0)
    if runs < needed:
        return f"no interval yet: {runs} of {needed} runs measured"
    return "no interval: a speed is not measured"


def _order(arrangement: ArrangementInfo) -> str:
    """Return a line about the order of hosts by the messages of their ranks."""
    now, before = arrangement["bytes_times_distance"], arrangement["bytes_times_distance_before"]
    source = arrangement["source"]
    if now is None or before is None:
        ranks = counted(arrangement["ranks"], "rank")
        return f"The messages are of {ranks}, not as many as here: the order is kept."
    if now == before:
        return f"By messages ({source}) no order of the hosts is better."
    return f"Ordered by messages ({source}): {now / before:.2f} of the bytes x distance before."


def _between(low: float, high: float) -> str:
    text = duration(low)
    return text if duration(high) == text else f"{text} to {duration(high)}"


def _memory(strip: StripInfo) -> str:
    free = strip["free_memory"]
    return amount(strip["memory"]) + (f" of {amount(free)}" if free is not None else "")


COLUMNS: tuple[tuple[str, Callable[[StripInfo], str]], ...] = (
    ("host", lambda strip: strip["host"]),
    ("rows", share_of_grid),
    ("compute", lambda strip: duration(strip["compute_seconds"])),
    ("comm", lambda strip: duration(strip["communicate_seconds"])),
    ("total", lambda strip: duration(strip["seconds"])),
    ("CPU forecast", lambda strip: f"{strip['cpu']:.2f} +- {strip['cpu_error']:.2f}"),
    ("memory", _memory),
)
"""The columns of the plan's table: title, and a function from an entry of ``chosen.strips`` to the cell."""


def plan_table(chosen: Chosen, shown: int) -> list[list[str]]:
    """Return the titles of the plan's table, then a row of cells for each of the first `shown` hosts."""
    rows = [[title for title, _ in COLUMNS]]
    return rows + [[cell(strip) for _, cell in COLUMNS] for strip in chosen["strips"][:shown]]


def _table(chosen: Chosen) -> Iterator[str]:
    strips = chosen["strips"]
    shown = len(strips) if len(strips) <= SHOWN_HOSTS else SHOWN_HOSTS - 1
    yield from in_columns(plan_table(chosen, shown), numbers=True)
    if len(strips) > shown:
        yield f"and {len(strips) - shown} more hosts"
    factor = chosen.get("straggler_factor", 1.0)
    if digits(factor) != "1.00":
        times = (
            f"{duration(chosen['iteration_seconds'])} is {digits(factor)} times the longest total"
        )
        yield f"{times}: hosts are late by turns (learned)"


def _left_out_line(document: PlanDocument, chosen: Chosen) -> Iterator[str]:
    refused = [r for r in document["rejected"] if len(r["hosts"]) == 1]
    names = [one["host"] for one in document["left_out"]] + [r["hosts"][0] for r in refused]
    names = [n for n in dict.fromkeys(names) if n not in chosen["hosts"]]
    if names:
        yield f"left out: {_listed(names, 40)} (--explain prints the reasons)"


def _binding(document: PlanDocument) -> Iterator[str]:
    """Yield the first limit without which the plan would be better, and the number of others."""
    reasons = [limit["reason"] for limit in document.get("binding", ())]
    if reasons:
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        yield from textwrap.wrap(
            f"limited: {reasons[0]}{more}", WIDTH, subsequent_indent="         "
        )


def _basis(document: PlanDocument, chosen: Chosen) -> Iterator[str]:
    """Yield the assumed values and the weather, on one line if they fit."""
    assumed, weather = document["assumed"], f"weather: {document['weather']['kind']}"
    message = f"assumed: {assumed[0] if assumed else 'nothing'}.  {weather}"
    if len(assumed) > 1 or len(message) > WIDTH:
        values = counted(len(assumed), "value")
        message = f"assumed: {values} (--explain lists them).  {weather}"
    yield message
    past = coverage_words(chosen.get("coverage"))
    if past:
        yield past


def _wrapped(sentence: str) -> list[str]:
    return textwrap.wrap(sentence, WIDTH, initial_indent="  ", subsequent_indent="      ")


def _sets(document: PlanDocument, chosen: Chosen) -> Iterator[str]:
    yield f"  {document['considered']} sets planned, {document['feasible']} feasible"
    distinct = {frozenset(one["hosts"]): one for one in reversed(document["sets"])}
    ranked = sorted(distinct.values(), key=lambda one: one["ratio"])
    for one in ranked[:SHOWN_SETS]:
        same = set(one["hosts"]) == set(chosen["hosts"])
        against = "chosen" if same and one["ratio"] <= 1 else f"{one['ratio']:.2f} x"
        yield f"  {duration(one['iteration_seconds']):>9}  {against:>7}  {_names(one['hosts'])}"


def _why_not(document: PlanDocument) -> Iterator[str]:
    for left in document["left_out"]:
        yield from _wrapped(f"{left['host']} left out: {left['reason']}")
    for limit in document.get("binding", ()):
        yield from _wrapped(f"limited: {limit['reason']}")
    for rejection in document["rejected"][:SHOWN_HOSTS]:
        yield from _wrapped(rejection["reason"])


def _changes(document: PlanDocument) -> Iterator[str]:
    for change in document["changes"]:
        now, at = _quantity(change, "now"), _quantity(change, "at")
        side = "below" if change["at"] < change["now"] else "above"
        error = f" +- {_quantity(change, 'error')}" if change["error"] else ""
        away = change["errors_away"]
        advice = change["advice"] + (f", {digits(away, 2)} errors away" if away else "")
        if change["quantity"] in {"speed", "latency"}:
            yield (
                f"  {change['host']} {side} {digits(change['at'])} x its present "
                f"{change['quantity']}  -> {_names(change['answer'])}  ({advice})"
            )
        else:
            what = "CPU" if change["quantity"] == "cpu" else "of memory"
            yield (
                f"  {change['host']} {side} {at} {what} (now {now}{error})"
                f"  -> {_names(change['answer'])}  ({advice})"
            )
    if document["hosts"] > MAX_HOSTS:
        yield f"  not asked: the list has {document['hosts']} usable hosts, more than {MAX_HOSTS}"
        return
    asked, possible = document["changes_asked"], document["changes_possible"]
    questions = f"{asked} of {counted(possible, 'question')} asked"
    within = digits(document["changes_within"])
    if not document["changes"]:
        yield f"  not by the CPU, speed, latency or memory of a host within a factor of {within}"
    yield f"  {questions} (chosen hosts: CPU, memory; others: speed, latency)"


def _quantity(change: ChangeInfo, key: Literal["now", "at", "error"]) -> str:
    value = change[key]
    return amount(value) if change["quantity"] == "memory" else digits(value)


def _rests_on(document: PlanDocument, chosen: Chosen) -> Iterator[str]:
    for strip in chosen["strips"][:SHOWN_HOSTS]:
        source = strip["cpu_method"]
        if strip["cpu_samples"]:
            source += (
                f", error so far {digits(strip['cpu_error'], 2)}, {strip['cpu_samples']} values"
            )
        yield f"  CPU    {strip['host']} {strip['cpu']:.2f}  {source}"
    for link in document["rests_on"]["links"][:SHOWN_HOSTS]:
        a, b = link["between"]
        message = "assumed" if link["assumed"] else link["method"]
        if runs := link["measured_runs"]:
            message += (
                f"; {duration(link['seconds'])} a border, measured by {counted(runs, 'run')}"
            )
        speed = f"{amount(link['bandwidth'])}/s"
        yield f"  link   {a}-{b}  {duration(link['latency'])}, {speed}  ({message})"
    yield "  model  T = rows x columns x seconds_per_point / CPU + sends + receives"
    yield f"  risk   {digits(document['risk'], 2)}"
    for known in document["rests_on"]["corrections"]:
        yield from _wrapped(f"learned: {correction_words(known)}")
    past = coverage_words(chosen.get("coverage"))
    if past:
        yield f"  past   {past}"
    for line in document["assumed"][:SHOWN_HOSTS]:
        yield from _wrapped(f"assumed: {line}")


def correction_words(known: CorrectionInfo) -> str:
    """Return a correction with its value, its evidence and its two errors, as one line.

    Examples
    --------
    >>> correction_words({"kind": "slowdown", "of": ["ada"], "factor": 1.42, "seconds": None, "applied": True,
    ...     "runs": 3, "first": "2026-11-27", "last": "2026-11-28", "tested": 2,
    ...     "error_with": 0.03, "error_without": 0.35, "unused": None})
    'slowdown of ada times 1.42, used: 3 runs, 2026-11-27 to 2026-11-28, error 3.0 % with it, 35 % without'
    """
    of = f" of {', '.join(known['of'])}" if known["of"] else " of any set"
    factor, seconds = known["factor"], known["seconds"]
    value = "" if factor is None else f"times {digits(factor)}"
    if seconds is not None:
        value = duration(seconds)
    days = [known["first"], known["last"]]
    when = days[0] if days[0] == days[1] else " to ".join(days)
    reason = f" ({known['unused']})" if known.get("unused") else ""
    used = "used" if known["applied"] else f"not used{reason}"
    line = f"{known['kind'].replace('_', ' ')}{of} {value}, {used}: {counted(known['runs'], 'run')}, {when}"
    if not known["tested"]:
        return line
    with_it, without = _error(known, known["error_with"]), _error(known, known["error_without"])
    return f"{line}, error {with_it} with it, {without} without"


def _error(known: CorrectionInfo, error: float) -> str:
    """Return the error of a correction: in per cent for a factor, in seconds for a start."""
    if known["kind"] == START:
        return duration(error if error >= MIN_START_ERROR else 0.0)
    return f"{digits(100 * error if error >= MIN_ERROR else 0.0, 2)} %"


def learned_document(states: Sequence[ApplicationState]) -> LearnedDocument:
    """Return the learned state of applications as ``apples.learned/1``."""
    return {
        "schema": "apples.learned/1",
        "applications": [
            {
                "application": state.key.application,
                "version": state.key.version,
                "folder": state.key.folder,
                "speeds": {
                    host: {name: _curve(speed) for name, speed in known.items()}
                    for host, known in state.learned.speeds.items()
                },
                "corrections": described_all(state.learned),
                "runs": len(state.learned.runs),
                "coverage": state.learned.coverage,
            }
            for state in states
        ],
    }


def learned_text(states: Sequence[ApplicationState]) -> str:
    """Return the learned state of applications for the terminal."""
    if not states:
        return "Nothing learned yet: apples calibrate and apples run teach speeds and corrections."
    return "\n\n".join(
        "\n".join(_learned_lines(entry)) for entry in learned_document(states)["applications"]
    )


def _learned_lines(entry: LearnedApplication) -> Iterator[str]:
    version = f" {entry['version']}" if entry["version"] else ""
    runs = f"{counted(entry['runs'], 'run')} compared with a prediction"
    yield f"{entry['application']}{version} in {entry['folder']}: {runs}"
    for host, speeds in entry["speeds"].items():
        for implementation, curve in speeds.items():
            points = zip(curve["rows"], curve["seconds_per_point"], strict=True)
            figures = ", ".join(f"{digits(1e9 * s)} at {digits(r)} rows" for r, s in points)
            yield from _wrapped(f"speed of {host}, {implementation}: ns a point: {figures}")
    for known in entry["corrections"]:
        yield from _wrapped(correction_words(known))


def _equal(document: PlanDocument) -> Iterator[str]:
    equal = document["equal_strips"]
    if equal:
        yield (
            f"equal strips on the same hosts: {duration(equal['iteration_seconds'])} "
            f"({equal['ratio']:.2f} x)"
        )


def calibration_document(
    name: str, version: str, found: Mapping[str, Mapping[str, SpeedFunction]]
) -> CalibrationDocument:
    """Return the measured speeds of an application as ``apples.calibration/1``."""
    hosts = {
        host: {implementation: _curve(speed) for implementation, speed in speeds.items()}
        for host, speeds in found.items()
    }
    return {
        "schema": "apples.calibration/1",
        "application": name,
        "version": version,
        "hosts": hosts,
    }


def _curve(speed: SpeedFunction) -> SpeedCurve:
    return {
        "rows": list(speed.rows),
        "seconds_per_point": list(speed.seconds_per_point),
        "error": speed.error,
        "columns": speed.columns,
        "memory": speed.memory if math.isfinite(speed.memory) else None,
        "points": speed.points,
    }


def calibration_text(found: Mapping[str, Mapping[str, SpeedFunction]]) -> str:
    """Return the measured speeds, one line per host and implementation."""
    lines = []
    for host, speeds in found.items():
        for name, speed in speeds.items():
            points = ", ".join(
                f"{digits(seconds * 1e9)} at {rows:.0f} rows"
                for rows, seconds in zip(speed.rows, speed.seconds_per_point, strict=True)
            )
            own = (
                f"; {amount(speed.memory)} of its own free" if math.isfinite(speed.memory) else ""
            )
            lines.append(f"{host}  {name}  ns a point: {points}{own}")
    return "\n".join(lines)
