"""A Dask cluster of real processes for tests."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager

import psutil
import pytest
from waiting import until


@contextmanager
def dask_cluster(folder, workers, threads=1):
    """Start a scheduler and a worker of each name, whose home is `folder`; hand out the scheduler's address."""
    pytest.importorskip("distributed", reason="the extra [dask] is not installed")
    file, elsewhere = folder / "scheduler.json", folder / "worker"
    elsewhere.mkdir()
    started = []

    def start(module, cwd, *words):
        argv = [sys.executable, "-m", f"distributed.cli.{module}", "--no-dashboard", *words]
        environment = {**os.environ, "HOME": str(folder)}
        with (folder / f"log-{len(started)}").open("wb") as log:
            started.append(
                subprocess.Popen(argv, cwd=cwd, env=environment, stdout=log, stderr=log)
            )

    try:
        words = ("--scheduler-file", str(file))
        start("dask_scheduler", folder, "--host", "127.0.0.1", "--port", "0", *words)
        until(lambda: file.exists() and file.read_text())
        for name in workers:
            start("dask_worker", elsewhere, *words, "--nthreads", str(threads), "--name", name,
                  "--local-directory", str(folder))  # fmt: skip
        address = json.loads(file.read_text())["address"]
        await_workers(address, len(workers))
        yield address
    finally:
        below = [p for each in started for p in psutil.Process(each.pid).children(recursive=True)]
        for process in started[::-1]:
            process.terminate()
            process.wait(60)
        psutil.wait_procs(below, 60)


def await_workers(address, count):
    """Return when the cluster has so many workers."""
    import distributed

    with distributed.Client(address) as client:
        client.wait_for_workers(count, 120)


def scheduler_of(folder):
    """Return the process of the scheduler of a cluster."""
    words = {"distributed.cli.dask_scheduler", str(folder / "scheduler.json")}
    return next(each for each in psutil.Process().children() if words <= set(each.cmdline()))
