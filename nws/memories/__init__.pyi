from nws.memories.journalled import JournalMemory as JournalMemory
from nws.memories.ring import RingMemory as RingMemory

__all__ = ["JournalMemory", "RingMemory"]
