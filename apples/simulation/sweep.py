"""Many simulations: a grid of logs, policies, options and seeds, resumable, with intervals."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from apples.errors import LaunchError, UsageError
from apples.simulation.metrics import summary
from apples.simulation.prepare import options_of_policy, prepare
from apples.simulation.sources import is_generated
from apples.storage.folder import Folder
from apples.storage.journal import Journal, parse

METRICS = (
    "mean_wait", "mean_response", "mean_slowdown", "mean_bounded_slowdown", "makespan",
    "utilisation", "energy", "malleable_starts", "mates", "resizes",
)  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One simulation of a grid.

    Attributes
    ----------
    part, parts
        The `part`-th of `parts` slices of the log, equal in jobs.
    malleable
        Fraction; negative: as the policy has it.
    """

    log: str
    policy: str
    options: tuple[str, ...]
    seed: int
    processors: int
    nodes: int | None = None
    cores_per_node: int | None = None
    malleable: float = -1.0
    part: int = 0
    parts: int = 1

    @property
    def key(self) -> str:
        """What identifies the cell in a file of results."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        """What distinguishes its policy from the others of the grid."""
        extra = [*self.options] + (
            [f"malleable={self.malleable:g}"] if self.malleable >= 0 else []
        )
        return " ".join([self.policy, *extra])

    @property
    def case(self) -> tuple[str, int, int]:
        """What cells of different policies share: cells are compared within a case."""
        return (self.log, self.part, self.seed)


def grid(
    logs: Sequence[str],
    policies: Sequence[str],
    options: Sequence[str],
    seeds: Iterable[int],
    *,
    malleable: Sequence[float] = (-1.0,),
    parts: int = 1,
    processors: int,
    nodes: int | None = None,
    cores_per_node: int | None = None,
) -> list[Cell]:
    """Return the cells of a grid; an option `k=a|b` stands for both values.

    An option that only some of the policies have is given to those alone: write `sd:k=v`. Where
    nothing is drawn at random, a log is run with the first seed only.
    """
    seeds = list(seeds)
    cells: list[Cell] = []
    for log, policy in product(logs, policies):
        choices = [
            [f"{word.partition('=')[0]}={value}" for value in word.partition("=")[2].split("|")]
            for word in options_of_policy(policy, options)
        ]
        for chosen, part, fraction, seed in product(
            product(*choices), range(parts), malleable, seeds
        ):
            drawn = is_generated(log) or 0 < fraction < 1 or _is_random(chosen)
            if seed != seeds[0] and not drawn:
                continue  # nothing is drawn: a second seed would count the same run twice
            cells.append(
                Cell(log, policy, chosen, seed, processors, nodes, cores_per_node,
                     fraction, part, parts)
            )  # fmt: skip
    return cells


def _is_random(options: Sequence[str]) -> bool:
    return any(word.startswith("mtbf=") for word in options)


def run_cell(cell: Cell) -> dict[str, Any]:
    """Simulate one cell; return its key, its words and its figures."""
    made = prepare(
        cell.log, cell.policy, cell.options, processors=cell.processors, nodes=cell.nodes,
        cores=cell.cores_per_node, malleable=None if cell.malleable < 0 else cell.malleable,
        seed=cell.seed, part=cell.part, parts=cell.parts,
    )  # fmt: skip
    result = made.run()
    figures = summary(made.workload, result, made.config)
    return {"key": cell.key, "cell": asdict(cell), "sha256": made.source.sha256, **figures,
            "simulation_seconds": result.seconds}  # fmt: skip


class Results:
    """A file of results, one JSON object a line; what is in it has been simulated.

    Attributes
    ----------
    rows
        Key of a cell -> its result.
    skipped
        Lines that are damaged, say cut off by a crash: their cells are simulated again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._journal: Journal | None = None
        data = path.read_bytes() if path.exists() else b""
        records, problems, _ = parse(data, sealed=False)
        rows = [row for row in records if isinstance(row.get("key"), str)]
        self.rows = {row["key"]: row for row in rows}
        self.skipped = len(problems) + len(records) - len(rows)

    def add(self, row: dict[str, Any]) -> None:
        """Write a result to the disk; once this returns it survives a crash."""
        if self._journal is None:
            folder = Folder.open(self.path.absolute().parent, links=True)
            self._journal = Journal(folder, "", self.path.name)
            self._journal.recover()
        if self._journal.whole:
            self._journal.append(row)
        else:
            self._journal.rewrite([*self.rows.values(), row])
        self.rows[row["key"]] = row


def sweep(
    cells: Sequence[Cell], results: Results, workers: int = 1, dask: str | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the results of the cells not yet in the file, as they come, after writing them to it.

    Parameters
    ----------
    workers
        Processes; 1: this one.
    dask
        Address of a scheduler of an existing cluster, instead of processes.

    Raises
    ------
    UsageError
        A cell cannot be simulated; what was done before is kept.
    """
    missing = [cell for cell in cells if cell.key not in results.rows]
    if dask is None and workers == 1:
        for cell in missing:
            row = run_cell(cell)
            results.add(row)
            yield row
        return
    if dask is not None:
        try:
            distributed = import_module("distributed")
        except ImportError as error:
            raise UsageError("--dask needs: pip install 'apples[dask]'") from error
        try:
            connected = distributed.Client(dask, timeout=10)
        except (OSError, ValueError) as error:
            raise LaunchError(f"no Dask scheduler at {dask}: {error}") from error
        with connected as client:
            for _, row in distributed.as_completed(
                client.map(run_cell, missing, pure=False), with_results=True
            ):
                results.add(row)
                yield row
        return
    with ProcessPoolExecutor(workers) as pool:
        futures: list[Future[dict[str, Any]]] = [pool.submit(run_cell, cell) for cell in missing]
        try:
            for future in as_completed(futures):
                row = future.result()
                results.add(row)
                yield row
        finally:
            for future in futures:
                future.cancel()


@dataclass(frozen=True)
class MeanInterval:
    """A mean with the half width of its 95 % interval (Student's t); no width for one value."""

    mean: float
    half: float | None
    count: int

    @property
    def low(self) -> float:
        """Lower end; minus infinity where one value says nothing of the spread."""
        return self.mean - (np.inf if self.half is None else self.half)

    @property
    def high(self) -> float:
        """Upper end."""
        return self.mean + (np.inf if self.half is None else self.half)


def interval(values: Sequence[float]) -> MeanInterval:
    """Return the mean of independent values and its 95 % interval.

    Examples
    --------
    >>> interval([1.0, 2.0, 3.0]).half
    2.4841
    """
    count = len(values)
    mean = float(np.mean(values))
    if count < 2:
        return MeanInterval(mean, None, count)
    from scipy.special import stdtrit  # noqa: PLC0415 - the quantile of Student's t; SciPy is slow to load

    error = float(np.std(values, ddof=1)) / count**0.5
    return MeanInterval(mean, float(stdtrit(count - 1, 0.975)) * error, count)


def compare(
    rows: Sequence[Mapping[str, Any]], baseline: str, metric: str
) -> dict[str, dict[str, MeanInterval]]:
    """Return by log and label the relative change of a metric to the baseline, paired by case.

    0.1 is ten per cent more than the baseline on the same slice and seed.
    """
    by_case: dict[tuple[str, int, int], dict[str, float]] = {}
    for row in rows:
        cell = Cell(**{**row["cell"], "options": tuple(row["cell"]["options"])})
        if row[metric] is not None:
            by_case.setdefault(cell.case, {})[cell.label] = row[metric]
    changes: dict[str, dict[str, list[float]]] = {}
    for (log, _, _), values in by_case.items():
        base = values.get(baseline)
        if base:
            for label, value in values.items():
                changes.setdefault(log, {}).setdefault(label, []).append(value / base - 1)
    return {
        log: {label: interval(values) for label, values in by_label.items()}
        for log, by_label in changes.items()
    }
