"""How soon a job sees a resize, and how fast the daemon answers; on this machine's own isolation backend.

    python benchmarks/topologyd.py [--n 200]

Two ways for a job to see it: it follows the daemon (asked before its mask changes), or it polls its own
mask every millisecond. The bar is 50 ms from the request to the job knowing.
"""

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from bad_jobs import fork
from daemons import QUICK, Daemon

from apples.topology import JobLink, Threads, find_backend, synthetic


def follow(place, job, pipe):
    """Child: adapt by the daemon's word, write the moment of every change."""
    threads = Threads(link=JobLink(place, job), setting=lambda count: {"none": count})
    os.write(pipe, b"ready\n")
    while True:
        if threads.adapt() is not None:
            os.write(pipe, f"{time.monotonic_ns()}\n".encode())
        time.sleep(0.001)


def poll(place, job, pipe):
    """Child: see nothing but its own mask."""
    del place, job
    threads = Threads(setting=lambda count: {"none": count})
    os.write(pipe, b"ready\n")
    while True:
        if threads.adapt() is not None:
            os.write(pipe, f"{time.monotonic_ns()}\n".encode())
        time.sleep(0.001)


def measure(daemon, child_does, count):
    """Return the milliseconds from each request to the job knowing."""
    job = child_does.__name__
    daemon.ask("allocate", request=f"a-{job}", job=job, count=2, least=1, until="told")
    reading, writing = os.pipe()
    child = fork()
    if child == 0:
        daemon.ask("bind", job=job)
        child_does(str(daemon.socket), job, writing)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.readline() == "ready\n"
        found = []
        with daemon.client() as asking:
            for turn in range(count):
                fields = {"job": job, "count": 1 + turn % 2, "seconds": 1.0}
                begin = time.monotonic_ns()
                asking.ask("resize", request=f"r-{job}-{turn}", **fields)
                found.append((int(pipe.readline()) - begin) / 1e6)
    daemon.ask("deallocate", request=f"d-{job}", job=job)
    os.waitpid(child, 0)
    return found


def answers(daemon, verb, turns, **fields):
    """Return the milliseconds of each answer."""
    found = []
    with daemon.client() as asking:
        for turn in range(turns):
            more = {k: v.format(turn) if isinstance(v, str) else v for k, v in fields.items()}
            begin = time.monotonic_ns()
            asking.ask(verb, **more)
            found.append((time.monotonic_ns() - begin) / 1e6)
    return found


def show(what, found):
    found = sorted(found)
    p99 = found[min(len(found) - 1, int(0.99 * len(found)))]
    print(
        f"{what:<44} p50 {statistics.median(found):7.2f} ms   p99 {p99:7.2f}   max {found[-1]:7.2f}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=200)
    count = parser.parse_args().n
    isolation, _ = find_backend()
    universe, _ = isolation.universe()
    print(f"isolation {isolation.title}, CPUs {universe}, load {os.getloadavg()[0]:.1f}")
    if len(universe) < 2:
        print("a resize needs two CPUs")
        return
    with Daemon(synthetic(f"core:{max(universe) + 1} pu:1"), isolation, QUICK) as daemon:
        show("resize seen by a job that follows", measure(daemon, follow, count))
        show("resize seen by a job that polls its mask", measure(daemon, poll, count))
        show("status", answers(daemon, "status", count))
        show("satisfies", answers(daemon, "satisfies", count, count=1))
    disk = Path(tempfile.mkdtemp(prefix="topologyd-"))
    with Daemon("package:4 [numa] core:32 pu:2", home=disk) as daemon:
        show(
            "allocate, 256 CPUs, journal synced",
            answers(daemon, "allocate", count, request="x{}", job="x{}", count=1, until="told"),
        )
    assert threading.active_count() == 1


if __name__ == "__main__":
    main()
