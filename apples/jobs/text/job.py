"""The status of jobs and the end of an unmodified program, for the terminal."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from apples.agent.text.words import slow_host_lines
from apples.jobs import JobStatus, PlannedMove, ResizeEstimate, ResizeResult
from apples.jobs.records import change_text
from apples.jobs.scheduler_client import OVER
from apples.jobs.text.timeline import resize_words
from apples.ui.tables import fitted
from apples.ui.units import amount, duration

if TYPE_CHECKING:
    from apples.jobs.documents import DemoDocument, RunDocument


def job_line(job: JobStatus) -> str:
    """Return a job in one line: id, state, name, iteration, hosts."""
    at = f"{job.iteration}/{job.iterations}" if job.iterations else ""
    return f"{job.id}  {job.state:9}  {job.name}  {at}  {_where(job)}"


def job_text(job: JobStatus) -> str:
    """Return the full text of a job; the last line is the next command to type."""
    lines = [job_line(job)]
    if job.reason:
        lines.append(f"  {job.reason}")
    if job.verifying_seconds is not None:
        lines.append(f"  {verifying_text(job.verifying_seconds)}")
    last = job.last_resize
    if last:
        lines.append(f"  epoch {last['epoch']}: {resize_words(last['seconds'], last['phases'])}")
    if changed := change_text(job.last_change):
        lines.append(f"  {changed}")
    lines += [f"  {one['explanation']}" for one in job.rescheduling or ()]
    lines += [f"  {line}" for line in slow_host_lines(job.slow_hosts)]
    return "\n".join([*lines, f"next: apples {_next_verb(job)}"])


def _next_verb(job: JobStatus) -> str:
    """Return the command that a user of the job most likely needs."""
    if job.state == "running":
        if job.reason:  # the application has ended and its blueprint still runs
            return f"cancel {job.id}"
        if not job.resizable:
            return f"wait {job.id}"
        unmodified = job.hosts and not job.rows
        change = f"--from {job.hosts[0]} --to HOST" if unmodified else "--on a,b"
        return f"resize {job.id} {change}"
    if job.restartable:
        return f"restart {job.id}"
    return f"logs {job.id}" if job.state in {"failed", "cancelled"} else f"wait {job.id}"


def verifying_text(seconds: float) -> str:
    """Return the line with the estimated seconds until a job's verification ends.

    Examples
    --------
    >>> verifying_text(80.0)
    'verifying the result: about 80.0 s left'
    """
    return f"verifying the result: about {duration(seconds)} left"


RUN_SCHEMA = "apples.run/1"
NARROW, WIDE = 60, 100
"""Widths of a terminal, in columns, from which on more of a job is shown."""


def watched_text(jobs: Sequence[JobStatus], columns: int, lines: int, *, alone: bool) -> str:
    """Return the lines about jobs that fit a terminal of this size, the latest active jobs first.

    A wide terminal shows a line for each job with its rows, a usual terminal without rows, a narrow terminal only
    id, state and iteration.

    Parameters
    ----------
    alone
        Show the full text of the only job in `jobs`.

    Examples
    --------
    >>> jobs = [JobStatus("1f2e3d4c", "finished"), JobStatus("2a2b2c2d", "running", ("ada",), iteration=3)]
    >>> print(watched_text(jobs, 40, 24, alone=False))
    1 of 2 jobs go on
    2a2b2c2d running 3
    1f2e3d4c finished 0
    """
    if alone:
        found = job_text(jobs[0]).splitlines()
    else:
        going = [one for one in jobs if one.state not in OVER]
        latest = [*reversed(going), *(one for one in reversed(jobs) if one.state in OVER)]
        found = [f"{len(going)} of {len(jobs)} jobs go on"]
        for one in latest:
            far = iteration_text({"iteration": one.iteration, "iterations": one.iterations})
            if columns >= WIDE:
                found.append(job_line(one))
            elif columns >= NARROW:
                found.append(f"{one.id}  {one.state:9}  {one.name}  {far}  {', '.join(one.hosts)}")
            else:
                found.append(f"{one.id} {one.state} {far}")
    return fitted(found, columns, lines)


def submitted_text(job: JobStatus, next_words: str) -> str:
    """Return the state and hosts of a submitted job, and the next command to type."""
    runs = "runs on" if job.state == "running" else "waits for Slurm to give it"
    return f"{job.id} {runs} {', '.join(job.hosts)}\nnext: apples {next_words}"


def restarted_text(job: JobStatus) -> str:
    """Return the iteration and hosts of a restarted job, and the next command to type."""
    at = f"iteration {job.iteration}" + (f" of {job.iterations}" if job.iterations else "")
    where = f"{job.id} goes on from {at}, attempt {job.attempt}, on {', '.join(job.hosts)}"
    return f"{where}\nnext: apples wait {job.id}"


def estimate_text(estimate: ResizeEstimate) -> str:
    """Return the estimated cost of a resize in one line.

    Examples
    --------
    >>> estimate_text(ResizeEstimate(3_200_000_000, 110e6, 31.1, 29.1, 147.3, {"ada": 8000}))
    'moves 3.20 GB over 110 MB/s: about 31.1 s; the job stands still for 29.1 s; given up after 147 s'
    >>> estimate_text(ResizeEstimate(64_000, 0.0, None, None, 60.2, {"ada": 8000}))
    'moves 64.0 kB over unmeasured links; given up after 60.2 s'
    """
    limit = f"given up after {duration(estimate.limit_seconds)}"
    moves = f"moves {amount(estimate.bytes)}"
    if estimate.seconds is None or estimate.standstill_seconds is None:
        return f"{moves} over unmeasured links; {limit}"
    over = f" over {amount(estimate.rate)}/s" if estimate.rate else ""
    still = f"the job stands still for {duration(estimate.standstill_seconds)}"
    return f"{moves}{over}: about {duration(estimate.seconds)}; {still}; {limit}"


def planned_text(planned: PlannedMove) -> str:
    """Return the new rows and the estimated cost of a planned move."""
    there = ", ".join(f"{host} {rows}" for host, rows in planned.rows.items())
    lines = [f"{planned.job.id} would be on {there}"]
    lines += [estimate_text(planned.estimate)] if planned.estimate else []
    return "\n".join([*lines, f"see: apples jobs {planned.job.id}"])


def resize_text(done: ResizeResult) -> str:
    """Return the duration of a resize and the job's new hosts."""
    job, took = done.status, resize_words(done.seconds, done.phases)
    return f"{job.id} is on {_where(job)} in {took}\nsee: apples jobs {job.id}"


def program_text(document: Mapping[str, Any]) -> str:
    """Return the end of an unmodified program: exit code, duration and last hosts."""
    ran = document["execution"]
    where = ", ".join(one["host"] for one in ran["hosts"])
    name = os.path.basename(document["program"][0])  # noqa: PTH119 - a word of a command, no path
    return (
        f"{name} ended with exit code 0 after {ran['measured_seconds']:.2f} s, at last on {where}"
    )


def dry_program_text(document: Mapping[str, Any]) -> str:
    """Return the hosts and the command that a run of an unmodified program would start."""
    return f"on {', '.join(document['on'])}: {shlex.join(document['command']['argv'])}"


def run_record_text(document: dict[str, Any], command: str, timeline: str = "") -> str:
    """Return the text of a job's run, with `timeline` if given; `command` is the command that shows the job."""
    if document.get("program"):
        return program_text(document)
    if "runs" in document:
        from apples.jobs.text.demo import demo_text  # noqa: PLC0415 - as below

        return demo_text(cast("DemoDocument", document))
    if document["schema"] != RUN_SCHEMA:
        from apples.jobs.text.applications import TEXTS  # noqa: PLC0415 - for other application models only

        total = (document["execution"] or {}).get("result")
        lines: str = TEXTS[document["schema"]][1](document)
        return lines if total is None else f"{json.dumps(total)}\n{lines}"
    from apples.agent.text.run import run_text  # noqa: PLC0415 - what lists jobs draws no chart

    return run_text(cast("RunDocument", document), command, timeline)


def iteration_text(job: Mapping[str, Any]) -> str:
    """Return a job's iteration, of how many.

    Examples
    --------
    >>> iteration_text({"iteration": 12, "iterations": 90}), iteration_text({"iteration": None})
    ('12 of 90', '')
    """
    if job["iteration"] is None:
        return ""
    return f"{job['iteration']}" + (f" of {job['iterations']}" if job["iterations"] else "")


def pace_text(job: Mapping[str, Any], promised: float | None, now: float) -> str:
    """Return the time of a job so far, with its start, as a multiple of the predicted time.

    Examples
    --------
    >>> pace_text({"iteration": 30, "iterations": 90, "started": 100.0}, 60.0, 125.0)
    '1.25 times the predicted time (60.0 s in all)'
    """
    if not (job["iteration"] and job["iterations"] and promised and job["started"]):
        return ""
    ratio = (now - job["started"]) / (promised * job["iteration"] / job["iterations"])
    return f"{ratio:.2f} times the predicted time ({duration(promised)} in all)"


TAIL_LINES = 12


def live_texts(entry: Mapping[str, Any], log_end: str, now: float) -> dict[str, str]:
    """Return the texts of a job's page that change while it runs, by their keys.

    Parameters
    ----------
    entry
        The job's entry in `runs` of ``apples.jobs/1``.
    log_end
        The end of its log.
    """
    return {
        "iteration": iteration_text(entry),
        "pace": pace_text(entry, entry["predicted_seconds"], now),
        "log": "\n".join(log_end.splitlines()[-TAIL_LINES:]),
    }


def _where(job: JobStatus) -> str:
    if not any(job.rows):  # an application without rows
        return ", ".join(job.hosts) or "no host"
    pairs = zip(job.hosts, job.rows, strict=False)
    return ", ".join(f"{host} {rows}" for host, rows in pairs)
