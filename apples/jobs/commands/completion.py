"""Shell completion of a word: the ids of jobs and runs, and the hosts of a job.

If a word cannot be completed, the list is empty; no error is raised.
"""

from __future__ import annotations

import contextlib

import click

from apples.ui.completion import beginning_with


def job_ids(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the ids of this user's jobs that begin with `incomplete`."""
    with contextlib.suppress(Exception):
        from apples.jobs import store  # noqa: PLC0415 - for this word only, as in the functions below

        return beginning_with(incomplete, (job.id for job in store.jobs()))
    return []


def run_ids(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the ids of this user's recorded runs and jobs that begin with `incomplete`."""
    with contextlib.suppress(Exception):
        from apples.jobs import store  # noqa: PLC0415

        return beginning_with(incomplete, (one.id for one in store.records()))
    return []


def hosts_of_job(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the hosts of a job's list that begin with the last of the words ``a,b``."""
    with contextlib.suppress(Exception):
        from apples.jobs import store  # noqa: PLC0415
        from apples.resources import read_host_list  # noqa: PLC0415

        # Arguments before an option that lacks its value have not been parsed.
        job = ctx.params["job"] or ctx.args[0]
        listed = read_host_list(store.job(job).order()["hosts"])
        done, comma, word = incomplete.rpartition(",")
        named = {one.partition("=")[0] for one in done.split(",")}
        rest = (host.name for host in listed if host.name not in named)
        return [f"{done}{comma}{name}" for name in beginning_with(word, rest)]
    return []
