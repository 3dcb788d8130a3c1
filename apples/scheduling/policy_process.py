"""The child process of a guarded policy: reads states as lines of JSON and writes decisions as lines of JSON.

`guard` starts this module as a program, with the numbers of two open files: the socket to the scheduler, and the
file for the stack of a crash. This process waits for a child process, which runs the policy: a policy that kills
its parent kills this process, not the scheduler.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import operator
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from apples.errors import ApplesError, coded
from apples.scheduling.loading import load_policy
from apples.scheduling.passes import (
    FIELDS,
    MAX_REASON,
    PolicyFailedError,
    decisions_of,
    failed,
    line_of,
    line_of_error,
    shortened,
    words_of,
)
from apples.scheduling.policy import ClusterState, SchedulingPolicy
from apples.scheduling.snapshot import from_json

MAX_MEMORY_BYTES = 1 << 30
"""Address space of a policy beyond that of an empty child process."""

MAX_PRINTED_BYTES = 64 << 10
"""Maximum bytes of a policy's output, on stderr."""

PR_SET_PDEATHSIG = 1


def main(channel: int, crash_report: int) -> int:
    """Run the policy in a child process; return its exit status after it has ended."""
    pid = os.fork()
    if pid == 0:
        _limit(crash_report)
        return _serve(socket.socket(fileno=channel))
    signal.signal(signal.SIGABRT, signal.SIG_IGN)
    policy = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(policy, select.POLLIN)
    poll.register(channel, select.POLLRDHUP)
    poll.poll()
    if not select.select([policy], [], [], 0)[0]:  # the scheduler is gone
        os.killpg(0, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return status if status >= 0 else 128 - status


def _limit(crash_report: int) -> None:
    """Make this process end with its parent; limit its memory and its output."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + MAX_MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stdout = sys.stderr = _BoundedOutput()
    faulthandler.enable(crash_report, all_threads=False)


class _BoundedOutput:
    """Writes to stderr, up to a limit."""

    encoding = "utf-8"

    def __init__(self) -> None:
        self._left = MAX_PRINTED_BYTES

    def write(self, text: str) -> int:
        data = text.encode(errors="replace")
        if self._left > 0:
            with suppress(OSError):
                os.write(2, data[: self._left])
            self._left -= len(data)
            if self._left <= 0:
                os.write(2, b"\n(the rest of the policy's output is not shown)\n")
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False


def _serve(channel: socket.socket) -> int:
    """Create the policy, and answer each state until the scheduler closes the channel."""
    pid = os.getpid()
    lines = channel.makefile("rb")
    name, options = json.loads(lines.readline())
    policy = None
    try:
        policy = load_policy(name, options)
        hello: dict[str, Any] = {
            "decide_at": line_of(policy),
            "repr": shortened(policy),
            "needs_node_ids": bool(getattr(policy, "needs_node_ids", False)),
            "uses_malleable": bool(getattr(policy, "uses_malleable", False)),
            "looks_at": list(getattr(policy, "looks_at", ())),
            "usage_half_life": getattr(policy, "usage_half_life", None),
        }
    except ApplesError as error:
        hello = {"reason": str(error), "fields": _plain_fields(coded(error))}
    except BaseException as error:  # noqa: BLE001 - whatever a user's code raises
        file, _, line = line_of_error(error).rpartition(":")
        place = {"file": file, "line": int(line)} if line.isdecimal() else {}
        where = f"{file}:{line}: " if place else ""
        hello = {"reason": where + words_of(error), "fields": place}
    _send(channel, hello)
    while policy is not None and (state := lines.readline()):
        answer = _answer(policy, from_json(state.decode()))
        if os.getpid() != pid:  # the policy forked: only the original process answers
            os._exit(0)
        _send(channel, answer)
    return 0


def _send(channel: socket.socket, answer: Mapping[str, Any]) -> None:
    channel.sendall(json.dumps(answer).encode() + b"\n")


def _answer(policy: SchedulingPolicy, state: ClusterState) -> dict[str, Any]:
    """Return the decisions as rows of kind, line and fields; or how the policy failed."""
    lines: list[str] = []
    try:
        decisions = decisions_of(_Traced(policy, lines), state)
        return {"decisions": [_row(*pair) for pair in zip(decisions, lines, strict=True)]}
    except PolicyFailedError as error:
        failure = error.failure
    except BaseException as error:  # noqa: BLE001 - whatever a user's code raises
        kind = "exits" if isinstance(error, KeyboardInterrupt) else "raises"
        where = line_of_error(error) or line_of(policy)
        failure = failed(policy, kind, state.time, where, words_of(error)).failure
    return {"kind": failure.kind, "where": failure.where, "reason": failure.reason}


class _Traced(SchedulingPolicy):
    """A policy that records the current line of its generator at each decision."""

    def __init__(self, policy: SchedulingPolicy, lines: list[str]) -> None:
        self.inner, self._lines = policy, lines

    def decide(self, cluster: ClusterState) -> Any:
        made = self.inner.decide(cluster)
        frame = getattr(made, "gi_frame", None)
        where = line_of(self.inner)
        for decision in made:
            file = "" if frame is None else frame.f_code.co_filename
            self._lines.append(where if frame is None else f"{file}:{frame.f_lineno}")
            yield decision


def _plain_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an error; a value without a JSON form, for example of user code, becomes its repr."""
    plain: dict[str, Any] = json.loads(json.dumps({**fields}, default=shortened))
    return plain


def _row(decision: object, line: str) -> list[Any]:
    """Return a decision as values that JSON can hold."""
    names = FIELDS.get(type(decision))
    if names is None:
        return ["", line, shortened(decision)]
    kind = type(decision).__name__
    return [kind, line, *(_plain(getattr(decision, name)) for name in names)]


def _plain(value: object) -> object:
    if value is None or type(value) in {bool, int, float}:
        return value
    if isinstance(value, str):
        return value[: MAX_REASON + 1]
    if isinstance(value, tuple | list | set | frozenset):
        return [_plain(item) for item in value]
    numbers: tuple[Callable[[Any], object], ...] = (operator.index, float)
    for number in numbers:
        with suppress(TypeError, ValueError):
            return number(value)
    return {"not a value": shortened(value)}


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
