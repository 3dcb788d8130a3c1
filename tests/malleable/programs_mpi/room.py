"""room.py STOP: on each host that joins, rank 0 says for which rows it had memory when the change began."""

import os
import sys
from pathlib import Path

from apples import malleable
from apples.malleable import MappedRows

stop, made = Path(sys.argv[1]), []
plain = MappedRows.make


def make(memory, rows, deadline):
    plain(memory, rows, deadline)
    made.append(range(rows.first, rows.stop))


MappedRows.make = make
with malleable.Job() as job:
    array = job.array(
        "array", (300, 1000), halo=1, fill=lambda rows, block: block.fill(rows.start)
    )
    state = job.state(iteration=0, stop=0.0)
    while not state.stop:
        if (change := job.safepoint()) and change.is_new:
            own = range(job.strip.first, job.strip.stop + 2)
            said = "its rows" if made == [own] else made
            os.write(1, f"{job.host} {change.kind} {said}\n".encode())  # in one piece
        state.iteration += 1
        state.stop = job.allreduce(float(job.rank == 0 and stop.exists()))
