"""Faults to plant in the live scheduler, each of which its simulation has to find.

A fault is a list of (class or module, name, what takes its place).
"""

# ruff: noqa: ARG001 - they are called in the place of others
from dataclasses import replace

from adversaries import live_scheduler as live

from apples.cluster import (
    AttemptPhase,
    HostLeases,
    LiveJob,
    LiveScheduler,
    OrderSender,
    SchedulerLog,
    SchedulerState,
    pass_ledger,
    scheduler,
)
from apples.scheduling import JobKind, instant

END, SETTLE, START, LEAVE = LiveJob.end, LiveJob.settle, LiveJob.start, LiveJob.leave
COMMIT, HEAR, HEAR_LEFT, OPEN = (
    SchedulerLog.commit, LiveScheduler._hear, LiveScheduler._hear_left, LiveScheduler._open,
)  # fmt: skip
HEAR_RUNNING, PASS = LiveScheduler._hear_running, LiveScheduler._pass


def free_when_told_to_end(self, *arguments):
    return replace(END(self, *arguments), leaving={}, over=True)._closed()


def free_when_a_resize_is_done(self, done):
    return replace(SETTLE(self, done), leaving={})


def refusal_without_undo(self, done):
    found = SETTLE(self, done)
    return found if done else replace(found, leaving={})


def over_without_being_told(self, outcome, reason, now, over):
    return END(self, outcome, reason, now, True)


def same_attempt_again(self, *arguments):
    return replace(START(self, *arguments), attempt=max(1, self.attempt))


def orders_before_records(self):
    orders = self._sender.take()
    records, self._records = self._records, []
    self.unrecorded = [*getattr(self, "unrecorded", []), *records]
    if len(self.unrecorded) > 8:  # recorded some time later
        self.log.commit(self.unrecorded, self.state)
        self.unrecorded = []
    return orders


def acknowledged_without_disk(self):
    try:
        self.log.commit(self._records, self.state)
    except scheduler.JournalError:
        self._records = []
    self._records = []
    return self._sender.take()


def any_epoch_leaves(self, left):
    HEAR_LEFT(self, replace(left, epoch=1 << 31))


def absent_is_lost(self, report):
    if report.phase is AttemptPhase.ABSENT:
        report = replace(report, phase=AttemptPhase.ENDED, state="lost")
    HEAR(self, report)


def any_attempt_is_meant(self, report):
    job = self.state.jobs.get(report.job)
    HEAR(self, replace(report, attempt=job.attempt) if job else report)


def any_attempt_leaves(self, left):
    job = self.state.jobs.get(left.job)
    HEAR_LEFT(self, replace(left, attempt=job.attempt) if job else left)


def any_verdict_counts(self, job, report):
    HEAR_RUNNING(self, job, replace(report, epoch=job.epoch))


def clock_is_trusted(self, hosts, wall):
    if self.state.incarnation:
        began, self.now = self.now, instant(wall - self.state.wall)
        self._offset += self.now - began
        self._dirty = self._checked = self._retry = self.now
    OPEN(self, hosts, wall)


def a_request_is_forgotten(self, request, digest):
    return None


def quarantine_is_forgotten(self, job):
    for host in job.leaving:
        job = job.leave(host)
    self._change(job, "quarantine")


def the_ledger_is_as_it_was(self):
    made = DERIVED(self)
    old = getattr(self, "old_ledger", made)
    self.old_ledger = made
    return old if old._size == made._size else made


DERIVED = LiveScheduler._derived


def nothing_is_given_again(self, job, now, ask=False):
    if job.number not in self._sent:
        SEND(self, job, now, ask)


SEND = OrderSender.send


def a_start_is_overtaken(self, job, nodes, overlaps):
    settled = job.settled and not overlaps
    return job.as_job(self.cpus) if settled else SHOWN(self, job, nodes, overlaps)


SHOWN = pass_ledger._Runs._shown


def no_rewrite_after_an_error(self, records, state):
    if self._journal.whole:
        COMMIT(self, records, state)
    else:
        self._journal._broken = ""


def a_lost_host_is_only_noted(self, answer):
    self.lost = {**self.lost, answer.host: answer.reason} if answer.reason else {}


def lost_hosts_are_not_asked_for(self, hosts):
    return all(self.state.is_free(host) for host in hosts)


def evolving_is_malleable(self, cpus=0):
    job = AS_JOB(self, cpus)
    return replace(job, kind=JobKind.MALLEABLE) if job.kind is JobKind.EVOLVING else job


AS_JOB = LiveJob.as_job


def only_what_is_over_ends(self, now):
    return {host for host, (end, _) in self._leases.items() if end <= now}


def every_host_lasts(self, host, job, now):
    return True


def a_lease_ends_by_the_clock(self, host):
    return host in self.ending


def an_owner_takes_its_guests_hosts_along(self, host, number):
    self.holders.pop(host, None)


def document_without_mates(self):
    return {name: value for name, value in DOCUMENT(self).items() if name != "mates"}


DOCUMENT = LiveJob.document


def a_host_is_one_jobs(state, job):
    return True


def cpus_stay_taken(jobs, name):
    return {}


def cpus_stay_the_mates_too(machine, jobs, guest, free, factor):
    return {guest.job: guest.change(holds=machine.cpus, owns=free)}


def a_start_may_lack_cpus(self, job):
    return ""


FAULTS_OF_SHARING = {
    "an owner takes its guest's hosts along": [
        (SchedulerState, "_let_go", an_owner_takes_its_guests_hosts_along)
    ],
    "a host gets a second guest": [(pass_ledger, "is_alone", a_host_is_one_jobs)],
    "a topology daemon that is down is a job's failure": [
        (LiveScheduler, "_lacks_cpus", a_start_may_lack_cpus)
    ],
    "who is whose guest is not recorded": [(LiveJob, "document", document_without_mates)],
    "a guest's CPUs are not given back": [(live, "leave", cpus_stay_taken)],
    "a guest's CPUs stay its mate's too": [(live, "arrive", cpus_stay_the_mates_too)],
}
"""Those that only a policy finds that has jobs share hosts."""
FAULTS = FAULTS_OF_SHARING | {
    "a host is free when its job was told to end": [(LiveJob, "end", free_when_told_to_end)],
    "a host is free when a resize is done": [(LiveJob, "settle", free_when_a_resize_is_done)],
    "a refused growth leaves nothing behind": [(LiveJob, "settle", refusal_without_undo)],
    "a cancelled attempt is taken for over": [(LiveJob, "end", over_without_being_told)],
    "attempts have no numbers": [(LiveJob, "start", same_attempt_again)],
    "orders leave before their records": [(LiveScheduler, "turn", orders_before_records)],
    "an error of the disk is passed over": [(LiveScheduler, "turn", acknowledged_without_disk)],
    "what left by an older order counts": [(LiveScheduler, "_hear_left", any_epoch_leaves)],
    "what was not begun is lost": [(LiveScheduler, "_hear", absent_is_lost)],
    "a report of an older attempt counts": [(LiveScheduler, "_hear", any_attempt_is_meant)],
    "hosts left by an older attempt count": [(LiveScheduler, "_hear_left", any_attempt_leaves)],
    "an older answer counts": [(LiveScheduler, "_hear_running", any_verdict_counts)],
    "the world's clock is trusted": [(LiveScheduler, "_open", clock_is_trusted)],
    "a request is executed twice": [(SchedulerState, "answered", a_request_is_forgotten)],
    "quarantined hosts are given away": [(LiveScheduler, "_quarantine", quarantine_is_forgotten)],
    "a ledger that is wrong is kept": [(LiveScheduler, "_derived", the_ledger_is_as_it_was)],
    "orders are given once": [(OrderSender, "send", nothing_is_given_again)],
    "a start is overtaken by a resize": [(pass_ledger._Runs, "_shown", a_start_is_overtaken)],
    "a damaged log is appended to": [(SchedulerLog, "commit", no_rewrite_after_an_error)],
    "an evolving job is taken for a malleable one": [(LiveJob, "as_job", evolving_is_malleable)],
    "a host that does not answer gets a job": [
        (LiveScheduler, "_hear_answer", a_lost_host_is_only_noted),
        (LiveScheduler, "_all_free", lost_hosts_are_not_asked_for),
    ],
    "a host gets jobs up to its end": [(HostLeases, "about_to_end", only_what_is_over_ends)],
    "a job outstays its hosts": [(HostLeases, "lasts", every_host_lasts)],
    "a lease ends by the clock": [(HostLeases, "is_over", a_lease_ends_by_the_clock)],
}  # fmt: skip


def plant(fault, put=setattr):
    """Plant a fault; a replay that parts is no finding then, for what replays has the fault as well."""
    put(live.SimulatedCluster, "_check_replay", lambda _: None)
    for place, name, replacement in FAULTS[fault]:
        put(place, name, replacement)


RARE = {
    "a cancelled attempt is taken for over": 56,
    "a job outstays its hosts": 70,
    "a host that does not answer gets a job": 134,
    "what left by an older order counts": 15,
    "a start is overtaken by a resize": 11,
}
"""Faults that few histories show: the first seed that does."""
