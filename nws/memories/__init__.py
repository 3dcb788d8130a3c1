"""Where measurements are kept.

`RingMemory`: in this process, the latest so many of each series.
"""

from nws.memories.ring import RingMemory

__all__ = ["RingMemory"]
