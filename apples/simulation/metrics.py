"""Metrics of a simulation's result.

Wait = start - submission. Response = end - submission. Slowdown = response / run time on the
processors asked for. Bounded slowdown = max(1, response / max(run time, 10 s)) (Feitelson 2001).
Makespan = last end - first submission. Utilisation = occupied node-seconds / (nodes * makespan).
Cancelled, rejected, held and killed jobs have their own counts and enter no other metric.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from apples.errors import UsageError, unwritable
from apples.io import documents
from apples.scheduling.passes import PolicyFailure
from apples.scheduling.policy import AdvanceReservation
from apples.simulation.config import SimulationConfig, SimulationResult
from apples.simulation.documents import (
    BegunReservation,
    HeldJob,
    PartitionFigures,
    Percentiles,
    PolicyFailures,
    SimulationFigures,
)
from apples.simulation.workload import Workload

TAU = 10.0
PERCENTILES = (50, 75, 90, 95, 99, 100)
Values = NDArray[np.float64]


@dataclass(frozen=True)
class JobOutcomes:
    """Seconds and ratios of each completed job."""

    wait: Values
    response: Values
    slowdown: Values
    bounded_slowdown: Values


OUTCOMES = tuple(one.name for one in fields(JobOutcomes))


def job_outcomes(workload: Workload, result: SimulationResult) -> JobOutcomes:
    """Return the waits, responses and slowdowns of the completed jobs."""
    done = result.completed
    submit, run = workload.submit[done], workload.run[done]
    response = result.end[done] - submit
    return JobOutcomes(
        wait=result.start[done] - submit,
        response=response,
        slowdown=response / run,
        bounded_slowdown=np.maximum(1.0, response / np.maximum(run, TAU)),
    )


def makespan(workload: Workload, result: SimulationResult) -> float:
    """Return the seconds from the first submission to the last end."""
    return float(np.nanmax(result.end) - workload.submit[0])


def energy(result: SimulationResult, config: SimulationConfig, seconds: float) -> float | None:
    """Return the energy in joules: idle power of all nodes all the time, plus the extra power of busy nodes."""
    if config.idle_watts is None or config.busy_watts is None:
        return None
    more = config.busy_watts - config.idle_watts
    return config.idle_watts * config.nodes * seconds + more * result.node_seconds


def summary(
    workload: Workload, result: SimulationResult, config: SimulationConfig
) -> SimulationFigures:
    """Return the keys of `apples.simulation/1` that follow from the result."""
    values = job_outcomes(workload, result)
    if not len(values.wait):
        why = f": the policy rejected {len(result.rejected)}" if len(result.rejected) else ""
        held = first_held(result)
        if held:
            why += f": job {held['job']} is held: {held['reason']}"
        raise UsageError(
            f"none of {len(workload)} jobs completed{why}",
            code="no-job-completed",
            jobs=len(workload),
            rejected=len(result.rejected),
            held=held,
        )
    span = makespan(workload, result)
    return {
        "jobs": len(workload),
        "completed": int(result.completed.sum()),
        "mean_wait": float(values.wait.mean()),
        "mean_response": float(values.response.mean()),
        "mean_slowdown": float(values.slowdown.mean()),
        "mean_bounded_slowdown": float(values.bounded_slowdown.mean()),
        "percentiles": Percentiles(
            wait=_percentiles(values.wait),
            response=_percentiles(values.response),
            slowdown=_percentiles(values.slowdown),
            bounded_slowdown=_percentiles(values.bounded_slowdown),
        ),
        "makespan": span,
        "utilisation": result.node_seconds / (config.nodes * span) if span else 0.0,
        "energy": energy(result, config, span),
        "malleable_starts": int(result.guest.sum()),
        "mates": int(result.mate.sum()),
        "resizes": int(result.resizes.sum()),
        "restarts": result.restarts,
        "killed": result.killed,
        "work_lost": result.work_lost,
        "work_saved": result.work_saved,
        "rejected": len(result.rejected),
        "reservations": list(map(_reservation, result.reservations)),
        "refused_starts": result.refused_starts,
        "held": len(result.held),
        "first_held": first_held(result),
        "failed_passes": result.failed_passes,
        "policy_failures": [_failure(first, count) for first, count in result.failures],
    }


def _percentiles(values: Values) -> dict[str, float]:
    found = np.percentile(values, PERCENTILES).tolist()
    return dict(zip(map(str, PERCENTILES), found, strict=True))


def _reservation(one: AdvanceReservation) -> BegunReservation:
    return {
        "name": one.name,
        "begin": one.begin,
        "end": one.end,
        "nodes": one.nodes,
        "began_with": one.taken,
    }


def _failure(first: PolicyFailure, count: int) -> PolicyFailures:
    return {
        "kind": first.kind,
        "passes": count,
        "time": first.time,
        "where": first.where,
        "reason": first.reason,
    }


def by_partition(
    workload: Workload, result: SimulationResult, config: SimulationConfig
) -> dict[str, PartitionFigures]:
    """Return the figures of each partition; the means are None if no job completed."""
    figures: dict[str, PartitionFigures] = {}
    span = makespan(workload, result)
    for place, part in enumerate(config.partitions):
        there = result.partition == place
        done = result.completed & there
        values = job_outcomes(workload, replace(result, completed=done))
        means = [float(getattr(values, name).mean()) if done.any() else None for name in OUTCOMES]
        seconds = result.partition_node_seconds[place]
        figures[part.name] = {
            "nodes": part.nodes,
            "cores": part.cores,
            "memory": part.memory,
            "gpus": part.gpus,
            "speed": part.speed,
            "jobs": int(there.sum()),
            "completed": int(done.sum()),
            "rejected": sum(job in result.rejected for job in workload.job[there].tolist()),
            "mean_wait": means[0],
            "mean_response": means[1],
            "mean_slowdown": means[2],
            "mean_bounded_slowdown": means[3],
            "utilisation": seconds / (part.nodes * span) if span else 0.0,
        }
    return figures


def first_held(result: SimulationResult) -> HeldJob | None:
    """Return the first job that the policy held and never released, with the reason; None without one."""
    for number, reason in result.held.items():
        return {"job": number, "reason": reason}
    return None


CSV_COLUMNS = (
    "job,submit,start,end,processors,run,requested,wait,response,slowdown,bounded_slowdown,"
    "malleable,guest,mate,resizes,completed"
)


def write_csv(path: Path, workload: Workload, result: SimulationResult) -> None:
    """Write one row for each job, with times in full precision, so that reading them back is exact."""
    response = result.end - workload.submit
    columns: list[NDArray[np.float64] | NDArray[np.int64] | NDArray[np.bool_]] = [
        workload.job, workload.submit, result.start, result.end, workload.processors,
        workload.run, workload.requested, result.start - workload.submit, response,
        response / workload.run, np.maximum(1.0, response / np.maximum(workload.run, TAU)),
        workload.malleable, result.guest, result.mate, result.resizes, result.completed,
    ]  # fmt: skip
    texts = [_texts(column) for column in columns]
    try:
        with documents.written(path) as file:
            file.write(CSV_COLUMNS + "\n")
            file.writelines(",".join(row) + "\n" for row in zip(*texts, strict=True))
    except OSError as error:
        raise unwritable(str(path), error) from error


def _texts(column: NDArray[np.float64] | NDArray[np.int64] | NDArray[np.bool_]) -> list[str]:
    if column.dtype == np.bool_:
        return ["1" if value else "0" for value in column.tolist()]
    if column.dtype.kind == "f" and not (
        np.isfinite(column).all()
        and (column == np.floor(column)).all()
        and abs(column).max() < 1e15
    ):
        return list(map(repr, column.tolist()))
    return list(map(str, column.astype(np.int64).tolist()))
