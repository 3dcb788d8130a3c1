"""Many simulations: a grid of logs, policies, options and seeds, resumable, with intervals."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise, product
from math import inf
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apples.errors import UsageError
from apples.io.folder import Folder
from apples.io.journal import Journal, parse
from apples.scheduling.policies import POLICIES
from apples.simulation.documents import Metric
from apples.simulation.metrics import JobOutcomes, job_outcomes, summary
from apples.simulation.prepare import options_of_policy, prepare
from apples.simulation.sources import is_generated

METRICS: tuple[Metric, ...] = (
    "mean_wait", "mean_response", "mean_slowdown", "mean_bounded_slowdown", "makespan",
    "utilisation", "energy", "malleable_starts", "mates", "resizes",
)  # fmt: skip
#: Metrics of single jobs, which a slice of a log has too, and what they are the mean of.
SLICED: Mapping[str, str] = {
    "mean_wait": "wait",
    "mean_response": "response",
    "mean_slowdown": "slowdown",
    "mean_bounded_slowdown": "bounded_slowdown",
}
#: Means below it count as it: the ratio of two waits of no time says nothing.
LEAST: Mapping[str, float] = {"mean_wait": 1.0, "mean_response": 1.0}


@dataclass(frozen=True)
class Cell:
    """One simulation of a grid: a whole log, judged whole and by slices.

    Attributes
    ----------
    processors, nodes, cores_per_node
        The machine; None: a machine file among the options says it.
    malleable
        Fraction; negative: as the policy has it.
    parts
        Slices by which it is judged, equal in jobs. The log is simulated once, so that each slice begins on
        the machine as the jobs before it left it, and ends among those after it.
    contents
        SHA-256 of each file that log, policy and options name, in this order, as `grid` read it.
    """

    log: str
    policy: str
    options: tuple[str, ...]
    seed: int
    processors: int | None
    nodes: int | None = None
    cores_per_node: int | None = None
    malleable: float = -1.0
    parts: int = 1
    contents: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """What identifies the cell in a file of results: its words and the contents of its files."""
        fields = asdict(self)
        if not self.contents:
            del fields["contents"]  # results without files keep the key of earlier versions
        text = json.dumps(fields, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        """What distinguishes its policy from the others of the grid."""
        extra = [*self.options] + (
            [f"malleable={self.malleable:g}"] if self.malleable >= 0 else []
        )
        return " ".join([self.policy, *extra])

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Cell:
        """Return the cell of a row of results."""
        lists = {name: tuple(row["cell"].get(name, ())) for name in ("options", "contents")}
        return cls(**{**row["cell"], **lists})


def grid(
    logs: Sequence[str],
    policies: Sequence[str],
    options: Sequence[str],
    seeds: Iterable[int],
    *,
    malleable: Sequence[float] = (-1.0,),
    parts: int = 1,
    processors: int | None,
    nodes: int | None = None,
    cores_per_node: int | None = None,
) -> list[Cell]:
    """Return the cells of a grid; an option `k=a|b` stands for both values.

    An option that only some of the policies have is given to those alone: write `sd:k=v`. Where
    nothing is drawn at random, a log is run with the first seed only. A policy of ours that resizes
    no job is run once, not once a fraction of malleable ones.
    """
    seeds = list(seeds)
    cells: list[Cell] = []
    digests: dict[str, str] = {}
    for log, policy in product(logs, policies):
        choices = [
            [f"{word.partition('=')[0]}={value}" for value in word.partition("=")[2].split("|")]
            for word in options_of_policy(policy, options)
        ]
        rigid = policy in POLICIES and not POLICIES[policy].uses_malleable
        for chosen, fraction, seed in product(
            product(*choices), (-1.0,) if rigid else malleable, seeds
        ):
            drawn = is_generated(log) or 0 < fraction < 1 or _is_random(chosen)
            if seed != seeds[0] and not drawn:
                continue  # nothing is drawn: a second seed would count the same run twice
            cell = Cell(
                log, policy, chosen, seed, processors, nodes, cores_per_node, fraction, parts
            )
            cells.append(replace(cell, contents=_contents(cell, digests)))
    return cells


def _is_random(options: Sequence[str]) -> bool:
    return any(word.startswith("mtbf=") for word in options)


def run_cell(cell: Cell, files: Mapping[str, bytes] | None = None) -> dict[str, Any]:
    """Simulate one cell; return its key, its words, its figures, and those of its slices.

    Parameters
    ----------
    files
        What stands in the files that the cell names, on a machine that does not have them.
    """
    with _at_hand(cell, files or {}) as local:
        made = prepare(
            local.log, local.policy, local.options, processors=cell.processors, nodes=cell.nodes,
            cores=cell.cores_per_node, malleable=None if cell.malleable < 0 else cell.malleable,
            seed=cell.seed,
        )  # fmt: skip
        if not 1 <= cell.parts <= len(made.workload):
            raise UsageError(
                f"{cell.log}: {len(made.workload)} jobs do not make {cell.parts} slices",
                code="value-range",
                file=cell.log,
                option="parts",
                value=cell.parts,
                bound=len(made.workload),
            )
        result = made.run()
        if cell.contents and cell.contents != _contents(local, {}):
            raise UsageError(
                f"{cell.log}, {cell.label}: a file of this run changed while it was simulated; start again",
                code="input-changed",
                file=cell.log,
            )
    return {
        "key": cell.key,
        "cell": asdict(cell),
        "sha256": made.source.sha256,
        **summary(made.workload, result, made.config),
        "slices": by_slice(job_outcomes(made.workload, result), result.completed, cell.parts),
        "simulation_seconds": result.seconds,
    }


def by_slice(
    outcomes: JobOutcomes, completed: NDArray[np.bool_], parts: int
) -> dict[str, list[float | None]]:
    """Return the means of `SLICED` over each slice, equal in jobs; None where none completed."""
    edges = np.linspace(0, len(completed), parts + 1).astype(int)
    done = np.concatenate(([0], np.cumsum(completed)))[edges]
    return {
        metric: [
            float(getattr(outcomes, name)[low:high].mean()) if low < high else None
            for low, high in pairwise(done)
        ]
        for metric, name in SLICED.items()
    }


def files_of(cells: Iterable[Cell]) -> dict[str, bytes]:
    """Return what stands in the files that cells name: logs, policies, options with a path."""
    files: dict[str, bytes] = {}
    for cell in cells:
        for word in _paths(cell):
            if word not in files:
                files[word] = Path(word).read_bytes()
    return files


def _contents(cell: Cell, digests: dict[str, str]) -> tuple[str, ...]:
    """Return the SHA-256 of each file of a cell; `digests` caches them by path."""
    files = [*_paths(cell), *_module_file(cell.policy)]
    for file in files:
        if file not in digests:
            digests[file] = hashlib.sha256(Path(file).read_bytes()).hexdigest()
    return tuple(digests[file] for file in files)


def _module_file(policy: str) -> Iterator[str]:
    """Yield the file of a policy of the form ``module:name``."""
    module, colon, _ = policy.rpartition(":")
    if colon and not module.endswith(".py"):
        with suppress(ImportError, ValueError):  # the simulation reports them
            found = find_spec(module)
            if found is not None and found.has_location and found.origin is not None:
                yield found.origin


def _paths(cell: Cell) -> Iterator[str]:
    """Yield the words of a cell that are files here."""
    file, colon, _ = cell.policy.rpartition(":")
    words = [cell.log, file if colon else "", *(word.partition("=")[2] for word in cell.options)]
    for word in words:
        if word and Path(word).is_file():
            yield word


@contextmanager
def _at_hand(cell: Cell, files: Mapping[str, bytes]) -> Iterator[Cell]:
    """Give the cell with its files in a folder of this machine, for as long as it is simulated."""
    if not files:
        yield cell
        return
    with TemporaryDirectory() as folder:
        here: dict[str, str] = {}
        for number, (name, data) in enumerate(files.items()):
            place = Path(folder, str(number), Path(name).name)
            place.parent.mkdir()
            place.write_bytes(data)
            here[name] = str(place)
        file, colon, name = cell.policy.rpartition(":")
        options = [word.partition("=") for word in cell.options]
        yield replace(
            cell,
            log=here.get(cell.log, cell.log),
            policy=f"{here.get(file, file)}{colon}{name}",
            options=tuple(f"{key}{equals}{here.get(v, v)}" for key, equals, v in options),
        )


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
    LaunchError
        A Dask scheduler is gone or silent; likewise.
    """
    missing = [cell for cell in cells if cell.key not in results.rows]
    if dask is None and workers == 1:
        for cell in missing:
            row = run_cell(cell)
            results.add(row)
            yield row
        return
    if dask is not None:
        from apples.launch.dask_cluster import dask_cluster  # noqa: PLC0415 - asyncio: slow to load

        with dask_cluster(dask) as cluster:
            scatter = partial(cluster.client.scatter, files_of(missing), hash=False)
            files = cluster.await_answer(partial(scatter, broadcast=True))
            asked = cluster.client.map(run_cell, missing, [files] * len(missing), pure=False)
            coming = import_module("distributed").as_completed(asked, with_results=True)
            for _ in missing:
                _, row = cluster.await_answer(coming.__anext__)
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


@dataclass(frozen=True)
class MetricChange:
    """A relative change with its 95 % interval: 0.1 is ten per cent more.

    Attributes
    ----------
    low, high
        Minus one and infinity where one value says nothing of the spread.
    count, over
        Of how many independent parts the interval is, and what they are: "slices" of one log, "seeds"
        of a model, or "run": a single one, of which no verdict follows.
    """

    mean: float
    low: float
    high: float
    count: int
    over: str

    @property
    def is_sure(self) -> bool:
        """Whether the interval leaves 0 out."""
        return self.count > 1 and not self.low <= 0 <= self.high


def change_of(ratios: Sequence[float], over: str) -> MetricChange:
    """Return the geometric mean of independent ratios, less 1, with its interval.

    The interval is Student's t of the ratios' logarithms: a change of -100 % or less cannot come out.

    Examples
    --------
    >>> change = change_of([0.5, 0.5, 0.5], "seeds")
    >>> round(change.mean, 12), round(change.low, 12), change.is_sure
    (-0.5, -0.5, True)
    """
    one = interval([math.log(ratio) for ratio in ratios])
    ends = (one.low, one.high)
    low, high = (math.expm1(end) if end < math.log(sys.float_info.max) else inf for end in ends)
    return MetricChange(
        math.expm1(one.mean), low, high, one.count, over if one.count > 1 else "run"
    )


def compare(
    rows: Sequence[Mapping[str, Any]], baseline: str, metric: str
) -> dict[str, dict[str, MetricChange]]:
    """Return by log and label the relative change of a metric to the baseline.

    Runs are paired by log and seed; a baseline in which nothing is drawn is the pair of all seeds. What
    is independent makes the interval: the seeds of a model are, being different workloads. The seeds
    of a log are not, being drawn on the same jobs: their log ratios are averaged within each slice,
    and the slices make the interval (batch means). A log in one slice has its seeds alone: then the
    interval is of what is drawn, on this log.
    """
    runs: dict[str, dict[str, dict[int, Mapping[str, Any]]]] = {}
    for row in rows:
        cell = Cell.of(row)
        runs.setdefault(cell.log, {}).setdefault(cell.label, {})[cell.seed] = row
    changes: dict[str, dict[str, MetricChange]] = {}
    for log, by_label in runs.items():
        bases = by_label.get(baseline, {})
        for label, by_seed in by_label.items():
            pairs = [
                (bases.get(seed) or next(iter(bases.values())), row)
                for seed, row in by_seed.items()
                if seed in bases or (bases and not is_generated(log))
            ]
            found = _change(log, pairs, metric)
            if found is not None:
                changes.setdefault(log, {})[label] = found
    return changes


def _change(
    log: str, pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], metric: str
) -> MetricChange | None:
    if not pairs:
        return None
    sliced = metric in SLICED and not is_generated(log) and len(pairs[0][1]["slices"][metric]) > 1
    columns = [
        [run["slices"][metric] if sliced else [run[metric]] for run in pair] for pair in pairs
    ]
    logs = [
        [_log_ratio(metric, base, value) for base, value in zip(*pair, strict=True)]
        for pair in columns
    ]
    # One row a pair, one column a slice: the mean over the pairs of each slice, or the pairs themselves.
    groups = zip(*logs, strict=True) if sliced else logs
    known = [[one for one in group if one is not None] for group in groups]
    ratios = [math.exp(fmean(group)) for group in known if group]
    return change_of(ratios, "slices" if sliced else "seeds") if ratios else None


def _log_ratio(metric: str, base: float | None, value: float | None) -> float | None:
    """Return the logarithm of value over base; None where one of them is nothing."""
    if base is None or value is None:
        return None
    least = LEAST.get(metric, 0.0)
    base, value = max(base, least), max(value, least)
    return math.log(value / base) if base > 0 and value > 0 else None
