"""From what a user asks of a running job to a command, and to what became of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from apples.agent.information import InformationPool, as_measured
from apples.agent.planners import balanced
from apples.cli import deciding
from apples.cli.actuating import others_of, remembering, weather_of
from apples.errors import InfeasibleError, LaunchError, UsageError
from apples.jobs.store import StoredJob
from apples.launch.actuator import Resized
from apples.launch.actuators.malleable import RESIZE_SECONDS, resized
from apples.malleable.command import Command, Share
from apples.malleable.conversing import Conversation


@dataclass(frozen=True, slots=True)
class Asked:
    """A map somebody wants.

    Attributes
    ----------
    weights
        By host, in the order named: a factor on its planned speed.
    rows
        The rows themselves, where they are to stay what they are.
    """

    weights: Mapping[str, float]
    rows: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class At:
    """Where a job is."""

    rows: Mapping[str, int]
    epoch: int

    def same(self) -> Asked:
        """Return its own hosts, to be balanced anew."""
        return Asked(dict.fromkeys(self.rows, 1.0))

    def swapped(self, source: str, target: str) -> Asked:
        """Return its map with one host in another's place."""
        if source not in self.rows:
            here = ", ".join(self.rows)
            raise UsageError(f"--from {source}: the job is not there (it is on {here})")
        if target in self.rows:
            raise UsageError(f"--to {target}: the job is there already")
        rows = {target if host == source else host: n for host, n in self.rows.items()}
        return Asked(dict.fromkeys(rows, 1.0), rows)


def map_asked(text: str) -> Asked:
    """Return the map of ``a,b=0.5,..``.

    Examples
    --------
    >>> map_asked("ada,bob=0.5").weights
    {'ada': 1.0, 'bob': 0.5}
    """
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, separator, number = part.strip().partition("=")
        try:
            weight = float(number) if separator else 1.0
        except ValueError:
            weight = math.nan
        if not name or not 0 < weight < math.inf:
            raise UsageError(
                f"--hosts {part.strip() or text!r}: must be NAME or NAME=WEIGHT above 0"
            )
        if name in weights:
            raise UsageError(f"--hosts {name}: is named twice")
        weights[name] = weight
    return Asked(weights)


def wanted(at: At, verb: str, words: Sequence[str]) -> Asked:
    """Return the map that ``map HOSTS``, ``swapped FROM TO`` or ``same`` asks for."""
    if verb == "map":
        return map_asked(words[0])
    return at.swapped(words[0], words[1]) if verb == "swapped" else at.same()


def moved(job: StoredJob, talking: Conversation, verb: str, words: Sequence[str]) -> Resized:
    """Carry a move out; returns when the job is there."""
    status = talking.status()
    if not status["malleable"] and len(status["hosts"]) != 1:
        raise LaunchError(f"job {job.id} cannot be resized")
    at = At(dict(zip(status["hosts"], status["rows"], strict=True)), int(status["epoch"]))
    asked = wanted(at, verb, words)
    rows = asked.rows or planned(job, at, asked.weights)
    hosts = tuple(Share(host, float(max(1, count))) for host, count in rows.items())
    return resized(talking.resize(Command(at.epoch + 1, hosts), RESIZE_SECONDS))


def planned(job: StoredJob, at: At, weights: Mapping[str, float]) -> Mapping[str, int]:
    """Return the rows that balance these hosts, by measured times where the job is."""
    order = job.order()
    if not order.get("template"):  # a program that knows nothing of us has no rows
        return dict.fromkeys(weights, 1)
    through, weather = order.get("actuator", "local"), order["weather"]
    sky = weather_of(through, weather)
    with chdir(order["directory"]):
        information = deciding.information_of(
            Path(order["hosts"]), Path(order["template"]), Path(order["user"]),
            order["settings"], sky, order["model"], partial(others_of, through),
        )  # fmt: skip
    information = information if sky == weather else remembering(information)
    unknown = [name for name in weights if name not in information.hosts]
    if unknown:
        there = ", ".join(host.name for host in information.hosts)
        raise UsageError(f"unknown host '{unknown[0]}': the job's host list has {there}")
    measured = job.record().get("measured") or {"rows": at.rows, "compute_seconds": {}}
    rows, seconds = measured["rows"], measured["compute_seconds"]
    seen = as_measured(information, rows, seconds).pace
    bias = min((seen[host] for host in seconds if host in seen), default=1.0)
    known = as_measured(information, rows, seconds, bias=bias)
    current = _usable(known, weights)
    schedule = balanced(tuple(information.hosts[name] for name in weights), current)
    total = information.application.rows
    if sum(schedule.rows) != total:
        names = ", ".join(weights)
        raise InfeasibleError(f"{names}: memory for {sum(schedule.rows):.0f} of {total} rows")
    return {a.host.name: int(a.rows) for a in schedule.allocations}


def _usable(information: InformationPool, weights: Mapping[str, float]) -> InformationPool:
    """Return the pool with each host as much faster as its weight says."""
    pace = dict(information.pace)
    for name, weight in weights.items():
        pace[name] = pace.get(name, 1.0) / weight
    return information.varied(pace=pace)
