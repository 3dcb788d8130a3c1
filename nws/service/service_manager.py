"""What systemd is told (sd_notify(3)): ready, still alive, ending."""

import contextlib
import os
import socket
from collections.abc import Mapping


class ServiceManager:
    """The other end of ``$NOTIFY_SOCKET``; without one nothing is said.

    Parameters
    ----------
    environment
        Where ``NOTIFY_SOCKET``, ``WATCHDOG_USEC`` and ``WATCHDOG_PID`` are.

    Attributes
    ----------
    every
        Seconds after which `alive` is due, half of what the unit allows; None without a watchdog.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        given = os.environ if environment is None else environment
        place = given.get("NOTIFY_SOCKET", "")
        self._address = "\0" + place[1:] if place.startswith("@") else place
        allowed = given.get("WATCHDOG_USEC", "")
        ours = given.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        watched = bool(self._address) and allowed.isdigit() and int(allowed) > 0 and ours
        self.every = int(allowed) / 2e6 if watched else None
        self._told = float("-inf")

    def ready(self, status: str) -> None:
        """Say that requests are answered."""
        self._tell(f"READY=1\nSTATUS={status}")

    def alive(self, now: float) -> None:
        """Say so, if it is due."""
        if self.every is not None and now - self._told >= self.every:
            self._told = now
            self._tell("WATCHDOG=1")

    def ending(self) -> None:
        """Say that what waits is being written."""
        self._tell("STOPPING=1")

    def _tell(self, state: str) -> None:
        if self._address:
            with (
                contextlib.suppress(OSError),  # who supervises is gone: that is its own affair
                socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out,
            ):
                out.sendto(state.encode(), self._address)
