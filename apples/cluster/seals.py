"""Seals of submissions: a user's job runner checks that the user submitted exactly this work.

A scheduler of several users passes on the work of jobs. An attacker that controls the scheduler could change it,
and the job runner would run it with the user's rights. The seal, a keyed digest, prevents that.
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
    """Return the work with this user's seal.

    Raises
    ------
    LaunchError
        The key can be neither read nor made.
    """
    return {**work, SEAL: _seal(work)}


def unsealed(work: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the work without its seal; None: the seal is not of this user, or the work was changed."""
    own = bare(work)
    told = str(work.get(SEAL, "")).encode()
    return own if hmac.compare_digest(told, _seal(own).encode()) else None


def bare(work: Mapping[str, Any]) -> dict[str, Any]:
    """Return the work without its seal; the user who sealed it does not matter."""
    return {name: value for name, value in work.items() if name != SEAL}


def _seal(work: Mapping[str, Any]) -> str:
    text = json.dumps(work, sort_keys=True, allow_nan=False)
    return hmac.new(_key(), text.encode(), "sha256").hexdigest()


def _key() -> bytes:
    """Return this user's key, from a directory that only this user may enter; make it if it does not exist."""
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
