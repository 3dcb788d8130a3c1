"""The worker program on a host of a sweep or a master/worker run. Its standard input carries requests as frames.

At the end of the input it kills all its processes and exits. The connection carries its source, so that it uses
the standard library only. A frame is a line of JSON; as many bytes follow as its key `size` gives. Each request
gets one reply; ``run`` gets it at the end of the process.
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

from apples.launch.this_host import with_python

HELLO = b"apples.sweep-worker/1\n"
END_SECONDS = 2.0
"""Time limit for a killed process to end."""
MAX_OUTPUT_BYTES = 1 << 16
"""Bytes of a process's standard output, or of the end of its standard error, in a reply."""
MAX_FRAME_BYTES = 1 << 20
"""Bytes of a file in one frame."""
PARTIAL_SUFFIX = ".part"
"""The end of the name of an incomplete file."""
TASK_PREFIX = "task-"
"""The beginning of the name of a process's folder."""

Header = dict[str, Any]


class Worker:
    """Carries out the requests of one agent."""

    def __init__(self, config: Mapping[str, Any], output: BinaryIO) -> None:
        self._output = output
        self._lock = threading.Lock()
        self._runs: dict[str, subprocess.Popen[bytes]] = {}
        self._temporary: list[Path] = []
        self._cpus = config.get("cpus") or []
        self._verbs: dict[str, Callable[[Header, bytes], tuple[Header, bytes]]] = {
            "stat": self._stat,
            "list": self._list,
            "read": self._read,
            "write": self._write,
            "stop": self._stop,
            "remove": self._remove,
        }

    def answer(self, header: Header, body: bytes) -> None:
        """Carry out one request; ``run`` in a thread of its own."""
        if header["do"] == "run":
            threading.Thread(target=self._run, args=(header,), daemon=True).start()
            return
        try:
            reply, data = self._verbs[header["do"]](header, body)
        except OSError as error:
            reply, data = {"error": f"{header.get('path', '')}: {error.strerror or error}"}, b""
        self._reply(header["id"], reply, data)

    def end(self) -> None:
        """Kill every process; remove the temporary folders."""
        for process in list(self._runs.values()):
            _kill(process)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS)
        for folder in self._temporary:
            _remove(folder)

    def _reply(self, number: int, reply: Header, data: bytes = b"") -> None:
        line = json.dumps({**reply, "id": number, "size": len(data)}).encode()
        with self._lock, contextlib.suppress(OSError):
            self._output.write(line + b"\n" + data)
            self._output.flush()

    def _stat(self, header: Header, _body: bytes) -> tuple[Header, bytes]:
        """Reply with the size of a file, its time of writing and its absolute path."""
        path = _path(header)
        found = path.stat()
        if not path.is_file():
            raise IsADirectoryError(21, "is no file")
        return {"bytes": found.st_size, "written": found.st_mtime_ns}, os.fsencode(path)

    def _list(self, header: Header, _body: bytes) -> tuple[Header, bytes]:
        """Reply with the complete files of a folder. Make a missing folder; remove remains of earlier processes.

        A `temporary` folder is removed at the end of the connection.
        """
        folder = _path(header)
        if header.get("temporary"):
            self._temporary.append(folder)
        folder.mkdir(0o700, parents=True, exist_ok=True)
        files = {each.name: each.stat().st_size for each in folder.iterdir() if each.is_file()}
        for left in folder.glob(f"{TASK_PREFIX}*"):
            shutil.rmtree(left, ignore_errors=True)
        free = shutil.disk_usage(folder).free
        whole = {name: size for name, size in files.items() if not name.endswith(PARTIAL_SUFFIX)}
        return {"folder": str(folder), "free": free}, json.dumps(whole).encode()

    def _read(self, header: Header, _body: bytes) -> tuple[Header, bytes]:
        with _path(header).open("rb") as stream:
            stream.seek(header["offset"])
            return {}, stream.read(min(MAX_FRAME_BYTES, header["count"]))

    def _write(self, header: Header, body: bytes) -> tuple[Header, bytes]:
        """Write a piece of a file beside its place. The last piece is synced and moves the file to its place."""
        path = _path(header)
        partial = path.with_name(path.name + PARTIAL_SUFFIX)
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
        """Kill the process of a folder."""
        if process := self._runs.get(header["path"]):
            _kill(process)
        return {}, b""

    def _remove(self, header: Header, _body: bytes) -> tuple[Header, bytes]:
        """Remove a folder of a process or a cache, and the one above if it is empty then."""
        _remove(_path(header))
        return {}, b""

    def _run(self, header: Header) -> None:
        """Run a process in a new folder; reply with its end and its output."""
        folder, number = _path(header), header["id"]
        begun = time.monotonic()
        try:
            folder.mkdir()
            with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
                process = subprocess.Popen(
                    [with_python(word) for word in header["argv"]],
                    cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
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
            _kill(process)  # and its remaining child processes
            code = process.wait()
            shown = "stdout" if not late and code == 0 else "stderr"
            output = _tail(folder / shown)
        except (OSError, ValueError) as error:  # ValueError: words that cannot be encoded here
            reason = (error.strerror if isinstance(error, OSError) else "") or error
            words = f"{getattr(error, 'filename', '') or header['argv'][0]}: {reason}"
            self._reply(number, {"code": 127, "late": False, "seconds": 0.0}, words.encode())
        else:
            self._reply(number, {"code": code, "late": late, "seconds": seconds}, output)
        finally:
            self._runs.pop(header["path"], None)


def serve(config: Mapping[str, Any]) -> int:
    """Serve requests until the connection ends."""
    os.environ.update(config.get("environment") or {})
    output = sys.stdout.buffer
    source = os.fdopen(os.dup(0), "rb", buffering=MAX_FRAME_BYTES)
    worker = Worker(config, output)
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
    """Return the last `MAX_OUTPUT_BYTES` of a file; one byte more if it is longer."""
    with path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - MAX_OUTPUT_BYTES - 1))
        return stream.read(MAX_OUTPUT_BYTES + 1)
