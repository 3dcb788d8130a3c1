"""Memories of measurements.

1. `contract`: the promises of every memory.
2. `ring`: `RingMemory`, in this process, the latest of each series.
3. `sqlite`: `SqliteMemory`, in an SQLite database, so that they survive. `summary`: the part of a series that is
   in RAM; `slots`: means of measurements that are too old to be kept one by one.
4. `old_format`: the import of a directory that apples 0.2 wrote.
"""
