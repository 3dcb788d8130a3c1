"""How often one principal may ask: so many requests at once, and so many a second after that."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

REQUESTS_A_SECOND: Final = 50.0
AT_ONCE: Final = 100.0
MOST_REMEMBERED: Final = 1000


class RequestRate:
    """A token bucket for each principal; safe to be used from threads.

    Parameters
    ----------
    clock
        Seconds; never goes back.
    at_once
        Requests of one principal at once.
    most_remembered
        Principals; the one whose last request is oldest is forgotten first, and may begin anew.

    Examples
    --------
    >>> rate = RequestRate(lambda: 0.0)
    >>> sum(rate.admits("uid:1001") for _ in range(1000)), rate.admits("uid:1002")
    (100, True)
    """

    def __init__(
        self,
        clock: Callable[[], float],
        at_once: float = AT_ONCE,
        most_remembered: int = MOST_REMEMBERED,
    ) -> None:
        self._clock = clock
        self._at_once, self._most_remembered = at_once, most_remembered
        self._left: OrderedDict[str, tuple[float, float]] = (
            OrderedDict()
        )  # requests, and when so many
        self._lock = threading.Lock()

    def admits(self, principal: str) -> bool:
        """Return whether a principal may ask now, and count that it does."""
        with self._lock:
            now = self._clock()
            left, since = self._left.pop(principal, (self._at_once, now))
            left = min(self._at_once, left + REQUESTS_A_SECOND * (now - since))
            self._left[principal] = max(0.0, left - 1.0) if left >= 1.0 else left, now
            if len(self._left) > self._most_remembered:
                self._left.popitem(last=False)
            return left >= 1.0
