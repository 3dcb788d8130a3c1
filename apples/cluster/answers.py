"""The JSON answers of the live scheduler: the queue, one job, a waiting job, the history."""

from __future__ import annotations

from collections import Counter
from operator import attrgetter
from typing import Any

from apples.cluster.documents import (
    NOT_DECIDED,
    HistoryDocument,
    JobState,
    QueueDocument,
    ScheduledHost,
    ScheduledJob,
)
from apples.cluster.history import estimated_by, job_fields
from apples.cluster.live_job import LiveJob, LiveJobState
from apples.cluster.queue_snapshot import expected_end
from apples.cluster.scheduler import MAX_REFUSALS, LiveScheduler
from apples.scheduling.jobs import JobKind
from apples.scheduling.passes import name_of

Document = dict[str, Any]


def job_document(scheduler: LiveScheduler, name: str, job: LiveJob) -> ScheduledJob:
    """Return one job of a queue."""
    state = scheduler.recorded
    if job.is_over:
        return job_fields(job, name, state.wall)
    said, end = scheduler.progress.get(job.number), expected_end(scheduler, job)
    shown: JobState = job.state.value
    if said is not None and said.verifying_until is not None and shown == "running":
        shown = "verifying"
    if not scheduler.trouble and job.waits and (job.held or scheduler.is_ineligible(job)):
        shown = "held"
    document = job_fields(job, name, state.wall)
    document["state"], document["reason"] = shown, reason_of(scheduler, job)
    if said is not None:
        document["iteration"], document["iterations"] = said.iteration, said.iterations
    if end is not None:
        document["expected_end"] = state.wall + end
    return document


def reason_of(scheduler: LiveScheduler, job: LiveJob) -> str:
    """Return the reason that a job waits to start, waits for hosts that it asks for, or has ended."""
    if not job.waits:
        return (
            _runner_away(scheduler, job)
            or job.reason
            or _request_reason(scheduler, job)
            or _sharing(scheduler, job)
        )
    if scheduler.trouble:
        return "nothing can be recorded, and so nothing is started"
    if before := scheduler.comes_after(job):
        return f"comes after {', '.join(f'{scheduler.name}.{one}' for one in before)}"
    user = job.submission.user
    if not scheduler.is_served(user):
        return f"no per-user job runner of {user} answers; its user starts one: apples scheduler --run-my-jobs"
    if kept := (
        scheduler.lacks_hosts(job)
        or scheduler.exceeds_host_leases(job)
        or _kept_by(scheduler, job)
    ):
        return kept
    said = scheduler.waits.get(job.number)
    reason = _derived_reason(scheduler, job) if said is None else said.reason
    return "; ".join(filter(None, (reason, _lost_hosts(scheduler))))


def _runner_away(scheduler: LiveScheduler, job: LiveJob) -> str:
    """Return the reason that a job cannot be ended although it has to end; empty: none."""
    if not scheduler.lacks_runner(job):
        return ""
    return (
        f"no per-user job runner of {job.submission.user} answers, which alone can end its processes: start one, "
        f"or have the administrator cancel {scheduler.name}.{job.number} again"
    )


def _kept_by(scheduler: LiveScheduler, job: LiveJob) -> str:
    """Return the reason that a policy holds a job, or that its model has not answered; empty: neither."""
    asked = "its model is asked which hosts are best for it"
    return job.held or asked * scheduler.awaits_model(job)


def _lost_hosts(scheduler: LiveScheduler) -> str:
    """Return the first lost host with its reason, and the number of others; empty: all hosts answer."""
    if not scheduler.lost:
        return ""
    host, reason = next(iter(scheduler.lost.items()))
    rest = len(scheduler.lost) - 1
    others = f" (and {rest} other{'s' * (rest > 1)})" if rest else ""
    return f"{host} is lost: {reason}{others}"


def _sharing(scheduler: LiveScheduler, job: LiveJob) -> str:
    """Return the jobs that share hosts with a job, as text; empty: it has its hosts to itself."""
    held = scheduler.recorded.holders
    others = {one for host in job.holds for one in held.get(host, ())} - {job.number}
    named = ", ".join(f"{scheduler.name}.{one}" for one in sorted(others))
    if not others:
        return ""
    return f"a guest in hosts of {named}" if job.mates else f"shares its hosts with {named}"


def _derived_reason(scheduler: LiveScheduler, job: LiveJob) -> str:
    needs, free = needs_of(scheduler, job), scheduler.free_hosts
    if free < needs:
        return f"needs {needs} host{'s' * (needs > 1)}, {free} {'is' if free == 1 else 'are'} free"
    if scheduler.pass_is_due:
        return NOT_DECIDED
    return (
        f"needs {needs} host{'s' * (needs > 1)}, and {free} {'is' if free == 1 else 'are'} free: "
        f"{name_of(scheduler.policy)} does not start it yet"
    )


def needs_of(scheduler: LiveScheduler, job: LiveJob) -> int:
    """Return the fewest hosts on which the policy starts a job.

    Only a policy that resizes jobs starts a malleable job on fewer hosts than its maximum.
    """
    one = job.submission
    fewer = one.kind is JobKind.EVOLVING or (
        one.kind is JobKind.MALLEABLE and scheduler.policy.uses_malleable
    )
    return one.minimum if fewer else one.maximum


def _request_reason(scheduler: LiveScheduler, job: LiveJob) -> str:
    """Return the outcome so far of a running job's request for hosts; empty: it has them, or has not asked."""
    one, has = job.submission, len(job.hosts)
    if job.asks is None or not has or job.asks[0] <= has <= job.asks[1]:
        return ""
    least, most = job.asks
    wide = f"{least}" if least == most else f"{least} to {most}"
    asks = f"asks for {wide} host{'s' * (wide != '1')}"
    free = scheduler.free_hosts
    if one.kind not in {JobKind.EVOLVING, JobKind.MALLEABLE}:
        asks += f", and is {one.kind.value}"
    elif most < one.minimum or least > one.maximum:
        asks += f", and was submitted for {one.minimum} to {one.maximum}"
    elif scheduler.rests(job.number):
        asks += f", and has refused {MAX_REFUSALS} changes: it is looked at again later"
    elif (job.wants or has) - has > free:
        asks += f": {free} {'is' if free == 1 else 'are'} free"
    elif job.settled and not scheduler.pass_is_due:
        asks += f"; {name_of(scheduler.policy)} leaves it {has}"
    return asks


def why_document(scheduler: LiveScheduler, name: str, job: LiveJob) -> Document:
    """Return the reason that a job waits, the jobs before it, and the jobs that hold hosts."""
    ledger = scheduler.ledger
    waiting = [] if scheduler.trouble else [one.id for one in ledger.queue]
    place = waiting.index(job.number) if job.number in waiting else None
    state, needs, free = scheduler.recorded, needs_of(scheduler, job), ledger.free
    return {
        "schema": "apples.waiting/1",
        "time": state.wall + scheduler.now,
        "job": f"{name}.{job.number}",
        "state": job_document(scheduler, name, job)["state"],
        "reason": reason_of(scheduler, job),
        "placed": scheduler.prefer.said(job.hosts) if scheduler.prefer and job.hosts else "",
        "placed_by": job.placed_by,
        "position": None if place is None else place + 1,
        "requested": job.requested,
        "estimated_by": estimated_by(job),
        "needs": needs,
        "free": free,
        "before": [f"{name}.{one}" for one in waiting[: place or 0][:20]],
        "holding": [
            {"job": f"{name}.{one}", "hosts": sorted(state.jobs[one].holds), "end": None}
            for one in sorted({one for held in state.holders.values() for one in held})
        ] if job.waits else [],
        "blocking": [] if place is None else [
            f"{name}.{one}" for one in blocking_of(scheduler, needs)
        ],
    }  # fmt: skip


def blocking_of(scheduler: LiveScheduler, needs: int) -> list[int]:
    """Return the jobs with the earliest estimated ends that free enough hosts for `needs`."""
    ledger, found = scheduler.ledger, []
    free = ledger.free
    for running in sorted(ledger.running.values(), key=attrgetter("limit")):
        if free >= needs:
            break
        found.append(running.job.id)
        free += running.nodes
    return found


def hosts_of(scheduler: LiveScheduler, name: str) -> list[ScheduledHost]:
    """Return the hosts in their present state."""
    state = scheduler.recorded
    hosts: list[ScheduledHost] = []
    for host in state.hosts:
        shown, holder = state.host_state(host), state.owner(host) or None
        why, silence = state.quarantined.get(host), scheduler.lost.get(host, "")
        term = scheduler.lease_reason(host)
        if term and shown in {"free", "held"}:
            shown = "drained" if shown == "free" else "draining"
        reasons = ["" if why is None else why.reason, silence, term]
        hosts.append({
            "host": host, "state": "lost" if silence and why is None else shown,
            "job": None if holder is None else f"{name}.{holder}",
            "reason": "; ".join(filter(None, reasons)),
        })  # fmt: skip
    return hosts


def queue_document(scheduler: LiveScheduler, name: str) -> QueueDocument:
    """Return hosts and jobs in their present state."""
    state = scheduler.recorded
    return {
        "schema": "apples.queue/1",
        "name": name,
        "policy": name_of(scheduler.policy),
        "time": state.wall + scheduler.now,
        "trouble": scheduler.trouble,
        "alarms": [
            {"time": state.wall + at, "text": text} for at, text in list(scheduler.alarms)[-20:]
        ],
        "hosts": hosts_of(scheduler, name),
        "jobs": [job_document(scheduler, name, job) for job in state.jobs.values()],
    }


def metrics_text(scheduler: LiveScheduler) -> str:
    """Return the metrics of a scheduler in the text format of Prometheus."""
    state = scheduler.recorded
    jobs = Counter(job.state.value for job in state.jobs.values())
    hosts = Counter(one["state"] for one in hosts_of(scheduler, ""))
    lines = ["# TYPE apples_scheduler_jobs gauge"]
    lines += [
        f'apples_scheduler_jobs{{state="{one.value}"}} {jobs[one.value]}' for one in LiveJobState
    ]
    lines.append("# TYPE apples_scheduler_hosts gauge")
    lines += [f'apples_scheduler_hosts{{state="{one}"}} {hosts[one]}' for one in sorted(hosts)]
    for name, kind, value in (
        ("submitted_total", "counter", state.last),
        ("passes_total", "counter", scheduler.passes),
        ("records_total", "counter", scheduler.changes),
        ("alarms_total", "counter", scheduler.alarmed),
        ("incarnation", "gauge", state.incarnation),
        ("recording", "gauge", int(not scheduler.trouble)),
    ):
        lines += [f"# TYPE apples_scheduler_{name} {kind}", f"apples_scheduler_{name} {value}"]
    return "\n".join([*lines, ""])


def history_document(scheduler: LiveScheduler, name: str) -> HistoryDocument:
    """Return the ended jobs that are not yet in the history, the oldest first."""
    state = scheduler.recorded
    return {
        "schema": "apples.history/1",
        "name": name,
        "hosts": len(state.hosts),
        "begin": state.wall,
        "jobs": [
            job_fields(state.jobs[number], name, state.wall)
            for number in sorted(state.jobs)
            if state.jobs[number].is_over
        ],
        "next": None,
    }
