"""Counts until told to stop; a rank that leaves has a file that nobody closes, and an exit handler.

Arguments: a file whose existence says stop, the folder of what ranks write, and how many seconds the exit
handler takes.
"""

import atexit
import os
import sys
import time
import weakref
from pathlib import Path

from mpi4py import MPI

from apples import malleable

STOP, FOLDER = map(Path, sys.argv[1:3])
SECONDS = float((sys.argv[3:] or [0.0])[0])
host = os.environ["APPLES_HOST"]
words = (FOLDER / host).open("w", encoding="utf-8")
words.write("not flushed")
gone = weakref.proxy(
    set()
)  # what it stood for is there no more: whoever asks it for anything gets an error
atexit.register((FOLDER / f"{host}-ended").touch)
atexit.register(time.sleep, SECONDS)

with malleable.Job() as job:
    job.may_lose("host")
    rows = job.array("rows", (100, 10))
    state = job.state(iteration=0, stop=0.0)
    while not state.stop:
        job.safepoint()
        time.sleep(0.002)
        state.iteration += 1
        state.stop = job.allreduce(float(job.rank == 0 and STOP.exists()), MPI.MAX)
