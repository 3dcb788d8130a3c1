"""From a start to ``ready``, with a second start where the launcher lost itself."""

from __future__ import annotations

from collections.abc import Callable

from apples.launch.run import LauncherFaultError, Run
from apples.launch.talk import Talk


def started(start: Callable[[], Run], talk: Talk) -> Run:
    """Return a run whose ranks are all ready; where the launcher lost itself, from a second start."""
    run = start()
    try:
        run.until_ready()
    except LauncherFaultError as fault:
        talk(f"warning: {fault}; starting once more")
        run = start()
        run.until_ready()
    return run
