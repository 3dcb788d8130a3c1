"""Commits on disk: their names and manifests, for whoever makes them, takes them, or asks what there is.

A commit is a data file and a manifest with sizes and checksums, which comes last: written beside, synced, renamed,
the directory synced. A commit without a whole manifest does not exist. Constant arrays are not in it but in a copy
of their own, two files likewise, to whose number the manifest refers. Standard library only.
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

SCHEMA = "apples.commit/1"
KEPT_COMMITS = 2
# Ranks of an earlier attempt, on a host that was cut off, may still commit: attempts must never
# share a number.
ATTEMPT_COMMITS = 1_000_000_000
"""Numbers of commits that each attempt to run a job has for itself: what is left of an attempt before, on a host
that could not be reached, overwrites nothing."""

Manifest = dict[str, Any]
Kind = Literal["commit", "constant"]
"""What changes from commit to commit, or the constant arrays."""


def data_path(directory: Path, number: int, kind: Kind = "commit") -> Path:
    """Return where a commit's rows are."""
    return directory / f"{kind}-{number:08d}.data"


def manifest_path(directory: Path, number: int, kind: Kind = "commit") -> Path:
    """Return where its manifest is."""
    return directory / f"{kind}-{number:08d}.json"


def publish(directory: Path, number: int, manifest: Manifest, kind: Kind = "commit") -> None:
    """Make a commit exist: durable when this returns. Its data must be so before."""
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
    """Remove what is older than the kept commits, `newest` among them, and manifests that were never completed.

    Of constant arrays the copies are kept to which a commit refers that is there.
    """
    numbers = [_number(path) or 0 for path in directory.glob("commit-*.json")]
    oldest = sorted(number for number in numbers if number <= newest)[-KEPT_COMMITS:][0]
    for path in directory.glob("commit-*"):
        number = _number(path)
        if number is not None and (number < oldest or path.suffix == ".part"):
            _remove(path)
    needed = {one.get("constant", 0) for one in whole_manifests(directory)}
    for path in directory.glob("constant-*"):
        number = _number(path)
        if number is not None and number <= newest and number not in needed:
            _remove(path)


def remove(directory: Path, number: int) -> None:
    """Remove what there is of a commit that failed, so that a full disk has its room back."""
    kinds: tuple[Kind, ...] = ("commit", "constant")
    for kind in kinds:
        manifest = manifest_path(directory, number, kind)
        for path in (manifest, manifest.with_suffix(".part"), data_path(directory, number, kind)):
            _remove(path)


def whole_manifests(directory: Path) -> Iterator[Manifest]:
    """Yield the manifests of commits that are whole, newest first; data is not looked at."""
    try:
        paths = [path for path in directory.glob("commit-*.json") if _number(path) is not None]
    except OSError:
        return
    for path in sorted(paths, key=lambda path: _number(path) or 0, reverse=True):
        if document := _whole(path):
            yield document


def constant_manifest(directory: Path, commit: Manifest) -> Manifest:
    """Return the manifest of the copy of constant arrays that a commit refers to; empty if it is not whole."""
    return _whole(manifest_path(directory, commit.get("constant", 0), "constant"))


def highest_commit(directory: Path) -> int:
    """Return the highest number any file of a commit bears, whole or not; 0 if there is none."""
    try:
        numbers = [_number(path) or 0 for path in directory.glob("commit-*")]
    except OSError:
        return 0
    return max(numbers, default=0)


def _whole(path: Path) -> Manifest:
    """Return a manifest; empty if it is not whole."""
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
    found = re.fullmatch(r"(?:commit|constant)-(\d{8,})", path.stem)
    return int(found[1]) if found else None
