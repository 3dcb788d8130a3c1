"""What the live scheduler answers, as JSON: the queue, one job, why it waits, the history."""

from __future__ import annotations

from collections import Counter
from operator import attrgetter
from typing import Any

from apples.cluster.live_job import LiveJob, LiveJobState
from apples.cluster.scheduler import MOST_REFUSALS, LiveScheduler
from apples.scheduling.driver import name_of
from apples.scheduling.jobs import JobKind

Document = dict[str, Any]


def job_document(scheduler: LiveScheduler, name: str, job: LiveJob) -> Document:
    """Return one job of a queue."""
    state = scheduler.recorded
    said, pace = scheduler.progress.get(job.number), scheduler.paces.get(job.number)
    end = None if pace is None or job.state is LiveJobState.ENDING else pace.end
    shown = job.state.value
    if not scheduler.trouble:
        if job.waits and job.number in scheduler.ledger.running:
            shown = "placing"
        if job.number in scheduler.ledger.held or (job.waits and scheduler.is_kept_back(job)):
            shown = "held"
    submission = job.submission
    return {
        "job": f"{name}.{job.number}",
        "state": shown,
        "name": submission.name,
        "user": submission.user,
        "kind": submission.kind.value,
        "hosts": list(job.hosts),
        "after": [f"{name}.{one}" for one in submission.after],
        "minimum": submission.minimum,
        "maximum": submission.maximum,
        "submitted": state.wall + job.submitted,
        "started": None if job.started is None else state.wall + job.started,
        "ended": None if job.ended is None else state.wall + job.ended,
        "start": None,
        "requested": job.requested,
        "estimated_by": estimated_by(job),
        "mean_hosts": mean_hosts(job),
        "iteration": None if said is None else said.iteration,
        "iterations": None if said is None else said.iterations,
        "expected_end": None if end is None else state.wall + end,
        "asks": None if job.asks is None else list(job.asks),
        "resizes": job.resizes,
        "attempt": job.attempt,
        "record": job.folder,
        "reason": reason_of(scheduler, job),
        "exit_code": job.exit_code,
    }


def estimated_by(job: LiveJob) -> str:
    """Return who has estimated how long a job runs: its ``user``, the ``model``, or ``nobody``."""
    if not job.submission.modelled:
        return "user"
    return "model" if job.estimate else "nobody"


def mean_hosts(job: LiveJob) -> float | None:
    """Return how many hosts the last attempt of a job that is over had, in the mean over its time."""
    if not job.is_over or job.started is None or job.ended is None:
        return None
    seconds = job.ended - job.started
    return job.host_seconds / seconds if seconds > 0 and job.host_seconds > 0 else None


def reason_of(scheduler: LiveScheduler, job: LiveJob) -> str:
    """Return why a job waits, for hosts to start on or for those it asks for, or why it ended as it did."""
    if not job.waits:
        return job.reason or _request_reason(scheduler, job) or _sharing(scheduler, job)
    if scheduler.trouble:
        return "nothing can be recorded, and so nothing is started"
    if before := scheduler.comes_after(job):
        return f"comes after {', '.join(f'{scheduler.name}.{one}' for one in before)}"
    user = job.submission.user
    if not scheduler.is_served(user):
        return f"no shepherd of {user} answers; its user starts one: apples shepherd"
    if short := scheduler.lacks_hosts(job) or scheduler.outstays(job):
        return short
    said = scheduler.ledger.waits.get(job.number)
    reason = _derived_reason(scheduler, job) if said is None else said.reason
    return "; ".join(filter(None, (reason, _lost_hosts(scheduler))))


def _lost_hosts(scheduler: LiveScheduler) -> str:
    """Return which hosts get no jobs since they do not answer, and why the first does not; empty: all answer."""
    if not scheduler.lost:
        return ""
    host, reason = next(iter(scheduler.lost.items()))
    rest = len(scheduler.lost) - 1
    others = f" (and {rest} other{'s' * (rest > 1)})" if rest else ""
    return f"{host} is lost: {reason}{others}"


def _sharing(scheduler: LiveScheduler, job: LiveJob) -> str:
    """Return with whom a job shares its hosts; empty: it has them to itself."""
    held = scheduler.recorded.holders
    others = {one for host in job.holds for one in held.get(host, ())} - {job.number}
    named = ", ".join(f"{scheduler.name}.{one}" for one in sorted(others))
    if not others:
        return ""
    return f"a guest in hosts of {named}" if job.mates else f"shares its hosts with {named}"


def _derived_reason(scheduler: LiveScheduler, job: LiveJob) -> str:
    if job.number in scheduler.selections.held:
        return "its model is asked which of the free hosts are best for it"
    if job.number in scheduler.ledger.running:
        return "waits for its hosts to be left"
    needs, free = needs_of(job), scheduler.ledger.free
    if free < needs:
        return f"needs {needs} host{'s' * (needs > 1)}, {free} {'is' if free == 1 else 'are'} free"
    if scheduler.pass_is_due:
        return "the next pass looks at it"
    return (
        f"{free} of the {needs} hosts it needs are free; {name_of(scheduler.policy)} lets it wait"
    )


def needs_of(job: LiveJob) -> int:
    """Return the fewest hosts that a policy may start a job on."""
    return job.submission.minimum if job.submission.kind != "rigid" else job.submission.maximum


def _request_reason(scheduler: LiveScheduler, job: LiveJob) -> str:
    """Return what becomes of the hosts that a running job asks for; empty: it has them, or has not asked."""
    one, has = job.submission, len(job.hosts)
    if job.asks is None or not has or job.asks[0] <= has <= job.asks[1]:
        return ""
    least, most = job.asks
    wide = f"{least}" if least == most else f"{least} to {most}"
    asks = f"asks for {wide} host{'s' * (wide != '1')}"
    free = scheduler.ledger.free
    if one.kind not in {JobKind.EVOLVING, JobKind.MALLEABLE}:
        asks += f", and is {one.kind.value}"
    elif most < one.minimum or least > one.maximum:
        asks += f", and was submitted for {one.minimum} to {one.maximum}"
    elif scheduler.rests(job.number):
        asks += f", and has refused {MOST_REFUSALS} changes: it is looked at again later"
    elif (job.wants or has) - has > free:
        asks += f": {free} {'is' if free == 1 else 'are'} free"
    elif job.settled and not scheduler.pass_is_due:
        asks += f"; {name_of(scheduler.policy)} leaves it {has}"
    return asks


def why_document(scheduler: LiveScheduler, name: str, job: LiveJob) -> Document:
    """Return why a job waits, with the jobs before it and those that hold hosts."""
    ledger = scheduler.ledger
    waiting = [] if scheduler.trouble else [one.id for one in ledger.queue]
    place = waiting.index(job.number) if job.number in waiting else None
    state, needs, free = scheduler.recorded, needs_of(job), ledger.free
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
    """Return the jobs whose estimated ends come first until so many hosts are free."""
    ledger, found = scheduler.ledger, []
    free = ledger.free
    for running in sorted(ledger.running.values(), key=attrgetter("limit")):
        if free >= needs:
            break
        found.append(running.job.id)
        free += running.nodes
    return found


def hosts_of(scheduler: LiveScheduler, name: str) -> list[Document]:
    """Return the hosts as they are now."""
    state = scheduler.recorded
    reserved = {
        state.hosts[node]: number
        for number, running in scheduler.ledger.running.items()
        if not scheduler.trouble and state.jobs[number].waits
        for node in running.node_ids
    }
    hosts = []
    for host in state.hosts:
        shown, holder = state.host_state(host), state.owner(host) or None
        if shown == "free" and host in reserved:
            shown, holder = "reserved", reserved[host]
        why, silence = state.quarantined.get(host), scheduler.lost.get(host, "")
        term = scheduler.said_of_term(host)
        if term and shown in {"free", "held"}:
            shown = "drained" if shown == "free" else "draining"
        reasons = ["" if why is None else why.reason, silence, term]
        hosts.append({
            "host": host, "state": "lost" if silence and why is None else shown,
            "job": None if holder is None else f"{name}.{holder}",
            "reason": "; ".join(filter(None, reasons)),
        })  # fmt: skip
    return hosts


def queue_document(scheduler: LiveScheduler, name: str) -> Document:
    """Return hosts and jobs as they are now."""
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
    """Return the figures of a scheduler as Prometheus reads them."""
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


def history_document(scheduler: LiveScheduler, name: str) -> Document:
    """Return every job that is over, the oldest first; those of the history's files too."""
    state = scheduler.recorded
    past = {job.number: job for job in scheduler.log.history()}
    past |= {job.number: job for job in state.jobs.values() if job.is_over}
    return {
        "schema": "apples.history/1",
        "name": name,
        "hosts": len(state.hosts),
        "begin": state.wall,
        "jobs": [job_document(scheduler, name, past[number]) for number in sorted(past)],
    }
