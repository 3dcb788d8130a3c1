"""What only its owner may have written or read: directories and secrets of a service, checked at its door."""

import os
import re
import stat
from pathlib import Path
from typing import Final

WRITABLE: Final = 0o022
"""Mode bits by which others may write."""
OPEN: Final = 0o077
"""Mode bits by which others may do anything."""
TOKEN: Final = re.compile(rb"[!-~]{1,200}")


class NotPrivateError(ValueError):
    """Somebody else owns it, or may read or change it. Permanent: the message says what mends it."""


def check_owned(name: object, found: os.stat_result, forbidden: int = WRITABLE) -> None:
    """Raise `NotPrivateError` unless a directory or file is ours and none of the `forbidden` bits is set.

    What another user may have put there is worth nothing: a service that runs as root would
    otherwise take a planted token for its own.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> check_owned(folder, os.stat(folder))
    >>> os.chmod(folder, 0o777)
    >>> check_owned("state", os.stat(folder))
    Traceback (most recent call last):
    nws.private.NotPrivateError: state: others may write to it (mode 777): chmod go-w state
    """
    if found.st_uid != os.geteuid():
        raise NotPrivateError(
            f"{name}: belongs to user {found.st_uid}, not to {os.geteuid()} who runs this: "
            f"chown {os.geteuid()} {name}, once you know who wrote it"
        )
    mode = stat.S_IMODE(found.st_mode)
    if mode & forbidden:
        what, mend = ("write to", "go-w") if forbidden == WRITABLE else ("read or write", "600")
        raise NotPrivateError(f"{name}: others may {what} it (mode {mode:o}): chmod {mend} {name}")


def check_directory(path: Path) -> None:
    """Raise `NotPrivateError` unless a directory, or what it is a link to, is ours and only we may write to it."""
    check_owned(path, path.stat())


def read_secret(path: Path) -> bytes:
    """Return the content of a file that is ours and that nobody else may read or write.

    Raises
    ------
    NotPrivateError
        It is not, or it is a link or no regular file.
    OSError
        It is not there, or cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        if path.is_symlink():
            raise NotPrivateError(f"{path}: is a link; a secret is a file") from error
        raise
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise NotPrivateError(f"{path}: is no regular file")
        check_owned(path, found, OPEN)
        return file.read(1 << 20)


def read_token(path: Path) -> str:
    """Return the token in a file of a client, which is a secret like those of a service.

    Raises
    ------
    ValueError
        Others may read it, it is not ours, cannot be read, or holds no token: the message names the file.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(b"nws_abc")
    ...     file.flush()
    ...     read_token(Path(file.name))
    'nws_abc'
    """
    try:
        token = read_secret(path).strip()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    if not TOKEN.fullmatch(token):
        raise ValueError(
            f"{path}: that is no token, which is one word of letters, digits and signs"
        )
    return token.decode()
