"""``apples shepherd``: runs this user's jobs for a scheduler of several users."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Annotated

import typer

from apples.cluster.executor import JobServiceExecutor
from apples.cluster.user_runner import Shepherd
from apples.errors import LaunchError, UsageError
from apples.io import documents, state
from apples.jobs.scheduler_client import SchedulerClient, found
from apples.resources import read_host_list
from apples.ui import options
from apples.ui.command_line import say


def shepherd(
    hosts: options.Hosts = None,
    scheduler: Annotated[
        str | None,
        typer.Option("--scheduler", help="Its directory; $APPLES_SCHEDULER, or the only one."),
    ] = None,
) -> int:
    """Run this user's jobs for a scheduler of several users, until stopped; jobs go on.

    Example: apples shepherd --hosts hosts.toml --scheduler /var/lib/apples/lab
    """
    place = (hosts or Path("hosts.toml")).absolute()
    read_host_list(place)
    where = found(scheduler)
    if not isinstance(where, Path):
        raise UsageError(
            "--scheduler: a shepherd is known by the kernel, on the scheduler's socket",
            code="option-not-applicable",
            option="--scheduler",
            value=scheduler,
        )
    client = SchedulerClient(where)
    name = str(client.ask("GET", "/v1/queue")["name"])
    with (state.directory() / f".shepherd-{name}.lock").open("w") as lock:
        if not documents.lock(lock.fileno(), 0.0):
            raise LaunchError(
                f"a shepherd of this user already serves {name}",
                code="shepherd-running",
                scheduler=name,
            )
        one = Shepherd(
            client, lambda news: JobServiceExecutor(name, place, time.monotonic, news),
            lambda text: say(f"apples shepherd: {text}"),
        )  # fmt: skip
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: one.stop())
        say(f"apples shepherd: runs the jobs of uid {os.geteuid()} for {name}")
        one.run()
    os._exit(0)  # orders that are being carried out belong to the jobs: nobody waits for them
