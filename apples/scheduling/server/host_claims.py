"""Which of this user's schedulers has which host: two that have the same know nothing of each other's jobs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from apples.errors import LaunchError
from apples.storage import documents

CLAIMS = ".hosts"
LONGEST_NAME = 200
LONGEST_TEXT = 4096


class HostClaims:
    """Locks of hosts by name, which end with this process.

    Parameters
    ----------
    home
        The directory of this user's schedulers; claims are kept in it.
    owner
        The directory of the scheduler that claims, for the messages of others.

    Raises
    ------
    LaunchError
        Another scheduler has one of them; none is held then.
    """

    def __init__(self, home: Path, owner: Path, hosts: Iterable[str]) -> None:
        self._held: list[int] = []
        try:
            folder = home / CLAIMS
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for host in hosts:
                self._claim(folder, host, str(owner))
        except OSError as error:
            self.close()
            raise LaunchError(f"{home / CLAIMS}: {error.strerror}") from None
        except LaunchError:
            self.close()
            raise

    def _claim(self, folder: Path, host: str, owner: str) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        file = os.open(folder / quote(host, safe="")[:LONGEST_NAME], flags, 0o600)
        self._held.append(file)
        if not documents.lock(file, 0.0):
            who = os.pread(file, LONGEST_TEXT, 0).decode(errors="replace")
            raise LaunchError(f"{host}: is scheduled already, by the scheduler of {who}")
        os.ftruncate(file, 0)
        os.pwrite(file, owner.encode(), 0)

    def close(self) -> None:
        """Give the hosts back."""
        while self._held:
            os.close(self._held.pop())
