"""``apples jobs | resize | wait | cancel | restart | logs``: the verbs for runs and jobs."""

from __future__ import annotations

import shutil
import time
from contextlib import closing

from apples import jobs as service
from apples.errors import UsageError
from apples.jobs import store
from apples.jobs.commands.completion import hosts_of_job, job_ids, run_ids
from apples.jobs.commands.scheduled import (
    WATCH_SECONDS,
    cancel_scheduled,
    is_scheduled,
    job_scheduler_options,
    migrate_scheduled,
    record_of,
    resize_scheduled,
    until_over,
)
from apples.jobs.text.job import (
    RUN_SCHEMA,
    estimate_text,
    job_text,
    planned_text,
    resize_text,
    restarted_text,
    run_record_text,
    submitted_text,
    verifying_text,
    watched_text,
)
from apples.jobs.text.runs import runs_text
from apples.ui.command_line import (
    answers_a_terminal,
    command,
    pass_through,
    repaint,
    say,
    show_answer,
    show_json,
)
from apples.ui.options import json_option
from apples.ui.parameters import Excludes, Requires, argument, integer, number, option
from apples.ui.units import amount

job_name_argument = argument(
    "job",
    metavar="JOB",
    help="Id of the job, or how it begins; of a scheduler's job NAME.N.",
    shell_complete=job_ids,
)
run_name_argument = argument(
    "job",
    metavar="JOB",
    help="Id of the job or run, or how it begins; of a scheduler's job NAME.N.",
    shell_complete=run_ids,
)
dry_run_option = option("--dry-run", is_flag=True, help="Print the predicted cost; move nothing.")
timeline_option = option("--timeline", is_flag=True, help="Show the run over time, too.")
seconds_option = option("--timeout", metavar="SECONDS", type=number(0.0), help="Seconds at most.")


GOING = frozenset({"starting", "running", "verifying"})
"""States of a run that has not ended."""
KEPT_DAYS, KEPT_BYTES = 90.0, 1_000_000_000


@command(
    rules=(
        *(Excludes("JOB", name) for name in ("--running", "--detached", "--prune")),
        *(Excludes("--watch", name) for name in ("--json", "--prune", "--running", "--detached")),
        *(Excludes("--prune", name) for name in ("--running", "--detached")),
        Requires("--older", "--prune"),
        Requires("--most", "--prune"),
    )
)
@argument(
    "job",
    required=False,
    metavar="JOB",
    help="One detached job; of a scheduler NAME.N.",
    shell_complete=job_ids,
)
@option("--running", is_flag=True, help="Only runs and jobs that are not over.")
@option("--detached", is_flag=True, help="Only detached jobs.")
@option("--watch", is_flag=True, help="Repeat on a terminal until Ctrl-C: detached jobs.")
@option("--prune", is_flag=True, help="Remove old records; never of a running job.")
@option(
    "--older",
    metavar="DAYS",
    type=number(0.0),
    default=KEPT_DAYS,
    help="With --prune: remove only records of at least this age.",
)
@option(
    "--most",
    metavar="BYTES",
    type=integer(0),
    default=KEPT_BYTES,
    help="With --prune: remove the oldest records beyond this size in all.",
)
@json_option
@job_scheduler_options
def jobs(
    job: str | None,
    running: bool,
    detached: bool,
    watch: bool,
    prune: bool,
    older: float,
    most: int,
    json: bool,
) -> int:
    """Print a line for each recorded run and job with its state, or all about one job.

    Example: apples jobs; apples jobs --running; apples jobs 1f2e3d4c --json
    """
    if watch and answers_a_terminal():
        return _watch(job)
    if job is not None:
        status = service.status(record_of(job))
        show_answer(status.document(), job_text(status), json)
        return 0
    document: dict[str, object] = {"schema": "apples.jobs/1"}
    if prune:
        removed, freed = service.prune(older, most)
        document |= {"pruned": removed, "freed_bytes": freed}
        say(f"removed {len(removed)} records, {amount(freed)}")
    statuses = [one for one in service.list_jobs() if not running or one.state in GOING]
    runs = [
        run for run in service.list_runs()
        if (not running or run["state"] in GOING)
        and (not detached or run["id"] in {one.id for one in statuses})
    ]  # fmt: skip
    document |= {"jobs": [one.document() for one in statuses], "runs": runs}
    show_answer(document, lambda: runs_text(runs) if runs else "", json)
    if not (runs or json):
        say("no runs; start one: apples run")
    return 0


def _watch(job: str | None) -> int:
    """Repaint a job, or all jobs with the active jobs first, until Ctrl-C."""
    try:
        while True:
            size = shutil.get_terminal_size()
            found = service.list_jobs() if job is None else [service.status(record_of(job))]
            repaint(watched_text(found, size.columns, size.lines, alone=job is not None))
            time.sleep(WATCH_SECONDS)
    except KeyboardInterrupt:
        return 0


@command(
    rules=(
        Excludes("--on", "--from", "--balance"),
        Excludes("--on", "--to", "--balance"),
        Requires("--from", "--to"),
        Requires("--to", "--from"),
    )
)
@job_name_argument
@option(
    "--on",
    "hosts",
    metavar="HOST[=WEIGHT],..",
    help="The hosts to run on. A weight multiplies the planned speed of its host.",
    shell_complete=hosts_of_job,
)
@option(
    "--from",
    "source",
    metavar="HOST",
    help="The host to leave; the other hosts keep their rows.",
    shell_complete=hosts_of_job,
)
@option("--to", "target", metavar="HOST", help="The host to go to.", shell_complete=hosts_of_job)
@option(
    "--balance", is_flag=True, help="Divide the rows among the present hosts by measured speeds."
)
@dry_run_option
@json_option
@job_scheduler_options
def resize(
    job: str,
    hosts: str | None,
    source: str | None,
    target: str | None,
    balance: bool,
    dry_run: bool,
    json: bool,
) -> int:
    """Move a running job to other hosts, from one host to another, or balance its rows.

    Give --on, or --from with --to, or --balance. A job of an unmodified program takes only --from with --to.

    Example: apples resize 1f2e3d4c --on ada,bob=0.5; apples resize 1f2e3d4c --from ada --to bob
    """
    if hosts is not None:
        return _resize(job, hosts, dry_run, json)
    if source is not None and target is not None:
        if is_scheduled(job) and not dry_run:
            return migrate_scheduled(job, source, target, json)
        return _move(service.plan_migration(_movable(job, dry_run), source, target), dry_run, json)
    if balance:
        return _move(service.plan_resize(record_of(job), None), dry_run, json)
    raise UsageError(
        f"resize {job}: no change (give --on a,b or --from a --to b or --balance)",
        code="option-missing",
        options=["--on", "--from", "--balance"],
    )


def _resize(job: str, hosts: str, dry_run: bool, json: bool) -> int:
    """Move a job to hosts with weights."""
    weights = service.weights_of(hosts)
    if is_scheduled(job) and not dry_run:
        if set(weights.values()) != {1.0}:
            raise UsageError(
                f"--on {hosts}: the scheduler of {job} does not take weights",
                code="option-not-applicable",
                option="--on",
                value=hosts,
                job=job,
            )
        return resize_scheduled(job, list(weights), json)
    return _move(service.plan_resize(_movable(job, dry_run), weights), dry_run, json)


def _movable(job: str, dry_run: bool = False) -> str:
    """Return the id of a job's record; reject a scheduler's job, unless this is a dry run."""
    record = record_of(job)
    return record if dry_run else service.own_job(record, job)


def _move(planned: service.PlannedMove, dry_run: bool, json: bool) -> int:
    """Print the estimated cost of a move; unless this is a dry run, carry it out and print its duration."""
    estimate = planned.estimate
    change = {"change": None if estimate is None else estimate.document()}
    if dry_run:
        with closing(planned):
            status = service.JobStatus.of(planned.job, control=planned.control)
        show_answer(status.document() | change, planned_text(planned), json)
        return 0
    if estimate is not None:
        say(estimate_text(estimate))
    done = planned.carry_out()
    show_answer(done.status.document() | change, resize_text(done), json)
    return 0


@command()
@job_name_argument
@seconds_option
@timeline_option
@json_option
@job_scheduler_options
def wait(job: str, timeout: float | None, timeline: bool, json: bool) -> int:
    """Wait for a job's end and print the record of its run; the exit code is the run's.

    Example: apples wait 1f2e3d4c --json
    """
    said = ""
    if is_scheduled(job):
        over = until_over(job, timeout)
        job, said = over["record"], over["reason"]
        if not job:  # the job was never started
            show_answer(over, f"{over['job']} is {over['state']}", json)
            return int(over["exit_code"] or 5)
    if timeline:
        _reject_timeline(job)
    record = service.wait(job, timeout, on_verifying=lambda seconds: say(verifying_text(seconds)))
    if record.state == "cancelled":
        say(f"apples: job {record.id} was cancelled")
    elif record.reason and record.reason != said:
        say(f"apples: {record.reason}")
    if service.status(record.id).restartable:
        say(f"next: apples restart {record.id}")
    document = record.document
    if document is not None:
        drawn = ""
        if timeline and document["schema"] == RUN_SCHEMA:
            from apples.jobs.text.timeline import timeline_document, timeline_text  # noqa: PLC0415 - text only

            document["timeline"] = timeline_document(document["plan"], record.events)
            drawn = timeline_text(document["timeline"])
        show_answer(
            document, lambda: run_record_text(document, f"apples jobs {record.id}", drawn), json
        )
    elif json:
        show_json(service.status(job).document())
    return record.exit_code


def _reject_timeline(job: str) -> None:
    """Raise `UsageError` for ``--timeline`` and a run without iterations on hosts."""
    record = store.record(job)
    kind = service.run_record(job).summary["kind"]
    without = {"program", "units"} & record.order().keys()
    if without or kind not in {store.JOB, store.RUN}:
        raise UsageError(
            f"--timeline does not apply to {record.id}: a {next(iter(without), kind)} has no timeline",
            code="option-not-applicable",
            option="--timeline",
            value=record.id,
        )


@command()
@job_name_argument
@json_option
@job_scheduler_options
def cancel(job: str, json: bool) -> int:
    """End a job; when this returns, all its processes have ended.

    Example: apples cancel 1f2e3d4c
    """
    if is_scheduled(job):
        return cancel_scheduled(job, json)
    status = service.cancel(job)
    show_answer(status.document(), f"{status.id} is {status.state}", json)
    return 0


@command()
@job_name_argument
@json_option
@job_scheduler_options
def restart(job: str, json: bool) -> int:
    """Restart a failed or cancelled job from its last commit, on the hosts that are available now.

    Example: apples restart 1f2e3d4c
    """
    status = service.restart(_movable(job), talk=say)
    show_answer(status.document(), restarted_text(status), json)
    return 0


@command()
@run_name_argument
@json_option
@job_scheduler_options
def logs(job: str, json: bool) -> int:
    """Print the output of a job and of its supervisor.

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
        words = f"resize {job.id} --from {spec.on[0]} --to HOST"
    show_answer(job.document(), submitted_text(job, words), json)
    return 0
