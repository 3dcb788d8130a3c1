"""The JSON document of a plan, ``apples.plan/1``: every number that any face of it shows."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from apples.agent.conditions import error_of
from apples.agent.deliberation import Deliberation
from apples.agent.explanation import SLOWEST, LeftOut, Threshold, left_out
from apples.agent.information import InformationPool
from apples.schedule import Estimate, HostEstimate, Rejection

Document = dict[str, Any]

SCHEMA = "apples.plan/1"
MOST_REJECTED = 100
MOST_SETS = 40
MOST_ASSUMED = 100


def plan_document(blueprint: str, record: Deliberation, information: InformationPool) -> Document:
    """Return the document of a decision; ``chosen`` is null where there is no plan."""
    decided = record.information or information
    application = information.application
    return {
        "schema": SCHEMA,
        "blueprint": blueprint,
        "application": {
            "name": application.name,
            "version": information.template.version,
            "parameters": dict(application.parameters),
            "rows": application.rows,
            "columns": application.columns,
            "iterations": application.iterations,
        },
        "chosen": _chosen(record.chosen, decided) if record.chosen else None,
        "next_best": _next_best(record),
        "hosts": len(record.usable),
        "considered": record.considered,
        "feasible": len(record.estimates),
        "left_out": [_left_out(reason) for reason in left_out(record)],
        "rejected": [_rejected(r) for r in record.rejections[:MOST_REJECTED]],
        "rejected_total": record.rejected,
        "assumed": [*decided.assumptions(record.usable)][:MOST_ASSUMED],
        "weather": {
            "kind": "measured" if decided.conditions.weather.cpu else "static",
            "time": decided.conditions.weather.time,
            "over": decided.conditions.over,
            "source": decided.conditions.source,
        },
        "risk": information.specifications.preferences.risk,
        "coverage": decided.learned.coverage,
    }


def explained(
    document: Document, record: Deliberation, changes: Iterable[Threshold], equal: Estimate | None
) -> Document:
    """Return the document with the whole argument: sets compared, when the answer changes, its base."""
    chosen = record.chosen
    if chosen is None or record.information is None:
        return document
    now = chosen.iteration_seconds
    ranked = sorted(record.estimates, key=lambda e: (e.value, len(e.hosts)))
    return {
        **document,
        "sets": [
            {
                "hosts": list(e.names),
                "iteration_seconds": e.iteration_seconds,
                "ratio": e.iteration_seconds / now,
            }
            for e in ranked[:MOST_SETS]
        ],
        "changes": [_change(change) for change in changes],
        "changes_within": SLOWEST,
        "equal_strips": {
            "iteration_seconds": equal.iteration_seconds,
            "ratio": equal.iteration_seconds / now,
        }
        if equal
        else None,
        "rests_on": _rests_on(chosen, record.information),
    }


def _chosen(estimate: Estimate, information: InformationPool) -> Document:
    low, high = estimate.interval or (estimate.execution_seconds, estimate.execution_seconds)
    return {
        "hosts": list(estimate.names),
        "rows": [int(r) for r in estimate.schedule.rows],
        "iteration_seconds": estimate.iteration_seconds,
        "execution_seconds": estimate.execution_seconds,
        "wait_seconds": estimate.wait_seconds,
        "interval": [low, high],
        "iteration_interval": [low / estimate.iterations, high / estimate.iterations],
        "cost": estimate.cost,
        "speedup": estimate.speedup,
        "planner": estimate.schedule.planner,
        "strips": [_strip(host, information) for host in estimate.hosts],
    }


def _strip(estimate: HostEstimate, information: InformationPool) -> Document:
    cpu = information.conditions.cpu(estimate.host)
    return {
        "host": estimate.host.name,
        "site": estimate.host.site,
        "rows": int(estimate.rows),
        "implementation": estimate.implementation,
        "compute_seconds": estimate.compute_seconds,
        "communicate_seconds": estimate.communicate_seconds,
        "seconds": estimate.seconds,
        "cpu": cpu.value,
        "cpu_error": error_of(cpu),
        "cpu_method": cpu.method,
        "cpu_samples": cpu.samples,
        "memory": estimate.memory,
        "free_memory": estimate.free_memory,
    }


def _next_best(record: Deliberation) -> Document | None:
    chosen = record.chosen
    if chosen is None:
        return None
    others = [e for e in record.estimates if set(e.names) != set(chosen.names)]
    if not others:
        return None
    best = min(others, key=lambda e: e.value)
    return {
        "hosts": list(best.names),
        "iteration_seconds": best.iteration_seconds,
        "ratio": best.iteration_seconds / chosen.iteration_seconds,
    }


def _left_out(reason: LeftOut) -> Document:
    return {"host": reason.host, "reason": reason.reason, "figures": list(reason.figures)}


def _rejected(rejection: Rejection) -> Document:
    return {
        "hosts": list(rejection.hosts[:MOST_REJECTED]),
        "reason": rejection.reason,
        "filter": rejection.filter,
        "figures": list(rejection.figures),
    }


def _change(change: Threshold) -> Document:
    return {
        "host": change.host,
        "quantity": change.quantity,
        "now": change.now,
        "error": change.error,
        "at": change.at,
        "answer": list(change.answer),
        "errors_away": change.errors_away,
        "advice": change.advice,
    }


def _rests_on(chosen: Estimate, information: InformationPool) -> Document:
    hosts = chosen.schedule.resources
    links = []
    for a, b in pairwise(hosts):
        link = information.conditions.link(a, b)
        links.append(
            {
                "between": [a.name, b.name],
                "latency": link.link.latency,
                "bandwidth": link.link.bandwidth,
                "method": link.method,
                "assumed": link.link.assumed,
            }
        )
    overlap, longest = information.learned.overlap, information.model.longest_border(hosts)
    return {
        "links": links,
        "overlap": overlap.factor(longest) if len(hosts) > 1 else 1.0,
        "overlap_up_to": overlap.up_to,
        "drag": information.learned.drag,
        "company": information.learned.company_of(hosts) if len(hosts) > 1 else {},
    }
