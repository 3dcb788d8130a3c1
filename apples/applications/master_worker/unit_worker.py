"""`UnitWorker`: does units on a worker's host, one after the other.

Standard library only: it is sent with its connection.
"""

from __future__ import annotations

import json
import os
import queue
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing import connection
from pathlib import Path
from typing import Any

from apples.applications.master_worker.messages import (
    EXIT_MASTER_LOST,
    LEAVE_FILE,
    MAX_MESSAGE_BYTES,
    MAX_RESULT_BYTES,
    POLL_SECONDS,
    ProgramFailedError,
    pack,
    unpack,
)

FLUSH_SECONDS = 0.05
"""Seconds for which results of quick units are collected in one message."""


class UnitWorker:
    """Does the units of its master, one after the other."""

    def __init__(self, config: Mapping[str, Any], program: Any) -> None:
        self._config, self._program = config, program
        self._units: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._done: list[tuple[int, Any]] = []
        self._seconds, self._said = 0.0, time.monotonic()
        secret = bytes.fromhex(config["secret"])
        self._link = connection.Client((config["address"], config["port"]), authkey=secret)
        self._link.send_bytes(pack({"hello": config["lane"], "rate": config["rate"]}))

    def run(self) -> None:
        """Return when the worker should leave. When all units are done, the process ends itself."""
        threading.Thread(target=self._listen, daemon=True).start()
        while not Path(LEAVE_FILE).exists():
            try:
                number, unit = self._units.get(timeout=POLL_SECONDS)
            except queue.Empty:
                continue
            self._do(number, unit)
            if self._units.empty() or time.monotonic() - self._said > FLUSH_SECONDS:
                self._flush()
        self._flush()
        self._link.send_bytes(pack({"left": True}))

    def _listen(self) -> None:
        code = EXIT_MASTER_LOST
        with suppress(OSError, EOFError, ValueError):
            while "end" not in (message := unpack(self._link.recv_bytes(MAX_MESSAGE_BYTES))):
                for number, unit in message["units"]:
                    self._units.put((number, unit))
            code = 0
        os._exit(code)  # without waiting for the current unit, which is not needed

    def _do(self, number: int, unit: Any) -> None:
        begun = time.perf_counter()
        try:
            result = self._program.work(unit)
            text = json.dumps(result, allow_nan=False)
            result = _bounded(json.loads(text), len(text))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's
            self._flush()
            self._link.send_bytes(
                pack({"failed": [number, error_line(error, self._config["program"])]})
            )
        else:
            self._done.append((number, result))
        self._seconds += time.perf_counter() - begun

    def _flush(self) -> None:
        if self._done:
            said = {"done": self._done, "seconds": self._seconds}
            self._link.send_bytes(pack(said))
        self._done, self._seconds, self._said = [], 0.0, time.monotonic()


def _bounded(result: Any, length: int) -> Any:
    if length > MAX_RESULT_BYTES:
        raise ProgramFailedError(f"its result has {length} bytes; the limit is {MAX_RESULT_BYTES}")
    return result


def error_line(error: BaseException, program: str) -> str:
    """Return an error in one line, with the line of the user's program that raised it."""
    if isinstance(error, ProgramFailedError):
        return str(error)
    words = " ".join(str(error).split())
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == program]
    place = f" ({Path(program).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}{': ' * bool(words)}{words}"[:500] + place
