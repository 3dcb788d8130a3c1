"""A malleable program that works little: its array counts iterations, its times are what it means to sleep.

Parameters: grid, iterations, pause (seconds an iteration on one host of speed 1), slow (a file:
"HOST FACTOR" a line, read now and then: how many times longer a host takes), fail_at (iteration; -1: never),
ask ("ITERATION HOSTS": where it asks for so many hosts), prints (bytes of output an iteration).
"""

import hashlib
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

from apples.malleable import Job


def say(event, **fields):
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


def factor(parameters, host):
    try:
        lines = Path(parameters["slow"]).read_text().split("\n")
    except OSError:
        return 1.0
    return float(dict(line.split() for line in lines if line).get(host, 1.0))


def main():
    task = json.loads(Path(os.environ["APPLES_TASK"]).read_text())
    parameters = task["parameters"]
    with Job() as job:
        work(job, parameters)


def work(job, parameters):
    rows, iterations = parameters["grid"], parameters["iterations"]
    u = job.array("u", (rows, 4), halo=1)
    state = job.state(iteration=0, seconds=0.0, said=False)
    job.may_lose("computed", "looked", "mine", "told")
    while state.iteration < iterations:
        if job.safepoint():
            mine, computed = factor(parameters, job.host), 0.0
            looked = told = time.perf_counter()
            if not state.said and job.rank == 0:
                say("ready", protocol=1, program="counting", version="1", ranks=job.size)
            state.said = True
        if state.iteration == parameters["fail_at"]:
            raise RuntimeError("as was asked for")
        if parameters["ask"].startswith(f"{state.iteration} "):
            hosts = int(parameters["ask"].split()[1])
            job.request(hosts, hosts)
        if parameters["prints"] and job.rank == 0:
            print("x" * parameters["prints"], flush=True)
        u.own[...] += 1.0
        nominal = parameters["pause"] * mine * len(u.own) / rows
        time.sleep(nominal)
        computed += nominal
        state.seconds += job.allreduce(nominal, MPI.MAX)
        state.iteration += 1
        now = time.perf_counter()
        if now - looked > 0.2:
            looked, mine = now, factor(parameters, job.host)
        if job.comm.bcast(now - told > 0.05):
            told = now
            report("progress", job, state, computed, iterations)
    report("result", job, state, computed, iterations, digest=digest(job, u))
    if job.rank == 0:
        say("done")


def report(event, job, state, computed, iterations, digest=None):
    times = job.comm.gather((job.host, computed))
    if job.rank:
        return
    hosts = {}
    for host, seconds in times:
        hosts.setdefault(host, []).append(seconds)
    entries = [
        {"host": m.host, "compute_seconds": sum(hosts[m.host]) / len(hosts[m.host]),
         "communicate_seconds": 0.0}
        for m in job.members
    ]  # fmt: skip
    fields = {"seconds": state.seconds, "hosts": entries}
    if event == "progress":
        say(event, iteration=state.iteration, iterations=iterations, **fields)
    else:
        say(event, iterations=state.iteration, startup_seconds=0.0, sha256=digest, **fields)


def digest(job, u):
    strips = job.comm.gather(np.ascontiguousarray(u.own))
    if job.rank:
        return None
    return hashlib.sha256(np.concatenate(strips).tobytes()).hexdigest()


if __name__ == "__main__":
    try:
        main()
    except Exception as error:  # noqa: BLE001 - a program that ends must say why
        say("error", message=f"{type(error).__name__}: {error}", rank=MPI.COMM_WORLD.Get_rank())
        MPI.COMM_WORLD.Abort(3)
