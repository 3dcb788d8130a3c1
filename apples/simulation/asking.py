"""Asking a policy: whatever it raises or yields, the answer is decisions or one clear line."""

from __future__ import annotations

import traceback
from itertools import islice
from pathlib import Path

from apples.errors import ApplesError, UsageError
from apples.scheduling.jobs import Decision
from apples.scheduling.policy import ClusterState, SchedulingPolicy


def asked(policy: SchedulingPolicy, state: ClusterState) -> list[Decision]:
    """Return the decisions of one pass.

    Raises
    ------
    UsageError
        The policy failed, or has no end of decisions; names it, the time and the line.
    """
    who = f"policy {type(policy).__name__} at {state.time!r} s"
    most = 4 * (len(state.queue) + len(state.running)) + 16
    try:
        decisions = list(islice(policy.decide(state), most + 1))
    except ApplesError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"
        raise UsageError(f"{who}: {place}: {type(error).__name__}: {error}") from error
    if len(decisions) > most:
        raise UsageError(
            f"{who}: more than {most} decisions in one pass, the last of them {decisions[-1]}"
        )
    return decisions


def check_all_done(policy: SchedulingPolicy, state: ClusterState) -> None:
    """Refuse a policy that leaves jobs in the queue when nothing can happen any more."""
    waiting = state.queue
    if waiting:
        raise UsageError(
            f"policy {type(policy).__name__} never starts job {waiting[0].id} "
            f"({waiting[0].processors} processors, submitted at {waiting[0].submit:g} s): "
            f"{len(waiting)} jobs wait at {state.time:g} s and nothing runs"
        )
