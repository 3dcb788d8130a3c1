"""Ownership and mode of the directories and secrets of a service, checked when it opens them."""

import os
import re
import stat
from pathlib import Path
from typing import Final

from nws.errors import CodedError, InputError

WRITABLE: Final = 0o022
"""Mode bits by which others may write."""
OPEN: Final = 0o077
"""Mode bits by which others may do anything."""
TOKEN: Final = re.compile(rb"[!-~]{1,200}")


class NotPrivateError(CodedError, ValueError):
    """Another user owns a file or directory, or may read or change it. Permanent: the message has the remedy."""

    code = "file-not-private"


def check_owned(name: object, found: os.stat_result, forbidden: int = WRITABLE) -> None:
    """Raise `NotPrivateError` unless a directory or file is ours and none of the `forbidden` bits is set.

    Another user could have planted the file: a service that runs as root would
    otherwise accept a planted token.

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
            f"{name}: belongs to user {found.st_uid}, not to {os.geteuid()}, the user of this process: "
            f"check its content, then chown {os.geteuid()} {name}",
            code=_code(found),
            file=str(name),
            owner=found.st_uid,
        )
    mode = stat.S_IMODE(found.st_mode)
    if mode & forbidden:
        what, mend = ("write to", "go-w") if forbidden == WRITABLE else ("read or write", "600")
        raise NotPrivateError(
            f"{name}: others may {what} it (mode {mode:o}): chmod {mend} {name}",
            code=_code(found),
            file=str(name),
            mode=f"{mode:o}",
        )


def _code(found: os.stat_result) -> str:
    return "directory-not-private" if stat.S_ISDIR(found.st_mode) else "file-not-private"


def check_directory(path: Path) -> None:
    """Raise `NotPrivateError` unless a directory, links followed, is ours and only we may write to it."""
    check_owned(path, path.stat())


def read_secret(path: Path) -> bytes:
    """Return the content of a file that is ours and that no other user may read or write.

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
            raise NotPrivateError(
                f"{path}: is a link; a secret must be a regular file",
                code="file-not-regular",
                file=str(path),
            ) from error
        raise
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise NotPrivateError(
                f"{path}: is not a regular file", code="file-not-regular", file=str(path)
            )
        check_owned(path, found, OPEN)
        return file.read(1 << 20)


def read_token(path: Path) -> str:
    """Return the token in a file of a client, which is a secret like those of a service.

    Raises
    ------
    NotPrivateError, InputError
        Others may read it, it is not ours, cannot be read, or holds no token: the field `file` names the file.

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
        missing = isinstance(error, FileNotFoundError)
        raise InputError(
            f"{path}: {error.strerror}",
            code="file-missing" if missing else "file-unreadable",
            file=str(path),
        ) from error
    if not TOKEN.fullmatch(token):
        raise InputError(
            f"{path}: must hold a token, which is one word of letters, digits and signs",
            code="token-invalid",
            file=str(path),
        )
    return token.decode()
