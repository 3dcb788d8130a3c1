"""``apples jobs | resize | migrate | rebalance | wait | cancel | restart | logs``: the verbs for jobs."""

from __future__ import annotations

import shutil
import time
from typing import Annotated

import typer

from apples import jobs as service
from apples.errors import UsageError
from apples.jobs.commands.completion import hosts_of_job, job_ids, run_ids
from apples.jobs.commands.scheduled import (
    WATCH_SECONDS,
    cancel_scheduled,
    is_scheduled,
    migrate_scheduled,
    record_of,
    resize_scheduled,
    until_over,
)
from apples.jobs.text.job import (
    RUN_SCHEMA,
    estimate_text,
    job_line,
    job_text,
    planned_text,
    program_text,
    resize_text,
    restarted_text,
    run_record_text,
    submitted_text,
    watched_text,
)
from apples.ui.command_line import (
    answers_a_terminal,
    pass_through,
    repaint,
    say,
    show_answer,
    show_json,
)
from apples.ui.options import Json

JobName = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="Id of the job, or how it begins; of a scheduler's job NAME.N.",
        autocompletion=job_ids,
    ),
]
RunName = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="Id of the job or run, or how it begins; of a scheduler's job NAME.N.",
        autocompletion=run_ids,
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what it would take; move nothing.")]
Timeline = Annotated[bool, typer.Option("--timeline", help="Show the run over time, too.")]
Seconds = Annotated[float | None, typer.Option("--timeout", min=0.0, help="Seconds at most.")]


def jobs(
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="JOB", help="One job; of a scheduler's NAME.N.", autocompletion=job_ids
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Again and again, on a terminal, until Ctrl-C.")
    ] = False,
    json: Json = False,
) -> int:
    """Show a detached job, or all of them.

    Example: apples jobs 1f2e3d4c --json
    """
    if watch and not json and answers_a_terminal():
        return _watch(job)
    if job is not None:
        status = service.status(record_of(job))
        show_answer(status.document(), job_text(status), json)
        return 0
    found = service.list_jobs()
    documents = [one.document() for one in found]
    text = "\n".join(job_line(one) for one in found)
    show_answer({"schema": "apples.jobs/1", "jobs": documents}, text, json)
    if not (found or json):
        say("no jobs; start one: apples run --detach ..")
    return 0


def _watch(job: str | None) -> int:
    """Repaint a job, or all of them, those that go on first, until Ctrl-C."""
    try:
        while True:
            size = shutil.get_terminal_size()
            found = service.list_jobs() if job is None else [service.status(record_of(job))]
            repaint(watched_text(found, size.columns, size.lines, alone=job is not None))
            time.sleep(WATCH_SECONDS)
    except KeyboardInterrupt:
        return 0


def resize(
    job: JobName,
    hosts: Annotated[
        str,
        typer.Option("--hosts", help="a,b[=weight],..", autocompletion=hosts_of_job),
    ],
    dry_run: DryRun = False,
    json: Json = False,
) -> int:
    """Move a running job to these hosts; a weight multiplies the planned speed of its host.

    Example: apples resize 1f2e3d4c --hosts ada,bob=0.5
    """
    weights = service.weights_of(hosts)
    if is_scheduled(job) and not dry_run:
        if set(weights.values()) != {1.0}:
            raise UsageError(
                f"--hosts {hosts}: the scheduler of {job} takes no weights",
                code="option-not-applicable",
                option="--hosts",
                value=hosts,
                job=job,
            )
        return resize_scheduled(job, list(weights), json)
    return _move(service.plan_resize(_movable(job, dry_run), weights), dry_run, json)


def migrate(
    job: JobName,
    source: Annotated[
        str,
        typer.Option("--from", help="The host to leave.", autocompletion=hosts_of_job),
    ],
    target: Annotated[
        str,
        typer.Option("--to", help="The host to go to.", autocompletion=hosts_of_job),
    ],
    dry_run: DryRun = False,
    json: Json = False,
) -> int:
    """Move what a running job has on one host to another; the others keep what they have.

    Example: apples migrate 1f2e3d4c --from ada --to bob
    """
    if is_scheduled(job) and not dry_run:
        return migrate_scheduled(job, source, target, json)
    return _move(service.plan_migration(_movable(job, dry_run), source, target), dry_run, json)


def rebalance(job: JobName, dry_run: DryRun = False, json: Json = False) -> int:
    """Share a running job's rows out anew among its hosts, by what they were measured to do.

    Example: apples rebalance 1f2e3d4c
    """
    return _move(service.plan_resize(record_of(job), None), dry_run, json)


def _movable(job: str, dry_run: bool = False) -> str:
    """Return the id of a record; refuse one that a scheduler has, unless it is to be looked at only."""
    record = record_of(job)
    return record if dry_run else service.own_job(record, job)


def _move(planned: service.PlannedMove, dry_run: bool, json: bool) -> int:
    """Say what a move will take, carry it out unless it is a dry run, and show what it took."""
    estimate = planned.estimate
    change = {"change": None if estimate is None else estimate.document()}
    if dry_run:
        status = service.status(planned.job.id)
        show_answer(status.document() | change, planned_text(planned), json)
        return 0
    if estimate is not None:
        say(estimate_text(estimate))
    done = planned.carry_out()
    show_answer(done.status.document() | change, resize_text(done), json)
    return 0


def wait(
    job: JobName, timeout: Seconds = None, timeline: Timeline = False, json: Json = False
) -> int:
    """Wait for a job's end and print the record of its run; the exit code is the run's.

    Example: apples wait 1f2e3d4c --json
    """
    said = ""
    if is_scheduled(job):
        over = until_over(job, timeout)
        job, said = over["record"], over["reason"]
        if not job:  # it never ran
            show_answer(over, f"{over['job']} is {over['state']}", json)
            return int(over["exit_code"] or 5)
    record = service.wait(job, timeout)
    if record.state == "cancelled":
        say(f"apples: job {record.id} was cancelled")
    elif record.reason and record.reason != said:
        say(f"apples: {record.reason}")
    document = record.document
    if document is not None:
        drawn = ""
        if timeline and document["schema"] == RUN_SCHEMA and not document.get("program"):
            from apples.jobs.text.timeline import timeline_document, timeline_text  # noqa: PLC0415 - text only

            document["timeline"] = timeline_document(document, record.events)
            drawn = timeline_text(document["timeline"])
        show_answer(
            document, lambda: run_record_text(document, f"apples jobs {record.id}", drawn), json
        )
    elif json:
        show_json(service.status(job).document())
    return record.exit_code


def cancel(job: JobName, json: Json = False) -> int:
    """End a job; when this returns no process of it is left.

    Example: apples cancel 1f2e3d4c
    """
    if is_scheduled(job):
        return cancel_scheduled(job, json)
    status = service.cancel(job)
    show_answer(status.document(), f"{status.id} is {status.state}", json)
    return 0


def restart(job: JobName, json: Json = False) -> int:
    """Continue a job that is over and not finished from its last commit, on the hosts there are now.

    Example: apples restart 1f2e3d4c
    """
    status = service.restart(_movable(job), talk=say)
    show_answer(status.document(), restarted_text(status), json)
    return 0


def logs(job: RunName, json: Json = False) -> int:
    """Print what a job and its supervisor said.

    Example: apples logs 1f2e3d4c
    """
    job = record_of(job)
    text, found = service.log(job), service.run_record(job).id
    document = {"schema": "apples.joblog/1", "id": found, "lines": text.splitlines()}
    if json:
        show_json(document)
    else:
        pass_through(text)
    return 0


def detach_job(spec: service.JobSpec | service.ProgramSpec, json: bool) -> int:
    """Start a job that outlives this command, and show it."""
    job = service.submit(spec, talk=say)
    words = f"wait {job.id}"
    if isinstance(spec, service.ProgramSpec):
        words = f"migrate {job.id} --from {spec.on[0]} --to HOST"
    show_answer(job.document(), submitted_text(job, words), json)
    return 0


def run_program(spec: service.ProgramSpec, json: bool) -> int:
    """Run a program to its end; it is a job with an id that can be migrated all the same."""
    record = service.run_program(spec, talk=say)
    if record.document is not None:
        show_answer(record.document, program_text(record.document), json)
    return record.exit_code
