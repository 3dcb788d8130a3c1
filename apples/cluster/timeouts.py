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
        Of `waiting`, the places that only the operator has.
    ended
        Jobs that are over and stay in the state; older ones are in the history only.
    content_bytes
        Bytes of the files that the orders of all jobs carry which are not over.
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
        From an event to the pass that it causes: events in this time share the pass.
    min_pass_interval
        Least time between two passes.
    settle
        How long a pass waits for resizes that are under way.
    resize
        Time limit of an answer to an order to resize; after that the job is unsettled.
    recovery_grace
        After a start of the scheduler, how long a pass waits for jobs that have not reported where they are.
    resend_interval
        Until an order that was not answered is sent again.
    poll_interval
        Between two questions to a job that runs.
    start
        Time limit of a start.
    release_timeout
        Time limit for a host to be left by an attempt that is over; after that it is quarantined.
    check_interval
        Between two checks of all these timeouts.
    estimate_interval
        Until a job's model is asked again.
    model
        After its submission, how long a job waits for hosts that its model chooses.
    retry_backoff
        Until a job is resized again that has refused three orders in a row; doubled at each further refusal.
    vacate
        Before the end of a host's lease: it gets no job then, and jobs that can be moved leave it.
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
