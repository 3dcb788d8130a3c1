"""Whether it was its time limit that ended a job: Slurm is asked where a job failed, or is to be ended.

When the limit comes, Slurm first notes it and then ends the ranks; what they say of their end is heard here
before anybody is told why. So whoever asks after having heard them gets the true reason.
"""

from __future__ import annotations

from collections.abc import Callable

from apples.launch import ending
from apples.launch.slurm.replies import JobState

TIMED_OUT = 124
"""The follower's exit code for it; a job's own one is never passed on as that."""
SECONDS = 5.0
"""How long Slurm may take to say so: whoever wants the job gone waits meanwhile."""
FAILED = 1


def own(code: int) -> int:
    """Return a job's own exit code as the follower passes it on.

    Examples
    --------
    >>> own(0), own(5), own(TIMED_OUT)
    (0, 5, 1)
    """
    return FAILED if code == TIMED_OUT else code


def judged(code: int, ask: Callable[[], JobState], say: Callable[[str], None]) -> int:
    """Return the exit code of a job that ended with `code`; `TIMED_OUT`, and say so, where its limit did it.

    Examples
    --------
    >>> judged(143, lambda: JobState("TIMEOUT", limit=60.0), print)
    the time limit of 1 minute ended it
    124
    >>> judged(5, lambda: JobState("RUNNING", limit=60.0), print)
    5
    """
    if code == 0:
        return 0
    state = ask()
    if not state.out_of_time:
        return own(code)
    say(ending.limit_words(state.limit))
    return TIMED_OUT
