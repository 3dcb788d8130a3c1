"""Fetches logs of the Parallel Workloads Archive, which are not shipped."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import requests
from platformdirs import user_state_path

from apples.errors import LaunchError, UsageError

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
