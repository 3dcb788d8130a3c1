"""Run a user's policy for a live scheduler in a child process, outside the scheduling thread.

`GuardedPolicy.decide` sends the state of the cluster and raises `PolicyPendingError` until the answer arrives, so
that the scheduler continues meanwhile. If the answer is late or contains no decisions, the policy failed in that
pass (`PolicyFailedError`), and first-come-first-served decides instead.

The guard protects from mistakes. It is not a sandbox: the child has the rights of the scheduler's user.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from itertools import takewhile
from typing import Any

from apples.errors import UsageError
from apples.scheduling.jobs import Decision
from apples.scheduling.passes import (
    DECISIONS,
    FIELDS,
    OUR_FILES,
    PolicyFailedError,
    PolicyFailure,
    PolicyPendingError,
    PolicyProxy,
)
from apples.scheduling.policy import ClusterState
from apples.scheduling.snapshot import to_json

PASS_SECONDS = 2.0
"""Time limit of a pass."""

LOAD_SECONDS = 60.0
"""Time limit to import and create the policy; libraries may be large."""

MAX_LOST_SECONDS = 10.0
MAX_FAILURES_IN_A_ROW = 100
"""The scheduler disables a policy if its failed passes took MAX_LOST_SECONDS in total, or after this number of
consecutive failures."""

MAX_ANSWER_BYTES = 64 << 20


class GuardedPolicy(PolicyProxy):
    """A user's policy in a child process.

    Parameters
    ----------
    name, options
        As `loading.load_policy`: ``FILE.py:NAME`` or ``module:NAME``. Only the child imports it.
    seconds
        Time limit of a pass.
    max_lost_seconds
        Total seconds of failed passes after which the policy is disabled.

    Attributes
    ----------
    on_answer
        Another thread calls it when an answer has arrived, which the next call of `decide` returns.
    asked
        The state of the last request.
    disabled
        Whether the scheduler stopped asking the policy after its failures.

    Raises
    ------
    UsageError
        The policy cannot be created; the error has the user's file and line. Permanent.
    """

    def __init__(
        self,
        name: str,
        options: Mapping[str, str] | None = None,
        seconds: float = PASS_SECONDS,
        max_lost_seconds: float = MAX_LOST_SECONDS,
    ) -> None:
        self.name = name
        self.on_answer: Callable[[], None] = lambda: None
        self.asked: ClusterState | None = None
        self.disabled = False
        self._options = dict(options or {})
        self._seconds, self._max_lost = seconds, max_lost_seconds
        self._failures_in_a_row, self._lost = 0, 0.0
        self._answer: Future[list[Decision]] | None = None
        self._deadline = 0.0
        self._lines: list[str] = []
        self._child: _Child | None = None
        self._starting = threading.Lock()
        self._closed = False
        self._hello: dict[str, Any] = {}
        self._start()
        vars(self)["uses_malleable"] = bool(self._hello["uses_malleable"])

    def __repr__(self) -> str:
        """Return the `repr` of the policy itself."""
        return str(self._hello["repr"])

    @property
    def needs_node_ids(self) -> bool:
        """Whether the policy must know which nodes jobs have."""
        return bool(self._hello["needs_node_ids"])

    @property
    def looks_at(self) -> tuple[str, ...]:
        """Attributes that the policy reads beside nodes and times."""
        return tuple(map(str, self._hello["looks_at"]))

    @property
    def usage_half_life(self) -> float | None:
        """Seconds after which the usage of a user counts half; None: the policy does not look at it."""
        half = self._hello["usage_half_life"]
        return None if half is None else float(half)

    @property
    def has_answered(self) -> bool:
        """Whether `decide` returns an answer at once."""
        return self._answer is not None and self._answer.done()

    def decide(self, cluster: ClusterState) -> Iterator[Decision]:
        """Return the decisions of an earlier call, which were made for the state `asked`.

        Raises
        ------
        PolicyPendingError
            The answer has not arrived yet. The first call sends the state.
        PolicyFailedError
            The policy failed in this pass, or is disabled.
        """
        if self.disabled:
            reason = "disabled after its failures; a new start of the scheduler asks it again"
            raise self._failed("disabled", cluster.time, reason)
        if self._answer is None:
            self._closed = False
            self._answer, self.asked = Future(), cluster
            self._deadline = time.monotonic() + self._seconds
            threading.Thread(target=self._ask, args=(cluster, self._answer), daemon=True).start()
        if not self._answer.done():
            raise PolicyPendingError(max(0.0, self._deadline - time.monotonic()))
        answer, self._answer = self._answer, None
        return iter(answer.result())

    def note_success(self) -> None:
        """Reset the count of consecutive failures: all decisions of a pass were carried out."""
        self._failures_in_a_row = 0

    def note_failure(self) -> None:
        """Count a failed pass; disable the policy after too many."""
        self._failures_in_a_row += 1
        lost = self._lost > self._max_lost
        if not self.disabled and (lost or self._failures_in_a_row >= MAX_FAILURES_IN_A_ROW):
            self.disabled = True
            self.close()

    def line_of(self, position: int | None) -> str:
        """Return file and line of a decision of the last answer; those of `decide` if `position` is None."""
        if position is None or position >= len(self._lines):
            return str(self._hello["decide_at"])
        return self._lines[position]

    def close(self) -> None:
        """End the child; the next state starts another. A pending answer fails."""
        with self._starting:  # a thread with a state may be about to start the child
            self._closed = True
        self._end_child()

    def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()

    def _ask(self, cluster: ClusterState, answer: Future[list[Decision]]) -> None:
        """Ask the child and put its decisions or its failure into `answer`; runs in its own thread."""
        began = time.monotonic()
        try:
            answer.set_result(self._asked(cluster))
        except BaseException as error:  # noqa: BLE001 - `decide` raises it
            self._lost += time.monotonic() - began
            answer.set_exception(error)
        self.on_answer()

    def _asked(self, cluster: ClusterState) -> list[Decision]:
        try:
            child = self._child or self._start()
        except UsageError as error:
            raise self._failed("raises", cluster.time, str(error)) from error
        try:
            child.send(to_json(cluster), self._seconds)
            answer = child.receive(self._seconds)
            if "decisions" in answer:
                lines = [str(row[1]) for row in answer["decisions"]]
                decisions = [_decision(row) for row in answer["decisions"]]
                self._lines = lines
                return decisions
            kind, where, reason = str(answer["kind"]), str(answer["where"]), str(answer["reason"])
        except (OSError, ValueError, TypeError, LookupError, RecursionError) as error:
            try:
                if isinstance(error, TimeoutError):
                    kind, reason = "loops", f"no answer within {self._seconds:g} s"
                    where = child.stopped()
                elif isinstance(error, OSError):
                    kind, reason, where = "exits", *child.ended()
                else:
                    kind, reason, where = "answers nonsense", "its answer cannot be read", ""
            finally:
                self._end_child()
        raise self._failed(kind, cluster.time, reason, where)

    def _failed(self, kind: str, now: float, reason: str, where: str = "") -> PolicyFailedError:
        return PolicyFailedError(
            PolicyFailure(kind, self.name, now, where or self.line_of(None), reason)
        )

    def _start(self) -> _Child:
        """Start the child, which creates the policy."""
        with self._starting:
            if self._closed:
                raise UsageError("the policy was closed", code="policy-failed")
            child = self._child = _Child()
        try:
            child.send(json.dumps([self.name, self._options]), LOAD_SECONDS)
            hello = child.receive(LOAD_SECONDS)
            if "decide_at" in hello:
                self._hello = hello
                return child
            reason, given = str(hello["reason"]), dict(hello["fields"])
        except TimeoutError:
            reason, given = f"could not be loaded within {LOAD_SECONDS:g} s", {}
        except OSError:
            reason, given = child.ended()[0], {}
        except (ValueError, TypeError, LookupError, RecursionError):
            reason, given = "the answer of its process cannot be read", {}
        self._end_child()
        given = {"code": "policy-failed", "kind": "starts", "policy": self.name, **given}
        if given["code"] == "policy-failed":
            reason = f"policy {self.name}: {reason}"
        raise UsageError(reason, **given)


class _Child:
    """The child process, which only waits for its own child; that process runs the policy.

    A policy may kill its parent, which is then not the scheduler.
    """

    def __init__(self) -> None:
        self._crash_report = os.memfd_create("policy")
        self._socket, theirs = socket.socketpair()
        files = (theirs.fileno(), self._crash_report)
        words = [sys.executable, "-P", "-m", "apples.scheduling.policy_process", *map(str, files)]
        self._process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=2, pass_fds=files, start_new_session=True
        )
        theirs.close()
        self.end = weakref.finalize(self, _end, self._process, self._socket, self._crash_report)

    def send(self, line: str, seconds: float) -> None:
        """Send a line of JSON.

        Raises
        ------
        OSError
            The child does not read the line in time (`TimeoutError`), or has ended.
        """
        self._socket.settimeout(seconds)
        self._socket.sendall(line.encode() + b"\n")

    def receive(self, seconds: float) -> dict[str, Any]:
        """Return the next line of JSON.

        Raises
        ------
        OSError
            The child does not send a line in time (`TimeoutError`), or has ended.
        ValueError
            The line is not JSON, or longer than `MAX_ANSWER_BYTES`.
        """
        deadline, data = time.monotonic() + seconds, bytearray()
        while not data.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0.0:
                raise TimeoutError
            self._socket.settimeout(left)
            part = self._socket.recv(1 << 16)
            data += part
            if not part:
                raise ConnectionError
            if len(data) > MAX_ANSWER_BYTES:
                raise ValueError
        answer: dict[str, Any] = json.loads(data)
        return answer

    def stopped(self) -> str:
        """Stop a child that does not answer; return the file and line that it executed last."""
        # faulthandler catches SIGABRT and writes the line, also in the middle of a C function.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGABRT)
        return self.ended()[1]

    def ended(self) -> tuple[str, str]:
        """Return how the process ended, and the file and line that it executed last."""
        reason = "its process does not answer any more"
        if (ended := self._exit_status()) is not None:
            reason = f"its process {_end_of(ended)}"
        if not self.end.alive:  # closed meanwhile: another file may have the descriptor's number
            return reason, ""
        text = os.pread(self._crash_report, 1 << 16, 0).decode(errors="replace")
        lines = re.findall(r'^  File "(.*)", line (\d+) in ', text, re.MULTILINE)
        theirs = list(takewhile(lambda line: not line[0].startswith(OUR_FILES), lines))
        own = [line for line in theirs if "lib/python" not in line[0] and line[0][:1] != "<"]
        return reason, ":".join((own or theirs)[0]) if theirs else ""

    def _exit_status(self) -> os.waitid_result | None:
        """Return how the process ended, None if it still runs after a second; `_end` reaps it."""
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            with suppress(ChildProcessError):
                status = os.waitid(
                    os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT
                )
                if status is not None:
                    return status
            time.sleep(0.01)
        return None


def _end_of(ended: os.waitid_result) -> str:
    """Return how a process ended; a signal S of the policy's process arrives as exit status 128 + S."""
    code = ended.si_status
    number = code - 128 if ended.si_code == os.CLD_EXITED else code
    if number in set(signal.Signals):
        return f"was ended by {signal.Signals(number).name}"
    if ended.si_code == os.CLD_EXITED:
        return f"ended with status {code}"
    return f"was ended by signal {number}"


class _NoDecision(str):
    """The `repr` of an object that a policy yielded."""

    __slots__ = ()
    __repr__ = str.__str__


def _end(process: subprocess.Popen[bytes], ours: socket.socket, crash_report: int) -> None:
    with suppress(OSError):
        ours.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for an answer
    ours.close()
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    os.close(crash_report)


def _decision(row: list[Any]) -> Decision:
    """Return the decision of a row of an answer; `passes.problem_of` finds values of wrong types."""
    kind, _, *values = row
    if kind not in DECISIONS:
        return _NoDecision(values[0])  # type: ignore[return-value]
    made = DECISIONS[kind]
    named = dict(zip(FIELDS[made], values, strict=True))
    for name, value in named.items():
        if isinstance(value, list):
            named[name] = (tuple if name == "mates" else frozenset)(value)
    decision: Decision = made(**named)
    return decision
