"""Tasks that compute, each a thread that wants a processor, moved one by one to the rank that a file names.

An iteration is a piece of processor time of each task and ends everywhere at once, as in `program.py`. Threads of
a rank compute without the interpreter's lock, so that a host with three tasks has three that want its processor,
like processes of the paper's PVM programs.
"""

import hashlib
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from program import report, say, together

from apples.malleable import Job

TRACK_SECONDS = 0.25
NAP_SECONDS, SAY_SECONDS = 0.02, 5.0
PIECE = bytes(1 << 17)


def computed(seconds):
    """Take so much processor time, most of it without the interpreter's lock."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        hashlib.sha256(PIECE)


def placed(path):
    """Return the number of the latest placement, and the owner of each task."""
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return 0, None
    return found["number"], found["owners"]


def work(job, parameters):
    iterations, each = parameters["iterations"], parameters["work"]
    wanted, track = Path(parameters["placed"]), Path(parameters["track"])
    tasks = job.blocks(
        "tasks", lambda number: np.full(parameters["state"] // 8, float(number)),
        lambda task: {"state": task}, lambda arrays: arrays["state"],
        count=parameters["rows"], strategy=lambda now: placed(wanted)[1] or now.owners,
    )  # fmt: skip
    state = job.state(iteration=0, seconds=0.0, began=time.time(), number=0)
    told = tracked = 0.0
    job.may_lose("told", "tracked")

    def note(**fields):
        line = {"at": time.time(), "iteration": state.iteration, "number": state.number, **fields}
        with track.open("a") as file:
            file.write(json.dumps(line) + "\n")

    with ThreadPoolExecutor(parameters["rows"]) as threads:
        while state.iteration < iterations:
            if job.safepoint() and job.rank == 0:
                say("ready", protocol=1, program="tasks", version="1", ranks=job.size)
            began = time.monotonic()
            list(threads.map(computed, [each] * len(tasks.items())))
            state.seconds += time.monotonic() - began
            state.iteration += 1
            together(job.comm, NAP_SECONDS)  # an iteration ends everywhere at once
            now = time.monotonic()
            news = (now > told + SAY_SECONDS, placed(wanted)[0]) if job.rank == 0 else None
            reports, number = job.comm.bcast(news)
            if number != state.number:
                state.number = number
                moved = tasks.balance()
                together(job.comm, NAP_SECONDS)
                if job.rank == 0:
                    note(moved=moved, seconds=time.monotonic() - now)
            elif job.rank == 0 and now > tracked + TRACK_SECONDS:
                tracked = now
                note()
            if reports:
                told = now
                report("progress", job, state, iterations=iterations)
    report("result", job, state, iterations=state.iteration, startup_seconds=0.0)
    if job.rank == 0:
        say("done")


if __name__ == "__main__":
    with Job(commit_seconds=0) as started:
        work(started, json.loads(Path(os.environ["APPLES_TASK"]).read_text())["parameters"])
