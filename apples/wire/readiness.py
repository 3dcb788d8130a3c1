"""Calls back whoever can read something, as the loops of managers do. Standard library only."""

from __future__ import annotations

import selectors


def call_ready(selector: selectors.BaseSelector, seconds: float) -> None:
    """Wait at most so long until something can be read, and call back what is registered for it.

    One that was closed or registered anew by a call before it is not called: what it was to read is gone, or comes
    with the next turn.

    Parameters
    ----------
    selector
        The data of each registration is what to call.
    """
    for key, _ in selector.select(max(0.0, seconds)):
        if selector.get_map().get(key.fd) is key:
            key.data()
