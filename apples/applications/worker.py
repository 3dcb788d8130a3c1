"""What runs on a host of a sweep: obeys frames from its standard input; ends, and ends all its tasks, with it.

Standard library only: it travels with its connection. A frame is a line of JSON, whose `size` says how many bytes
follow. Every question has one answer, that to `run` when the task is over.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

HELLO = b"apples.sweep-worker/1\n"
END_SECONDS = 2.0
"""For a task that was killed to be gone."""
LONGEST_OUTPUT = 1 << 16
"""Bytes of a task's standard output, its result, and of the end of its standard error, that are told."""
MOST_BYTES = 1 << 20
"""Bytes of a file that travel in one frame."""
PARTIAL, TASKS = ".part", "task-"
"""The end of the name of a file that is not whole, and the beginning of that of a task's folder."""

Header = dict[str, Any]


class Worker:
    """Answers one agent."""

    def __init__(self, told: Mapping[str, Any], output: BinaryIO) -> None:
        self._output = output
        self._lock = threading.Lock()
        self._runs: dict[str, subprocess.Popen[bytes]] = {}
        self._temporary: list[Path] = []
        self._cpus = told.get("cpus") or []
        self._verbs: dict[str, Callable[[Header, bytes], tuple[Header, bytes]]] = {
            "stat": self._stat,
            "list": self._list,
            "read": self._read,
            "write": self._write,
            "stop": self._stop,
            "remove": self._remove,
        }

    def answer(self, header: Header, body: bytes) -> None:
        """Do what a frame asks for; a task goes on beside what else is asked."""
        if header["do"] == "run":
            threading.Thread(target=self._run, args=(header,), daemon=True).start()
            return
        try:
            reply, data = self._verbs[header["do"]](header, body)
        except OSError as error:
            reply, data = {"error": f"{header.get('path', '')}: {error.strerror or error}"}, b""
        self._say(header["id"], reply, data)

    def end(self) -> None:
        """Kill every task; remove the folders that were asked for as temporary."""
        for process in list(self._runs.values()):
            _kill(process)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS)
        for folder in self._temporary:
            _remove(folder)

    def _say(self, number: int, reply: Header, data: bytes = b"") -> None:
        line = json.dumps({**reply, "id": number, "size": len(data)}).encode()
        with self._lock, contextlib.suppress(OSError):
            self._output.write(line + b"\n" + data)
            self._output.flush()

    def _stat(self, header: Header, _body: bytes) -> tuple[Header, bytes]:
        """Say how large a file is, when it was written, and its path from the root, as tasks can open it."""
        path = _path(header)
        found = path.stat()
        if not path.is_file():
            raise IsADirectoryError(21, "is no file")
        return {"bytes": found.st_size, "written": found.st_mtime_ns}, os.fsencode(path)

    def _list(self, header: Header, _body: bytes) -> tuple[Header, bytes]:
        """Say which whole files a folder has; make it where it is not there, and clear it of what tasks left.

        One that is `temporary` goes with the connection, whatever ends that.
        """
        folder = _path(header)
        if header.get("temporary"):
            self._temporary.append(folder)
        folder.mkdir(0o700, parents=True, exist_ok=True)
        files = {each.name: each.stat().st_size for each in folder.iterdir() if each.is_file()}
        for left in folder.glob(f"{TASKS}*"):
            shutil.rmtree(left, ignore_errors=True)
        free = shutil.disk_usage(folder).free
        whole = {name: size for name, size in files.items() if not name.endswith(PARTIAL)}
        return {"folder": str(folder), "free": free}, json.dumps(whole).encode()

    def _read(self, header: Header, _body: bytes) -> tuple[Header, bytes]:
        with _path(header).open("rb") as stream:
            stream.seek(header["offset"])
            return {}, stream.read(min(MOST_BYTES, header["count"]))

    def _write(self, header: Header, body: bytes) -> tuple[Header, bytes]:
        """Write a piece of a file beside its place; the last one puts it there, whole and on the disk."""
        path = _path(header)
        partial = path.with_name(path.name + PARTIAL)
        with partial.open("r+b" if header["offset"] else "wb") as stream:
            stream.seek(header["offset"])
            stream.write(body)
            if header["last"]:
                stream.flush()
                os.fsync(stream.fileno())
        if header["last"]:
            partial.replace(path)
        return {}, b""

    def _stop(self, header: Header, _body: bytes) -> tuple[Header, bytes]:
        """Kill the task of a folder."""
        if process := self._runs.get(header["path"]):
            _kill(process)
        return {}, b""

    def _remove(self, header: Header, _body: bytes) -> tuple[Header, bytes]:
        """Remove a folder, of a task or a cache, and the one above where nothing is left in it."""
        _remove(_path(header))
        return {}, b""

    def _run(self, header: Header) -> None:
        """Run a task in a new folder of its own; say how it ended and what it wrote."""
        folder, number = _path(header), header["id"]
        begun = time.monotonic()
        try:
            folder.mkdir()
            with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
                process = subprocess.Popen(
                    header["argv"], cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                    start_new_session=True,
                )  # fmt: skip
            self._runs[header["path"]] = process
            if self._cpus:
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(process.pid, self._cpus)
            late = False
            try:
                process.wait(header.get("timeout"))
            except subprocess.TimeoutExpired:
                late = True
            seconds = time.monotonic() - begun
            _kill(process)  # and what it left behind
            code = process.wait()
            said = _tail(folder / "stdout") if not late and code == 0 else _tail(folder / "stderr")
        except (OSError, ValueError) as error:  # ValueError: words that cannot be encoded here
            told = error.strerror if isinstance(error, OSError) else ""
            words = f"{getattr(error, 'filename', '') or header['argv'][0]}: {told or error}"
            self._say(number, {"code": 127, "late": False, "seconds": 0.0}, words.encode())
        else:
            self._say(number, {"code": code, "late": late, "seconds": seconds}, said)
        finally:
            self._runs.pop(header["path"], None)


def serve(told: Mapping[str, Any]) -> int:
    """Obey until the connection ends."""
    os.environ.update(told.get("environment") or {})
    output = sys.stdout.buffer
    source = os.fdopen(os.dup(0), "rb", buffering=MOST_BYTES)
    worker = Worker(told, output)
    output.write(HELLO)
    output.flush()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        while line := source.readline():
            header = json.loads(line)
            worker.answer(header, source.read(header["size"]))
    finally:
        worker.end()
    return 0


def _path(header: Header) -> Path:
    return Path(header["path"]).expanduser().absolute()


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _tail(path: Path) -> bytes:
    """Return the last bytes of a file, one more than fit where there are more."""
    with path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - LONGEST_OUTPUT - 1))
        return stream.read(LONGEST_OUTPUT + 1)
