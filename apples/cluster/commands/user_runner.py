"""``apples scheduler --run-my-jobs``: runs this user's jobs for a scheduler of several users."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from apples.cluster.executor import JobServiceExecutor
from apples.cluster.user_runner import JobRunner
from apples.errors import LaunchError, UsageError
from apples.io import documents, state
from apples.jobs import children
from apples.jobs.scheduler_client import SchedulerClient, found
from apples.resources import read_host_list
from apples.ui.command_line import say


def run_my_jobs(hosts: Path | None, scheduler: str | None) -> int:
    """Run this user's jobs for a scheduler of several users until stopped; the jobs continue after that."""
    place = (hosts or Path("hosts.toml")).absolute()
    read_host_list(place)
    where = found(scheduler)
    if not isinstance(where, Path):
        raise UsageError(
            "--scheduler: the kernel identifies the user on the socket only; name a directory",
            code="option-not-applicable",
            option="--scheduler",
            value=scheduler,
        )
    client = SchedulerClient(where)
    name = str(client.ask("GET", "/v1/queue")["name"])
    with (state.directory() / f".job-runner-{name}.lock").open("w") as lock:
        if not documents.lock(lock.fileno(), 0.0):
            raise LaunchError(
                f"a per-user job runner of this user already serves {name}",
                code="job-runner-running",
                scheduler=name,
            )
        one = JobRunner(
            client, lambda news: JobServiceExecutor(name, place, time.monotonic, news),
            lambda text: say(f"apples scheduler: {text}"),
        )  # fmt: skip
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: one.stop())
        say(f"apples scheduler: runs the jobs of uid {os.geteuid()} for {name}")
        children.start()
        one.run()
    children.end_process()
