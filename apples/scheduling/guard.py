"""A user's policy, asked in a process of its own: whatever it does costs a pass, not the scheduler.

`GuardedPolicy` stands for a policy that a child process has. The child keeps the state of the cluster and is
sent what changed since the last pass; it answers with decisions as plain values, each with the line of the
user's file that made it. A policy that raises, ends its process, does not come to an end, answers something
else than decisions or takes too much memory has failed in that pass: `PolicyFailedError` says how and where,
and `driver` lets first-come-first-served decide instead.

The guard protects from mistakes. It is no sandbox: the child has the rights of the user that started it.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import socket
import struct
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from apples.errors import UsageError
from apples.scheduling.jobs import Decision, Wake
from apples.scheduling.policy import NOTHING_HAPPENED, ClusterState, SchedulingPolicy
from apples.scheduling.policy_process import (
    DECISIONS,
    FIELDS,
    HEADER,
    NO_DECISIONS,
    OUR_FILES,
    REASON,
    RECEIVED_AT_ONCE,
    TEXT,
    packed,
    serve_policy,
)
from apples.scheduling.snapshot import StateSender

PASS_SECONDS = 2.0
"""Processor time of one pass; by the clock a pass may take `CLOCK_FACTOR` times as long."""

CLOCK_FACTOR = 5.0
LOOK_SECONDS = 0.05
"""How often the guard looks whether a pass has taken too long."""

LOAD_SECONDS = 60.0
"""For importing and making the policy, by the clock: libraries may be large."""

PATIENCE_SECONDS = 10.0
FAILURES_IN_A_ROW = 100
WAKES_IN_A_ROW, SECONDS_BETWEEN = 100_000, 1.0
"""Passes in a row that only wake-ups caused and that decided nothing else, and how far apart they have to be:
a policy that wakes a nanosecond later each time has no end."""
ANSWER_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class PolicyFailure:
    """A pass that a policy failed in.

    Attributes
    ----------
    kind
        `raises`, `exits`, `loops`, `memory`, `too many`, `no decision`, `refused`, `idle`, `wakes`, `starts
        processes`, `answers nonsense`.
    where
        File and line of the user's code: the line that failed, or that of its `decide`.
    """

    kind: str
    policy: str
    time: float
    where: str
    reason: str

    def __str__(self) -> str:
        """Return the failure as one line."""
        return f"policy {self.policy} at {self.time!r} s: {self.where}: {self.reason}"


class PolicyFailedError(UsageError):
    """A guarded policy failed in this pass: another has to decide. The next pass may go well."""

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


class GuardedPolicy(SchedulingPolicy):
    """A policy in a child process.

    Parameters
    ----------
    make
        Returns the policy; called in the child, so that no code of the user's runs in this process.
    name
        Of the policy in messages, as the user spelled it.
    seconds
        Processor time of one pass.
    patience
        Seconds by the clock that failed passes may cost in all; after that, or after
        `FAILURES_IN_A_ROW`, the policy is put aside and not asked again.
    wakes_in_a_row
        Passes in a row that only wake-ups caused and that decided nothing else.

    Attributes
    ----------
    failures
        Kind -> the first failure of the kind and how many there were.
    passes, failed_passes
        How often it should have decided, and how often it did not.
    child
        The process that runs the policy; None: no process runs.
    put_aside
        Time of the cluster at which it was put aside, None: it was not.

    Raises
    ------
    UsageError
        The policy cannot be made; with the user's file and line. Permanent.
    """

    def __init__(
        self,
        make: Callable[[], SchedulingPolicy],
        name: str,
        seconds: float = PASS_SECONDS,
        patience: float = PATIENCE_SECONDS,
        wakes_in_a_row: int = WAKES_IN_A_ROW,
    ) -> None:
        self.name = name
        self.wakes_in_a_row = wakes_in_a_row
        self.seconds = seconds
        self.patience = patience
        self.failures: dict[str, tuple[PolicyFailure, int]] = {}
        self.passes = self.failed_passes = 0
        self.put_aside: float | None = None
        self._make = make
        self._in_a_row = 0
        self._in_vain, self._in_vain_since = 0, (0.0, 0.0)
        self._lost = 0.0
        self.child: _Child | None = None
        self._lines: list[str] = []
        self._hello: dict[str, Any] = {}
        self._start()
        vars(self)["uses_malleable"] = bool(self._hello["uses_malleable"])

    def __deepcopy__(self, memo: dict[int, Any]) -> GuardedPolicy:
        """Return the same policy in a process of its own, with its own failures."""
        return GuardedPolicy(
            self._make, self.name, self.seconds, self.patience, self.wakes_in_a_row
        )

    def __repr__(self) -> str:
        """Return what the policy itself returns."""
        return str(self._hello["repr"])

    @property
    def needs_node_ids(self) -> bool:
        """Whether the policy must know which nodes jobs have."""
        return bool(self._hello["needs_node_ids"])

    @property
    def looks_at(self) -> tuple[str, ...]:
        """What the policy looks at of a job beside nodes and times."""
        return tuple(map(str, self._hello["looks_at"]))

    @property
    def usage_half_life(self) -> float | None:
        """Seconds after which what a user has used counts half, if it matters."""
        half = self._hello["usage_half_life"]
        return None if half is None else float(half)

    def decide(self, cluster: ClusterState) -> Iterator[Decision]:
        """Return the decisions of one pass, made in the child.

        Raises
        ------
        PolicyFailedError
            The policy failed in this pass, or was put aside.
        """
        self.passes += 1
        if self.put_aside is not None:
            raise PolicyFailedError(
                self.failed("put aside", cluster.time, "is not asked any more")
            )
        began = time.monotonic()
        try:
            answer = (self.child or self._start()).ask(cluster, self.seconds)
        except UsageError as error:
            answer = {"kind": "raises", "where": self._hello["decide_at"], "reason": str(error)}
        if "decisions" not in answer:
            if answer.get("dead"):
                self.close()
            self._lost += time.monotonic() - began
            raise PolicyFailedError(
                self.failed(
                    str(answer.get("kind")), cluster.time,
                    str(answer.get("reason")), str(answer.get("where") or self._hello["decide_at"]),
                )
            )  # fmt: skip
        decisions: list[Decision] = []
        self._lines = []
        try:
            for row in answer["decisions"]:
                self._lines.append(str(row[1]))
                decisions.append(_decision(row))
        except (TypeError, ValueError, LookupError, OverflowError) as error:
            where = self._lines[-1] if self._lines else self._hello["decide_at"]
            raise PolicyFailedError(
                self.failed("no decision", cluster.time, str(error)[:TEXT], where)
            ) from error
        self._in_a_row = 0
        self._check_wakes(cluster, decisions, began)
        return iter(decisions)

    def _check_wakes(self, cluster: ClusterState, decisions: list[Decision], began: float) -> None:
        """Refuse the pass of a policy that does nothing but wake, again and again, while nothing happens."""
        if (
            cluster.events != NOTHING_HAPPENED
            or not decisions
            or any(not isinstance(one, Wake) for one in decisions)
        ):
            self._in_vain = 0
            return
        if not self._in_vain:
            self._in_vain_since = (cluster.time, began)
        self._in_vain += 1
        since, clock = self._in_vain_since
        if self._in_vain < self.wakes_in_a_row:
            return
        seconds, count, self._in_vain = cluster.time - since, self._in_vain, 0
        if seconds < (count - 1) * SECONDS_BETWEEN:
            self._lost += time.monotonic() - clock
            reason = f"woke {count} times within {seconds:g} s and decided nothing"
            raise PolicyFailedError(self.failed("wakes", cluster.time, reason, self._lines[-1]))

    def failed(self, kind: str, now: float, reason: str, where: str = "") -> PolicyFailure:
        """Note a failed pass; return it."""
        failure = PolicyFailure(kind, self.name, now, where or self._hello["decide_at"], reason)
        first, count = self.failures.get(kind, (failure, 0))
        self.failures[kind] = (first, count + 1)
        self.failed_passes += 1
        self._in_a_row += 1
        if self.put_aside is None and (
            self._lost > self.patience or self._in_a_row >= FAILURES_IN_A_ROW
        ):
            self.put_aside = now
            self.close()
        return failure

    def line_of(self, decision: int) -> str:
        """Return file and line of a decision of the last pass, by its position."""
        return self._lines[decision] if decision < len(self._lines) else self._hello["decide_at"]

    def close(self) -> None:
        """End the child; another is started when the policy is asked again."""
        if self.child is not None:
            self.child.end()
            self.child = None

    def _start(self) -> _Child:
        child = _Child(self._make)
        hello = child.hear(LOAD_SECONDS, LOAD_SECONDS)
        if "decide_at" not in hello:
            child.end()
            reason, fields = str(hello["reason"]), {"policy": self.name, **hello.get("fields", {})}
            if "coded" in hello:  # of an error of ours, whose message is complete
                raise UsageError(reason, **hello["coded"])
            raise UsageError(
                f"policy {self.name}: {reason}", code="policy-failed", kind="starts", **fields
            )
        self.child, self._hello = child, hello
        return child


def guard_of(policy: SchedulingPolicy) -> GuardedPolicy | None:
    """Return the guard of a policy, or of the one that it wraps as `inner`; None: it has none."""
    while not isinstance(policy, GuardedPolicy):
        inner = getattr(policy, "inner", None)
        if not isinstance(inner, SchedulingPolicy):
            return None
        policy = inner
    return policy


class _Child:
    """The child process, and what it has been told of the state."""

    def __init__(self, make: Callable[[], SchedulingPolicy]) -> None:
        self._sender = StateSender()
        self._post = os.memfd_create("policy")
        ours, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            # The child runs the policy and nothing else, whatever threads there are here.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            ours.close()
            serve_policy(theirs, self._post, make)
        theirs.close()
        self._socket = ours
        look = struct.pack("ll", 0, int(LOOK_SECONDS * 1e6))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            ours.setsockopt(socket.SOL_SOCKET, option, look)
        self._finalizer = weakref.finalize(self, _end, self.pid, ours, self._post)

    def end(self) -> None:
        """End the process and what it left in its process group."""
        self._finalizer()

    def ask(self, cluster: ClusterState, seconds: float) -> dict[str, Any]:
        """Return the child's answer about a state, or how it failed."""
        data, clock = packed(self._sender.changes(cluster)), seconds * CLOCK_FACTOR
        try:
            if not self.tell(len(data).to_bytes(HEADER, "big") + data, clock):
                return self._stopped(seconds, clock)
        except OSError:
            return self._died()
        return self.hear(seconds, clock)

    def tell(self, data: bytes, clock: float) -> bool:
        """Send the child a message; whether it has taken it in so much time by the clock."""
        left, until = memoryview(data), time.monotonic() + clock
        while left:
            try:
                left = left[self._socket.send(left) :]
            except BlockingIOError:  # it has read nothing for so long: it may have no CPU
                if time.monotonic() >= until:
                    return False
        return True

    def hear(self, seconds: float, clock: float) -> dict[str, Any]:
        """Return the next answer; wait so much processor time of the child's, and time by the clock."""
        began, used = time.monotonic(), math.nan
        data = b""
        while len(data) < HEADER or len(data) < HEADER + int.from_bytes(data[:HEADER], "big"):
            try:
                got = self._socket.recv(RECEIVED_AT_ONCE)
            except BlockingIOError:  # nothing for so long: only now is looked what time it takes
                now = self._processor_time()
                used = now if math.isnan(used) else used
                if now - used >= seconds or time.monotonic() - began >= clock:
                    return self._stopped(seconds, clock)
                continue
            except OSError:
                got = b""
            data += got
            if not got:
                return self._died()
            if len(data) > ANSWER_BYTES:
                return self._nonsense(f"its answer is longer than {ANSWER_BYTES} bytes")
        if data[HEADER:] == NO_DECISIONS:
            return {"decisions": []}
        try:
            answer = json.loads(data[HEADER:].decode())
        except (ValueError, RecursionError):
            return self._nonsense("its answer cannot be read")
        return answer if isinstance(answer, dict) else self._nonsense("its answer is none")

    def _processor_time(self) -> float:
        try:
            return time.clock_gettime((~self.pid << 3) | 2)
        except OSError:
            return math.inf

    def _nonsense(self, reason: str) -> dict[str, Any]:
        return {"kind": "answers nonsense", "reason": reason, "where": "", "dead": True}

    def _stopped(self, seconds: float, clock: float) -> dict[str, Any]:
        """Stop a child that does not answer: its last words are where it was."""
        with suppress(ProcessLookupError):
            # faulthandler catches SIGABRT and writes the user's line, also in the middle of a C
            # function.
            os.kill(self.pid, signal.SIGABRT)
        self._how_it_ended()
        reason = f"no answer after {seconds:g} s of processor time or {clock:g} s"
        return {"kind": "loops", "reason": reason, "where": self._last_words(), "dead": True}

    def _died(self) -> dict[str, Any]:
        reason = "its process does not listen any more"
        ended = self._how_it_ended()
        if ended is not None and ended.si_code == os.CLD_EXITED:
            reason = f"its process ended with status {ended.si_status}"
        elif ended is not None:
            reason = f"its process was ended by {signal.Signals(ended.si_status).name}"
        return {"kind": "exits", "reason": reason, "where": self._last_words(), "dead": True}

    def _how_it_ended(self) -> os.waitid_result | None:
        """Return how the process ended, None if it has not within a second; it is reaped later."""
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            with suppress(ChildProcessError):
                ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if ended is not None:
                    return ended
            time.sleep(0.01)
        return None

    def _last_words(self) -> str:
        """Return the innermost line that is not ours of the stack that the child wrote when it was ended."""
        text = os.pread(self._post, 1 << 16, 0).decode(errors="replace")
        lines = re.findall(r'^  File "(.*)", line (\d+) in ', text, re.MULTILINE)
        theirs = list(takewhile(lambda line: not line[0].startswith(OUR_FILES), lines))
        outside = [one for one in theirs if "lib/python" not in one[0] and one[0][:1] != "<"]
        return ":".join((outside or theirs)[0]) if theirs else ""


def _end(pid: int, ours: socket.socket, post: int) -> None:
    ours.close()
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)
    os.close(post)


def _decision(row: list[Any]) -> Decision:
    """Return a decision that came from the child, of the right types.

    Raises
    ------
    TypeError, ValueError
        It is none; the text says what is wrong.
    """
    kind, _, *values = row
    if kind not in DECISIONS:
        raise TypeError(f"{values[0]} is no decision")
    made = DECISIONS[kind]
    named = dict(zip(FIELDS[made], values, strict=True))
    for name, value in named.items():
        problem = "" if name == "until" and value is None else _problem(kind, name, value)
        if problem:
            shown = f"{kind}({', '.join(f'{k}={v!r}' for k, v in named.items())})"[:TEXT]
            raise TypeError(f"{shown} is no decision: {name} {problem}")
    for name in ("mates", "nodes", "node_ids"):
        if isinstance(named.get(name), list):
            named[name] = tuple(named[name]) if name == "mates" else frozenset(named[name])
        elif name == "nodes" and name in named:
            named[name] = int(named[name])
    decision: Decision = made(**named)
    return decision


def _problem(kind: str, name: str, value: object) -> str:
    """Return what is wrong with a field of a decision, empty: nothing."""
    if name in {"mates", "node_ids"} or (kind, name) == ("Migrate", "nodes"):
        right = isinstance(value, list) and all(type(one) is int for one in value)
        return "" if right else "must be whole numbers"
    if name == "reason":
        return "" if isinstance(value, str) and len(value) <= REASON else "must be a short text"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "must be a number"
    if name == "job" and not isinstance(value, int):
        return "must be the number of a job"
    if name == "nodes" and (not math.isfinite(value) or value != int(value)):
        return "must be whole"
    return "is not a number" if math.isnan(value) else ""
