"""The host agent: base class of the processes that supervise programs on a host for an agent or a manager.

A run, a malleable job and a migrating program each have a subclass of `HostAgent`. On this machine it is a child
process. On another host it is sent over ssh (`apples.launch.remote.bootstrap`) or started from the apples that is
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
"""The first bytes of a host agent's output; a login may print other text before them."""
LINE_LIMIT = 1 << 16
"""Maximum bytes of a program's output line; only the first `LINE_LIMIT` + 1 bytes of a longer line are kept."""
ORDER_LIMIT = 1 << 26
"""Maximum bytes of an order: it may carry the task of a job, which grows with the ranks."""
REPORT_LIMIT = 1 << 23
"""Maximum bytes of a report: lines of one read (a byte takes up to six in JSON) or a message of a rank."""
PAUSE_BYTES = 4 << 20
"""Bytes of unsent reports above which the output of ranks is not read."""
MAX_UNSENT_BYTES = 16 * PAUSE_BYTES
"""Bytes of unsent reports above which the other end counts as lost."""
MAX_GREETING_BYTES = 1 << 16
"""Maximum bytes that a login may print before the host agent does."""
LAST_REPORTS_SECONDS, STALLED_SECONDS = 5.0, 60.0
"""Maximum time for which the other end may read none of the unsent reports when a host agent ends: in general, and
at the end of a run that was not asked to end."""
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
CHUNK = 1 << 16


class HostAgent:
    r"""Supervises processes on one host for the agent or manager at the other end of its standard streams.

    Orders are JSON lines on standard input, ``{"order": NAME, ..}``. Reports are JSON lines on standard output,
    ``{"report": NAME, ..}``, after `HELLO`. Three reports have the same meaning in every subclass:

    - ``{"report": "alive"}``: the heartbeat, after `beat_seconds` without another report. If the subclass examines
      `silence`, the other end sends ``{"order": "ping"}`` as its heartbeat.
    - ``{"report": "output", "lines": [..], ..}`` and ``{"report": "error", "lines": [..], ..}``: lines that a
      program wrote, without their newlines. Bytes that are not UTF-8 are lone surrogates; the receiver restores
      the bytes by ``line.encode(errors="surrogateescape")``.

    Guarantees:

    - Orders are handled in sequence, by one loop (`run`). An exception ends the process.
    - A report never blocks: it is appended to a buffer, which is written as fast as the other end reads. While
      more than `PAUSE_BYTES` wait, forwarded output is not read, so the programs that print block. Above
      `MAX_UNSENT_BYTES` the process ends.
    - The process is the subreaper of its descendants. When standard input ends, a report cannot be written, or a
      signal of `ENDING` arrives, `run` calls `close`, which kills all descendants. `run` returns once the last
      reports are written, or once the other end has read none of them for `last_reports_seconds`. Signals have no
      effect from then on.
    - The kernel sends it `death_signal` when its parent dies. By default that continues a stopped process, so that
      it sees the end of its input.

    A subclass implements `handle`. It may extend `open`, `check` and `close`, and must then call the base method.
    It registers files with `selector` (data: a callable without argument) or `forward`. It ends by `finish` or by
    ``raise EOFError``.

    Parameters
    ----------
    input_file, output_file
        File descriptors of the orders and of the reports.

    Attributes
    ----------
    selector
        Selector of the loop; the data of a key is a callable without argument.
    silence
        Time since the other end's latest order.
    last_report
        Time of the latest report, by `time.monotonic`.
    reporting
        Lock held while a report is made. A subclass with a second thread holds it while it forks.
    closing
        Whether `close` has begun; from then on, a report that cannot be sent is dropped.
    paused
        Whether forwarded output is not read, because too many reports wait or `hold_output` was called.
    last_reports_seconds
        Maximum time for which the other end may read none of the last reports.
    ended_by
        Number of the signal that ended the process; 0: another reason.
    """

    death_signal = signal.SIGCONT
    beat_seconds = 0.5
    wait_seconds = 0.25
    """Maximum seconds between two calls of `check`."""

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
            # Python restores the default of our handlers while it ends, but not SIG_IGN.
            for number in ENDING:
                signal.signal(number, signal.SIG_IGN)
            self.close()
            self._write_last()

    # ------------------------------------------------------------- for subclasses

    def open(self) -> None:
        """Begin to read orders."""
        self.selector.register(self._input, selectors.EVENT_READ, self.read_orders)

    def handle(self, order: dict[str, Any]) -> None:
        """Carry out an order. A ``ping`` needs no action."""
        raise NotImplementedError

    def check(self) -> None:
        """Examine the supervised processes; called after each turn of the loop."""
        if time.monotonic() - self.last_report >= self.beat_seconds:
            self.report("alive")

    def close(self) -> None:
        """Kill all descendants."""
        kill_descendants(os.getpid())

    def finish(self) -> None:
        """End the loop once all reports are written."""
        self._finishing = True

    def report(self, event: str, **fields: object) -> None:
        """Send a report without blocking: write at once as much as the other end accepts, and the rest later.

        Raises
        ------
        EOFError
            The other end is gone, or more than `MAX_UNSENT_BYTES` wait. Never raised while closing.
        """
        with self.reporting:
            self.last_report = time.monotonic()
            if event == "alive" and self._unsent:
                return  # the waiting reports are a sign of life too
            self._unsent += encode({"report": event, **fields})
            if len(self._unsent) > MAX_UNSENT_BYTES and not self.closing:
                self._on_output_gone()
            self._write()

    def forward(self, pipe: int, event: str, **fields: object) -> None:
        """Report the lines of a pipe; do not read it while too many reports wait.

        Parameters
        ----------
        pipe
            A non-blocking descriptor, open for reading and writing so that it does not end between two writers.
        fields
            More fields of each report, for example the rank.
        """
        self._forwarders[pipe] = OutputForwarder(
            pipe, lambda lines: self.report(event, lines=lines, **fields)
        )
        if not self.paused:
            self.selector.register(pipe, selectors.EVENT_READ, self._forwarders[pipe].read)

    def hold_output(self, held: bool) -> None:
        """Stop (True) or resume (False) reading forwarded output, from the next turn of the loop."""
        self._held = held

    def drain_forwarded(self) -> None:
        """Report the rest of the forwarded pipes, including unfinished lines: their writers have ended."""
        for forwarder in self._forwarders.values():
            forwarder.drain()

    # ------------------------------------------------------------- the streams

    def read_orders(self) -> None:
        """Read and handle the orders that have arrived.

        Raises
        ------
        EOFError
            The other end is gone, or sent an invalid order.
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
        """Write waiting reports, watch the output pipe for space if any remain, pause or resume forwarding."""
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
        """Write the last reports, until the other end reads none for `last_reports_seconds`."""
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
    """Reads a pipe and passes its lines on as text.

    Parameters
    ----------
    pipe
        A non-blocking descriptor.
    send
        Called with a non-empty list of lines.
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
        """Pass on the rest of the pipe, including an unfinished line."""
        while self.read() == CHUNK:
            pass
        if rest := self._lines.rest():
            self._send([rest.decode(errors="surrogateescape")])


class HostReports:
    r"""Parses the reports of one host agent, on the receiving side.

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
            The login printed too much, or a line is not a report. Permanent: the stream cannot be trusted.
        """
        reports = [
            decode(line, REPORT_LIMIT) for line in self._lines.feed(self._greeting.skip(data))
        ]
        if not all(isinstance(report.get("report"), str) for report in reports):
            raise LineError("a line that is not a report")
        return reports


def output_lines(report: dict[str, Any]) -> list[bytes]:
    """Return the lines of a report ``output`` or ``error`` as bytes, as the program wrote them.

    Raises
    ------
    LineError
        The report has no valid lines. Permanent.
    """
    lines = report.get("lines")
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise LineError("a report without lines")
    try:
        return [line.encode(errors="surrogateescape")[: LINE_LIMIT + 1] for line in lines]
    except UnicodeEncodeError:
        raise LineError("a line that is not text") from None


def _signal_pipe(numbers: Collection[int]) -> int:
    """Return a pipe to which the handler of each signal in `numbers` writes the signal's number as a byte.

    A handler that raised an error instead would interrupt the process anywhere, even during its cleanup.
    """
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    for number in numbers:
        signal.signal(number, lambda sent, _: os.write(writing, bytes([sent])))
    return reading
