"""The append-only log of measurements: what was acknowledged is on the disk.

1. `record`: the bytes: 32 a measurement, each with its own checksum.
2. `scan`: reading a segment: every sound record, wherever the damage is.
3. `files`: the few things done with files, and a layer that makes each of them fail.
4. `shard`: segments in a directory: append, sync, repair, reopen.
5. `writer`: a thread that lets many writers share one sync.
"""

from nws.journal.files import FaultyFiles, Files, PowerCutError, replace_file
from nws.journal.scan import Damage, Scan, scan
from nws.journal.shard import LogError, Shard, position_of, segment_of
from nws.journal.writer import BusyError, Writer

__all__ = [
    "BusyError",
    "Damage",
    "FaultyFiles",
    "Files",
    "LogError",
    "PowerCutError",
    "Scan",
    "Shard",
    "Writer",
    "position_of",
    "replace_file",
    "scan",
    "segment_of",
]
