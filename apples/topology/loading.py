"""A topology from what a user names: an hwloc XML file, a file with a synthetic string, or the string."""

from __future__ import annotations

from pathlib import Path

from apples.topology.hwloc_xml import read_hwloc_xml
from apples.topology.machine import Topology
from apples.topology.reading import MOST_BYTES, TopologyFileError
from apples.topology.synthetic import synthetic


def load_topology(source: str | Path) -> Topology:
    """Return the topology in a file, or of a synthetic string.

    Raises
    ------
    TopologyFileError
        No such file, or not a topology; with file, line and what would be right. Permanent.
    """
    path = Path(source)
    if isinstance(source, str) and ":" in source and not _exists(path):
        return synthetic(source)
    try:
        with path.open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no file name"
        raise TopologyFileError(f"{str(source)[:200]}: {reason}") from error
    if data.lstrip()[:1] == b"<" or data[:3] == b"\xef\xbb\xbf" or b"\0" in data[:64]:
        return read_hwloc_xml(data, str(source))
    if len(data) <= 4096 and data.isascii():
        return synthetic(data.decode("ascii"))
    raise TopologyFileError(
        f"{source}: neither hwloc XML nor a synthetic string: expected what 'lstopo --of xml' writes"
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # too long, or a zero byte: no file name
        return False
