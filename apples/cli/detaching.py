"""Starting a job that outlives the command: its order is stored, its supervisor let go."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

from apples.cli.program import say
from apples.errors import (
    ApplesError,
    ApplicationError,
    DeadlineError,
    InfeasibleError,
    LaunchError,
    UsageError,
)
from apples.jobs import store

ERRORS = (UsageError, InfeasibleError, LaunchError, ApplicationError, DeadlineError)
LET_GO = "import os, sys; os.fork() and os._exit(0); os.execv(sys.argv[1], sys.argv[1:])"
"""Nobody's child: whoever called need not wait for the supervisor, and cannot forget to."""
TOLD_SECONDS = 300.0
"""Longer than planning and starting may take: then the supervisor itself is stuck."""


def detach(order: dict[str, Any], name: str) -> store.StoredJob:
    """Start a supervisor for an order and return the job, once it runs.

    Raises
    ------
    ApplesError
        Whatever kept it from running, with the exit code it would have in the foreground.
    """
    job = store.create(order, name)
    told, telling = os.pipe()
    try:
        with job.log.open("ab") as log:
            supervisor = ["-m", "apples.cli.supervise", str(job.folder), str(telling)]
            subprocess.run(
                [sys.executable, "-I", "-S", "-c", LET_GO, sys.executable, *supervisor],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(telling,),
                start_new_session=True,
                check=True,
            )
        os.close(telling)
        news = _heard(told)
    finally:
        os.close(told)
    if "error" in news:
        raise _error(job, news)
    return job


def _heard(pipe: int) -> dict[str, Any]:
    """Return what the supervisor says first."""
    text = b""
    while not text.endswith(b"\n"):
        if not select.select([pipe], [], [], TOLD_SECONDS)[0]:
            return {"error": f"its supervisor said nothing for {TOLD_SECONDS:g} s", "code": 7}
        data = os.read(pipe, 1 << 16)
        if not data:
            return {"error": "its supervisor ended without a word", "code": 4}
        text += data
    news = json.loads(text)
    return news if isinstance(news, dict) else {}


def _error(job: store.StoredJob, news: dict[str, Any]) -> ApplesError:
    say(f"job {job.id} failed; see: apples logs {job.id}")
    kinds = {kind.exit_code: kind for kind in ERRORS}
    return kinds.get(news["code"], ApplesError)(news["error"])


def order_of(
    hosts: Path,
    template: Path,
    user: Path,
    output: Path | None,
    **options: Any,
) -> dict[str, Any]:
    """Return what the supervisor is to do, with paths that do not depend on where one stands."""
    return {
        "directory": str(Path.cwd()),
        "hosts": str(hosts.absolute()),
        "template": str(template.absolute()),
        "user": str(user.absolute()),
        "output": None if output is None else str(output.absolute()),
        **options,
    }
