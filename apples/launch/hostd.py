"""The host agent: the base class of the processes that supervise on a host for an agent or a manager.

A run, a malleable job and a migrating program each have one subclass of `HostAgent`. On this machine it is a child
process; on another host it travels over ssh (`apples.launch.remote.bootstrap`) or starts from the apples that is
installed there. The protocol is the same. Standard library only.
"""

from __future__ import annotations

import os
import select
import selectors
import signal
import threading
import time
from collections.abc import Callable, Collection
from typing import Any

from apples.io.connection import call_ready
from apples.io.json_lines import Greeting, LineBuffer, LineError, decode, encode
from apples.io.output_pipe import write_ready
from apples.launch import heartbeat
from apples.launch.job_processes import (
    become_subreaper,
    kill_descendants,
    signal_at_parents_end,
)

HELLO = b"apples.host/1\n"
"""The first bytes of a host agent; a login may print other text before them."""
LINE_LIMIT = 1 << 16
"""Bytes of a line that a program prints; of a longer one the first `LINE_LIMIT` + 1 are kept."""
ORDER_LIMIT = 1 << 26
"""Bytes of an order: it may carry the task of a job, which grows with the ranks."""
REPORT_LIMIT = 1 << 23
"""Bytes of a report: of the lines of one read, of which a byte takes up to six in JSON, or a message of a rank."""
PAUSE_BYTES = 4 << 20
"""Unsent reports above which no output of ranks is read."""
MAX_UNSENT_BYTES = 16 * PAUSE_BYTES
"""Unsent reports above which the other end counts as lost."""
MAX_GREETING_BYTES = 1 << 16
"""Bytes that a login may print before the host agent does."""
LAST_REPORTS_SECONDS, STALLED_SECONDS = 5.0, 60.0
"""How long the other end may read nothing of the unsent reports when a host agent ends: usually, and at the end of
a run that was not asked to end."""
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
CHUNK = 1 << 16


class HostAgent:
    r"""Supervises processes on one host for the agent or manager at the other end of its standard streams.

    Orders are JSON lines on standard input, ``{"order": NAME, ..}``. Reports are JSON lines on standard output,
    ``{"report": NAME, ..}``, after `HELLO`. Three reports mean the same in every subclass:

    - ``{"report": "alive"}``, every `beat_seconds` in which there is no other report. The other end sends
      ``{"order": "ping"}`` where the subclass examines `silence`.
    - ``{"report": "output", "lines": [..], ..}`` and ``{"report": "error", "lines": [..], ..}``: lines that a
      program wrote, without their ends. Bytes that are not UTF-8 are lone surrogates: the receiver gets the bytes
      by ``line.encode(errors="surrogateescape")``.

    Guarantees:

    - Orders are handled in their order, from one loop (`run`). An exception ends the process.
    - A report never blocks: it is appended to a buffer, which is written as the other end reads. While more than
      `PAUSE_BYTES` wait, no forwarded output is read, so the programs that print wait. More than
      `MAX_UNSENT_BYTES` end the process.
    - The process is the subreaper of its descendants. When standard input ends, a report cannot be written, or a
      signal of `ENDING` comes, `run` calls `close`, which kills all descendants. It returns once the last reports
      are written, or once the other end has read none of them for `last_reports_seconds`. Signals change nothing
      from then on.
    - The kernel sends it `death_signal` when its parent dies. A stopped process so wakes up to see the end of its
      input.

    A subclass implements `handle`, and extends `open`, `check` and `close`, each of which calls its parent's. It
    registers files with `selector` (data: a callable without argument) or `forward`. It ends by `finish` or by
    ``raise EOFError``.

    Parameters
    ----------
    input_file, output_file
        Descriptors of the orders and of the reports.

    Attributes
    ----------
    selector
        Of the loop; the data of a key is a callable without argument.
    silence
        How long the other end has sent no order.
    last_report
        When the latest report was made, on time.monotonic's clock.
    reporting
        Locked while a report is made. A subclass with a second thread holds it while it forks.
    closing
        Whether `close` has begun: a report that cannot be sent is dropped from then on.
    paused
        Whether no forwarded output is read: too many reports wait, or `hold_output` was called.
    last_reports_seconds
        How long the other end may read nothing of the last reports.
    ended_by
        The number of the signal that ended it; 0 for another reason.
    """

    death_signal = signal.SIGCONT
    beat_seconds = 0.5
    wait_seconds = 0.25
    """The longest time between two calls of `check`."""

    def __init__(self, input_file: int = 0, output_file: int = 1) -> None:
        self.selector = selectors.DefaultSelector()
        self.silence = heartbeat.Silence(time.monotonic())
        self.last_report = 0.0
        self.reporting = threading.Lock()
        self.closing = False
        self.ended_by = 0
        self.last_reports_seconds = LAST_REPORTS_SECONDS
        self._input, self._output = input_file, output_file
        self._orders = LineBuffer(ORDER_LIMIT)
        self._unsent = bytearray()
        self._forwarders: dict[int, OutputForwarder] = {}
        self._awaits_room = self._finishing = self._held = self.paused = False

    def run(self) -> None:
        """Supervise until the other end is gone or `finish` was called; then close."""
        become_subreaper()
        signal_at_parents_end(self.death_signal)
        signalled = _signal_pipe(ENDING)
        try:
            os.set_blocking(self._output, False)
            self.selector.register(
                signalled, selectors.EVENT_READ, lambda: self._on_signal(signalled)
            )
            self._unsent += HELLO
            self.open()
            while True:
                self._write_waiting()
                call_ready(self.selector, self.wait_seconds)
                self.check()
        except EOFError:
            pass
        finally:
            self.closing = True
            for (
                number
            ) in ENDING:  # a handler of ours would give way to the default while Python ends
                signal.signal(number, signal.SIG_IGN)
            self.close()
            self._write_last()

    # ------------------------------------------------------------- for subclasses

    def open(self) -> None:
        """Begin to read orders."""
        self.selector.register(self._input, selectors.EVENT_READ, self.read_orders)

    def handle(self, order: dict[str, Any]) -> None:
        """Carry out an order; a ``ping`` needs no more than to arrive."""
        raise NotImplementedError

    def check(self) -> None:
        """Examine what is supervised; called after each turn of the loop."""
        if time.monotonic() - self.last_report >= self.beat_seconds:
            self.report("alive")

    def close(self) -> None:
        """Leave no process behind."""
        kill_descendants(os.getpid())

    def finish(self) -> None:
        """End once all reports are written."""
        self._finishing = True

    def report(self, event: str, **fields: object) -> None:
        """Make a report; it is written now as far as the other end reads, and else later.

        Raises
        ------
        EOFError
            The other end is gone, or has read nothing of `MAX_UNSENT_BYTES`; never while closing.
        """
        with self.reporting:
            self.last_report = time.monotonic()
            if event == "alive" and self._unsent:
                return  # the waiting reports show the same
            self._unsent += encode({"report": event, **fields})
            if len(self._unsent) > MAX_UNSENT_BYTES and not self.closing:
                self._on_output_gone()
            self._write()

    def forward(self, pipe: int, event: str, **fields: object) -> None:
        """Report the lines that come from a pipe; it is not read while too many reports wait.

        Parameters
        ----------
        pipe
            Must not block; open for reading and writing, so that it does not end between two writers.
        fields
            Of each report, for example the rank.
        """
        self._forwarders[pipe] = OutputForwarder(
            pipe, lambda lines: self.report(event, lines=lines, **fields)
        )
        if not self.paused:
            self.selector.register(pipe, selectors.EVENT_READ, self._forwarders[pipe].read)

    def hold_output(self, held: bool) -> None:
        """Read no forwarded output from the loop's next turn on, or read it again."""
        self._held = held

    def drain_forwarded(self) -> None:
        """Report what is left in the forwarded pipes, unfinished lines too: their writers have ended."""
        for forwarder in self._forwarders.values():
            forwarder.drain()

    # ------------------------------------------------------------- the streams

    def read_orders(self) -> None:
        """Read and handle the orders that have come.

        Raises
        ------
        EOFError
            The other end is gone, or sends what is no order.
        """
        try:
            data = os.read(self._input, CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            raise EOFError
        self.silence.broken(time.monotonic())
        try:
            for line in self._orders.feed(data):
                self.handle(decode(line, ORDER_LIMIT))
        except LineError:
            raise EOFError from None

    def _write(self) -> None:
        try:
            write_ready(self._output, self._unsent)
        except OSError:
            self._on_output_gone()

    def _on_output_gone(self) -> None:
        self._unsent.clear()
        if not self.closing:
            raise EOFError

    def _write_waiting(self) -> None:
        """Write reports that wait, listen for room where some are left, and pause or resume forwarding."""
        with self.reporting:
            self._write()
            waiting = len(self._unsent)
        if self._finishing and not waiting:
            raise EOFError
        if (waiting > 0) != self._awaits_room:
            self._awaits_room = waiting > 0
            if self._awaits_room:
                self.selector.register(self._output, selectors.EVENT_WRITE, self._write_waiting)
            else:
                self.selector.unregister(self._output)
        pauses = self._held or waiting > PAUSE_BYTES
        if pauses != self.paused:
            self.paused = pauses
            for pipe, forwarder in self._forwarders.items():
                if self.paused:
                    self.selector.unregister(pipe)
                else:
                    self.selector.register(pipe, selectors.EVENT_READ, forwarder.read)

    def _write_last(self) -> None:
        """Write the last reports, as long as the other end reads some of them in time."""
        deadline = time.monotonic() + self.last_reports_seconds
        poll = select.poll()
        poll.register(self._output, select.POLLOUT)
        with self.reporting:
            self._write()
            while self._unsent and (left := deadline - time.monotonic()) > 0:
                poll.poll(1000 * left)
                waiting = len(self._unsent)
                self._write()
                if len(self._unsent) < waiting:
                    deadline = time.monotonic() + self.last_reports_seconds

    def _on_signal(self, signalled: int) -> None:
        self.ended_by = os.read(signalled, 1)[0]
        raise EOFError


class OutputForwarder:
    """Reads a pipe and passes on its lines as text.

    Parameters
    ----------
    pipe
        Must not block.
    send
        Called with a list of lines, which is not empty.
    """

    def __init__(self, pipe: int, send: Callable[[list[str]], None]) -> None:
        self._pipe, self._send = pipe, send
        self._lines = LineBuffer(LINE_LIMIT, truncating=True)

    def read(self) -> int:
        """Pass on the lines that one read completes; return the number of bytes read."""
        try:
            data = os.read(self._pipe, CHUNK)
        except BlockingIOError:
            return 0
        if lines := self._lines.feed(data):
            self._send([line.decode(errors="surrogateescape") for line in lines])
        return len(data)

    def drain(self) -> None:
        """Pass on what the pipe holds, an unfinished line too."""
        while self.read() == CHUNK:
            pass
        if rest := self._lines.rest():
            self._send([rest.decode(errors="surrogateescape")])


class HostReports:
    r"""Parses the reports of one host agent, at the other end of its connection.

    Examples
    --------
    >>> reports = HostReports()
    >>> reports.feed(b'Welcome to ada!\n' + HELLO + b'{"report":"al'), reports.heard
    ([], True)
    >>> reports.feed(b'ive"}\n')
    [{'report': 'alive'}]
    """

    def __init__(self) -> None:
        self._greeting = Greeting(HELLO, MAX_GREETING_BYTES)
        self._lines = LineBuffer(REPORT_LIMIT)

    @property
    def heard(self) -> bool:
        """Whether the host agent has sent `HELLO`."""
        return self._greeting.heard

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Return the reports that `data` completes.

        Raises
        ------
        LineError
            A login prints too much, or what came is no report. Permanent: the stream cannot be trusted.
        """
        reports = [
            decode(line, REPORT_LIMIT) for line in self._lines.feed(self._greeting.skip(data))
        ]
        if not all(isinstance(report.get("report"), str) for report in reports):
            raise LineError("a line that is no report")
        return reports


def output_lines(report: dict[str, Any]) -> list[bytes]:
    """Return the lines of a report ``output`` or ``error`` as the program wrote them.

    Raises
    ------
    LineError
        It has none. Permanent.
    """
    lines = report.get("lines")
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise LineError("a report without lines")
    try:
        return [line.encode(errors="surrogateescape")[: LINE_LIMIT + 1] for line in lines]
    except UnicodeEncodeError:
        raise LineError("a line that is no text") from None


def _signal_pipe(numbers: Collection[int]) -> int:
    """Return a pipe on which each signal of `numbers` is a byte.

    A handler that raised an error instead would interrupt the process anywhere, also while it cleans up.
    """
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    for number in numbers:
        signal.signal(number, lambda sent, _: os.write(writing, bytes([sent])))
    return reading
