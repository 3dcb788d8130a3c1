"""Text output and notes of simulations and sweeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from apples.errors import UsageError
from apples.scheduling.passes import PolicyFailure
from apples.scheduling.policies import POLICIES
from apples.simulation.config import SimulationResult
from apples.simulation.documents import (
    ExplainedWaitsDocument,
    FractionGains,
    FractionMetric,
    FractionPoint,
    HeldJob,
    Metric,
    MetricFigures,
    PartitionFigures,
    PolicyWaits,
    RelativeChange,
    SimulationDocument,
    SweepFigures,
    SweepRow,
)
from apples.simulation.log_validation import WaitExplanation, WaitFit, log_ratio
from apples.simulation.metrics import by_partition, first_held, summary
from apples.simulation.prepare import PreparedSimulation
from apples.simulation.run import first_compilation
from apples.simulation.sweep import METRICS, Cell, MetricChange, compare, interval
from apples.simulation.verdicts import (
    BETTER,
    change_words,
    relative_change,
    tally,
    verdict_word,
)

Rows = Sequence[Mapping[str, Any]]
"""Results of a sweep, one for each cell."""
MAX_REASONS = 20
"""Maximum number of distinct reasons of rejections."""
MAX_GROUPS = 4
"""Maximum number of groups of a breakdown, and of reservations with too few nodes, in the text."""


def preparation_notes(log: str, made: PreparedSimulation) -> Iterator[str]:
    """Yield notes on the preparation: size from the header, cleaning, compilation."""
    source = made.source
    if source.from_header:
        yield f"apples: {log}: {source.processors} processors, by MaxProcs of its header"
    if str(source.cleaning):
        yield (
            f"apples: {log}: {source.records} records, {len(source.workload)} simulated: "
            f"{source.cleaning}"
        )
    core = first_compilation(made.policy, made.config, made.workload, made.options.engine)
    if core:
        yield f"apples: compiling the {core} core, once per machine"


def failure_notes(failures: Sequence[tuple[PolicyFailure, int]]) -> Iterator[str]:
    """Yield a line for each kind of failure of the user's policy."""
    for first, count in failures:
        passes = "1 pass" if count == 1 else f"{count} passes"
        yield f"apples: {first} ({passes}; first-come-first-served decided)"


def result_notes(policy: str, result: SimulationResult) -> Iterator[str]:
    """Yield notes on failures of the policy, refused starts and jobs held to the end."""
    yield from failure_notes(result.failures)
    yield from reservation_notes(policy, result)
    if words := held_words(len(result.held), first_held(result)):
        yield f"apples: {words}"


def reservation_notes(policy: str, result: SimulationResult) -> Iterator[str]:
    """Yield notes on advance reservations that began with too few nodes, and on refused starts into them."""
    short = [one for one in result.reservations if one.taken < one.nodes]
    for one in short[:MAX_GROUPS]:
        yield (
            f"apples: reservation {one.name or 'without a name'} began with {one.taken} of "
            f"{one.nodes} nodes at {one.begin:g} s"
        )
    if len(short) > MAX_GROUPS:
        yield (
            f"apples: {len(short)} of {len(result.reservations)} reservations began with too few nodes"
        )
    if result.refused_starts:
        yield (
            f"apples: policy {policy} does not look at reservations: {result.refused_starts} starts "
            f"refused, the first {result.first_refused}"
        )


def sweep_failure_notes(rows: Rows) -> Iterator[str]:
    """Yield a line for the first failure of each policy and kind in the rows of a sweep."""
    told: set[tuple[str, str]] = set()
    for row in rows:
        label = Cell.of(row).label
        for one in row.get("policy_failures", ()):
            if (label, one["kind"]) not in told:
                told.add((label, one["kind"]))
                first = PolicyFailure(one["kind"], label, one["time"], one["where"], one["reason"])
                yield from failure_notes([(first, one["passes"])])


def failed_words(passes: int) -> str:
    """Return a note on the passes that first-come-first-served decided; empty without such passes."""
    if not passes:
        return ""
    many = "1 pass" if passes == 1 else f"{passes} passes"
    return f"the policy failed in {many}, which first-come-first-served decided"


def held_words(count: int, first: HeldJob | None) -> str:
    """Return a note on the jobs that the policy held and never released; empty without such jobs."""
    if first is None:
        return ""
    many = "1 job was" if count == 1 else f"{count} jobs were"
    return (
        f"{many} held and never released, the first of them job {first['job']}: {first['reason']}"
    )


def simulation_document(
    log: str, policy: str, made: PreparedSimulation, result: SimulationResult, read_seconds: float
) -> SimulationDocument:
    """Return a simulation as ``apples.simulation/1``."""
    source = made.source
    return {
        "schema": "apples.simulation/1",
        "log": {"name": log, "sha256": source.sha256},
        "records": source.records,
        "dropped": dict(source.cleaning.dropped),
        "reordered": source.cleaning.reordered,
        "requests_raised": source.cleaning.raised,
        "notes": list(source.cleaning.notes),
        "policy": policy,
        "malleable": made.malleable,
        **summary(made.workload, result, made.config),
        "by_partition": by_partition(made.workload, result, made.config),
        "rejections": dict(Counter(result.rejected.values()).most_common(MAX_REASONS)),
        "engine": result.engine,
        "simulation_seconds": result.seconds,
        "read_seconds": read_seconds,
    }


def simulation_text(figures: SimulationDocument) -> str:
    """Return the figures as lines: the answer first, the next command last."""
    f, log = figures, figures["log"]["name"]
    failed = f"  {words}\n" if (words := failed_words(f["failed_passes"])) else ""
    trouble = f"  killed at their limit: {f['killed']}\n" if f["killed"] else ""
    if f["restarts"]:
        trouble += (
            f"  restarts {f['restarts']}: work lost {f['work_lost']:.6g} processor-s, "
            f"saved in checkpoints {f['work_saved']:.6g} processor-s\n"
        )
    if words := held_words(f["held"], f["first_held"]):
        trouble += f"  {words}\n"
    energy = "" if f["energy"] is None else f"  energy {f['energy']:.6g} J\n"
    return (
        f"{f['policy']} on {Path(log).name}: mean wait {f['mean_wait']:.6g} s, "
        f"mean bounded slowdown {f['mean_bounded_slowdown']:.6g}\n"
        f"{failed}  jobs {f['jobs']} ({f['completed']} completed)\n{trouble}"
        f"{_rejected_lines(f)}"
        f"  mean response {f['mean_response']:.6g} s\n"
        f"  mean slowdown {f['mean_slowdown']:.6g}\n"
        f"  makespan {f['makespan']:.10g} s\n"
        f"  utilisation {f['utilisation']:.4f}\n{energy}"
        f"  malleable starts {f['malleable_starts']}, mates {f['mates']}, "
        f"resizes {f['resizes']}\n{_partition_lines(f['by_partition'])}"
        f"  simulated in {f['simulation_seconds']:.3g} s ({f['engine']}), "
        f"read in {f['read_seconds']:.3g} s\n"
        "all figures: --json; one row a job: --csv FILE"
    )


def _rejected_lines(figures: SimulationDocument) -> str:
    """Return a line for each reason of rejected jobs."""
    shown = list(figures["rejections"].items())[:MAX_GROUPS]
    lines = [f"  rejected {count}: {reason}\n" for reason, count in shown]
    rest = figures["rejected"] - sum(count for _, count in shown)
    return "".join(lines) + (f"  rejected {rest} for other reasons\n" if rest else "")


def _partition_lines(figures: Mapping[str, PartitionFigures]) -> str:
    """Return a table of the partitions, the default first; empty without partitions."""
    if not figures:
        return ""
    wide = max(9, *map(len, figures))
    heads = ("nodes", "jobs", "rejected", "mean wait", "mean slowdown", "utilisation")
    rows = [f"  {'partition':{wide}}" + "".join(f"{head:>15}" for head in heads)]
    for name, f in figures.items():
        wait, slowdown = (
            "none" if f[key] is None else f"{f[key]:.6g}" for key in ("mean_wait", "mean_slowdown")
        )
        cells = (
            f["nodes"], f["jobs"], f["rejected"], wait, slowdown, f"{f['utilisation']:.4f}",
        )  # fmt: skip
        rows.append(f"  {name:{wide}}" + "".join(f"{cell:>15}" for cell in cells))
    return "\n".join(rows) + "\n"


BREAKDOWNS: Mapping[str, Literal["by_day", "by_size", "by_partition"]] = {
    "day": "by_day",
    "size": "by_size",
    "partition": "by_partition",
}
"""The key of `PolicyWaits` of each breakdown."""


def explanation_document(log: str, explained: WaitExplanation) -> ExplainedWaitsDocument:
    """Return the explanation of a site's waits as ``apples.explained_waits/1``."""
    return {
        "schema": "apples.explained_waits/1",
        "log": log,
        "verdict": str(explained),
        "explained": explained.is_explained,
        "policy": explained.policy,
        "factor": explained.factor,
        "jobs": explained.jobs,
        "unknown": explained.unknown,
        "not_tried": list(explained.not_tried),
        "failed_passes": sum(count for _, count in explained.failures),
        "policies": {
            name: {
                "first_half": _policy_waits(explained.first[name]),
                "second_half": _policy_waits(explained.second[name]),
            }
            for name in explained.first
        },
    }


def _policy_waits(fit: WaitFit) -> PolicyWaits:
    breakdown, factor = fit.worst
    waits: PolicyWaits = {
        "logged_wait": fit.overall["logged_wait"],
        "simulated_wait": fit.overall["simulated_wait"],
        "worst": {"breakdown": breakdown, "factor": factor},
    }
    for name, groups in fit.breakdowns.items():
        waits[BREAKDOWNS[name]] = [*groups]
    return waits


def explanation_text(explained: WaitExplanation) -> str:
    """Return the verdict, a table of the policies, and the chosen policy's groups with the largest factors."""
    failed = failed_words(sum(count for _, count in explained.failures))
    lines = [
        str(explained),
        *([failed] if failed else []),
        f"{'policy':16}{'first half':>12}{'second half':>12}   waits of the second half",
    ]
    for name, second in sorted(explained.second.items(), key=lambda item: item[1].worst[1]):
        chosen = " (chosen)" if name == explained.policy else ""
        first = explained.first[name]
        lines.append(
            f"{name:16}{_times(first.worst[1]):>12}{_times(second.worst[1]):>12}   "
            f"{second.overall['simulated_wait']:.6g} s simulated, "
            f"{second.overall['logged_wait']:.6g} s logged{chosen}"
        )
    for name, groups in explained.second[explained.policy].breakdowns.items():
        worst = sorted(groups, key=lambda group: -group["jobs"] * abs(log_ratio(group)))[
            :MAX_GROUPS
        ]
        said = ", ".join(
            f"{group['name']}: {group['simulated_wait']:.4g} s for {group['logged_wait']:.4g} s "
            f"({group['jobs']} jobs)"
            for group in worst
        )
        lines.append(f"by {name}, where {explained.policy} is off most: {said}")
    if explained.unknown:
        lines.append(f"{explained.unknown} jobs left out: the log lacks their wait")
    lines += [
        f"{name} not tried: it takes long for this many jobs (--policy {name} tries it)"
        for name in explained.not_tried
    ]
    lines.append("all groups: --json; a page that opens with this verdict: apples report LOG")
    return "\n".join(lines)


def _times(factor: float) -> str:
    return f"{factor:.3g} x"


BY_FRACTION: tuple[FractionMetric, ...] = (
    "mean_slowdown",
    "mean_wait",
    "mean_response",
)


def sweep_table(rows: Rows, baseline: str) -> SweepFigures:
    """Return means by log and policy, changes against the baseline, and gains by fraction of malleable jobs."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        cell = Cell.of(row)
        groups.setdefault((cell.log, cell.label), []).append(row)
    changes = {metric: compare(rows, baseline, metric) for metric in METRICS}
    table = []
    for (log, label), mine in groups.items():
        failed = sum(row.get("failed_passes", 0) for row in mine)
        entry = SweepRow(log=log, policy=label, runs=len(mine), failed_passes=failed)
        for metric in METRICS:
            values = [row[metric] for row in mine if row[metric] is not None]
            if not values:
                continue
            mean = interval(values)
            change = relative_change(changes[metric].get(log, {}).get(label))
            entry[metric] = {"mean": mean.mean, "half": mean.half, **change}
        table.append(entry)
    return {
        "baseline": baseline,
        "table": table,
        "fractions": _by_fraction(rows, changes, baseline),
    }


def baseline_of(rows: Rows, policy: str | None) -> str:
    """Return the label of the baseline: the requested policy, otherwise the first that resizes no job.

    Raises
    ------
    UsageError
        The results lack the policy.
    """
    labels = {Cell.of(row).label: Cell.of(row).policy for row in rows}
    if policy is not None:
        found = [label for label, name in labels.items() if policy in (label, name)]
        if not found:
            raise UsageError(
                f"--policy {policy}: the results have {', '.join(sorted(labels))}",
                code="policy-unknown",
                option="--policy",
                value=policy,
                known=sorted(labels),
            )
        return found[0]
    rigid = [
        label
        for label, name in labels.items()
        if name in POLICIES and not POLICIES[name].uses_malleable
    ]
    return (rigid or list(labels))[0]


def _by_fraction(
    rows: Rows, changes: Mapping[Metric, Mapping[str, Mapping[str, MetricChange]]], baseline: str
) -> list[FractionGains]:
    """Return the changes under each policy by fraction of malleable jobs, if the sweep has several fractions."""
    groups: dict[tuple[str, str], dict[float, str]] = {}
    for cell in map(Cell.of, rows):
        if cell.malleable >= 0 and cell.label != baseline:
            name = " ".join([cell.policy, *cell.options])
            groups.setdefault((cell.log, name), {})[cell.malleable] = cell.label
    found = []
    for (log, name), labels in groups.items():
        points = {
            metric: [
                (fraction, relative_change(changes[metric][log][label]))
                for fraction, label in sorted(labels.items())
                if label in changes[metric].get(log, {})
            ]
            for metric in BY_FRACTION
        }
        if len(points["mean_slowdown"]) > 1:
            gains = fraction_entry(Path(log).name, name, baseline, points)
            gains["log"] = log
            found.append(gains)
    return found


def fraction_entry(
    log: str,
    policy: str,
    baseline: str,
    points: Mapping[FractionMetric, Sequence[tuple[float, RelativeChange]]],
) -> FractionGains:
    """Return the changes by fraction of malleable jobs, with a sentence on the gain.

    Parameters
    ----------
    points
        Metric -> fractions, ascending, with the change against the baseline.
    """
    mine = points["mean_slowdown"]
    gains = [(fraction, one) for fraction, one in mine if verdict_word(one) == BETTER]
    head = f"{policy} on {log}, mean slowdown against {baseline}: "
    if not gains:
        finding = (
            f"no clear gain with any of the fractions of malleable jobs that were simulated, "
            f"{mine[0][0]:.0%} to {mine[-1][0]:.0%}"
        )
    else:
        fewest, most = gains[0], min(gains, key=lambda gain: gain[1]["change"] or 0.0)
        finding = (
            f"of the fractions simulated the smallest with a clear gain is {fewest[0]:.0%} of the jobs "
            f"malleable ({change_words(fewest[1])})"
        )
        if most != fewest:
            finding += f"; the most is gained with {most[0]:.0%} ({change_words(most[1])})"
    return {
        "log": log,
        "policy": policy,
        "finding": f"{head}{finding}.",
        "mean_slowdown": _fraction_points(points["mean_slowdown"]),
        "mean_wait": _fraction_points(points["mean_wait"]),
        "mean_response": _fraction_points(points["mean_response"]),
    }


def _fraction_points(points: Sequence[tuple[float, RelativeChange]]) -> list[FractionPoint]:
    return [{"malleable": fraction, **change} for fraction, change in points]


def sweep_text(figures: SweepFigures) -> str:
    """Return the table as text: the changes of four metrics against the baseline."""
    text = [f"change against {figures['baseline']}, log ratios, 95 % intervals"]
    for entry in figures["table"]:
        parts = [
            f"{metric.removeprefix('mean_')} {_figure(entry[metric], entry['policy'] != figures['baseline'])}"
            for metric in ("mean_wait", "mean_response", "mean_slowdown", "makespan")
        ]
        text.append(
            f"{Path(entry['log']).name}  {entry['policy']} ({entry['runs']} runs): "
            + ", ".join(parts)
            + (f"; {words}" if (words := failed_words(entry["failed_passes"])) else "")
        )
    text += [entry["finding"] for entry in figures["fractions"]]
    return "\n".join(text)


def _figure(figure: MetricFigures, is_compared: bool) -> str:
    """Return a mean, with its change against the baseline if known."""
    if not is_compared or figure["change"] is None:
        return f"{figure['mean']:.6g}"
    return f"{figure['mean']:.6g} ({change_words(figure)})"


def compared_entries(figures: SweepFigures) -> list[SweepRow]:
    """Return the entries with a change of the mean slowdown against the baseline."""
    return [
        entry
        for entry in figures["table"]
        if entry["policy"] != figures["baseline"]
        and "mean_slowdown" in entry
        and entry["mean_slowdown"]["change"] is not None
    ]


def sweep_findings(figures: SweepFigures) -> list[str]:
    """Return the answers of a sweep in sentences."""
    return [
        *(one["finding"] for one in figures["fractions"]),
        *(
            f"{entry['policy']} on {Path(entry['log']).name}, mean slowdown: "
            f"{change_words(entry['mean_slowdown'])}."
            for entry in compared_entries(figures)
        ),
    ]


def sweep_headline(figures: SweepFigures) -> str:
    """Return the first line of the page of a sweep."""
    words = [verdict_word(entry["mean_slowdown"]) for entry in compared_entries(figures)]
    return f"Mean slowdown against {figures['baseline']}, by comparison: {tally(words)}"
