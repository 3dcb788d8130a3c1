"""Answers as lines, for both ends; loads nothing, so that a job may use it."""

from __future__ import annotations

from typing import Any, Final

from apples.errors import ApplesError, InfeasibleError, LaunchError, UsageError

SOCKET_VARIABLE: Final = "APPLES_TOPOLOGYD_SOCKET"
"""Names the daemon's socket to a job's processes."""
JOB_VARIABLE: Final = "APPLES_TOPOLOGY_JOB"
"""Names their job."""


def refusal_of(error: ApplesError) -> dict[str, Any]:
    """Return an error as an answer."""
    return {"ok": False, "error": str(error), "code": error.exit_code}


def error_of(answer: dict[str, Any]) -> ApplesError:
    """Return the error that an answer stands for."""
    kinds = {2: UsageError, 3: InfeasibleError}
    return kinds.get(int(answer.get("code", 4)), LaunchError)(str(answer.get("error")))
