"""`DocumentFolder`: the files that users write, under the one folder that was named at the start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import hat
from apples import user_files
from apples.errors import UsageError

MOST_FILES = 200
MOST_BYTES = 256 << 10
MOST_LOOKED_AT = 20_000
DEEPEST = 4
ENDING = ".toml"


class DocumentFolder:
    """The TOML files of a folder and of those below it; nothing outside is read or written.

    Parameters
    ----------
    path
        The folder.

    Raises
    ------
    UsageError
        There is no such folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        if not self.path.is_dir():
            raise UsageError(f"--folder {path}: there is no such folder")
        self._kinds: dict[str, tuple[tuple[int, int, int], str]] = {}

    def names(self) -> list[str]:
        """Return the files by their names from the folder on, at most `MOST_FILES`, those at the top first."""
        found = sorted(self._files(), key=lambda name: (name.count("/"), name))
        return found[:MOST_FILES]

    def _files(self) -> Iterator[str]:
        looked_at = 0
        for folder, below, files in os.walk(self.path):
            here = Path(folder).relative_to(self.path)
            deep = len(here.parts) >= DEEPEST
            below[:] = (
                [] if deep else sorted(one for one in below if not one.startswith((".", "__")))
            )
            for name in files:
                if name.endswith(ENDING) and not name.startswith("."):
                    yield str(here / name)
            looked_at += len(files)
            if looked_at > MOST_LOOKED_AT:
                return

    def file(self, name: str) -> Path:
        """Return the path of a file of this folder; it may not exist yet.

        Raises
        ------
        UsageError
            It is no TOML file, or would be outside: by its name, or by a link.
        """
        path = self.path / name
        try:
            inside = path.resolve().is_relative_to(self.path)
        except (OSError, ValueError):
            inside = False
        hidden = any(part.startswith(".") for part in Path(name).parts)
        if not name.endswith(ENDING) or Path(name).is_absolute() or hidden or not inside:
            raise UsageError(f"'{hat.printable(name)}' is no {ENDING} file of {self.path}")
        return path

    def text(self, name: str) -> str:
        """Return the text of a file.

        Raises
        ------
        UsageError
            It cannot be read, is larger than `MOST_BYTES`, or no UTF-8 text.
        """
        path = self.file(name)
        try:
            return hat.read_bytes(path, MOST_BYTES).decode()
        except hat.UnreadableError as error:
            raise UsageError(f"{hat.printable(name)}: {error}") from None
        except UnicodeDecodeError:
            raise UsageError(f"{hat.printable(name)}: is not UTF-8 text") from None

    def kinds(self) -> dict[str, str]:
        """Return the kind of each file; one that is as it was when it was asked for before is not read again."""
        found: dict[str, tuple[tuple[int, int, int], str]] = {}
        for name in self.names():
            try:
                seen = (self.path / name).stat()
            except OSError:
                continue
            mark = seen.st_mtime_ns, seen.st_size, seen.st_ino
            known = self._kinds.get(name)
            found[name] = (
                known
                if known is not None and known[0] == mark
                else (mark, user_files.inspect(self.path / name).kind)
            )
        self._kinds = found
        return {name: kind for name, (_, kind) in found.items()}

    def checked(self) -> list[tuple[str, hat.CheckResult]]:
        """Return each file with its kind and what is wrong with it; TOML of other programs is left out."""
        found = [(name, user_files.inspect(self.path / name)) for name in self.names()]
        return [
            (name, one)
            for name, one in found
            if one.kind != hat.UNKNOWN or any(problem.line for problem in one.problems)
        ]
