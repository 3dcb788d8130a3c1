"""`identity_of`: the unique identity of a state directory, independent of its path.

A daemon tags the objects that it creates outside its directory with this identity, for example its control groups.
The identity is a random number in a file, stored together with the file's inode number. A rename keeps the inode;
a copy or a restored backup has another inode. Without this check, a daemon that starts on a copy would use the
control groups of the original.
"""

from __future__ import annotations

import os
import re
import secrets
from typing import Final

from apples.errors import UsageError
from apples.io.documents import lock
from apples.io.folder import Folder

NAME: Final = "identity"
LINE: Final = re.compile(rb"([0-9a-f]{32}) ([0-9]{1,20})\n")


def identity_of(folder: Folder, *, restored: bool = False) -> str:
    """Return the identity of a directory, 32 hexadecimal digits; generate and store it if it is missing.

    Parameters
    ----------
    folder
        A directory that only its owner may write to.
    restored
        Accept a copy in place of the original, which must never be used again.

    Raises
    ------
    UsageError
        The directory is a copy of another, or its identity cannot be read. Permanent.
    OSError
        The file cannot be read or written.
    """
    descriptor = folder.open_file(NAME, os.O_RDWR | os.O_CREAT)
    try:
        lock(
            descriptor
        )  # if two processes start at once, the second reads the identity that the first wrote
        inode = os.fstat(descriptor).st_ino
        said = os.read(descriptor, 100)
        found = LINE.fullmatch(said)
        if said and found is None:
            raise UsageError(
                f"{folder.name}/{NAME}: damaged; remove it, and {folder.name}/journal with it, to begin anew",
                code="file-damaged", file=f"{folder.name}/{NAME}",
            )  # fmt: skip
        if found is not None and int(found[2]) != inode and not restored:
            raise UsageError(
                f"{folder.name} is a copy: its identity belongs to another directory, and it would take that "
                f"directory's jobs for its own. To begin anew, remove {NAME} and journal in it. If the other "
                "directory is gone for good, add --restored",
                code="directory-copied", file=folder.name, option="--restored",
            )  # fmt: skip
        identity = found[1].decode() if found is not None else secrets.token_hex(16)
        if found is None or int(found[2]) != inode:
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.ftruncate(descriptor, 0)
            folder.append(descriptor, f"{identity} {inode}\n".encode())
            folder.sync()
        return identity
    finally:
        os.close(descriptor)
