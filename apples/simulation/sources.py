"""Sources of workloads: SWF logs, the archive of such logs, accounting of batch systems, models."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import chain
from math import isfinite
from pathlib import Path

from apples.errors import LaunchError, UsageError, coded
from apples.io.state import user_folder
from apples.simulation.accounting import (
    is_lsf,
    is_pbs,
    is_sge,
    read_batsim,
    read_lsf,
    read_pbs,
    read_sge,
)
from apples.simulation.config import Partition
from apples.simulation.partitioned import limits_of, unknown_partitions
from apples.simulation.sacct import is_sacct, read_sacct
from apples.simulation.swf import COLUMNS, KINDS, NEEDED, Log, is_whole, parse_swf
from apples.simulation.workload import (
    ATTRIBUTES,
    Cleaning,
    Workload,
    clean,
    dependencies_of,
    with_priorities,
)
from nws import StoredText

MIN_SWF_COLUMNS = 10
"""Minimum number of columns in a line of SWF."""
BY_FIRST_LINE: Sequence[
    tuple[Callable[[str], bool], Callable[[StoredText, Iterator[bytes], str], Log]]
] = (
    (is_sacct, read_sacct),
    (is_pbs, read_pbs),
    (is_lsf, read_lsf),
    (is_sge, read_sge),
)
"""For each kind of log: the test of its first line, and its reader."""


def read_log(path: Path, columns: Sequence[str] = NEEDED) -> Log:
    """Return a log of any of `KINDS`; of SWF, the named columns.

    The first line that is not a comment decides. The file may be compressed by gzip, bzip2, xz or zstd, may be a
    pipe, or the only file in a zip archive; see `nws.StoredText`.

    Raises
    ------
    UsageError
        The file cannot be read, is damaged or not a log; the error has file and line. Permanent.
    """
    text = StoredText(path, error=UsageError)
    blocks = text.blocks()
    start = b""
    while not start.strip() and (block := next(blocks, b"")):
        start = block
    whole = chain((start,), blocks)
    if start.lstrip().startswith(b"{"):
        return read_batsim(text, whole, str(path))
    pieces = text.whole_lines(whole)
    first = next(pieces, b"")
    everything = chain((first,), pieces)
    head = [line.strip() for line in first[: 1 << 16].decode("utf-8", "replace").split("\n")]
    if any(line.startswith(";") for line in head[:1000]):
        return parse_swf(text, everything, str(path), columns)
    number, line = next(
        ((k, line) for k, line in enumerate(head, 1) if line and not line.startswith("#")), (1, "")
    )
    for looks_so, read in BY_FIRST_LINE:
        if looks_so(line):
            return read(text, everything, str(path))
    if line and not _is_swf(line):
        bar = "; is it sacct without its header (--noheader)?" if line.count("|") > 5 else ""
        raise UsageError(
            f"{path}:{number}: unknown kind of workload log; the known kinds are {KINDS}{bar}",
            code="log-kind-unknown",
            file=path,
            line=number,
        )
    return parse_swf(text, everything, str(path), columns)


def _is_swf(line: str) -> bool:
    """Return whether a line looks like a record of SWF."""
    words = line.split()
    try:
        return len([float(word) for word in words]) >= MIN_SWF_COLUMNS
    except ValueError:
        return len(words) == len(COLUMNS)


def is_generated(source: str) -> bool:
    """Return whether a log's name is a model, for example `lublin:jobs=1000,processors=256`."""
    return source.partition(":")[0] in GENERATORS and not Path(source).exists()


def generated(source: str, seed: int) -> Workload:
    """Return the workload of a model.

    `kale:jobs=,load=,adaptive=`, `lublin:jobs=,processors=,typeless=`, `downey:jobs=,processors=,
    load=`, `cirne:jobs=,nodes=,cores_per_node=,widest=,load=,exact=` (like Cirne's, own
    coefficients).

    Raises
    ------
    UsageError
        The model lacks the parameter, or its value is not a number. Permanent.
    """
    name, _, rest = source.partition(":")
    known = GENERATORS[name]
    values: dict[str, float] = dict(known)
    for word in filter(None, rest.split(",")):
        key, _, value = word.partition("=")
        if key not in known:
            raise UsageError(
                f"log {source!r}: {name} has {', '.join(known)}, not {key!r}",
                code="field-unknown",
                log=source,
                field=key,
                known=[*known],
            )
        try:
            values[key] = float(value)
        except ValueError as error:
            raise UsageError(
                f"log {source!r}: {key} is not a number: {value!r}",
                code="value-type",
                log=source,
                field=key,
                value=value,
            ) from error
    for key, number in values.items():
        low, high = BOUNDS.get(key, (0.0, 1.0))
        if not (isfinite(number) and low <= number <= high):
            raise UsageError(
                f"log {source!r}: {key}={number:g} lies outside {low:g}..{high:g}",
                code="value-range",
                log=source,
                field=key,
                value=number if isfinite(number) else str(number),
                bound=[low, high],
            )
    jobs = int(values["jobs"])
    models = import_module("apples.simulation.generators")  # imports scipy: only if needed
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


#: Bounds of a model's parameters; parameters that are not listed are switches, 0 or 1.
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
    """A workload with its origin.

    Attributes
    ----------
    cleaning, records
        Changes by cleaning, and number of records.
    sha256
        SHA-256 of the log as stored; empty for a model.
    processors
        Processors of the machine.
    from_header
        Whether the size of the machine is from the log's header.
    dependencies
        Job -> (its predecessor, seconds of delay after it); empty unless requested.
    """

    workload: Workload
    cleaning: Cleaning
    records: int
    sha256: str
    processors: int
    from_header: bool = False
    dependencies: Mapping[int, tuple[int, float]] = field(default_factory=dict)


def load_workload(
    source: str,
    processors: int | None,
    rule: str = "default",
    *,
    strict: bool = False,
    seed: int = 0,
    attributes: Sequence[str] = (),
    dependencies: bool = False,
    limits_kill: bool = False,
    machine: Sequence[Partition] = (),
    priorities: Mapping[str, float] | None = None,
) -> Source:
    """Return a workload for a machine of `processors` processors; None: the number in the log's header.

    The function reads the columns that every simulation needs, those that the machine's partitions need, and the
    requested `attributes` (`workload.ATTRIBUTES`) and dependencies. If limits kill, requests may be less than the
    run time (`clean`). Priorities are read unless they are None (`with_priorities`).

    Raises
    ------
    UsageError
        The log cannot be read, or the size of the machine is unknown. Permanent.
    """
    if machine:
        processors = sum(part.processors for part in machine)
    if is_generated(source):
        if priorities is not None:
            raise UsageError(
                f"{source}: a model's jobs have no priorities: order=priority needs a log",
                code="option-not-applicable",
                log=source,
                option="order",
                value="priority",
            )
        return _from_model(source, processors, seed)
    limits = list(limits_of(machine))
    columns = [ATTRIBUTES[name] for name in dict.fromkeys((*attributes, *limits))]
    if dependencies:
        columns += ["preceding", "think_time"]
    looked_at = [ATTRIBUTES[name] for name in limits] + ["preceding"] * dependencies
    if priorities is not None:
        columns += [] if "queue" in columns else ["queue"]
        looked_at.append("priority")
    known = [name for name in columns if name in COLUMNS]  # sacct's columns are always read
    log = read_log(Path(source), (*NEEDED, *known))
    size = _header_processors(log) if processors is None else processors
    workload, cleaning = clean(log, size, rule, strict, looked_at, limits_kill)
    if priorities is not None:
        workload = with_priorities(workload, log, priorities)
    waits: Mapping[int, tuple[int, float]] = {}
    if dependencies and "preceding" in log.columns:
        waits, counts = dependencies_of(log, workload)
        said = (f"{count} {what}" for what, count in counts.items())
        cleaning = replace(cleaning, notes=(*cleaning.notes, *said))
    unknown = unknown_partitions(workload, machine)
    cleaning = replace(cleaning, notes=(*cleaning.notes, *unknown))
    return Source(workload, cleaning, len(log), log.sha256, size, processors is None, waits)


def _from_model(source: str, processors: int | None, seed: int) -> Source:
    """Return the jobs of a model for a machine."""
    if processors is None:
        raise UsageError(
            "--processors, or --nodes and --cores-per-node, are required with a model workload",
            code="option-missing",
            option="--processors",
            log=source,
        )
    workload = generated(source, seed)
    fits = workload.processors <= processors
    if not fits.any():
        raise UsageError(
            f"{source}: no job can run on {processors} processors",
            code="no-job-fits",
            log=source,
            processors=processors,
        )
    dropped = {f"more than {processors} processors": int((~fits).sum())}
    return Source(workload.take(fits), Cleaning(dropped), len(workload), "", processors)


def _header_processors(log: Log) -> int:
    said = log.header_value("MaxProcs") or "none"
    if not is_whole(said) or not int(said):
        raise UsageError(
            f"{log.source}: its header has no MaxProcs; give the machine's size with --processors, or with "
            "--nodes and --cores-per-node",
            code="option-missing",
            option="--processors",
            log=log.source,
        )
    return int(said)


ARCHIVE = "https://www.cs.huji.ac.il/labs/parallel/workload"
MAX_BYTES = 1 << 30
SECONDS = 30.0


@dataclass(frozen=True)
class KnownLog:
    """A log of the archive.

    Attributes
    ----------
    folder
        Folder at the archive.
    sha256
        SHA-256 of the uncompressed text; empty if unknown.
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
    """Return the folder of fetched logs."""
    return user_folder("state") / "logs"


def fetch_log(name: str, folder: Path, base: str = ARCHIVE) -> tuple[Path, str]:
    """Return the path of a log, fetched if missing, and its checked SHA-256.

    Raises
    ------
    UsageError
        The log is unknown, or its SHA-256 differs from the known one. Permanent.
    LaunchError
        The archive cannot be reached; the message has the manual steps. Transient.
    """
    if name not in LOGS:
        raise UsageError(
            f"log {name!r}: not one of {', '.join(LOGS)}",
            code="log-unknown",
            log=name,
            known=[*LOGS],
        )
    known = LOGS[name]
    path = folder / f"{name}.swf.gz"
    url = f"{base}/{known.folder}/{path.name}"
    data = path.read_bytes() if path.exists() else _download(url, path)
    try:
        found = StoredText(path, data, error=UsageError).unpacked_sha256()
    except UsageError as error:
        raise UsageError(f"{error}; delete it", **coded(error)) from error
    if known.sha256 and found != known.sha256:
        raise UsageError(
            f"{path}: sha256 {found} is not {known.sha256}: another version of the log",
            code="checksum-differs",
            file=path,
            value=found,
            bound=known.sha256,
        )
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_bytes(data)
        part.replace(path)
    return path, found


def _download(url: str, path: Path) -> bytes:
    import requests  # noqa: PLC0415 - only for a download: takes half a second

    try:
        with requests.get(url, timeout=SECONDS, stream=True) as answer:
            answer.raise_for_status()
            pieces, size = [], 0
            for piece in answer.iter_content(1 << 20):
                size += len(piece)
                if size > MAX_BYTES:
                    raise UsageError(
                        f"{url}: more than {MAX_BYTES} bytes",
                        code="file-too-large",
                        url=url,
                        bound=MAX_BYTES,
                    )
                pieces.append(piece)
            return b"".join(pieces)
    except requests.RequestException as error:
        raise LaunchError(
            f"{url} cannot be fetched ({type(error).__name__}); by hand: fetch it on a machine "
            f"with a network and put it at {path}",
            code="download-failed",
            url=url,
            file=path,
            kind=type(error).__name__,
        ) from error
