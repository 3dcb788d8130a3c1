"""Heartbeats: measure the silence of a peer, and decide when a silent peer is lost.

A process on a loaded machine may not run for many seconds although it is neither lost nor stopped. For a process
on this machine, the kernel shows its state. A connection to another machine ends by itself when that machine does
not answer: ssh sends keep-alive messages (`apples.launch.remote.ssh.OPTIONS`).

Standard library only, and few modules of it, because a node supervisor loads this module.
"""

from __future__ import annotations

from apples.launch.job_processes import state_of

SILENCE_SECONDS = 3.0
"""Heartbeat timeout after which the peer's process is examined; if it is gone or stopped, the peer is lost. A
running peer sends several reports in this time."""
PATIENCE_SECONDS = 60.0
"""Heartbeat timeout after which a peer is lost although its process, or its ssh connection, still runs."""
MAX_LOOK = 1.0
"""Maximum number of seconds that count between two checks of a silent peer."""


class Silence:
    """The silence of a peer, measured only while this process ran and could have received a report.

    Between two checks at most `MAX_LOOK` seconds count. If this process checks later than that, it got no CPU or
    its machine was suspended, and it cannot judge the peer for that time.

    Examples
    --------
    >>> silence = Silence(now=0.0)
    >>> silence.seconds(0.5), silence.seconds(100.0)
    (0.5, 1.5)
    >>> silence.broken(100.5)
    >>> silence.seconds(100.75)
    0.25
    """

    def __init__(self, now: float) -> None:
        self._counted, self._looked = 0.0, now

    def broken(self, now: float) -> None:
        """Reset the silence: the peer sent a report."""
        self._counted, self._looked = 0.0, now

    def seconds(self, now: float) -> float:
        """Return the seconds of silence. To be called several times a second (`MAX_LOOK`)."""
        self._counted += min(now - self._looked, MAX_LOOK)
        self._looked = now
        return self._counted


def lost(silent: float, *, runs: bool) -> bool:
    """Return whether a peer is lost after `silent` seconds of silence.

    Parameters
    ----------
    runs
        Whether the peer's process, or its ssh connection, still runs.

    Examples
    --------
    >>> lost(2.0, runs=False), lost(5.0, runs=False), lost(59.0, runs=True), lost(61.0, runs=True)
    (False, True, False, True)
    """
    return silent > (PATIENCE_SECONDS if runs else SILENCE_SECONDS)


def process_runs(pid: int) -> bool:
    """Return whether a process of this machine exists and is not stopped, even if it rarely gets a CPU."""
    return state_of(pid) not in "XZTt"
