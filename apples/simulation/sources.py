"""Where workloads come from: SWF logs, the archive of such logs, Slurm's accounting, models."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from math import isfinite
from pathlib import Path

import numpy as np
from platformdirs import user_state_path

from apples.errors import LaunchError, UsageError
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
        _sacct_count(allocated), _sacct_count(asked), status,
    )  # fmt: skip


def _time(word: str) -> float:
    if word in ("", "Unknown", "None"):
        return -1.0
    return datetime.fromisoformat(word).replace(tzinfo=UTC).timestamp()


def _sacct_count(word: str) -> float:
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


ARCHIVE = "https://www.cs.huji.ac.il/labs/parallel/workload"
MOST_BYTES = 1 << 30
SECONDS = 30.0


@dataclass(frozen=True)
class KnownLog:
    """A log of the archive.

    Attributes
    ----------
    folder
        At the archive.
    sha256
        Of the unpacked text; empty where it is not known to us.
    """

    folder: str
    processors: int
    sha256: str = ""


LOGS: Mapping[str, KnownLog] = {
    "KTH-SP2-1996-2": KnownLog(
        "l_kth_sp2", 100, "df76b94e5f670db52179688a98deec3e1887d10adb39f96c900b8e92abb386ab"
    ),
    "NASA-iPSC-1993-3.1-cln": KnownLog(
        "l_nasa_ipsc", 128, "9d997a2c20a7f7b0b6d81638d756ce8b2c524c4f2e9ec78da36001743ca33d76"
    ),
    "RICC-2010-2": KnownLog(
        "l_ricc", 8192, "986a2a12df85adc3c2a2eb80a31b4ff9a056b92637526ee53fb70637b1bf0518"
    ),
    "CEA-Curie-2011-2.1-cln": KnownLog("l_cea_curie", 93312),
    "CTC-SP2-1996-3.1-cln": KnownLog("l_ctc_sp2", 338),
    "SDSC-SP2-1998-4.2-cln": KnownLog("l_sdsc_sp2", 128),
    "SDSC-BLUE-2000-4.2-cln": KnownLog("l_sdsc_blue", 1152),
    "HPC2N-2002-2.2-cln": KnownLog("l_hpc2n", 240),
    "LLNL-Atlas-2006-2.1-cln": KnownLog("l_llnl_atlas", 9216),
    "LLNL-Thunder-2007-1.1-cln": KnownLog("l_llnl_thunder", 4008),
    "ANL-Intrepid-2009-1": KnownLog("l_anl_int", 163840),
}


def log_folder() -> Path:
    """Return where fetched logs are kept."""
    return user_state_path("apples") / "logs"


def unpacked_sum(data: bytes) -> str:
    """Return the sha256 of a log's text, whatever packed it."""
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    return hashlib.sha256(text).hexdigest()


def fetch_log(name: str, folder: Path, base: str = ARCHIVE) -> tuple[Path, str]:
    """Return the path of a log, fetched if it is not there, and its sum; the sum is checked.

    Raises
    ------
    UsageError
        No such log, or a sum that is not the known one. Permanent.
    LaunchError
        The archive cannot be reached; the message says how to do it by hand. Transient.
    """
    if name not in LOGS:
        raise UsageError(f"log {name!r}: not one of {', '.join(LOGS)}")
    known = LOGS[name]
    path = folder / f"{name}.swf.gz"
    url = f"{base}/{known.folder}/{path.name}"
    data = path.read_bytes() if path.exists() else _download(url, path)
    try:
        found = unpacked_sum(data)
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{path}: damaged or truncated gzip: {error}; delete it") from error
    if known.sha256 and found != known.sha256:
        raise UsageError(
            f"{path}: sha256 {found} is not {known.sha256}: another version of the log"
        )
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_bytes(data)
        part.replace(path)
    return path, found


def _download(url: str, path: Path) -> bytes:
    import requests  # noqa: PLC0415 - only where something is fetched: half a second

    try:
        with requests.get(url, timeout=SECONDS, stream=True) as answer:
            answer.raise_for_status()
            pieces, size = [], 0
            for piece in answer.iter_content(1 << 20):
                size += len(piece)
                if size > MOST_BYTES:
                    raise UsageError(f"{url}: more than {MOST_BYTES} bytes")
                pieces.append(piece)
            return b"".join(pieces)
    except requests.RequestException as error:
        raise LaunchError(
            f"{url} cannot be fetched ({type(error).__name__}); by hand: fetch it on a machine "
            f"with a network and put it at {path}"
        ) from error
