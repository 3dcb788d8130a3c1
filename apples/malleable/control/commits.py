"""Commits on disk: the names of their files, and their manifests.

A commit has a file for each rank, with its image, and a manifest with their sizes and checksums. The manifest is
written last: to a temporary file, which is synced and renamed, then the directory is synced. A commit without an
intact manifest does not exist. Constant arrays are in a copy of their own, with files of the same kinds; the
manifest of a commit has the number of that copy. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from apples.io.naming import naming

SCHEMA = "apples.commit/2"
KEPT_COMMITS = 2
# Ranks of an earlier attempt, on a host that was cut off, may still commit: attempts must never
# share a number.
ATTEMPT_COMMITS = 1_000_000_000
"""Range of commit numbers of each start of a job, so that processes of an earlier start, left on an unreachable
host, cannot overwrite later commits."""

Manifest = dict[str, Any]
Kind = Literal["commit", "constant"]
"""Data that changes between commits, or the constant arrays."""


def data_path(directory: Path, number: int, rank: int, kind: Kind = "commit") -> Path:
    """Return the path of the file with a rank's image."""
    return directory / f"{kind}-{number:08d}.{rank}.data"


def manifest_path(directory: Path, number: int, kind: Kind = "commit") -> Path:
    """Return the path of the manifest."""
    return directory / f"{kind}-{number:08d}.json"


def publish(directory: Path, number: int, manifest: Manifest, kind: Kind = "commit") -> None:
    """Write the manifest of a commit after its data is on the disk; the manifest is on the disk at the return."""
    body = {"schema": SCHEMA, "commit": number, **manifest}
    text = json.dumps({**body, "check": _check(body)})
    path = manifest_path(directory, number, kind)
    beside = path.with_suffix(".part")
    with naming(beside), beside.open("w", encoding="utf-8") as stream:
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
    """Remove all commits but the last `KEPT_COMMITS` up to `newest`, and incomplete manifests.

    A manifest that is damaged or has another format does not count as a commit.

    Copies of constant arrays are kept while an existing commit refers to them.
    """
    numbers = [int(manifest["commit"]) for manifest in whole_manifests(directory)]
    oldest = sorted({newest, *(number for number in numbers if number <= newest)})[-KEPT_COMMITS:][
        0
    ]
    for path in directory.glob("commit-*"):
        number = _number(path)
        if number is not None and (number < oldest or path.suffix == ".part"):
            _remove(path)
    needed = {manifest.get("constant", 0) for manifest in whole_manifests(directory)}
    for path in directory.glob("constant-*"):
        number = _number(path)
        if number is not None and number <= newest and number not in needed:
            _remove(path)


def remove(directory: Path, number: int) -> None:
    """Remove the files of a commit that failed, to free a full disk."""
    for path in directory.iterdir():
        if _number(path) == number:
            _remove(path)


def whole_manifests(directory: Path) -> Iterator[Manifest]:
    """Yield the intact manifests of commits, the newest first, without a check of their data."""
    try:
        paths = [path for path in directory.glob("commit-*.json") if _number(path) is not None]
    except OSError:
        return
    for path in sorted(paths, key=lambda path: _number(path) or 0, reverse=True):
        if document := _whole(path):
            yield document


def other_schema(directory: Path) -> str:
    """Return the schema of a commit that another version of this software wrote; empty without such a commit."""
    for path in directory.glob("commit-*.json"):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            schema = str(json.loads(path.read_text(encoding="utf-8")).get("schema", ""))
            if schema.partition("/")[0] == SCHEMA.partition("/")[0] and schema != SCHEMA:
                return schema
    return ""


def constant_manifest(directory: Path, commit: Manifest) -> Manifest:
    """Return the manifest of a commit's copy of the constant arrays; empty if it is not intact."""
    return _whole(manifest_path(directory, commit.get("constant", 0), "constant"))


def highest_commit(directory: Path) -> int:
    """Return the highest commit number in any file name; 0 without a commit."""
    try:
        numbers = [_number(path) or 0 for path in directory.glob("commit-*")]
    except OSError:
        return 0
    return max(numbers, default=0)


def _whole(path: Path) -> Manifest:
    """Return a manifest; empty if it is not intact."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        document: Manifest = json.loads(path.read_text(encoding="utf-8"))
        check = document.pop("check")
        if document["schema"] == SCHEMA and check == _check(document):
            return document
    return {}


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _check(body: Manifest) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True).encode())


def _number(path: Path) -> int | None:
    name = re.match(r"(?:commit|constant)-(\d{8,})\.", path.name)
    return int(name[1]) if name else None
