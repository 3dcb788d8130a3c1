"""A sensor process on another host, started over ssh and asked over its standard streams."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from threading import Lock
from typing import Any

from apples.errors import LaunchError
from nws import SensorDialogue, SensorReply

WORDS = ("-I", "-m", "nws.sensing.stdio")
"""What the host's interpreter is told."""
CHUNK = 1 << 16
END_SECONDS = 2.0


class SensorSession:
    """One sensor process, from construction to `close`. One question at a time.

    Parameters
    ----------
    host
        What its messages call it.
    argv
        The command line that starts it.

    Raises
    ------
    LaunchError
        The command cannot be started.
    """

    def __init__(self, host: str, argv: Sequence[str]) -> None:
        self.host = host
        self._dialogue = SensorDialogue()
        self._lock = Lock()
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise LaunchError(f"{host}: {argv[0]}: {error.strerror}") from None
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
        self._replies: dict[int, SensorReply] = {}

    def greet(self, seconds: float) -> None:
        """Wait for its first word.

        Raises
        ------
        LaunchError
            It did not come, or from something else.
        """
        self._await(0, time.monotonic() + seconds)

    def ask(self, do: str, within: float, /, **what: Any) -> tuple[SensorReply, float]:
        """Return the reply to a question, and how far the host's clock was ahead of ours.

        Raises
        ------
        LaunchError
            None came `within` so many seconds, the connection is gone, or it was no reply.
        """
        with self._lock:
            number, line = self._dialogue.ask(do, **what)
            deadline = time.monotonic() + within
            try:
                assert self._process.stdin is not None  # noqa: S101 - for the type checker: a pipe
                self._process.stdin.write(line)
                self._process.stdin.flush()
            except OSError:
                raise LaunchError(f"{self.host}: {self._last_words()}") from None
            reply = self._await(number, deadline)
            return reply, reply.now - time.time()

    def _await(self, number: int, deadline: float) -> SensorReply:
        while number not in self._replies:
            left = deadline - time.monotonic()
            assert self._process.stdout is not None  # noqa: S101 - for the type checker
            pipe = self._process.stdout.fileno()
            waiting = select.poll()  # many hosts are many descriptors: more than select() can name
            waiting.register(pipe, select.POLLIN)
            if left <= 0 or not waiting.poll(1000 * left):
                raise LaunchError(f"{self.host}: its sensor process does not answer")
            data = os.read(pipe, CHUNK)
            if not data:
                raise LaunchError(f"{self.host}: {self._last_words()}")
            try:
                self._replies |= {reply.id: reply for reply in self._dialogue.feed(data)}
            except ValueError as error:
                raise LaunchError(f"{self.host}: no sensor process: {error}") from None
        return self._replies.pop(number)

    def _last_words(self) -> str:
        with contextlib.suppress(OSError, TypeError):
            assert self._process.stderr is not None  # noqa: S101 - for the type checker
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS)
            talk = os.read(self._process.stderr.fileno(), CHUNK).decode(errors="replace")
            lines = [" ".join(line.split()) for line in talk.splitlines() if line.strip()]
            if lines:
                return "".join(c if c.isprintable() else "?" for c in lines[-1])[:300]
        return "its sensor process ended"

    def close(self) -> None:
        """End the process; it ends by itself when nobody asks any more."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
