"""How soon a job sees a resize, and how fast the daemon answers; on this machine's own isolation backend.

    python experiments/topologyd.py [--n 200]

Two ways for a job to see it: it follows the daemon (asked before its mask changes), or it polls its own
mask every millisecond. The bar is 50 ms from the request to the job knowing.

No result is kept.
"""

import argparse
import contextlib
import itertools
import os
import signal
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from bad_jobs import fork
from daemons import QUICK, Daemon

from apples.errors import ApplesError
from apples.topology import JobLink, Threads, find_backend, synthetic
from apples.topology.daemon.client import TopologyClient


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
    daemon.ask("allocate", job=job, count=2, least=1, until="told")
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
                asking.ask("resize", **fields)
                found.append((int(pipe.readline()) - begin) / 1e6)
    daemon.ask("deallocate", job=job)
    os.waitpid(child, 0)
    return found


def answers(daemon, verb, turns, clock=time.monotonic_ns, **fields):
    """Return the milliseconds of each answer, by a clock."""
    found = []
    with daemon.client() as asking:
        for turn in range(turns):
            more = {k: v.format(turn) if isinstance(v, str) else v for k, v in fields.items()}
            begin = clock()
            asking.ask(verb, **more)
            found.append((clock() - begin) / 1e6)
    return found


def connect(place):
    """Hostile: hold idle connections, and make new ones in the place of those that are ended."""
    held = deque(maxlen=250)
    while True:
        one = socket.socket(socket.AF_UNIX)
        one.connect(str(place))
        held.append(one)


def half(place):
    """Hostile: send half of a long request on each of many connections."""
    held = deque(maxlen=250)
    while True:
        one = socket.socket(socket.AF_UNIX)
        one.connect(str(place))
        one.send(b'{"verb": "satisfies", "requirement": "' + b"x" * 30_000)
        held.append(one)


def pipeline(place):
    """Hostile: send requests on many connections without reading the answers first."""
    held = []
    for _ in range(24):
        one = socket.socket(socket.AF_UNIX)
        one.connect(str(place))
        one.setblocking(False)
        held.append(one)
    while True:
        for one in held:
            with contextlib.suppress(BlockingIOError):
                one.send(b'{"verb": "satisfies", "count": 190}\n' * 50)
            with contextlib.suppress(BlockingIOError):
                one.recv(1 << 20)


def flood(place):
    """Hostile: many connections, each with a next request as soon as the last is answered."""
    asking = [TopologyClient(place) for _ in range(16)]
    for turn in itertools.count():
        for client in asking:
            with contextlib.suppress(ApplesError):
                client.ask(
                    "attach", job=f"j{os.getuid()}", requirement="CPU_LIST=" + "0-3," * 1000 + "0"
                )
                client.ask("satisfies", count=1 + turn % 200)


def share(place):
    """Hostile: ask for a share of everybody's CPUs, over and over."""
    with TopologyClient(place) as client:
        for turn in itertools.count():
            name = f"s{os.getuid()}-{turn}"
            with contextlib.suppress(ApplesError):
                words = {"job": name, "count": 100, "least": 1, "share": True, "seconds": 0.0}
                client.ask("allocate", until="told", **words)
                client.ask("deallocate", job=name)


def hostile(daemon, numbers):
    """Start the hostile users, one process each, turn by turn of each kind; return the processes."""
    daemon.home.chmod(0o755)
    (daemon.home / "run").chmod(0o755)
    children = []
    for number in numbers:
        child = fork()
        if child == 0:
            os.setgid(number)
            os.setuid(number)
            act = (connect, half, pipeline, flood, share)[number % 5]
            while True:
                with contextlib.suppress(Exception):  # whatever the daemon does with it: go on
                    act(daemon.socket)
        children.append(child)
    return children


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
            answers(daemon, "allocate", count, job="x{}", count=1, until="told"),
        )
    if os.geteuid() == 0:
        with Daemon("package:8 core:32 pu:1", options=QUICK) as daemon:
            for mate in range(32):
                fields = {"job": f"m{mate}", "count": 8, "least": 1, "until": "told"}
                daemon.ask("allocate", **fields)
            show("root's status, nobody else asks", answers(daemon, "status", count))
            # What the daemon computes between root's question and its answer is ours; how soon it gets a CPU for
            # that beside eight processes that never rest, and whatever else runs, is the kernel's.
            clock = time.pthread_getcpuclockid(daemon._thread.ident)
            children = hostile(daemon, range(2001, 2009))
            time.sleep(2.0)
            try:
                show("root's status, 8 hostile users", answers(daemon, "status", count))
                spent = answers(
                    daemon, "status", count, clock=lambda: time.clock_gettime_ns(clock)
                )
                show("the same: CPU time of the daemon meanwhile", spent)
            finally:
                for child in children:
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
    assert threading.active_count() == 1


if __name__ == "__main__":
    main()
