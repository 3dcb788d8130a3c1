"""Memories: where measurements are kept.

1. `contract`: what every memory promises.
2. `ring`: `RingMemory`, in this process, the latest of each series.
3. `journalled`: `JournalMemory`, the same and on the disk, so that they survive. `column`: one series
   in flat arrays; `series_shard`: the series of one shard of the log.
4. `journal`: the log itself; `journal_format`: the bytes of its records; `journal_files`: the file
   operations it is made of, and a layer that makes each of them fail.

Only `contract` and `ring` are light; the others load NumPy.
"""
