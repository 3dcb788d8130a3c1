"""`Mask`: a rank keeps its threads to the CPUs it may use, as DROM's malleability points do (SD-Policy, 3.3)."""

from __future__ import annotations

import os
from typing import Any

TOPOLOGY = "APPLES_TOPOLOGY_JOB"
"""Set by the topology daemon for what it starts: then resizes are heard of before they come, and acknowledged."""


class Mask:
    """What a safe point knows of the CPUs of this rank; a rank loads `Threads` only when it needs it.

    Parameters
    ----------
    ranks
        Ranks of the job on this host, which divide the CPUs among them.
    """

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._cpus = os.sched_getaffinity(0)
        self._threads: Any = None
        if os.environ.get(TOPOLOGY):
            self._threads = self._loaded()

    def follow(self) -> bool:
        """Set the threads of every loaded pool where the CPUs have changed; say whether they had."""
        if self._threads is not None:
            return self._threads.adapt() is not None
        if os.sched_getaffinity(0) == self._cpus:
            return False
        self._threads = self._loaded()
        return True

    def _loaded(self) -> Any:
        from apples.topology.threads import Threads  # noqa: PLC0415 - a rank starts sooner without

        return Threads(self._ranks)
