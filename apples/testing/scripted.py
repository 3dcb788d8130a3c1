"""`ScriptedControl`: commands from a list instead of an agent; for tests, benchmarks and rehearsals."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from selectors import BaseSelector

from apples.malleable.control.command import (
    CommandSource,
    HostShare,
    JobNotice,
    ManagerStatus,
    ResizeCommand,
)


class ScriptedControl(CommandSource):
    """Hands out one map after another, each when the one before was answered.

    Parameters
    ----------
    maps
        What the job is to become; may be a generator that looks at `notices`.

    Attributes
    ----------
    notices
        What happened, in order.

    Examples
    --------
    >>> control = ScriptedControl([[HostShare("a")]])
    >>> control.poll()
    ResizeCommand(epoch=101, hosts=(HostShare(host='a', weight=1.0, cpus=(), rows=0),), ordered=False)
    """

    def __init__(self, maps: Iterable[Iterable[HostShare]]) -> None:
        self._maps = iter(maps)
        self._status: Callable[[], ManagerStatus] = lambda: ManagerStatus("starting")
        self._epoch = 100
        self.notices: list[JobNotice] = []

    def attach(self, selector: BaseSelector, status: Callable[[], ManagerStatus]) -> None:
        """Listen to nothing."""
        del selector
        self._status = status

    def poll(self) -> ResizeCommand | None:
        """Return the next command."""
        shares = next(self._maps, None)
        if shares is None:
            return None
        self._epoch = max(self._epoch, self._status().epoch) + 1
        return ResizeCommand(self._epoch, tuple(shares))

    def cancelled(self) -> bool:
        """Never."""
        return False

    def notify(self, notice: JobNotice) -> None:
        """Keep it."""
        self.notices.append(notice)

    def deadline(self) -> float | None:
        """Return none."""
        return None

    def tick(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
