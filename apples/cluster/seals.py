"""What a user has submitted, sealed: whoever starts it later with this user's rights knows it for the user's own.

A scheduler of several users passes on what is to be run. Were that changed on the way, by whoever has got hold of
the scheduler, it would be run with the user's rights all the same, but for the seal.
"""

from __future__ import annotations

import hmac
import json
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from apples.errors import LaunchError, coded, system_code
from apples.io import documents, state

SEAL: Final = "seal"
KEY: Final = "submission-key"
LINE: Final = re.compile(rb"[0-9a-f]{64}\n")


def sealed(work: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is to be run with this user's seal.

    Raises
    ------
    LaunchError
        The key can neither be read nor made.
    """
    return {**work, SEAL: _seal(work)}


def unsealed(work: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what is to be run without its seal; None: this user has not submitted it."""
    own = bare(work)
    told = str(work.get(SEAL, "")).encode()
    return own if hmac.compare_digest(told, _seal(own).encode()) else None


def bare(work: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is to be run without a seal, whosoever that is."""
    return {name: value for name, value in work.items() if name != SEAL}


def _seal(work: Mapping[str, Any]) -> str:
    text = json.dumps(work, sort_keys=True, allow_nan=False)
    return hmac.new(_key(), text.encode(), "sha256").hexdigest()


def _key() -> bytes:
    """Return this user's key, made where there is none; in a directory that only this user may enter."""
    path = state.directory() / KEY
    try:
        with documents.locked(path.with_name(f".{KEY}.lock")):
            if not path.exists():
                documents.replace(path, secrets.token_hex(32) + "\n")
        return _read(path)
    except OSError as error:
        raise LaunchError(
            f"{path}: {error.strerror}", **coded(error, code=system_code(error)), file=path
        ) from None


def _read(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.read(descriptor, 100)
    finally:
        os.close(descriptor)
    if not LINE.fullmatch(found):
        raise LaunchError(
            f"{path}: damaged; remove it: jobs that were submitted with it and wait will fail",
            code="key-damaged",
            file=path,
        )
    return found
