"""An iterative malleable program that works by waiting: as long as the given curve says for its number of hosts.

Where a topology daemon has given it CPUs of them, it is the number of CPUs that this rank has.

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
from apples.topology.cpus import CpuSet
from apples.topology.daemon.client import JOB_VARIABLE, TopologyClient
from apples.topology.threads import JobLink

SAY_SECONDS = 0.5


def say(event, **fields):
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


class HeldCpus:
    """The CPUs that a topology daemon has given this rank: told of every change, and acknowledging it."""

    def __init__(self):
        self.count, self._link = 0, JobLink.from_environment()
        if self._link is not None:
            with TopologyClient() as client:
                found = client.ask("jobs", job=os.environ[JOB_VARIABLE])["jobs"]
            self.count = len(CpuSet.parse(found[0]["cpus"]))

    def follow(self):
        """Take in what has changed."""
        for event in () if self._link is None else self._link.events():
            if event.get("event") in {"resize", "resized"}:
                self.count = len(CpuSet.parse(event["cpus"]))
                if event["serial"]:
                    self._link.acknowledge(event["serial"])


def work(job, parameters):
    held = HeldCpus()
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
        held.follow()
        seconds = curve[(held.count or job.size) - 1]
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
