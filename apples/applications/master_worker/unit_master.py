"""`UnitMaster`: makes the units, hands them to the workers and combines the results, on the master's host.

Standard library only: it is sent with its connection. Units and results are sent as JSON over
`multiprocessing.connection`, whose handshake proves that both ends have the run's secret; nothing is pickled. A
worker computes while it receives: the master hands out a chunk when half of the previous chunk is done.
"""

from __future__ import annotations

import errno
import json
import os
import queue
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError, connection
from pathlib import Path
from typing import Any

from apples.applications.master_worker.chunks import UnitPool
from apples.applications.master_worker.messages import (
    ALL_INTERFACES,
    MAX_MESSAGE_BYTES,
    MAX_RESULT_BYTES,
    MAX_UNITS_BYTES,
    POLL_SECONDS,
    PORT_FILE,
    PROGRESS_FILE,
    Message,
    ProgramFailedError,
    digest,
    host_of,
    pack,
    units_of,
    unpack,
)

LEARNING = 0.4
"""Weight of the last message in a lane's rate."""
UNJOINED = ""
"""Name for all lanes that have not joined yet."""
JOIN_SECONDS = 10.0
"""Time for the first workers to join. A unit that failed waits as long for another host."""
MAX_FAILED_UNITS = 10
"""Number of failed units at which the run ends."""
MAX_PENDING = 64
"""Connections in their handshake. A new one above the limit ends the oldest."""
HANDSHAKE_SECONDS = 10.0


@dataclass
class _Lane:
    """One worker process in the master's view.

    Attributes
    ----------
    rate
        Units a second that it returns; its processors or its link limit them.
    chunk
        Size of its last chunk.
    done, seconds
        Number of units that it has done, and the seconds of computing them.
    heard
        Time of its last message, or of the chunk it got while idle.
    """

    link: connection.Connection
    rate: float
    outbox: queue.SimpleQueue[bytes | None] = field(default_factory=queue.SimpleQueue)
    chunk: int = 0
    done: int = 0
    seconds: float = 0.0
    heard: float = 0.0


class UnitMaster:
    """Makes the units, hands them out, and combines the results in the units' order.

    Parameters
    ----------
    join_seconds
        Time for the first workers to join. A lane that is silent for longer shares its possible crash units.
    handshake_seconds
        Time limit for a connection to prove that it has the secret.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        program: Any,
        join_seconds: float = JOIN_SECONDS,
        handshake_seconds: float = HANDSHAKE_SECONDS,
    ) -> None:
        self._config, self._program = config, program
        self._join_seconds = join_seconds
        self._handshake_seconds = handshake_seconds
        self._pool = UnitPool(config["count"], config["most"])
        self._source = units_of(program, config["parameters"])
        self._units: dict[int, Any] = {}
        self._made = 0
        self._lanes: dict[str, _Lane] = {}
        self._news: queue.SimpleQueue[tuple[str, Message | None]] = queue.SimpleQueue()
        self._new: dict[str, _Lane] = {}
        self._failures: dict[int, list[str]] = {}
        self._crashes: dict[int, list[str]] = {}
        """By possible crash unit: the lanes that had it when their processes ended."""
        self._failed: dict[int, str] = {}
        self._ready: dict[int, Any] = {}
        self._combined, self._total = 0, None
        self._samples = set(config["samples"])
        self._digests: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._lost: dict[str, str] = {}
        self._begun = self._reported_at = self._processor = 0.0
        self._pending: dict[int, connection.Connection] = {}
        self._pending_lock = threading.Lock()

    def run(self) -> Message:
        """Return the result of the run once every unit is done or has failed."""
        listener = _listener(self._config["bind"])
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        _put(PORT_FILE, {"port": listener.address[1]})
        while self._pool.done < self._pool.count:
            with suppress(queue.Empty):
                self._receive(*self._news.get(timeout=POLL_SECONDS))
            if time.monotonic() - self._reported_at > POLL_SECONDS:
                self._tick()
        seconds = time.monotonic() - self._begun
        if next(self._source, None) is not None:
            raise ProgramFailedError(
                f"units() makes more than the {self._pool.count} units that the file declares"
            )
        for lane in self._lanes.values():
            lane.outbox.put(pack({"end": True}))
            lane.outbox.put(None)
        return {
            "total": self._total, "samples": self._digests, "seconds": seconds,
            "service_seconds": self._service(), "lanes": self._counts, "lost": self._lost,
            "failed": self._failed,
        }  # fmt: skip

    # ------------------------------------------------------------------------ connections
    def _accept(self, listener: connection.Listener) -> None:
        while True:
            with suppress(OSError, EOFError):
                link = listener.accept()
                with self._pending_lock:
                    if len(self._pending) >= MAX_PENDING:
                        _shut(self._pending.pop(next(iter(self._pending))))
                    self._pending[id(link)] = link
                threading.Thread(target=self._listen, args=(link,), daemon=True).start()

    def _listen(self, link: connection.Connection) -> None:
        """Read the messages of one worker after its handshake, until its connection ends."""
        secret = bytes.fromhex(self._config["secret"])
        deadline = threading.Timer(self._handshake_seconds, self._give_up_handshake, (link,))
        deadline.daemon = True
        deadline.start()
        try:
            connection.deliver_challenge(link, secret)
            connection.answer_challenge(link, secret)
            hello = unpack(link.recv_bytes(MAX_RESULT_BYTES))
            name, lane = str(hello["hello"]), _Lane(link, float(hello["rate"]))
        except (
            OSError,
            EOFError,
            ValueError,
            TypeError,
            KeyError,
            AuthenticationError,
        ):
            self._handshake_over(link)
            link.close()
            return
        finally:
            deadline.cancel()
        self._handshake_over(link)
        self._new[name] = lane
        threading.Thread(target=self._send, args=(lane,), daemon=True).start()
        self._news.put((name, {"joined": True}))
        try:
            while True:
                self._news.put((name, unpack(link.recv_bytes(MAX_MESSAGE_BYTES))))
        except ValueError:
            self._news.put((name, {"invalid": "its message is invalid"}))
        except (OSError, EOFError):
            self._news.put((name, None))

    def _handshake_over(self, link: connection.Connection) -> None:
        with self._pending_lock:
            self._pending.pop(id(link), None)

    def _give_up_handshake(self, link: connection.Connection) -> None:
        """End a connection that is still in its handshake."""
        with self._pending_lock:
            if self._pending.pop(id(link), None) is not None:
                _shut(link)

    def _send(self, lane: _Lane) -> None:
        with suppress(OSError, ValueError):
            while (data := lane.outbox.get()) is not None:
                lane.link.send_bytes(data)

    # ------------------------------------------------------------------------ messages of workers
    def _receive(self, name: str, message: Message | None) -> None:
        if message is not None and "joined" in message:
            if not self._begun:
                self._begun, self._processor = time.monotonic(), time.process_time()
            self._lanes[name] = self._new.pop(name)
            self._feed(name)
        elif name not in self._lanes:
            return
        elif message is None:
            self._drop(name, "the connection ended", crashed=True)
        elif "left" in message:
            self._drop(name, "")
        elif "failed" in message:
            self._fail(name, *message["failed"])
        else:
            try:
                self._take(name, message)
            except (KeyError, TypeError, ValueError):
                words = str(message.get("invalid", "it reported units that it did not have"))
                self._drop(name, words)
        if name in self._lanes:
            self._feed(name)

    def _take(self, name: str, message: Message) -> None:
        """Take the results of a lane's message."""
        lane, done = self._lanes[name], message["done"]
        seconds = float(message["seconds"])
        for unit, result in done:
            if unit not in self._pool.held.get(name, {}):
                raise KeyError(unit)
            self._end(name, unit, result)
        lane.done += len(done)
        lane.seconds += seconds
        now = time.monotonic()
        measured = len(done) / max(1e-6, now - lane.heard)
        lane.rate, lane.heard = lane.rate ** (1 - LEARNING) * measured**LEARNING, now

    def _end(self, name: str, unit: int, result: Any) -> None:
        check = getattr(self._program, "check", None)
        if check is not None and unit in self._units and not check(self._units[unit], result):
            self._fail(name, unit, f"check() refuses its result: {json.dumps(result)[:100]}")
            return
        if not self._pool.finish(name, unit):
            return
        self._units.pop(unit, None)
        self._counts[name] = self._counts.get(name, 0) + 1
        if unit in self._samples:
            self._digests[str(unit)] = digest(result)
        self._ready[unit] = result
        self._combine()

    def _combine(self) -> None:
        """Combine the available results in the units' order, without failed units."""
        while self._combined in self._ready or self._combined in self._failed:
            if self._combined in self._ready:
                self._total = self._program.combine(self._total, self._ready.pop(self._combined))
            self._combined += 1

    def _fail(self, name: str, unit: int, words: str) -> None:
        """Give a unit that failed on a lane to another lane, at most `attempts` times."""
        if unit not in self._pool.held.get(name, {}):
            return
        self._pool.give_back(name, unit)
        tried = self._failures.setdefault(unit, [])
        tried.append(name)
        if len(tried) >= self._config["attempts"]:
            self._give_up(unit, f"has failed on {', '.join(map(host_of, tried))}: {words}")

    def _give_up(self, unit: int, words: str) -> None:
        """Record a unit as failed; end the run at `MAX_FAILED_UNITS`."""
        if self._pool.give_up(unit):
            return
        self._units.pop(unit, None)
        self._failed[unit] = words
        if len(self._failed) >= MAX_FAILED_UNITS:
            first, words = next(iter(self._failed.items()))
            more = f" ({len(self._failed) - 1} more units failed)"
            raise ProgramFailedError(f"unit {first} {words}{more}")
        self._combine()

    def _drop(self, name: str, reason: str, *, crashed: bool = False) -> None:
        """Remove a lane. If its process ended, each of its units becomes a possible crash unit."""
        lane = self._lanes.pop(name)
        lane.outbox.put(None)
        with suppress(OSError):
            lane.link.close()
        if reason:
            self._lost[name] = reason
        had = self._pool.leave(name, suspect=crashed)
        for unit in had if crashed else ():
            ended = self._crashes.setdefault(unit, [])
            ended.append(name)
            # With several units, it is unknown which of them ended the process.
            if len(had) == 1 and len(ended) >= self._config["attempts"]:
                self._give_up(unit, f"has ended its workers on {', '.join(map(host_of, ended))}")
        self._feed_idle()

    # ------------------------------------------------------------------------ units for workers
    def _feed(self, name: str) -> None:
        """Send a lane its next chunk once half of the previous chunk is done."""
        lane = self._lanes[name]
        has = self._pool.held.get(name, {})
        held = len(has)
        if held > lane.chunk // 2 or self._pool.possible_crash_units.intersection(has):
            return
        weights = {each: other.rate for each, other in self._lanes.items()}
        # The first lanes leave a share for the lanes that have not joined yet.
        weights[UNJOINED] = max(1e-12, self._config["rate"] - sum(weights.values()))
        chunk: list[int] = []
        if self._pool.waiting:
            chunk = self._pool.take(name, weights, self._tried_there(name))
        elif not held:
            chunk = self._pool.take_alone(name, self._tried_there(name))
            chunk = chunk or self._pool.copy(name, weights, self._possible_crash_units())
        if chunk:
            lane.chunk = len(chunk)
            if not held:
                lane.heard = time.monotonic()
            self._send_units(lane, chunk)

    def _send_units(self, lane: _Lane, chunk: list[int]) -> None:
        """Send a chunk in pieces: the worker starts the first units while the others arrive."""
        piece: list[bytes] = []
        for unit in chunk:
            piece.append(json.dumps([unit, self._unit(unit)], allow_nan=False).encode())
            if sum(map(len, piece)) > MAX_UNITS_BYTES or unit == chunk[-1]:
                lane.outbox.put(b'{"units": [' + b",".join(piece) + b"]}")
                piece = []

    def _tried_there(self, name: str) -> set[int]:
        """Return the units that failed or crashed on a lane's host and were not tried on other hosts."""
        hosts = {host_of(each) for each in self._lanes}
        if time.monotonic() - self._begun < self._join_seconds:
            hosts |= set(self._config["workers"])
        found = set()
        for unit, lanes in [*self._failures.items(), *self._crashes.items()]:
            tried = {host_of(lane) for lane in lanes}
            if host_of(name) in tried and hosts - tried:
                found.add(unit)
        return found

    def _possible_crash_units(self) -> set[int]:
        """Return the possible crash units that lanes have had for a short while.

        A copy could end another worker meanwhile. If a lane has had its unit for the time of two units, and for
        at least `join_seconds`, the unit does not crash it, or it hangs.
        """
        now, found = time.monotonic(), set[int]()
        for name, lane in self._lanes.items():
            since = now - lane.heard
            if since < self._join_seconds or since * lane.rate < 2.0:
                found |= self._pool.possible_crash_units.intersection(
                    self._pool.held.get(name, {})
                )
        return found

    def _feed_idle(self) -> None:
        for name in self._lanes:
            self._feed(name)

    def _unit(self, number: int) -> Any:
        while self._made <= number:
            try:
                self._units[self._made] = next(self._source)
            except StopIteration:
                raise ProgramFailedError(
                    f"units() makes {self._made} units, the file declares {self._pool.count}"
                ) from None
            self._made += 1
        return self._units[number]

    # ------------------------------------------------------------------------ progress
    def _service(self) -> float:
        return (time.process_time() - self._processor) / max(1, self._pool.done)

    def _tick(self) -> None:
        self._feed_idle()
        self._reported_at = time.monotonic()
        lanes = {
            name: {"done": lane.done, "rate": lane.done / lane.seconds if lane.seconds else 0.0}
            for name, lane in self._lanes.items()
        }  # fmt: skip
        report = {
            "done": self._pool.done, "service_seconds": self._service(), "lanes": lanes, "lost": self._lost,
            "failed": self._failed,
        }  # fmt: skip
        _put(PROGRESS_FILE, report)


def _listener(address: str) -> connection.Listener:
    """Return a listener on the interface of an address, or on all if the address is not of this host."""
    try:
        return connection.Listener((address, 0), backlog=MAX_PENDING)
    except OSError as error:
        if (
            error.errno != errno.EADDRNOTAVAIL
        ):  # else the address is translated before this host, as by NAT
            raise
        return connection.Listener((ALL_INTERFACES, 0), backlog=MAX_PENDING)


def _shut(link: connection.Connection) -> None:
    """End a connection in both directions; the thread that reads from it gets `EOFError` and closes it."""
    with suppress(OSError), socket.socket(fileno=os.dup(link.fileno())) as peer:
        peer.shutdown(socket.SHUT_RDWR)


def _put(name: str, document: Message) -> None:
    partial = Path(f"{name}.part")
    partial.write_text(json.dumps(document))
    partial.replace(name)
