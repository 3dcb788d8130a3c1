from nws.memory.journalled import JournalMemory as JournalMemory
from nws.memory.ring import RingMemory as RingMemory

__all__ = ["JournalMemory", "RingMemory"]
