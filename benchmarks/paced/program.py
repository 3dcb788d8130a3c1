"""An iterative malleable program that works by waiting: as long as the given curve says for its number of hosts.

What it does besides is real: its ranks are MPI processes, its array is shared out and moved at each change of its
hosts, and its iterations end together.
"""

import json
import os
import sys
import time
from pathlib import Path

from mpi4py import MPI

from apples.malleable import Job

SAY_SECONDS = 0.5


def say(event, **fields):
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


def work(job, parameters):
    curve = [float(word) for word in parameters["seconds"].split()]
    iterations = parameters["iterations"]
    u = job.array("u", (parameters["rows"], 4))
    state = job.state(iteration=0, seconds=0.0, said=False)
    job.may_lose("due", "told")
    while state.iteration < iterations:
        if job.safepoint():
            due = told = time.monotonic()
            if not state.said and job.rank == 0:
                say("ready", protocol=1, program="paced", version="1", ranks=job.size)
            state.said = True
        u.own[0] += 1.0
        seconds = curve[job.size - 1]
        due += seconds
        time.sleep(max(0.0, due - time.monotonic()))
        state.seconds += seconds
        state.iteration += 1
        job.allreduce(0.0, MPI.MAX)  # an iteration ends everywhere at once
        if job.rank == 0 and time.monotonic() > told + SAY_SECONDS:
            told = time.monotonic()
            report("progress", job, state, iterations=iterations)
    if job.rank == 0:
        report("result", job, state, iterations=state.iteration, startup_seconds=0.0)
        say("done")


def report(event, job, state, **fields):
    hosts = [
        {"host": one.host, "compute_seconds": state.seconds, "communicate_seconds": 0.0}
        for one in job.members
    ]
    where = {"iteration": state.iteration} if event == "progress" else {}
    say(event, seconds=state.seconds, hosts=hosts, **where, **fields)


if __name__ == "__main__":
    with Job() as started:
        work(started, json.loads(Path(os.environ["APPLES_TASK"]).read_text())["parameters"])
