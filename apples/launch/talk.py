"""What a run says besides its events: who hears it, and what of it is the launcher's own."""

from __future__ import annotations

import sys
from collections.abc import Callable

Talk = Callable[[str], None]

LAUNCHER_TALK = (
    *("[mpiexec@", "[proxy", "===", "YOUR APPLICATION TERM"),
    *("This typically", "Please see", "Abort("),
)
"""Lines of hydra that say nothing the report does not say better."""

LAUNCHER_FAULT = "assert (!closed) failed"
"""What hydra says when it loses its own control connection: once in some hundred starts (mpich 5.0.2)."""


def to_stderr(line: str) -> None:
    """Pass a line of the program's own talk on to standard error."""
    sys.stderr.write(
        line.encode(sys.stderr.encoding or "utf-8", "replace").decode(errors="replace") + "\n"
    )
