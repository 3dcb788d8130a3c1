"""Sources of a machine's topology: files, a description, the kernel, this machine or another.

`hwloc_xml` reads the output of ``lstopo --of xml`` (`elements`: bounded XML; `format_1`: files of hwloc 1;
`hwloc_devices`: GPUs and network interfaces). `synthetic` reads a string such as ``package:2 core:4 pu:2``, and
`sysfs` the kernel's description; `packed` unpacks stored descriptions, `core_kinds` ranks cores. `this_machine`
uses the best source available here. `probe` is a program that runs on another machine and prints its description,
which `sysfs` reads.
"""

from __future__ import annotations

from pathlib import Path

from apples.topology.machine import Topology
from apples.topology.sources.elements import MAX_BYTES, TopologyFileError
from apples.topology.sources.hwloc_xml import read_hwloc_xml
from apples.topology.sources.packed import files_of, is_archive, unpacked
from apples.topology.sources.synthetic import synthetic
from apples.topology.sources.sysfs import described, read_sysfs


def load_topology(source: str | Path) -> Topology:
    """Return the topology in a file, or of a synthetic string.

    A file is hwloc XML (also compressed), a synthetic string, or a stored ``/sys``: a folder, or the archive that
    hwloc-gather-topology makes.

    Raises
    ------
    TopologyFileError
        The file does not exist or is not a topology; with file, line and the expected form. Permanent.
    """
    path = Path(source)
    if isinstance(source, str) and ":" in source and not _exists(path):
        return synthetic(source)
    if _exists(path) and path.is_dir():
        return _of_folder(path)
    try:
        with path.open("rb") as stream:
            data = unpacked(stream.read(MAX_BYTES + 1), str(source))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no file name"
        raise TopologyFileError(
            f"{str(source)[:200]}: {reason}",
            code="file-missing" if isinstance(error, FileNotFoundError) else "file-unreadable",
            file=str(source)[:200],
        ) from error
    if is_archive(data):
        return described(files_of(data, str(source)), str(source))
    if data.lstrip()[:1] == b"<" or data[:3] == b"\xef\xbb\xbf" or b"\0" in data[:64]:
        return read_hwloc_xml(data, str(source))
    if len(data) <= 4096 and data.isascii():
        return synthetic(data.decode("ascii"))
    raise TopologyFileError(
        f"{source}: not a topology: expected a file of 'lstopo --of xml' (packed or not), an archive of "
        "hwloc-gather-topology, or a synthetic string",
        code="file-invalid",
        file=source,
    )


def _of_folder(folder: Path) -> Topology:
    """Return the machine of a stored ``/sys``: the folder that contains ``cpu``, or a folder above it."""
    for below in ("", "system", "devices/system", "sys/devices/system"):
        if (folder / below / "cpu").is_dir():
            return read_sysfs(folder / below)
    raise TopologyFileError(
        f"{folder}: this folder holds no sys/devices/system with a cpu folder",
        code="file-invalid",
        file=str(folder),
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # too long for a file name, or with a zero byte
        return False
