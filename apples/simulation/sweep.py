"""Many simulations: a grid of logs, policies, options and seeds, resumable, with confidence intervals."""

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
#: Metrics over jobs, which slices of a log have, too -> the attribute of `JobOutcomes`.
SLICED: Mapping[str, str] = {
    "mean_wait": "wait",
    "mean_response": "response",
    "mean_slowdown": "slowdown",
    "mean_bounded_slowdown": "bounded_slowdown",
}
#: Lower bounds of means in a ratio: a ratio of two waits near 0 has no meaning.
LEAST: Mapping[str, float] = {"mean_wait": 1.0, "mean_response": 1.0}


@dataclass(frozen=True)
class Cell:
    """One simulation of a grid: a whole log, with results in total and by slice.

    Attributes
    ----------
    processors, nodes, cores_per_node
        Size of the machine; None: an option gives a machine file.
    malleable
        Fraction of malleable jobs; negative: the policy's default.
    parts
        Number of slices with equal numbers of jobs. The log is simulated once: each slice begins on the machine in
        the state that earlier jobs left, and ends while later jobs run.
    contents
        SHA-256 of each file in log, policy and options, in this order, as `grid` read it.
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
        """Key of the cell in a file of results: a digest of its fields and of the contents of its files."""
        fields = asdict(self)
        if not self.contents:
            del fields["contents"]  # results without files keep the key of earlier versions
        text = json.dumps(fields, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        """Label of its policy with options, unique in the grid."""
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
    """Return the cells of a grid; an option `k=a|b` gives cells with both values.

    An option `sd:k=v` goes to the policy `sd` only. Without random draws, a log has only a cell with the first
    seed. A built-in policy that resizes no job has one cell, not one for each fraction of malleable jobs.
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
                continue  # no random draws: a second seed would count the same run twice
            cell = Cell(
                log, policy, chosen, seed, processors, nodes, cores_per_node, fraction, parts
            )
            cells.append(replace(cell, contents=_contents(cell, digests)))
    return cells


def _is_random(options: Sequence[str]) -> bool:
    return any(word.startswith("mtbf=") for word in options)


def run_cell(cell: Cell, files: Mapping[str, bytes] | None = None) -> dict[str, Any]:
    """Simulate one cell; return its key, its fields, its figures and those of its slices.

    Parameters
    ----------
    files
        Path -> contents of the cell's files, for a machine without these files.
    """
    with _at_hand(cell, files or {}) as local:
        made = prepare(
            local.log, local.policy, local.options, processors=cell.processors, nodes=cell.nodes,
            cores=cell.cores_per_node, malleable=None if cell.malleable < 0 else cell.malleable,
            seed=cell.seed,
        )  # fmt: skip
        if not 1 <= cell.parts <= len(made.workload):
            raise UsageError(
                f"{cell.log}: {len(made.workload)} jobs are too few for {cell.parts} slices",
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
    """Return the means of `SLICED` over each of `parts` equal slices of the jobs; None if no job completed."""
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
    """Return the contents of the cells' files: logs, policies, options with a path."""
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
    """Yield the words of a cell that are paths of local files."""
    file, colon, _ = cell.policy.rpartition(":")
    words = [cell.log, file if colon else "", *(word.partition("=")[2] for word in cell.options)]
    for word in words:
        if word and Path(word).is_file():
            yield word


@contextmanager
def _at_hand(cell: Cell, files: Mapping[str, bytes]) -> Iterator[Cell]:
    """Yield the cell with its files in a temporary folder of this machine."""
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
    """A file of results, one JSON object on each line.

    Attributes
    ----------
    rows
        Key of a cell -> its result.
    skipped
        Number of damaged lines, for example truncated by a crash: their cells are simulated again.
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
        """Write a result to disk; after the return it survives a crash."""
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
    """Yield the results of the cells missing in the file in order of completion, each after writing it.

    Parameters
    ----------
    workers
        Number of processes; 1: this process.
    dask
        Address of the scheduler of an existing Dask cluster, instead of processes.

    Raises
    ------
    UsageError
        A cell cannot be simulated; earlier results are kept.
    LaunchError
        The Dask scheduler is gone or does not answer; earlier results are kept.
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
        """Lower end; minus infinity for one value."""
        return self.mean - (np.inf if self.half is None else self.half)

    @property
    def high(self) -> float:
        """Upper end; infinity for one value."""
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
        Ends of the interval; minus one and infinity for one value.
    count, over
        Number and kind of the independent parts behind the interval: "slices" of one log, "seeds" of a model, or
        "run" for a single run without a verdict.
    """

    mean: float
    low: float
    high: float
    count: int
    over: str

    @property
    def is_sure(self) -> bool:
        """Whether the interval excludes 0."""
        return self.count > 1 and not self.low <= 0 <= self.high


def change_of(ratios: Sequence[float], over: str) -> MetricChange:
    """Return the geometric mean of independent ratios, less 1, with its interval.

    The interval is Student's t of the ratios' logarithms, so that a change is always above -100 %.

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
    """Return the relative change of a metric against the baseline, by log and label.

    Runs are paired by log and seed; a baseline without random draws is paired with all seeds. The interval is over
    independent parts. The seeds of a model are independent, since they give different workloads. The seeds of a
    log are not, since they draw on the same jobs: their log ratios are averaged within each slice, and the
    interval is over the slices (batch means). For a log with one slice the interval is over the seeds, and shows
    only the variation by the draws on this log.
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
    # Rows are pairs, columns are slices: take the mean over the pairs of each slice, or the pairs themselves.
    groups = zip(*logs, strict=True) if sliced else logs
    known = [[one for one in group if one is not None] for group in groups]
    ratios = [math.exp(fmean(group)) for group in known if group]
    return change_of(ratios, "slices" if sliced else "seeds") if ratios else None


def _log_ratio(metric: str, base: float | None, value: float | None) -> float | None:
    """Return the logarithm of value over base; None if one of them is None or 0."""
    if base is None or value is None:
        return None
    least = LEAST.get(metric, 0.0)
    base, value = max(base, least), max(value, least)
    return math.log(value / base) if base > 0 and value > 0 else None
