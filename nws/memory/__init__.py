"""Where measurements are kept.

`RingMemory`: in this process, the latest so many of each series.
`JournalMemory`: the same, and on the disk, so that they survive (imports NumPy; a `StorageListener` hears
of what it stores).
"""

from importlib import import_module

from nws.memory.ring import RingMemory

_JOURNALLED = ("BusyError", "JournalMemory", "LogError", "Retention", "Submission")

__all__ = ["JournalMemory", "RingMemory"]


def __getattr__(name: str) -> object:
    """Return what only those need who keep a log, loading it."""
    if name not in _JOURNALLED:
        raise AttributeError(f"module 'nws.memory' has no attribute {name!r}")
    return getattr(import_module("nws.memory.journalled"), name)
