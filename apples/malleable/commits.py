"""Committed states on disk: names, manifests, what is durable when. No MPI here.

A commit is a data file, raw rows at offsets that no partition changes, and a manifest with its sizes and
checksums. The manifest comes last: written beside, fsynced, renamed, the directory fsynced. A commit without
a whole manifest does not exist. The two newest are kept, so that a damaged one falls back to the one before.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

SCHEMA = "apples.commit/1"
KEPT = 2
PIECE_BYTES = 1 << 20

Manifest = dict[str, Any]


def data_path(directory: Path, number: int) -> Path:
    """Return where a commit's rows are."""
    return directory / f"commit-{number:08d}.data"


def manifest_path(directory: Path, number: int) -> Path:
    """Return where its manifest is."""
    return directory / f"commit-{number:08d}.json"


def publish(directory: Path, number: int, manifest: Manifest) -> None:
    """Make a commit exist: durable when this returns. Its data must be so before."""
    body = {"schema": SCHEMA, "commit": number, **manifest}
    text = json.dumps({**body, "check": _check(body)})
    path = manifest_path(directory, number)
    beside = path.with_suffix(".part")
    with beside.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    beside.replace(path)
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def prune(directory: Path, newest: int) -> None:
    """Remove what is older than the kept commits, and data that never got a manifest."""
    for path in directory.glob("commit-*"):
        number = _number(path)
        if number is not None and (number <= newest - KEPT or path.suffix == ".part"):
            with contextlib.suppress(OSError):
                path.unlink()


def manifests(directory: Path) -> Iterator[Manifest]:
    """Yield the manifests that are whole, newest first; data is not looked at."""
    try:
        paths = sorted(directory.glob("commit-*.json"), reverse=True)
    except OSError:
        return
    for path in paths:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            document = json.loads(path.read_text(encoding="utf-8"))
            check = document.pop("check")
            if document["schema"] == SCHEMA and check == _check(document):
                yield document


def highest(directory: Path) -> int:
    """Return the highest number any file of a commit bears, whole or not; 0 if there is none."""
    try:
        numbers = [_number(path) or 0 for path in directory.glob("commit-*")]
    except OSError:
        return 0
    return max(numbers, default=0)


def verify(path: Path, parts: Sequence[tuple[int, int, int]]) -> bool:
    """Whether the bytes from `offset`, so many, have their checksum, for each part."""
    try:
        with path.open("rb", buffering=0) as stream:
            for offset, length, check in parts:
                stream.seek(offset)
                found, left = 0, length
                while left:
                    piece = stream.read(min(PIECE_BYTES, left))
                    if not piece:
                        return False
                    found, left = zlib.crc32(piece, found), left - len(piece)
                if found != check:
                    return False
    except OSError:
        return False
    return True


def _check(body: Manifest) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True).encode())


def _number(path: Path) -> int | None:
    found = re.fullmatch(r"commit-(\d{8,})", path.stem)
    return int(found[1]) if found else None
