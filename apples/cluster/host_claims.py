"""Claims of hosts by this user's schedulers: two schedulers with the same host would not see each other's jobs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from apples.errors import LaunchError, unusable
from apples.io import documents

CLAIMS = ".hosts"
MAX_NAME = 200
"""Length of a claim's file name; a longer one ends in a digest, because paths may differ only at their ends."""
MAX_TEXT = 4096


class HostClaims:
    """Locks of hosts by name, which end with this process.

    Parameters
    ----------
    home
        The directory of this user's schedulers; it also holds the claims.
    owner
        The directory of the scheduler that claims; error messages of others name it.

    Raises
    ------
    LaunchError
        Another scheduler has one of the hosts; then none is claimed.
    """

    def __init__(self, home: Path, owner: Path, hosts: Iterable[str]) -> None:
        self._folder, self._owner = home / CLAIMS, owner
        self._held: dict[str, int] = {}
        try:
            for host in hosts:
                self.claim(host)
        except LaunchError:
            self.close()
            raise

    def claim(self, host: str) -> None:
        """Claim a further host, unless it is claimed already.

        Raises
        ------
        LaunchError
            Another scheduler has it.
        """
        if host in self._held:
            return
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            file = os.open(self._folder / _name_of(host), flags, 0o600)
            try:
                self._lock(file, host)
            except BaseException:
                os.close(file)
                raise
        except OSError as error:
            raise unusable(self._folder, error) from None
        self._held[host] = file

    def _lock(self, file: int, host: str) -> None:
        if not documents.lock(file, 0.0):
            who = os.pread(file, MAX_TEXT, 0).decode(errors="replace")
            raise LaunchError(
                f"{host}: is scheduled already, by the scheduler of {who}",
                code="host-busy", host=host, scheduler=who,
            )  # fmt: skip
        os.ftruncate(file, 0)
        os.pwrite(file, str(self._owner).encode(), 0)

    def close(self) -> None:
        """Release the hosts."""
        while self._held:
            os.close(self._held.popitem()[1])


def _name_of(host: str) -> str:
    """Return the name of a claim's file."""
    name = quote(host, safe="")
    if len(name) <= MAX_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()
    return f"{name[: MAX_NAME - len(digest) - 1]}-{digest}"
