"""Heartbeats: how long a peer has been silent, and when its silence is its loss.

A process on a loaded machine may not run for many seconds, and is neither lost nor stopped. Of a process of this
machine the kernel shows which. A connection to another machine ends by itself when that machine does not answer:
ssh sends keep-alive messages (`apples.launch.remote.ssh.OPTIONS`).

Standard library only, and little of it: a node supervisor loads this.
"""

from __future__ import annotations

from apples.launch.job_processes import state_of

SILENCE_SECONDS = 3.0
"""Silence after which a peer is examined; a peer that runs reports several times meanwhile. If its process is
gone or stopped, it is lost."""
PATIENCE_SECONDS = 60.0
"""Silence after which a peer is lost though its process, or the ssh that leads to it, runs."""
MAX_LOOK = 1.0
"""Seconds that count at most between two looks at a silent peer."""


class Silence:
    """How long a peer has been silent while this process ran and could have heard it.

    Between two looks at most `MAX_LOOK` seconds count: who looks later than that got no CPU itself, or its
    machine stood still, and knows nothing of the peer from that time.

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
        """Take in that the peer was heard."""
        self._counted, self._looked = 0.0, now

    def seconds(self, now: float) -> float:
        """Return how long it has been silent; asked several times a second."""
        self._counted += min(now - self._looked, MAX_LOOK)
        self._looked = now
        return self._counted


def lost(silent: float, *, runs: bool) -> bool:
    """Return whether a peer is lost that was silent for so long.

    Parameters
    ----------
    runs
        Whether its process, or the ssh that leads to it, runs.

    Examples
    --------
    >>> lost(2.0, runs=False), lost(5.0, runs=False), lost(59.0, runs=True), lost(61.0, runs=True)
    (False, True, False, True)
    """
    return silent > (PATIENCE_SECONDS if runs else SILENCE_SECONDS)


def process_runs(pid: int) -> bool:
    """Return whether a process of this machine is there and not stopped, however rarely it gets a CPU."""
    return state_of(pid) not in "XZTt"
