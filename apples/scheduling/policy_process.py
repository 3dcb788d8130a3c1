"""The process of a guarded policy: makes the policy, and answers a state with decisions as plain values.

`guard` forks it. Nothing here trusts the policy: it is interrupted from outside if it does not come to an end, and
what it answers is checked on the other side.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import json
import marshal
import math
import operator
import os
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn, get_args

from apples.errors import ApplesError, UsageError, coded
from apples.scheduling.jobs import Decision
from apples.scheduling.policy import ClusterState, SchedulingPolicy
from apples.scheduling.snapshot import StateReceiver

MEMORY_BYTES = 1 << 30
"""What the policy may have beside what the process that made it had."""

SHOWN_BYTES = 64 << 10
"""Of what a policy prints, on stderr."""

TEXT = 200
"""Characters of a user's text in a message."""

REASON = 10_000
"""Characters of a reason."""

PR_SET_PDEATHSIG = 1
RECEIVED_AT_ONCE = 1 << 16
"""Bytes: small enough that the buffer is not mapped anew for each message."""

HEADER = 4
"""Bytes of the length before a message."""

DECISIONS: Mapping[str, type[Any]] = {one.__name__: one for one in get_args(Decision)}
FIELDS: Mapping[type, tuple[str, ...]] = {
    one: tuple(field.name for field in fields(one)) for one in DECISIONS.values()
}
to_line = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
"""A message as JSON, by one encoder: `json.dumps` would make one each time."""

NO_DECISIONS = to_line({"decisions": []}).encode()
"""The answer of every other pass."""

OUR_FILES = str(Path(__file__).parents[1]) + os.sep


def packed(message: dict[str, Any]) -> bytes:
    """Return a message to the child.

    The child trusts its parent: marshal, which takes a tenth of the time of JSON. What a child says is
    JSON, which can do no harm here.
    """
    try:
        return marshal.dumps(message)
    except ValueError:  # a number or text of a class of its own, such as numpy's: plain after JSON
        return marshal.dumps(json.loads(to_line(message)))


def serve_policy(
    server: socket.socket, post: int, make: Callable[[], SchedulingPolicy]
) -> NoReturn:
    """Be the child: make the policy, answer until the other side is gone."""
    status = 1
    try:
        _shut_in(post, {0, 1, 2, post, server.fileno()})
        guard = _PolicyServer(server, make)
        guard.serve()
        status = 0
    except BaseException:  # noqa: BLE001, S110 - the other side sees that this one is gone
        pass
    finally:
        os._exit(status)


def _shut_in(post: int, needed: set[int]) -> None:
    """Let this process be alone in its session, without its parent's files, die with it, and be bounded."""
    # A collection would write into every page that the child shares with its parent, and copy it.
    gc.freeze()
    for number in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if number not in needed:
            with suppress(OSError):
                os.close(number)
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as the process
    sys.stdout = sys.stderr = _Talk()
    faulthandler.enable(post, all_threads=False)


class _Talk:
    """What a policy prints: shown on stderr up to a bound."""

    encoding = "utf-8"

    def __init__(self) -> None:
        self.left = SHOWN_BYTES

    def write(self, text: str) -> int:
        data = text.encode(errors="replace")
        if self.left > 0:
            with suppress(OSError):
                os.write(2, data[: self.left])
            self.left -= len(data)
            if self.left <= 0:
                os.write(2, b"\n(what the policy prints further is not shown)\n")
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False


class _PolicyServer:
    """The policy, and the state as the other side last told it."""

    def __init__(self, server: socket.socket, make: Callable[[], SchedulingPolicy]) -> None:
        self._server = server
        self._pid = os.getpid()
        self._loading = True
        self._receiver = StateReceiver()
        sys.addaudithook(self._audit)
        try:
            self._policy = make()
            decide = self._policy.decide
            hello: dict[str, Any] = {
                "decide_at": _definition(decide),
                "repr": _short(self._policy),
                "needs_node_ids": getattr(self._policy, "needs_node_ids", False),
                "uses_malleable": getattr(self._policy, "uses_malleable", False),
                "looks_at": list(getattr(self._policy, "looks_at", ())),
                "usage_half_life": _half_life(self._policy),
            }
        except ApplesError as error:
            hello = {"reason": str(error), "coded": _plain_fields(coded(error))}
        except BaseException as error:  # noqa: BLE001 - whatever a user's code raises
            file, _, line = _where(error).rpartition(":")
            place = {"file": file, "line": int(line)} if line.isdecimal() else {}
            hello = {"reason": _said(error), "fields": place}
        self._loading = False
        self._send(hello)

    def _audit(self, event: str, _: tuple[Any, ...]) -> None:
        """Refuse to start processes and to send signals."""
        if event in FORBIDDEN or (event in NOT_ASKED and not self._loading):
            raise PermissionError(f"a policy starts no processes and sends no signals ({event})")

    def serve(self) -> None:
        """Answer until the other side is gone."""
        while (data := self._receive()) is not None:
            answer = self._answer(marshal.loads(data))  # noqa: S302 - by `packed`
            if os.getpid() != self._pid:  # a copy of this process that got past the audit
                os._exit(0)
            self._send(answer)

    def _receive(self) -> bytes | None:
        data = b""
        size = HEADER
        while len(data) < size:
            got = self._server.recv(RECEIVED_AT_ONCE)
            if not got:
                return None
            data += got
            if size == HEADER and len(data) >= HEADER:
                size += int.from_bytes(data[:HEADER], "big")
        return data[HEADER:]

    def _send(self, answer: dict[str, Any]) -> None:
        data = to_line(answer).encode() if answer.get("decisions") != [] else NO_DECISIONS
        self._server.sendall(len(data).to_bytes(HEADER, "big") + data)

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        state = self._receiver.state(message)
        try:
            return {"decisions": self._decided(state)}
        except _NoEndError as error:
            return {"kind": "too many", "where": error.where, "reason": error.reason}
        except BaseException as error:  # noqa: BLE001 - whatever a user's code raises
            kind = "raises"
            if isinstance(error, SystemExit | KeyboardInterrupt | GeneratorExit):
                kind = "exits"
            elif isinstance(error, MemoryError):
                kind = "memory"
            elif isinstance(error, PermissionError) and "starts no processes" in str(error):
                kind = "starts processes"
            where = _where(error) or _definition(self._policy.decide)
            return {"kind": kind, "where": where, "reason": _said(error, place=False)}

    def _decided(self, state: ClusterState) -> list[list[Any]]:
        most = 4 * (len(state.queue) + len(state.running)) + 16
        made = self._policy.decide(state)
        frame = getattr(made, "gi_frame", None)
        file = frame.f_code.co_filename if frame is not None else ""
        where = _definition(self._policy.decide)
        rows: list[list[Any]] = []
        for decision in islice(made, most + 1):
            at = f"{file}:{frame.f_lineno}" if frame is not None else where
            if len(rows) == most:
                raise _NoEndError(
                    at,
                    f"more than {most} decisions in one pass, the last of them {_short(decision)}",
                )
            rows.append(_row(decision, at))
        return rows


def _half_life(policy: SchedulingPolicy) -> float | None:
    """Return a policy's `usage_half_life`.

    Raises
    ------
    UsageError
        It is no number of seconds.
    """
    given = getattr(policy, "usage_half_life", None)
    if given is None:
        return None
    with suppress(TypeError, ValueError, OverflowError):
        if 0 <= float(given) < math.inf:
            return float(given)
    raise UsageError(
        f"policy {type(policy).__name__}: usage_half_life is {_short(given)}, must be seconds, 0 or more",
        code="value-invalid", policy=type(policy).__name__, field="usage_half_life", value=_short(given), bound=0,
    )  # fmt: skip


def _plain_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an error; a value that is not JSON, which only a user's code gives, as its repr."""
    plain: dict[str, Any] = json.loads(json.dumps({**fields}, default=_short))
    return plain


PLAIN = frozenset({type(None), bool, int, float})
FORBIDDEN = frozenset({"os.fork", "os.forkpty", "os.kill", "os.killpg"})
NOT_ASKED = frozenset({"os.posix_spawn", "os.exec", "os.spawn", "os.system", "subprocess.Popen"})


class _NoEndError(Exception):
    def __init__(self, where: str, reason: str) -> None:
        super().__init__(reason)
        self.where, self.reason = where, reason


def _row(decision: object, at: str) -> list[Any]:
    """Return a decision as plain values that are sure to be JSON."""
    names = FIELDS.get(type(decision))
    if names is None:
        return ["?", at, _short(decision)]
    values = [getattr(decision, name) for name in names]
    return [type(decision).__name__, at, *(v if type(v) in PLAIN else _plain(v) for v in values)]


def _plain(value: object) -> object:
    if type(value) in PLAIN:
        return value
    if type(value) is str:
        return value[: REASON + 1]
    if isinstance(value, tuple | list | set | frozenset):
        return [_plain(one) for one in value]
    numbers: tuple[Callable[[Any], object], ...] = (operator.index, float)
    for number in numbers:
        with suppress(TypeError, ValueError):
            return number(value)
    return {"not a value": _short(value)}


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= TEXT else text[:TEXT] + ".."


def _said(error: BaseException, *, place: bool = True) -> str:
    """Return an error as one line."""
    try:
        text = " ".join(str(error).split())[:TEXT]
    except Exception:  # noqa: BLE001 - an error of the user's that cannot even say what it is
        text = ""
    at = _where(error) if place else ""
    return (f"{at}: " if at else "") + f"{type(error).__name__}: {text}".rstrip(": ")


def _where(error: BaseException) -> str:
    """Return file and line of the innermost frame that is neither ours nor a library's."""
    frames = [
        (frame.filename, frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(OUR_FILES)
    ]
    own = [one for one in frames if "lib/python" not in one[0] and one[0][:1] != "<"]
    return "{}:{}".format(*(own or frames)[-1]) if frames else ""


def _definition(decide: object) -> str:
    code = getattr(getattr(decide, "__func__", decide), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""
