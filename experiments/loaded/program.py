"""An iterative malleable program that computes: so much processor time a row, whoever else wants the processor.

A host that others load therefore takes as much longer as its kernel gives others. While a rank waits for the
others it sleeps, so that a laboratory of many hosts fits on few processors.
"""

import json
import os
import sys
import time
from pathlib import Path

from apples.malleable import Job

SAY_SECONDS = 0.5
NAP_SECONDS = 0.002


def say(event, **fields):
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


def computed(seconds):
    """Take so much processor time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def together(comm, nap=NAP_SECONDS):
    """Wait for all ranks without computing."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(nap)


def work(job, parameters):
    iterations, each = parameters["iterations"], parameters["work"]
    u = job.array("u", (parameters["rows"], 4))
    state = job.state(iteration=0, seconds=0.0, began=time.time(), said=False)
    job.may_lose("told", "began")
    while state.iteration < iterations:
        together(job.comm)
        if job.safepoint():
            told = time.monotonic()
            if not state.said and job.rank == 0:
                say("ready", protocol=1, program="loaded", version="1", ranks=job.size)
            state.said = True
        began = time.monotonic()
        computed(each * len(u.own))
        u.own[...] += 1.0
        state.seconds += time.monotonic() - began
        state.iteration += 1
        together(job.comm)  # an iteration ends everywhere at once
        if job.comm.bcast(time.monotonic() > told + SAY_SECONDS if job.rank == 0 else None):
            told = time.monotonic()
            report("progress", job, state, iterations=iterations)
    report("result", job, state, iterations=state.iteration, startup_seconds=0.0)
    if job.rank == 0:
        say("done")


def report(event, job, state, **fields):
    times = job.comm.gather((job.host, state.seconds))
    if job.rank == 0:
        hosts = [
            {"host": host, "compute_seconds": seconds, "communicate_seconds": 0.0}
            for host, seconds in times
        ]
        where = {"iteration": state.iteration} if event == "progress" else {}
        say(event, seconds=time.time() - state.began, hosts=hosts, **where, **fields)


if __name__ == "__main__":
    with Job() as started:
        work(started, json.loads(Path(os.environ["APPLES_TASK"]).read_text())["parameters"])
