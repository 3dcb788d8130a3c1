"""Ask many hosts one question at the same time, with one time limit for all."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

MAX_AT_ONCE = 200
MAX_BYTES = 1 << 20
"""Maximum bytes of an answer; the rest is dropped."""
CHUNK = 1 << 16
SHOWN = 300


@dataclass(frozen=True, slots=True)
class RemoteQuestion:
    """A command line that prints an answer, and the bytes for its standard input."""

    argv: Sequence[str]
    parcel: bytes


@dataclass(frozen=True, slots=True)
class RemoteAnswer:
    """The answer to a question.

    Attributes
    ----------
    output, talk
        Standard output and standard error, each at most a megabyte.
    code
        Exit code; None if the time limit ended the command.
    at
        Time at which the last bytes arrived, in seconds since 1970 (Unix time).
    """

    output: bytes
    talk: bytes
    code: int | None
    at: float

    @property
    def last_words(self) -> str:
        """The last line of standard error that is not blank, printable."""
        return _last_line(self.talk)

    @property
    def last_line(self) -> str:
        """The last line of standard output that is not blank, printable."""
        return _last_line(self.output)


def _last_line(text: bytes) -> str:
    lines = [line for line in text.decode(errors="replace").splitlines() if line.strip()]
    return printable(lines[-1]) if lines else ""


def printable(text: str) -> str:
    r"""Return foreign text as one printable line of at most `SHOWN` characters, safe for a terminal.

    Examples
    --------
    >>> printable("two\nlines \x1b[31mred")
    'two lines ?[31mred'
    """
    line = " ".join(text[: 4 * SHOWN].split())
    return "".join(c if c.isprintable() else "?" for c in line)[:SHOWN]


def ask(
    questions: Mapping[str, RemoteQuestion], seconds: float, more: float = 0.0
) -> dict[str, RemoteAnswer]:
    """Ask all questions at the same time; return every answer after at most `seconds` plus the time to kill.

    If a host has begun to answer by then, its time limit is extended by `more` seconds.
    """
    if not questions:
        return {}
    deadline = time.monotonic() + seconds
    with ThreadPoolExecutor(min(MAX_AT_ONCE, len(questions))) as pool:
        asked = {name: pool.submit(_ask, one, deadline, more) for name, one in questions.items()}
        return {name: future.result() for name, future in asked.items()}


def _ask(question: RemoteQuestion, deadline: float, more: float) -> RemoteAnswer:
    try:
        process = subprocess.Popen(
            question.argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # so that its helper processes can be killed with it
        )
    except OSError as error:
        return RemoteAnswer(
            b"", f"{question.argv[0]}: {error.strerror}".encode(), 127, time.time()
        )
    try:
        return _talk(process, question.parcel, deadline, more)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def _talk(
    process: subprocess.Popen[bytes], parcel: bytes, deadline: float, more: float
) -> RemoteAnswer:
    """Write the input and read the output of a process until its pipes are closed or the deadline passes."""
    assert process.stdin is not None  # noqa: S101 - for the type checker: all three are pipes
    assert process.stdout is not None  # noqa: S101
    assert process.stderr is not None  # noqa: S101
    heard = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    left, feed = memoryview(parcel), process.stdin.fileno()
    at = time.time()
    with selectors.DefaultSelector() as selector:
        for number in heard:
            selector.register(number, selectors.EVENT_READ)
        os.set_blocking(feed, False)
        selector.register(feed, selectors.EVENT_WRITE)
        while selector.get_map() and (time_left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(time_left):
                number = key.fd
                if number == feed:
                    left = _fed(feed, left)
                    if not left:
                        selector.unregister(feed)
                        process.stdin.close()
                    continue
                data = os.read(number, CHUNK)
                at = time.time()
                if data and number == process.stdout.fileno():
                    deadline, more = deadline + more, 0.0
                heard[number] += data[: max(0, MAX_BYTES - len(heard[number]))]
                if not data:
                    selector.unregister(number)
        timed_out = bool(selector.get_map())
    code = None if timed_out else process.wait()
    output, talk = (bytes(text) for text in heard.values())
    return RemoteAnswer(output, talk, code, at)


def _fed(feed: int, left: memoryview) -> memoryview:
    """Write as much as the pipe accepts; return the rest, empty if the reader is gone."""
    try:
        return left[os.write(feed, left) :]
    except BrokenPipeError:
        return left[:0]
