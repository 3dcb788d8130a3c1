"""The task: what the agent asks for, checked before anything is started."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

SCHEMA = "apples.task/1"
LEAST_CELLS = 3
PROGRESS_SECONDS = 1.0


class TaskError(ValueError):
    """The task cannot be done as it stands; the message is one line for the user."""

    def __init__(self, message: str, *, code: str = "task-invalid", **fields: Any) -> None:
        super().__init__(message)
        self.code, self.fields = code, fields


@dataclass(frozen=True)
class Parameters:
    """The parameters of the template; field names are the parameters' names. Lennard-Jones units.

    Parameters
    ----------
    cells
        Along each side of the box: cells x cells migratable blocks.
    steps, time_step
        How many, and of what length.
    cell_side
        Of a cell; at least the cutoff of 2.5.
    gas_density, drop_density, drop_radius, drop_at
        Particles per area outside and inside a drop; its radius and the place of its middle along the
        diagonal, both as parts of the box.
    drift
        Velocity of the drop in both directions: the load moves with it.
    temperature, seed
        Of the first velocities.
    strategy, balance_every
        Of the load balancer, and every how many steps it is asked; 0: at the start and when hosts change.
    """

    cells: int = 8
    steps: int = 200
    time_step: float = 0.004
    cell_side: float = 10.0
    gas_density: float = 0.05
    drop_density: float = 0.7
    drop_radius: float = 0.25
    drop_at: float = 0.3
    drift: float = 0.0
    temperature: float = 0.5
    seed: int = 1
    strategy: str = "refine"
    balance_every: int = 20


@dataclass(frozen=True)
class Task:
    """One run or calibration, as every rank sees it; of each rank its host and how many rows of cells."""

    mode: str
    parameters: Parameters
    ranks: tuple[tuple[str, int], ...]
    progress_seconds: float
    sizes: tuple[int, ...]


def read_task(text: bytes) -> Task:
    """Return the task of a JSON text.

    Raises
    ------
    TaskError
        Permanent: the text does not say what it should.
    """
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise TaskError(f"the task is not JSON: {error}", code="task-not-json") from None
    if not isinstance(raw, dict) or raw.get("schema") != SCHEMA:
        raise TaskError(f"the task's schema is not {SCHEMA}", field="schema")
    mode = raw.get("mode")
    if mode not in ("run", "calibrate"):
        raise TaskError(f"mode {mode!r} is neither run nor calibrate", field="mode")
    parameters = read_parameters(raw.get("parameters", {}))
    sizes = raw.get("sizes", []) if mode == "calibrate" else []
    if any(type(size) is not int or size < 1 for size in sizes):
        raise TaskError("sizes are whole numbers of rows of cells, at least 1", field="sizes")
    progress = raw.get("progress_seconds", 0.25)
    ranks = tuple(_ranks(raw.get("partition"))) if mode == "run" else ()
    return Task(mode, parameters, ranks, float(progress), tuple(sizes))


def alone(arguments: Sequence[str]) -> Task:
    """Return the task of a command line: ``name=value`` for each parameter that is not the default.

    Examples
    --------
    >>> alone(["cells=4", "strategy=greedy"]).parameters.cells
    4
    """
    known = {field.name: field.type for field in fields(Parameters)}
    raw: dict[str, Any] = {}
    for argument in arguments:
        name, separator, value = argument.partition("=")
        if not separator:
            raise TaskError(f"{argument!r} is not name=value", code="parameter-invalid")
        read = known.get(name, str)
        try:
            raw[name] = read(value)  # type: ignore[operator]  # int, float or str
        except ValueError:
            text = f"{name} is {value!r}, not {read.__name__}"  # type: ignore[union-attr]
            raise TaskError(text, code="parameter-type", field=name) from None
    return Task("run", read_parameters(raw), (), PROGRESS_SECONDS, ())


def read_parameters(raw: Mapping[str, Any]) -> Parameters:
    """Return the checked parameters; a name that is not known is an error, not a wish."""
    known = {field.name: field.type for field in fields(Parameters)}
    unknown = sorted(set(raw) - set(known))
    if unknown:
        text = f"unknown parameter {unknown[0]!r}; known: {', '.join(known)}"
        raise TaskError(text, code="program-parameter-unknown", field=unknown[0])
    for name, value in raw.items():
        wanted = (int, float) if known[name] is float else known[name]
        if isinstance(value, bool) or not isinstance(value, wanted):  # type: ignore[arg-type]
            text = f"{name} is {value!r}, not {known[name].__name__}"  # type: ignore[union-attr]
            raise TaskError(text, code="parameter-type", field=name)
        if isinstance(value, float) and not math.isfinite(value):
            text = f"{name} is {value!r}, not a finite number"
            raise TaskError(text, code="parameter-type", field=name)
    parameters = Parameters(**raw)
    least = {
        "cells": LEAST_CELLS,
        "steps": 1,
        "cell_side": 2.5,
        "gas_density": 0,
        "drop_density": 0,
        "temperature": 0,
        "balance_every": 0,
        "seed": 0,
    }
    for name, bound in least.items():
        if getattr(parameters, name) < bound:
            value = getattr(parameters, name)
            text = f"{name} is {value}, less than {bound}"
            raise TaskError(text, code="parameter-range", field=name, value=value, bound=bound)
    if not 0 < parameters.time_step <= 1:
        text = f"time_step is {parameters.time_step}, not above 0 and at most 1"
        raise TaskError(text, code="parameter-range", field="time_step")
    return parameters


def _ranks(partition: object) -> list[tuple[str, int]]:
    if not isinstance(partition, list) or not partition:
        raise TaskError("the partition is not a list of one entry or more", field="partition")
    ranks: list[tuple[str, int]] = []
    for index, entry in enumerate(partition):
        try:
            host, count, rows = str(entry["host"]), int(entry["ranks"]), int(entry["rows"])
        except (TypeError, KeyError, ValueError):
            text = f"partition entry {index} does not say host, ranks and rows"
            raise TaskError(text, code="partition-invalid", index=index) from None
        if not 1 <= count <= rows:
            text = f"partition entry {index} has {count} ranks for {rows} rows"
            raise TaskError(text, code="ranks-exceed-rows", index=index)
        ranks += [(host, rows // count + (place < rows % count)) for place in range(count)]
    return ranks
