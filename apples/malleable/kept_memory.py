"""`Memories`: commits' memory that ranks gave their guard. Standard library only."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from typing import Any

KEPT = 2
"""Commits that are kept."""


class Memories:
    """Labels and handles of memory, by the number of the commit."""

    def __init__(self) -> None:
        self._kept: dict[int, list[tuple[dict[str, Any], int]]] = {}

    def keep(self, label: dict[str, Any], handle: int) -> None:
        """Keep one rank's memory; that of older commits goes."""
        self._kept.setdefault(label["epoch"], []).append((label, handle))
        for number in sorted(self._kept)[:-KEPT]:
            for _, old in self._kept.pop(number):
                os.close(old)

    def give(self, channel: socket.socket) -> None:
        """Give a rank all that is kept."""
        kept = [one for labels in self._kept.values() for one in labels]
        with contextlib.suppress(OSError):
            channel.send(json.dumps({"count": len(kept)}).encode())
            for label, handle in kept:
                socket.send_fds(channel, [json.dumps(label).encode()], [handle])
