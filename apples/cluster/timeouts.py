"""The limits and timeouts of a live scheduler."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Limits of a scheduler's queue, in jobs.

    Attributes
    ----------
    waiting
        Waiting jobs of all users.
    waiting_of_one
        Waiting jobs of one user, so that one user cannot keep out the others.
    reserved
        Places among `waiting` that are for the operator only.
    ended
        Ended jobs that stay in the state; earlier jobs are in the history only.
    content_bytes
        Bytes of the files in the orders of all jobs that are not over.
    """

    waiting: int = 10_000
    waiting_of_one: int = 1000
    reserved: int = 1000
    ended: int = 1000
    content_bytes: int = 24 << 20


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Intervals and timeouts of a live scheduler, in seconds.

    Attributes
    ----------
    batch_window
        Time from an event to the pass that it causes: events in this time share the pass.
    min_pass_interval
        Least time between two passes.
    settle
        Time for which a pass waits for unfinished resizes.
    resize
        Time limit of an answer to an order to resize; after that the job is unsettled.
    recovery_grace
        Time after a start of the scheduler for which a pass waits for the first reports of jobs.
    resend_interval
        Time until an unanswered order is sent again.
    poll_interval
        Time between two questions to a running job.
    start
        Time limit of a start.
    release_timeout
        Time limit for an ended attempt to leave a host; after that the host is quarantined.
    check_interval
        Time between two checks of all these timeouts.
    estimate_interval
        Time until a job's model is asked again.
    model
        Time after its submission for which a job waits until its model has chosen its hosts.
    retry_backoff
        Time without resize orders to a job that has refused three in a row; doubled at each further refusal.
    vacate
        Time before the end of a host's lease in which it gets no job, and jobs that can be moved leave it.
    """

    batch_window: float = 0.01
    min_pass_interval: float = 0.05
    settle: float = 10.0
    resize: float = 30.0
    recovery_grace: float = 10.0
    resend_interval: float = 5.0
    poll_interval: float = 30.0
    start: float = 400.0
    release_timeout: float = 10.0
    check_interval: float = 0.5
    estimate_interval: float = 60.0
    model: float = 3.0
    retry_backoff: float = 10.0
    vacate: float = 60.0
