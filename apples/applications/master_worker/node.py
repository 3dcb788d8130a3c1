"""What runs on the hosts of a master/worker program: the master, the workers, and the check of a sample.

Standard library only: it travels with its connection. Units and results cross as JSON over
`multiprocessing.connection`, whose handshake proves that both ends know the run's secret; nothing is pickled. A
worker computes while it receives: a chunk is handed out when half of the one before is done.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError, connection
from pathlib import Path
from typing import Any

from apples.applications.master_worker.chunks import UnitPool

LONGEST_MESSAGE = 1 << 26
LONGEST_RESULT = 1 << 20
# A large chunk in one message would keep its worker waiting until all of it has arrived.
MOST_BYTES = 1 << 15
"""Of units in a message, as far as a unit is not larger itself."""
TICK_SECONDS = 0.25
"""Between two looks at who stands idle, and two reports of the progress."""
FLUSH_SECONDS = 0.05
"""Results of quick units go to the master together."""
LEARNING = 0.4
"""How much of a lane's rate is of the last message."""
PORT, PROGRESS, LEAVE = "port", "progress", "leave"
"""Files in the folder of the master, and of a worker that is to leave."""
MASTERLESS = 4
"""Exit code of a worker whose connection to its master ended."""
TO_COME = ""
"""In the place of a lane: those that have not joined yet."""
JOIN_SECONDS = 10.0
"""For those that are to join from the beginning: a unit that failed waits so long for another host."""
MOST_FAILED = 10
"""Units that fail, after which the run ends."""
MOST_PENDING = 64
"""Connections that have not proved yet that they know the secret."""

Message = dict[str, Any]


class ProgramFailedError(Exception):
    """The program did not do what it is for; the message is one line."""


@dataclass
class _Lane:
    """One worker process, as its master sees it.

    Attributes
    ----------
    rate
        Units a second that come back from it, however they are kept: by computing or by its link.
    chunk
        How many units it was handed last.
    done, seconds
        Units that it has done, and what it computed for them.
    heard
        When it was last heard, or handed something while it had nothing.
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
        Time for the first workers to join, and silence after which a worker's suspect units are not tried.
    """

    def __init__(
        self, told: Mapping[str, Any], program: Any, join_seconds: float = JOIN_SECONDS
    ) -> None:
        self._told, self._program = told, program
        self._join_seconds = join_seconds
        self._pool = UnitPool(told["count"], told["most"])
        self._source = _made(program, told)
        self._units: dict[int, Any] = {}
        self._made = 0
        self._lanes: dict[str, _Lane] = {}
        self._news: queue.SimpleQueue[tuple[str, Message | None]] = queue.SimpleQueue()
        self._new: dict[str, _Lane] = {}
        self._failures: dict[int, list[str]] = {}
        self._ended: dict[int, list[str]] = {}
        """Suspects -> the lanes whose processes ended while they had them."""
        self._failed: dict[int, str] = {}
        self._ready: dict[int, Any] = {}
        self._combined, self._total = 0, None
        self._samples = set(told["samples"])
        self._digests: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._lost: dict[str, str] = {}
        self._begun = self._told_at = self._processor = 0.0
        self._pending = threading.Semaphore(MOST_PENDING)

    def run(self) -> Message:
        """Return what came of it once every unit is done."""
        listener = connection.Listener((self._told["bind"], 0), backlog=MOST_PENDING)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        _put(PORT, {"port": listener.address[1]})
        while self._pool.done < self._pool.count:
            with suppress(queue.Empty):
                self._hear(*self._news.get(timeout=TICK_SECONDS))
            if time.monotonic() - self._told_at > TICK_SECONDS:
                self._tick()
        seconds = time.monotonic() - self._begun
        if next(self._source, None) is not None:
            raise ProgramFailedError(
                f"units() makes more than the {self._pool.count} units that the file declares"
            )
        for lane in self._lanes.values():
            lane.outbox.put(_packed({"end": True}))
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
                if self._pending.acquire(blocking=False):
                    threading.Thread(target=self._listen, args=(link,), daemon=True).start()
                else:
                    link.close()

    def _listen(self, link: connection.Connection) -> None:
        """Hear one worker, once it has proved who it is, to its end."""
        secret = bytes.fromhex(self._told["secret"])
        try:
            connection.deliver_challenge(link, secret)
            connection.answer_challenge(link, secret)
            hello = _message(link.recv_bytes(LONGEST_RESULT))
            name, lane = str(hello["hello"]), _Lane(link, float(hello["rate"]))
        except (
            OSError,
            EOFError,
            ValueError,
            TypeError,
            KeyError,
            AuthenticationError,
        ):
            link.close()
            return
        finally:
            self._pending.release()
        self._new[name] = lane
        threading.Thread(target=self._send, args=(lane,), daemon=True).start()
        self._news.put((name, {"joined": True}))
        try:
            while True:
                self._news.put((name, _message(link.recv_bytes(LONGEST_MESSAGE))))
        except ValueError:
            self._news.put((name, {"nonsense": "what it says is no message"}))
        except (OSError, EOFError):
            self._news.put((name, None))

    def _send(self, lane: _Lane) -> None:
        with suppress(OSError, ValueError):
            while (data := lane.outbox.get()) is not None:
                lane.link.send_bytes(data)

    # ------------------------------------------------------------------------ what is heard
    def _hear(self, name: str, message: Message | None) -> None:
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
                words = str(message.get("nonsense", "it speaks of units that it was not handed"))
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
        """Combine what is there, in the units' order; those that were given up are left out."""
        while self._combined in self._ready or self._combined in self._failed:
            if self._combined in self._ready:
                self._total = self._program.combine(self._total, self._ready.pop(self._combined))
            self._combined += 1

    def _fail(self, name: str, unit: int, words: str) -> None:
        """Have a unit that a lane could not do done by another, as often as it may be tried."""
        if unit not in self._pool.held.get(name, {}):
            return
        self._pool.give_back(name, unit)
        tried = self._failures.setdefault(unit, [])
        tried.append(name)
        if len(tried) >= self._told["attempts"]:
            self._give_up(unit, f"has failed on {', '.join(map(host_of, tried))}: {words}")

    def _give_up(self, unit: int, words: str) -> None:
        """Do without a unit, and with the others; where too many are, end the run."""
        if self._pool.give_up(unit):
            return
        self._units.pop(unit, None)
        self._failed[unit] = words
        if len(self._failed) >= MOST_FAILED:
            first, words = next(iter(self._failed.items()))
            more = f" ({len(self._failed) - 1} more units failed)"
            raise ProgramFailedError(f"unit {first} {words}{more}")
        self._combine()

    def _drop(self, name: str, reason: str, *, crashed: bool = False) -> None:
        """Do without a lane; one whose process ended may have been ended by a unit that it had."""
        lane = self._lanes.pop(name)
        lane.outbox.put(None)
        with suppress(OSError):
            lane.link.close()
        if reason:
            self._lost[name] = reason
        had = self._pool.leave(name, suspect=crashed)
        for unit in had if crashed else ():
            ended = self._ended.setdefault(unit, [])
            ended.append(name)
            # Beside others it is one of several that may have done it.
            if len(had) == 1 and len(ended) >= self._told["attempts"]:
                self._give_up(unit, f"has ended its workers on {', '.join(map(host_of, ended))}")
        self._feed_idle()

    # ------------------------------------------------------------------------ what is handed out
    def _feed(self, name: str) -> None:
        """Hand a lane its next chunk once half of the one before is done."""
        lane = self._lanes[name]
        has = self._pool.held.get(name, {})
        held = len(has)
        if held > lane.chunk // 2 or self._pool.suspects.intersection(has):
            return
        weights = {each: one.rate for each, one in self._lanes.items()}
        # Who comes first does not take what those that are still to come are to do.
        weights[TO_COME] = max(1e-12, self._told["rate"] - sum(weights.values()))
        chunk: list[int] = []
        if self._pool.waiting:
            chunk = self._pool.take(name, weights, self._tried_there(name))
        elif not held:
            chunk = self._pool.take_alone(name, self._tried_there(name))
            chunk = chunk or self._pool.copy(name, weights, self._on_trial())
        if chunk:
            lane.chunk = len(chunk)
            if not held:
                lane.heard = time.monotonic()
            self._send_units(lane, chunk)

    def _send_units(self, lane: _Lane, chunk: list[int]) -> None:
        """Send a chunk in pieces: a worker begins with the first while the others are on their way."""
        piece: list[bytes] = []
        for unit in chunk:
            piece.append(json.dumps([unit, self._unit(unit)], allow_nan=False).encode())
            if sum(map(len, piece)) > MOST_BYTES or unit == chunk[-1]:
                lane.outbox.put(b'{"units": [' + b",".join(piece) + b"]}")
                piece = []

    def _tried_there(self, name: str) -> set[int]:
        """Return the units that failed on a lane's host, or ended it, and that another host has not tried."""
        hosts = {host_of(each) for each in self._lanes}
        if time.monotonic() - self._begun < self._join_seconds:
            hosts |= set(self._told["workers"])
        found = set()
        for unit, lanes in [*self._failures.items(), *self._ended.items()]:
            tried = {host_of(lane) for lane in lanes}
            if host_of(name) in tried and hosts - tried:
                found.add(unit)
        return found

    def _on_trial(self) -> set[int]:
        """Return the suspects that lanes were handed a short while ago: who has one may be about to end.

        A copy would end another worker meanwhile. One that its lane has had for as long as two units take, and
        no less than it is waited for a host, is innocent, or that lane hangs.
        """
        now, found = time.monotonic(), set[int]()
        for name, lane in self._lanes.items():
            since = now - lane.heard
            if since < self._join_seconds or since * lane.rate < 2.0:
                found |= self._pool.suspects.intersection(self._pool.held.get(name, {}))
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

    # ------------------------------------------------------------------------ what is told
    def _service(self) -> float:
        return (time.process_time() - self._processor) / max(1, self._pool.done)

    def _tick(self) -> None:
        self._feed_idle()
        self._told_at = time.monotonic()
        lanes = {
            name: {"done": lane.done, "rate": lane.done / lane.seconds if lane.seconds else 0.0}
            for name, lane in self._lanes.items()
        }  # fmt: skip
        said = {
            "done": self._pool.done, "service_seconds": self._service(), "lanes": lanes, "lost": self._lost,
            "failed": self._failed,
        }  # fmt: skip
        _put(PROGRESS, said)


class UnitWorker:
    """Does the units that its master hands it, one after the other."""

    def __init__(self, told: Mapping[str, Any], program: Any) -> None:
        self._told, self._program = told, program
        self._units: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._done: list[tuple[int, Any]] = []
        self._seconds, self._said = 0.0, time.monotonic()
        secret = bytes.fromhex(told["secret"])
        self._link = connection.Client((told["address"], told["port"]), authkey=secret)
        self._link.send_bytes(_packed({"hello": told["lane"], "rate": told["rate"]}))

    def run(self) -> None:
        """Return when it is to leave; the process ends by itself when all is done."""
        threading.Thread(target=self._listen, daemon=True).start()
        while not Path(LEAVE).exists():
            try:
                number, unit = self._units.get(timeout=TICK_SECONDS)
            except queue.Empty:
                continue
            self._do(number, unit)
            if self._units.empty() or time.monotonic() - self._said > FLUSH_SECONDS:
                self._flush()
        self._flush()
        self._link.send_bytes(_packed({"left": True}))

    def _listen(self) -> None:
        code = MASTERLESS
        with suppress(OSError, EOFError, ValueError):
            while "end" not in (message := _message(self._link.recv_bytes(LONGEST_MESSAGE))):
                for number, unit in message["units"]:
                    self._units.put((number, unit))
            code = 0
        os._exit(code)  # whatever unit it is at: nobody waits for it

    def _do(self, number: int, unit: Any) -> None:
        begun = time.perf_counter()
        try:
            result = self._program.work(unit)
            text = json.dumps(result, allow_nan=False)
            result = _bounded(json.loads(text), len(text))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's
            self._flush()
            self._link.send_bytes(
                _packed({"failed": [number, _line(error, self._told["program"])]})
            )
        else:
            self._done.append((number, result))
        self._seconds += time.perf_counter() - begun

    def _flush(self) -> None:
        if self._done:
            said = {"done": self._done, "seconds": self._seconds}
            self._link.send_bytes(_packed(said))
        self._done, self._seconds, self._said = [], 0.0, time.monotonic()


def main(told: Mapping[str, Any]) -> int:
    """Be what is told: the master, a worker, or who does a sample of the units, or all, once more.

    What the program prints goes to standard error: standard output is the answer's alone.
    """
    answer = os.fdopen(os.dup(1), "w")
    # Descriptor 1 carries the answer. A print() in the user's code must not become part of it.
    os.dup2(2, 1)
    try:
        program = _program(Path(told["program"]))
        if told["role"] == "worker":
            worker = UnitWorker(told, program)
            try:
                worker.run()
            except OSError:  # what it says reaches nobody any more
                os._exit(MASTERLESS)
        elif told["role"] == "master":
            answer.write(json.dumps(UnitMaster(told, program).run(), allow_nan=False))
        else:
            answer.write(json.dumps(done_again(told, program), allow_nan=False))
        answer.flush()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's, or a connection's
        sys.stderr.write(f"{_line(error, told['program'])}\n")
        sys.stderr.flush()
        os._exit(1)  # threads of connections do not keep it
    time.sleep(0.0 if told["role"] != "master" else FLUSH_SECONDS)  # what was said last leaves
    os._exit(0)


def done_again(told: Mapping[str, Any], program: Any) -> Message:
    """Return what units come to, done one after the other: digests of a sample, and of all of them the total."""
    samples, left_out = set(told["samples"]), set(told["failed"])
    digests, total, last = {}, None, max(samples, default=-1)
    for number, unit in enumerate(_made(program, told)):
        if not told["all"] and number > last:
            break
        if number not in left_out and (told["all"] or number in samples):
            result = json.loads(json.dumps(program.work(json.loads(json.dumps(unit)))))
            digests[str(number)] = digest(result)
            total = program.combine(total, result) if told["all"] else None
    return {
        "samples": {n: digests[n] for n in map(str, sorted(samples)) if n in digests},
        "total": total,
    }


def host_of(lane: str) -> str:
    """Return the host of a lane, which is named by it and a number."""
    return lane.partition("#")[0]


def digest(result: Any) -> str:
    """Return sixteen letters by which results are told apart."""
    text = json.dumps(result, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _program(path: Path) -> Any:
    """Return the user's program: a module with `units`, `work` and `combine`, and `check` if it likes."""
    found = importlib.util.spec_from_file_location("program", path)
    assert found is not None  # noqa: S101 - for the type checker: the path ends with .py
    assert found.loader is not None  # noqa: S101 - likewise
    program = importlib.util.module_from_spec(found)
    sys.modules["program"] = program
    found.loader.exec_module(program)
    for name in ("units", "work", "combine"):
        if not callable(getattr(program, name, None)):
            raise ProgramFailedError(f"{path.name} has no function {name}")
    return program


def _made(program: Any, told: Mapping[str, Any]) -> Iterator[Any]:
    return iter(program.units(dict(told["parameters"])))


def _bounded(result: Any, length: int) -> Any:
    if length > LONGEST_RESULT:
        raise ProgramFailedError(
            f"its result has {length} bytes, and {LONGEST_RESULT} are the most"
        )
    return result


def _packed(message: Message) -> bytes:
    return json.dumps(message, allow_nan=False).encode()


def _message(data: bytes) -> Message:
    """Return a message; numbers that are none, and what is no object, are refused."""

    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        found = json.loads(data, parse_constant=refuse)
    except RecursionError as error:
        raise ValueError(str(error)) from None
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found


def _put(name: str, document: Message) -> None:
    partial = Path(f"{name}.part")
    partial.write_text(json.dumps(document))
    partial.replace(name)


def _line(error: BaseException, program: str) -> str:
    """Return an error on a line, with the line of the user's program that it came from."""
    if isinstance(error, ProgramFailedError):
        return str(error)
    words = " ".join(str(error).split())
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == program]
    place = f" ({Path(program).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}{': ' * bool(words)}{words}"[:500] + place
