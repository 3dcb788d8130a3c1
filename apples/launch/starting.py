"""What every actuator that launches does: from a schedule to segments, and from a start to ``ready``."""

from __future__ import annotations

from collections.abc import Callable

from apples.agent.information import InformationPool
from apples.launch.hydra import Segment
from apples.launch.run import SILENCE_SECONDS, LauncherFaultError, Run
from apples.launch.talk import Talk
from apples.schedule import Schedule

SILENT_ITERATIONS = 50.0
"""How many predicted iterations may pass without a line."""
SLOWEST_BYTES_PER_SECOND = 20e6
"""A result streams at least this fast where no link is slower; nothing is said meanwhile."""
SHARE_OF_LINK = 0.25
"""And with at least this share of the slowest forecast link to the first rank's host."""


def segments(schedule: Schedule, information: InformationPool) -> list[Segment]:
    """Return the ranks of each host, in strip order."""
    return [
        Segment(a.host.name, a.ranks, information.program(a.implementation), a.host.cpus)
        for a in schedule.allocations
    ]


def silence(schedule: Schedule, information: InformationPool) -> float:
    """Return for how long the program may say nothing: generous, for a prediction can be wrong."""
    application = information.application
    size = application.rows * application.columns * application.element_bytes
    return max(
        SILENCE_SECONDS,
        SILENT_ITERATIONS * information.iteration_seconds(schedule),
        size / min(SLOWEST_BYTES_PER_SECOND, SHARE_OF_LINK * _slowest_link(schedule, information)),
    )


def _slowest_link(schedule: Schedule, information: InformationPool) -> float:
    """Return the least forecast bandwidth of the ways to the first host, bytes per second."""
    first, *others = schedule.resources
    links = (information.conditions.link(host, first).link for host in others)
    return min((link.bandwidth for link in links), default=float("inf"))


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
