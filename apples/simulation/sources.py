"""Where workloads come from: SWF logs, Slurm's accounting, models."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from math import isfinite
from pathlib import Path

import numpy as np

from apples.errors import UsageError
from apples.simulation.swf import Log, read_swf
from apples.simulation.workload import Cleaning, Workload, clean

SACCT_FIELDS = ("JobIDRaw", "Submit", "Start", "End", "Timelimit", "AllocCPUS", "ReqCPUS", "State")


def read_log(path: Path) -> Log:
    """Return a log: sacct's if its first line names sacct's columns, else SWF."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rb") if packed else path.open("rb") as text:
            first = text.readline(4096)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UsageError(f"{path}: damaged or truncated gzip: {error}") from error
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    if b"|" in first and b"Submit" in first:
        return read_sacct(path)
    return read_swf(path)


def read_sacct(path: Path) -> Log:
    """Return the jobs of `sacct --parsable2`, with a format of at least `SACCT_FIELDS`.

    Further columns are ignored, job steps (`12.batch`) too. Times are seconds since 1970, read as
    UTC: sacct writes local time without its offset; use `TZ=UTC sacct` where that matters.

    Raises
    ------
    UsageError
        A missing column, a value that cannot be read (file and line are named). Permanent.
    """
    data = path.read_bytes()
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    lines = text.decode("utf-8", "replace").splitlines()
    names = lines[0].split("|")
    missing = [name for name in SACCT_FIELDS if name not in names]
    if missing:
        raise UsageError(f"{path}:1: sacct columns missing: {', '.join(missing)}")
    at = [names.index(name) for name in SACCT_FIELDS]
    rows: list[tuple[float, ...]] = []
    numbers: list[int] = []
    for number, line in enumerate(lines[1:], 2):
        words = line.split("|")
        if not line.strip() or "." in words[at[0]]:
            continue
        if len(words) != len(names):
            raise UsageError(
                f"{path}:{number}: {len(words)} columns where the header has {len(names)}"
            )
        try:
            rows.append(_sacct_row([words[k] for k in at]))
        except ValueError as error:
            raise UsageError(f"{path}:{number}: {error}") from error
        numbers.append(number)
    if not rows:
        raise UsageError(f"{path}: holds no job records")
    table = np.array(rows).T
    columns = (
        "job",
        "submit",
        "run",
        "requested_time",
        "allocated",
        "requested_processors",
        "status",
    )
    return Log(
        columns=dict(zip(columns, table, strict=True)),
        lines=np.array(numbers, dtype=np.int64),
        source=str(path),
        sha256=hashlib.sha256(data).hexdigest(),
    )


def _sacct_row(words: list[str]) -> tuple[float, ...]:
    number, submit, start, end, limit, allocated, asked, state = words
    began, ended = _time(start), _time(end)
    run = ended - began if began >= 0 and ended >= 0 else -1.0
    status = 1.0 if state.startswith("COMPLETED") else 5.0 if state.startswith("CANCEL") else 0.0
    return (
        float(number), _time(submit), run, _duration(limit),
        _count(allocated), _count(asked), status,
    )  # fmt: skip


def _time(word: str) -> float:
    if word in ("", "Unknown", "None"):
        return -1.0
    return datetime.fromisoformat(word).replace(tzinfo=UTC).timestamp()


def _count(word: str) -> float:
    return float(word) if word else -1.0


def _duration(word: str) -> float:
    """Return the seconds of [days-]hours:minutes:seconds; -1 for no limit."""
    if word in ("", "UNLIMITED", "Partition_Limit"):
        return -1.0
    days, _, clock = word.rpartition("-")
    hours, minutes, seconds = (float(part) for part in clock.split(":"))
    return (float(days or 0) * 24 + hours) * 3600 + minutes * 60 + seconds


def is_generated(source: str) -> bool:
    """Return whether a log's name is that of a model: `lublin:jobs=1000,processors=256`."""
    return source.partition(":")[0] in GENERATORS and not Path(source).exists()


def generated(source: str, seed: int) -> Workload:
    """Return the workload of a model.

    `kale:jobs=,load=,adaptive=`, `lublin:jobs=,processors=,typeless=`, `downey:jobs=,processors=,
    load=`, `cirne:jobs=,nodes=,cores_per_node=,widest=,load=,exact=` (like Cirne's, own
    coefficients).

    Raises
    ------
    UsageError
        A parameter the model does not have, or no number. Permanent.
    """
    name, _, rest = source.partition(":")
    known = GENERATORS[name]
    values: dict[str, float] = dict(known)
    for word in filter(None, rest.split(",")):
        key, _, value = word.partition("=")
        if key not in known:
            raise UsageError(f"log {source!r}: {name} has {', '.join(known)}, not {key!r}")
        try:
            values[key] = float(value)
        except ValueError as error:
            raise UsageError(f"log {source!r}: {key} is no number: {value!r}") from error
    for key, number in values.items():
        low, high = BOUNDS.get(key, (0.0, 1.0))
        if not (isfinite(number) and low <= number <= high):
            raise UsageError(f"log {source!r}: {key}={number:g} lies outside {low:g}..{high:g}")
    jobs = int(values["jobs"])
    models = import_module("apples.simulation.generators")  # with scipy: only where it is needed
    workload: Workload
    if name == "kale":
        workload = models.kale_workload(
            jobs, values["load"], seed, adaptive=bool(values["adaptive"])
        )
    elif name == "lublin":
        workload = models.lublin_workload(
            jobs, int(values["processors"]), seed, typeless=bool(values["typeless"])
        )
    elif name == "downey":
        workload = models.downey_workload(jobs, int(values["processors"]), values["load"], seed)
    else:
        workload = models.cirne_like_workload(
            jobs,
            int(values["nodes"]),
            int(values["cores_per_node"]),
            int(values["widest"]),
            seed,
            coefficients=models.CirneLike(load=values["load"]),
            exact_requests=bool(values["exact"]),
        )
    return workload


#: Of a model's parameters; those not named are switches, 0 or 1.
BOUNDS: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("jobs", "processors", "nodes", "cores_per_node", "widest"), (1, 1e7)),
    "load": (1e-6, 1e6),
}
GENERATORS: Mapping[str, Mapping[str, float]] = {
    "kale": {"jobs": 10_000, "load": 0.5, "adaptive": 1},
    "lublin": {"jobs": 10_000, "processors": 256, "typeless": 1},
    "downey": {"jobs": 10_000, "processors": 256, "load": 0.7},
    "cirne": {
        "jobs": 5000, "nodes": 1024, "cores_per_node": 48, "widest": 128, "load": 1.0, "exact": 0,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Source:
    """A workload with its history.

    Attributes
    ----------
    cleaning, records
        What was done to how many records.
    sha256
        Of the log as stored; empty for a model.
    processors
        Of the machine.
    from_header
        Whether the log's header said how large the machine is.
    """

    workload: Workload
    cleaning: Cleaning
    records: int
    sha256: str
    processors: int
    from_header: bool = False


def load_workload(
    source: str,
    processors: int | None,
    rule: str = "default",
    *,
    strict: bool = False,
    seed: int = 0,
) -> Source:
    """Return a workload for a machine of so many processors; None: as the log's header says.

    Raises
    ------
    UsageError
        The log cannot be read, or nothing says how large the machine is. Permanent.
    """
    if is_generated(source):
        if processors is None:
            raise UsageError("--processors, or --nodes and --cores-per-node, say how large it is")
        workload = generated(source, seed)
        fits = workload.processors <= processors
        dropped = {f"more than {processors} processors": int((~fits).sum())}
        if not fits.any():
            raise UsageError(f"{source}: no job can run on {processors} processors")
        return Source(workload.take(fits), Cleaning(dropped), len(workload), "", processors)
    log = read_log(Path(source))
    size = _header_processors(log) if processors is None else processors
    workload, cleaning = clean(log, size, rule, strict)
    return Source(workload, cleaning, len(log), log.sha256, size, processors is None)


def _header_processors(log: Log) -> int:
    said = log.header_value("MaxProcs") or "none"
    if not said.isdigit() or not int(said):
        raise UsageError(
            f"{log.source}: its header has no MaxProcs; --processors, or --nodes and "
            "--cores-per-node, say how large the machine is"
        )
    return int(said)
