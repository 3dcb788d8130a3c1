"""The states of all forecasters in one file, each line with its own checksum.

    crc32 position series state

The position says how much of the log the state has taken in, so each line is right by itself and
the lines may be of different moments. A bad line costs its series the state, which then begins
with what the log still holds, and `SnapshotFile.problems` names it.
"""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nws.journal import Files, replace_file

SCHEMA: Final = b"nws.snapshot/1"


@dataclass(frozen=True, slots=True)
class Saved:
    """The state of one series' forecaster after the record at `position`."""

    position: int
    state: bytes


class SnapshotFile:
    """Writes and reads the file.

    Parameters
    ----------
    path
        Where it is.
    profile
        Which forecasters the states are of; those of others are not read.
    files
        What reads and writes.

    Examples
    --------
    >>> import tempfile
    >>> file = SnapshotFile(Path(tempfile.mkdtemp(), "states"), "classic")
    >>> file.write([("availableCpu/ada", Saved(64, b"{}"))])
    >>> file.read()
    {'availableCpu/ada': Saved(position=64, state=b'{}')}
    """

    def __init__(self, path: Path, profile: str, files: Files | None = None) -> None:
        self.path = path
        self.problems: list[str] = []
        self._profile = profile.encode()
        self._files = files or Files()

    def write(self, entries: Iterable[tuple[str, Saved]]) -> None:
        """Put a new file in the place of the old; OSError leaves the old one."""
        lines = [_line(SCHEMA + b" " + self._profile)]
        lines += [
            _line(b"%d %s %s" % (saved.position, text.encode(), saved.state))
            for text, saved in entries
        ]
        replace_file(self._files, self.path, b"".join(lines))

    def read(self) -> dict[str, Saved]:
        """Return what can be read; never fails."""
        try:
            lines = self._files.read(self.path).split(b"\n")
        except FileNotFoundError:
            return {}
        except OSError as error:
            self.problems.append(f"{self.path.name}: {error.strerror}")
            return {}
        if _sound(lines[0]) != SCHEMA + b" " + self._profile:
            self.problems.append(f"{self.path.name}: not states of profile {self._profile!r}")
            return {}
        found = {}
        for number, line in enumerate(lines[1:-1], start=2):
            parts = (_sound(line) or b"").split(b" ", 2)
            if len(parts) == 3 and parts[0].isdigit():
                found[parts[1].decode(errors="replace")] = Saved(int(parts[0]), parts[2])
            else:
                self.problems.append(f"{self.path.name}:{number}: a bad line")
        return found


def _line(content: bytes) -> bytes:
    return b"%08x %s\n" % (zlib.crc32(content), content)


def _sound(line: bytes) -> bytes | None:
    """Return the content of a line whose checksum is right."""
    content = line[9:]
    return content if line[:9] == b"%08x " % zlib.crc32(content) else None
