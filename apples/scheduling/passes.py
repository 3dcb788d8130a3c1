"""One pass of a scheduling policy: its decisions, or its failure with file and line of its code."""

from __future__ import annotations

import math
import os
import traceback
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import islice
from numbers import Integral, Real
from pathlib import Path
from typing import Any, get_args

from apples.errors import ApplesError, UsageError
from apples.scheduling.jobs import Decision
from apples.scheduling.policy import ClusterState, SchedulingPolicy

MAX_TEXT = 200
"""Characters of a user's text in a message."""

MAX_REASON = 10_000
"""Characters of the reason of a decision."""

DECISIONS: Mapping[str, type[Any]] = {kind.__name__: kind for kind in get_args(Decision)}
FIELDS: Mapping[type, tuple[str, ...]] = {
    kind: tuple(field.name for field in fields(kind)) for kind in DECISIONS.values()
}

OUR_FILES = str(Path(__file__).parents[1]) + os.sep


@dataclass(frozen=True, slots=True)
class PolicyFailure:
    """A pass in which a policy failed.

    Attributes
    ----------
    kind
        `raises`, `exits`, `memory`, `too many`, `no decision`, `refused` or `idle`. In a live scheduler also
        `loops`, `answers nonsense` or `disabled`.
    where
        File and line of the user's code: the line that failed, or the first line of its `decide`.
    """

    kind: str
    policy: str
    time: float
    where: str
    reason: str

    def __str__(self) -> str:
        """Return the failure as one line."""
        place = f"{self.where}: " if self.where else ""
        return f"policy {self.policy} at {self.time!r} s: {place}{self.reason}"


class PolicyFailedError(UsageError):
    """A policy failed in a pass. Permanent for this state of the cluster."""

    code = "policy-failed"

    def __init__(self, failure: PolicyFailure) -> None:
        super().__init__(
            str(failure),
            kind=failure.kind,
            policy=failure.policy,
            time=failure.time,
            where=failure.where,
            reason=failure.reason,
        )
        self.failure = failure


class PolicyPendingError(Exception):
    """A policy in another process has not answered yet.

    Attributes
    ----------
    left
        Seconds that remain of its time limit; 0: another policy decides the passes until it answers.
    """

    def __init__(self, left: float) -> None:
        super().__init__(left)
        self.left = left


class PolicyProxy(SchedulingPolicy):
    """A policy that runs in another process.

    Attributes
    ----------
    name
        Name of the policy in messages, as the user spelled it.
    """

    name: str

    @abstractmethod
    def line_of(self, position: int | None) -> str:
        """Return file and line of a decision of the last answer; those of `decide` if `position` is None."""


def decisions_of(policy: SchedulingPolicy, state: ClusterState) -> list[Decision]:
    """Return all decisions of one pass; the caller carries them out after the policy has made the last.

    Raises
    ------
    PolicyFailedError
        The policy raised, ended the process, or made more than four decisions a job. Permanent.
    PolicyPendingError
        It runs in another process and has not answered yet.
    """
    bound = 4 * (len(state.queue) + len(state.running)) + 16
    try:
        decisions = list(islice(policy.decide(state), bound + 1))
    except (ApplesError, PolicyPendingError, KeyboardInterrupt):
        raise
    except BaseException as error:  # user code may also raise SystemExit
        kind = "exits" if isinstance(error, SystemExit) else "raises"
        kind = "memory" if isinstance(error, MemoryError) else kind
        where = line_of_error(error) or line_of(policy)
        raise failed(policy, kind, state.time, where, words_of(error)) from error
    if len(decisions) > bound:
        reason = f"more than {bound} decisions in one pass, the last: {shortened(decisions[-1])}"
        raise failed(policy, "too many", state.time, line_of(policy, state, bound), reason)
    return decisions


def failed(
    policy: SchedulingPolicy, kind: str, time: float, where: str, reason: str
) -> PolicyFailedError:
    """Return the error of a failed pass."""
    return PolicyFailedError(PolicyFailure(kind, name_of(policy), time, where, reason))


def name_of(policy: SchedulingPolicy) -> str:
    """Return the name of a policy in messages: its class, or `FILE:NAME` if it runs in another process."""
    return policy.name if isinstance(policy, PolicyProxy) else type(policy).__name__


def policy_at(policy: SchedulingPolicy, time: float) -> str:
    """Return the beginning of a message: the name of a policy and the time."""
    return f"policy {name_of(policy)} at {time!r} s"


def line_of(
    policy: SchedulingPolicy, state: ClusterState | None = None, position: int | None = None
) -> str:
    """Return file and line of a policy's `decide`, or of the decision at a position in a pass.

    For a position the function runs `decide` again: a policy makes the same decisions for the same state.
    """
    if isinstance(policy, PolicyProxy):
        return policy.line_of(position)
    policy = getattr(policy, "inner", policy)
    if state is not None and position is not None:
        made = policy.decide(state)
        next(islice(made, position, None), None)
        frame = getattr(made, "gi_frame", None)
        if frame is not None:
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
    decide = policy.decide
    code = getattr(getattr(decide, "__func__", decide), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""


def problem_of(decision: object) -> str:
    """Return the reason why an object that a policy yielded is not a decision; empty for a decision."""
    names = FIELDS.get(type(decision))
    if names is None:
        return f"{shortened(decision)} is no decision"
    for name in names:
        problem = _problem(type(decision).__name__, name, getattr(decision, name))
        if problem:
            return f"{shortened(decision)} is no decision: {name} {problem}"
    return ""


def _problem(kind: str, name: str, value: object) -> str:
    """Return the error in a field of a decision; empty if it is valid."""
    problem = ""
    if name in {"mates", "node_ids"} or (kind, name) == ("Migrate", "nodes"):
        if not isinstance(value, tuple | frozenset) or not all(
            isinstance(number, Integral) for number in value
        ):
            problem = "must be whole numbers"
    elif name == "reason":
        if not isinstance(value, str) or len(value) > MAX_REASON:
            problem = f"must be text of at most {MAX_REASON} characters"
    elif name == "until" and value is None:
        pass
    elif type(value) is bool or not isinstance(value, Real) or math.isnan(value):
        problem = "must be a number"
    elif name == "job" and not isinstance(value, Integral):
        problem = "must be the number of a job"
    elif name == "nodes" and not float(value).is_integer():
        problem = "must be whole"
    return problem


def line_of_error(error: BaseException) -> str:
    """Return file and line of the innermost frame outside apples and Python's libraries; empty if none."""
    frames = [
        (frame.filename, frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(OUR_FILES)
    ]
    own = [frame for frame in frames if "lib/python" not in frame[0] and frame[0][:1] != "<"]
    return "{}:{}".format(*(own or frames)[-1]) if frames else ""


def words_of(error: BaseException) -> str:
    """Return an error as one line, even if its `__str__` fails."""
    try:
        text = " ".join(str(error).split())[:MAX_TEXT]
    except Exception:  # noqa: BLE001 - an exception class of the user whose `__str__` raises
        text = ""
    return f"{type(error).__name__}: {text}".rstrip(": ")


def shortened(value: object) -> str:
    """Return the `repr` of a value, at most `MAX_TEXT` characters."""
    text = repr(value)
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + ".."
