"""Which CRIU of this machine works on its kernel."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable

from apples.malleable.programs.criu import Criu, candidates, why
from apples.storage import state

CHECK_SECONDS = 20.0
STEP_SECONDS = 0.002
TALK_BYTES = 1 << 16


def version_of(found: Criu) -> str:
    """Return the version a CRIU says it has; empty when it does not say."""
    try:
        ran = subprocess.run(
            found.version(), capture_output=True, text=True, timeout=CHECK_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return next((w[8:].strip() for w in ran.stdout.splitlines() if w.startswith("Version:")), "")


def working(meanwhile: Callable[[], None] = lambda: None) -> tuple[Criu | None, str]:
    """Return the first CRIU that this kernel has what it needs for, or None and what is missing.

    Parameters
    ----------
    meanwhile
        Called again and again while a check runs.
    """
    missing = []
    for one in candidates(os.environ, state.directory()):
        reason = _checked(one, meanwhile)
        if not reason:
            return one, ""
        missing.append(f"{one.origin}: {reason}")
    if os.geteuid() != 0:
        missing.append("it needs root")
    return None, f"no working CRIU ({'; '.join(missing) or 'none installed'})"


def _checked(one: Criu, meanwhile: Callable[[], None]) -> str:
    """Return what CRIU's own check finds missing; empty if nothing.

    Its talk goes to a file: a pipe would stay open as long as anything it started lives.
    """
    until = time.monotonic() + CHECK_SECONDS
    with tempfile.TemporaryFile() as talk:
        try:
            process = subprocess.Popen(
                one.check(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=talk
            )
        except OSError as error:
            return str(error)
        while process.poll() is None:
            if time.monotonic() > until:
                process.kill()
            time.sleep(STEP_SECONDS)
            meanwhile()
        talk.seek(0)
        text = talk.read(TALK_BYTES).decode(errors="replace")
    if process.returncode < 0:
        return f"its check was killed by signal {-process.returncode}"
    return why(text) if process.returncode else ""
