"""What systemd is told (sd_notify(3)): ready, still alive, ending."""

import os
import socket
from collections.abc import Mapping


class ServiceManager:
    """The other end of ``$NOTIFY_SOCKET``; without one nothing is said.

    Nothing waits for whoever listens there: what its queue has no room for is said again by
    `alive`, which the event loop calls ten times a second.

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
        self._unsaid = ""

    def ready(self, status: str) -> None:
        """Say that requests are answered."""
        state = f"READY=1\nSTATUS={status}"
        self._unsaid = "" if self._tell(state) else state

    def alive(self, now: float) -> None:
        """Say so, if it is due; first what there was no room for."""
        if self._unsaid and self._tell(self._unsaid):
            self._unsaid = ""
        due = self.every is not None and now - self._told >= self.every
        if due and self._tell("WATCHDOG=1"):
            self._told = now

    def ending(self) -> None:
        """Say that what waits is being written."""
        self._tell("STOPPING=1")

    def _tell(self, state: str) -> bool:
        """Say something; return False if there is no room for it now."""
        if not self._address:
            return True
        kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        try:
            with socket.socket(socket.AF_UNIX, kind) as out:
                out.sendto(state.encode(), self._address)
        except BlockingIOError:
            return False
        except OSError:  # who supervises is gone: that is its own affair
            return True
        return True
