"""A private directory for code that is compiled at first use."""

import os
import stat
from pathlib import Path


def cache_directory() -> Path:
    """Return the directory, created if necessary, that only this user can write to.

    Raises
    ------
    OSError
        It cannot be made or is not safe to load code from.
    """
    base = os.environ.get("XDG_CACHE_HOME") or str(Path("~").expanduser() / ".cache")
    directory = Path(base) / "apples-jacobi2d"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    demand_own(directory)
    return directory


def demand_own(path: Path) -> None:
    """Raise OSError if another user owns the path or may write to it, because it holds code that we run."""
    found = path.stat(follow_symlinks=False)
    if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"{path} belongs to another user or others may write to it")
