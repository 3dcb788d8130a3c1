"""A plain mpi4py program of the protocol: one rank goes wrong after all are ready, and the others wait for it."""

import json
import os
import signal
import sys
import time
from pathlib import Path

from mpi4py import MPI

COMM = MPI.COMM_WORLD
PARAMETERS = json.loads(Path(os.environ["APPLES_TASK"]).read_text())["parameters"]
HOW, WHO = PARAMETERS["how"], PARAMETERS.get("who", 1)


def say(event, **fields):
    os.write(1, (json.dumps({"event": event, **fields}) + "\n").encode())


def go_wrong():
    if HOW == "raise":
        raise ValueError("row 7 is bad")
    if HOW == "sys.exit":
        sys.exit(0)
    if HOW == "os._exit":
        os._exit(0)
    if HOW.startswith("SIG"):
        os.kill(os.getpid(), signal.Signals[HOW])


def main():
    COMM.Barrier()
    if COMM.rank == 0:
        say("ready", protocol=1, program="leaver", version="1", ranks=COMM.size)
    if HOW == "return":  # all but the first, which has a last work to do alone
        if COMM.rank > 0:
            return
        deadline = time.monotonic() + 3.0
        while time.monotonic() < deadline:
            sum(range(10_000))
    else:
        if COMM.rank == WHO:
            go_wrong()
        COMM.Barrier()
    if COMM.rank == 0:
        say("result", iterations=1, seconds=0.1, startup_seconds=0.1, hosts=[])
        say("done")


main()
