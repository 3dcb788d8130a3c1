"""Where a machine's topology comes from: files, a description, the kernel, this machine or another.

`hwloc_xml` reads what ``lstopo --of xml`` writes, `synthetic` a string such as ``package:2 core:4 pu:2``, and
`sysfs` the kernel's own description. `this_machine` takes the best source there is here; `probe` is a program
that travels to another machine and prints its description, which `sysfs` checks and reads.
"""

from __future__ import annotations

from pathlib import Path

from apples.topology.machine import Topology
from apples.topology.sources.hwloc_xml import MOST_BYTES, TopologyFileError, read_hwloc_xml
from apples.topology.sources.synthetic import synthetic


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
        raise TopologyFileError(
            f"{str(source)[:200]}: {reason}",
            code="file-missing" if isinstance(error, FileNotFoundError) else "file-unreadable",
            file=str(source)[:200],
        ) from error
    if data.lstrip()[:1] == b"<" or data[:3] == b"\xef\xbb\xbf" or b"\0" in data[:64]:
        return read_hwloc_xml(data, str(source))
    if len(data) <= 4096 and data.isascii():
        return synthetic(data.decode("ascii"))
    raise TopologyFileError(
        f"{source}: neither hwloc XML nor a synthetic string: expected what 'lstopo --of xml' writes",
        code="file-invalid",
        file=source,
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # too long, or a zero byte: no file name
        return False
