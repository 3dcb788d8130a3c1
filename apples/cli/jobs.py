"""``apples jobs | resize | migrate | rebalance | wait | cancel``: the verbs for detached jobs."""

from __future__ import annotations

import json as formats
import os
import select
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

import typer

from apples.cli.job_face import conversation, face
from apples.cli.program import say, show, show_json
from apples.cli.unmodified import result_line
from apples.errors import DeadlineError, LaunchError
from apples.jobs import store
from apples.launch import leftovers
from apples.units import duration
from apples.views.run_text import run_text

JobName = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job, or how it begins.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
Seconds = Annotated[float | None, typer.Option("--timeout", min=0.0, help="Seconds at most.")]
END_SECONDS = 10.0


def jobs(
    job: Annotated[str | None, typer.Argument(metavar="JOB", help="One job.")] = None,
    json: Json = False,
) -> int:
    """Show a detached job, or all of them.

    Example: apples jobs 1f2e3d4c --json
    """
    if job is not None:
        document = face(store.job(job))
        if json:
            show_json(document)
        else:
            show(_lines(document))
        return 0
    documents = [face(one, ask=False) for one in store.jobs()]
    if json:
        show_json({"schema": "apples.jobs/1", "jobs": documents})
        return 0
    for document in documents:
        show(_line(document))
    if not documents:
        say("no jobs; start one: apples run --detach ..")
    return 0


def resize(
    job: JobName,
    hosts: Annotated[str, typer.Option("--hosts", help="a,b[=weight],..")],
    json: Json = False,
) -> int:
    """Move a running job to these hosts; a weight multiplies the planned speed of its host.

    Example: apples resize 1f2e3d4c --hosts ada,bob=0.5
    """
    return _move(store.job(job), "map", (hosts,), json)


def migrate(
    job: JobName,
    source: Annotated[str, typer.Option("--from", help="The host to leave.")],
    target: Annotated[str, typer.Option("--to", help="The host to go to.")],
    json: Json = False,
) -> int:
    """Move what a running job has on one host to another; the others keep what they have.

    Example: apples migrate 1f2e3d4c --from ada --to bob
    """
    return _move(store.job(job), "swapped", (source, target), json)


def rebalance(job: JobName, json: Json = False) -> int:
    """Share a running job's rows out anew among its hosts, by what they were measured to do.

    Example: apples rebalance 1f2e3d4c
    """
    return _move(store.job(job), "same", (), json)


def wait(job: JobName, timeout: Seconds = None, json: Json = False) -> int:
    """Wait for a job's end and print the record of its run; the exit code is the run's.

    Example: apples wait 1f2e3d4c --json
    """
    found = store.job(job)
    if not found.until_over(timeout):
        raise DeadlineError(f"job {found.id} still runs after {timeout:g} s")
    record = found.record()
    if record["state"] == "cancelled":
        say(f"apples: job {found.id} was cancelled")
    elif record.get("reason"):
        say(f"apples: {record['reason']}")
    if not found.result.exists():
        if json:
            show_json(face(found))
        return 5 if record["state"] == "cancelled" else int(record.get("exit_code") or 4)
    document = formats.loads(found.result.read_text("utf-8"))
    if json:
        show_json(document)
    elif document.get("program"):
        show(result_line(document))
    else:
        show(run_text(document, f"apples jobs {found.id}"))
    return int(record.get("exit_code") or 0)


def cancel(job: JobName, json: Json = False) -> int:
    """End a job; when this returns no process of it is left.

    Example: apples cancel 1f2e3d4c
    """
    found = store.job(job)
    ended = found.record()["state"] in store.OVER and not found.supervised()
    if not ended:
        _end(found)
    if not leftovers.clear(found.id, END_SECONDS):
        raise LaunchError(f"processes that cannot be killed: {leftovers.leftovers(found.id)}")
    record = found.record()
    if not ended and record["state"] != "cancelled" and record.get("reason") == store.LOST:
        record.update(state="cancelled", reason="")
        found.write(record)
    document = face(found)
    if json:
        show_json(document)
    else:
        show(f"{found.id} is {document['state']}")
    return 0


def _end(job: store.StoredJob) -> None:
    """Have the supervisor end the job, and end the supervisor if it does not."""
    handle = job.supervisor()
    if handle < 0:
        return
    try:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(OSError):
                signal.pidfd_send_signal(handle, signal.SIGCONT)
                signal.pidfd_send_signal(handle, number)
            if select.select([handle], [], [], END_SECONDS)[0]:
                return
    finally:
        os.close(handle)
    raise LaunchError(f"job {job.id}: its supervisor cannot be ended")


def _move(job: store.StoredJob, verb: str, words: tuple[str, ...], json: bool) -> int:
    """Carry a move out and show where the job is then."""
    talking = conversation(job)
    from apples.cli.moving import moved  # noqa: PLC0415 - loads all that planning needs

    done = moved(job, talking, verb, words)
    document = face(job)
    if json:
        show_json(document)
    else:
        phases = ", ".join(f"{name} {duration(s)}" for name, s in done.phases.items())
        show(f"{job.id} is on {_where(document)} in {duration(done.seconds)} ({phases})")
        show(f"see: apples jobs {job.id}")
    return 0


def _line(document: Mapping[str, Any]) -> str:
    at = f"{document['iteration']}/{document['iterations']}" if document["iterations"] else ""
    return f"{document['id']}  {document['state']:9}  {document['name']}  {at}  {_where(document)}"


def _lines(document: Mapping[str, Any]) -> str:
    lines = [_line(document)]
    if document["reason"]:
        lines.append(f"  {document['reason']}")
    last = document["last_resize"]
    if last:
        phases = ", ".join(f"{name} {duration(s)}" for name, s in last["phases"].items())
        lines.append(f"  epoch {document['epoch']}: {duration(last['seconds'])} ({phases})")
    lines += [f"  {one['explanation']}" for one in document["redistributions"] or ()]
    next_ = "resize" if document["state"] == "running" else "wait"
    more = " --hosts a,b" if next_ == "resize" else ""
    return "\n".join([*lines, f"next: apples {next_} {document['id']}{more}"])


def _where(document: Mapping[str, Any]) -> str:
    pairs = zip(document["hosts"], document["rows"], strict=False)
    return ", ".join(f"{host} {rows}" for host, rows in pairs) or "no host"
