"""`DocumentFolder`: the user's files below the folder that was named at the start."""

from __future__ import annotations

import errno
import itertools
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

import hat
from apples.applications import files as user_files
from apples.errors import LaunchError, UsageError, coded, unwritable
from apples.io.folder import Folder

MAX_FILES = 200
MAX_FILE_BYTES = 256 << 10
MAX_ENTRIES = 20_000
DEEPEST = 4
ENDING = ".toml"
WEATHER_ENDING = ".json"


class FileChangedError(LaunchError):
    """Another program changed a file after the browser read it. Permanent until the page is loaded again."""

    code = "file-changed"


class DocumentFolder:
    """The TOML files in a folder and its subfolders; it reads and writes nothing outside.

    Parameters
    ----------
    path
        The folder.

    Raises
    ------
    UsageError
        The folder does not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        if not self.path.is_dir():
            raise UsageError(
                f"--folder {path}: no such folder",
                code="directory-missing", option="--folder", file=path,
            )  # fmt: skip
        self._kinds: dict[str, tuple[tuple[int, int, int], str]] = {}
        self._weather: dict[str, tuple[tuple[int, int, int], bool]] = {}

    def names(self, ending: str = ENDING) -> list[str]:
        """Return at most `MAX_FILES` names of files, relative to the folder, files at the top first."""
        found = sorted(self._files(ending), key=lambda name: (name.count("/"), name))
        return found[:MAX_FILES]

    def _files(self, ending: str) -> Iterator[str]:
        looked_at = 0
        for folder, below, files in os.walk(self.path):
            here = Path(folder).relative_to(self.path)
            deep = len(here.parts) >= DEEPEST
            below[:] = (
                [] if deep else sorted(one for one in below if not one.startswith((".", "__")))
            )
            for name in files:
                if name.endswith(ending) and not name.startswith("."):
                    yield str(here / name)
            looked_at += len(files)
            if looked_at > MAX_ENTRIES:
                return

    def file(self, name: str, ending: str = ENDING) -> Path:
        """Return the path of a file of this folder; it may not exist yet.

        Raises
        ------
        UsageError
            Its name has another ending, or leads outside the folder directly or through a link.
        """
        path = self.path / name
        try:
            inside = path.resolve().is_relative_to(self.path)
        except (OSError, ValueError):
            inside = False
        hidden = any(part.startswith(".") for part in Path(name).parts)
        if not name.endswith(ending) or Path(name).is_absolute() or hidden or not inside:
            raise UsageError(
                f"'{hat.printable(name)}' is no {ending} file of {self.path}",
                code="name-invalid",
                value=name,
            )
        return path

    def create(self, name: str, text: str) -> None:
        """Write a new file, whole or not at all.

        Raises
        ------
        UsageError
            The file exists, its name is invalid in this folder, or its folder is missing.
        LaunchError
            It cannot be written.
        """
        parent, last = self._place(name)
        if len(Path(name).parts) > DEEPEST + 1:
            raise UsageError(
                f"'{hat.printable(name)}': is more than {DEEPEST} folders down",
                code="name-invalid", value=name, bound=DEEPEST,
            )  # fmt: skip
        beside = f".{last}.{secrets.token_hex(4)}"
        with self._opened(parent, name) as folder:
            try:
                descriptor = folder.open_file(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
                try:
                    folder.append(descriptor, text.encode())
                finally:
                    os.close(descriptor)
                _link(folder, beside, last)
            except FileExistsError:
                raise UsageError(
                    f"{hat.printable(name)}: is there already; nothing was written",
                    code="file-exists", file=name,
                ) from None  # fmt: skip
            except OSError as error:
                raise unwritable(hat.printable(name), error) from None
            finally:
                with suppress(OSError):  # the error of the write is reported already
                    folder.remove(beside)

    def put_aside(self, name: str, digest: str) -> str:
        """Rename a file to ``NAME.bak``, so that it is no document of the folder; return the new name.

        An earlier ``NAME.bak`` is kept: the next name is ``NAME.bak2``.

        Parameters
        ----------
        digest
            Digest that the text must have, from `digest_of`.

        Raises
        ------
        UsageError
            The file does not exist, or a link is in the way.
        LaunchError
            Its text has changed, or it cannot be renamed.
        """
        parent, last = self._place(name)
        with self._opened(parent, name) as folder:
            try:
                kept = _placeholder(folder, last)
                try:
                    folder.read(last)  # a link, pipe or device raises an error
                    folder.rename(last, kept)  # at once, so a later change of the text is kept too
                except OSError:
                    folder.remove(kept)
                    raise
                if digest_of(folder.read(kept).decode("utf-8", "replace")) != digest:
                    _link(folder, kept, last)
                    folder.remove(kept)
                    raise FileChangedError(
                        f"{hat.printable(name)} changed on disk since you opened it: it was not deleted",
                        file=name,
                    )  # fmt: skip
                folder.sync()
            except FileNotFoundError:
                raise UsageError(
                    f"{hat.printable(name)}: no such file", code="file-missing", file=name
                ) from None
            except OSError as error:
                raise unwritable(hat.printable(name), error) from None
        return str(parent / kept)

    def _place(self, name: str) -> tuple[Path, str]:
        """Return the subfolder of a file and the file's name in it."""
        self.file(name)
        place = Path(name)
        return place.parent, place.name

    @contextmanager
    def _opened(self, parent: Path, name: str) -> Iterator[Folder]:
        """Open a subfolder without following links, so that all changes stay inside the folder."""
        with Folder.open(self.path, links=True) as top:
            try:
                found = top if parent == Path() else top.below(str(parent))
            except OSError as error:
                missing = error.errno == errno.ENOENT
                why = "no such folder" if missing else error.strerror
                said = f"{hat.printable(name)}: {hat.printable(str(parent))}: {why}"
                raise UsageError(
                    said,
                    code="directory-missing" if missing else "file-unreadable",
                    file=name, directory=str(parent),
                ) from None  # fmt: skip
            with found:
                yield found

    def text(self, name: str) -> str:
        """Return the text of a file.

        Raises
        ------
        UsageError
            It cannot be read, is larger than `MAX_FILE_BYTES`, or is not UTF-8 text.
        """
        path = self.file(name)
        try:
            return hat.read_bytes(path, MAX_FILE_BYTES).decode()
        except hat.UnreadableError as error:
            raise UsageError(f"{hat.printable(name)}: {error}", **coded(error)) from None
        except UnicodeDecodeError:
            raise UsageError(
                f"{hat.printable(name)}: is not UTF-8 text", code="file-invalid", file=name
            ) from None

    def kinds(self) -> dict[str, str]:
        """Return the kind of each file; a file that has not changed since the last call is not read again."""
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

    def weather_files(self) -> list[str]:
        """Return the recorded weather files; a file is read again only after it changed."""
        known, self._weather = self._weather, {}
        for name in self.names(WEATHER_ENDING):
            path = self.path / name
            try:
                seen = path.stat()
                mark = seen.st_mtime_ns, seen.st_size, seen.st_ino
                before = known.get(name)
                is_weather = before[1] if before and before[0] == mark else _is_weather(path)
            except OSError:
                continue
            self._weather[name] = mark, is_weather
        return [name for name, (_, is_weather) in self._weather.items() if is_weather]

    def checked(self) -> list[tuple[str, hat.CheckResult]]:
        """Return each file with its kind and its problems; TOML files of other programs are left out."""
        found = [(name, user_files.inspect(self.path / name)) for name in self.names()]
        return [
            (name, one)
            for name, one in found
            if one.kind != hat.UNKNOWN or any(problem.line for problem in one.problems)
        ]


def _is_weather(path: Path) -> bool:
    """Whether a file of at most `MAX_FILE_BYTES` is recorded weather."""
    from nws import Weather  # noqa: PLC0415 - for the page of plans only

    try:
        Weather.from_json(hat.read_bytes(path, MAX_FILE_BYTES).decode())
    except (hat.UnreadableError, ValueError):
        return False
    return True


def digest_of(text: str) -> str:
    """Return the digest of a text, to detect changes."""
    return sha256(text.encode("utf-8", "replace")).hexdigest()


def _link(folder: Folder, source: str, target: str) -> None:
    """Give a file a second name; FileExistsError if that name is taken."""
    here = folder.descriptor
    os.link(source, target, src_dir_fd=here, dst_dir_fd=here, follow_symlinks=False)


def _placeholder(folder: Folder, name: str) -> str:
    """Make an empty file under the first free name, from ``NAME.bak`` on; return the name."""
    for count in itertools.count(1):
        kept = f"{name}.bak{count if count > 1 else ''}"
        try:
            os.close(folder.open_file(kept, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        return kept
    raise AssertionError
