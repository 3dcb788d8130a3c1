"""An MPI program of the protocol that passes a token round for ever, or until a rank misbehaves."""

import json
import os
import signal
import sys
import time
from pathlib import Path

from mpi4py import MPI

COMM = MPI.COMM_WORLD


def say(event, **fields):
    os.write(1, (json.dumps({"event": event, **fields}) + "\n").encode())


def misbehave(how):
    if how == "exception":
        raise ValueError("row 7 is bad")
    if how == "exit 1":
        os._exit(1)
    if how == "exit 0":
        os._exit(0)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "abort":
        say("error", message="the strip is too small", rank=COMM.rank)
        COMM.Abort(1)


def main():
    task = json.loads(Path(os.environ["APPLES_TASK"]).read_text())
    parameters = task["parameters"]
    COMM.Barrier()
    if COMM.rank == 0:
        say("ready", protocol=1, program="ring", version="1", ranks=COMM.size)
    if task["mode"] == "calibrate":
        for rows in task["sizes"]:
            say("calibration", rows=rows, seconds_per_point=2e-9, error=0.0, repeats=5)
        say("done")
        return
    hosts = [
        {"host": entry["host"], "compute_seconds": 0.01, "communicate_seconds": 0.02}
        for entry in task["partition"]
    ]
    token = bytearray(8)
    for i in range(1, parameters["iterations"] + 1):
        if i == 3 and COMM.rank == COMM.size - 1:
            misbehave(parameters.get("how", ""))
        if COMM.rank == 0 and i <= 3:
            say(
                "progress",
                iteration=i,
                iterations=parameters["iterations"],
                seconds=0.1 * i,
                hosts=hosts,
            )
        time.sleep(parameters.get("pause", 0.0))
        right, left = (COMM.rank + 1) % COMM.size, (COMM.rank - 1) % COMM.size
        COMM.Sendrecv(token, right, 0, bytearray(8), left, 0)
    COMM.Barrier()
    if COMM.rank == 0:
        say(
            "result",
            iterations=parameters["iterations"],
            seconds=0.5,
            startup_seconds=0.1,
            sha256="ab" * 32,
            files=[],
            hosts=hosts,
        )
        say("done")


if __name__ == "__main__":
    sys.exit(main())
