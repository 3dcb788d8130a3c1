"""The parked interpreter of ranks: ``python -m apples.malleable.node.rank_interpreter BIND ROOM SOCKET``.

A child of the node supervisor that has loaded what ranks load, and forks them: a host with many ranks reads and
runs NumPy once, and not once a rank. MPI is no part of that: a rank loads and begins it for itself.

The launcher starts what it always starts, `apples.launch.bind`, which asks here first: for its own place it hands
over its environment and open files, and stays, so that the launcher has a child that ends as the rank does. A rank
that is forked here is a child of this process; it is killed when this one ends, or what stands for it. Anything
but a Python program of this very interpreter, with the variables that decide what an interpreter loads, is
refused, and `bind` starts it by itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import importlib
import importlib.util
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, NoReturn

from apples.supervision.job_processes import (
    DEFAULTED,
    IGNORED_BY_PYTHON,
    close_inherited,
    show_words,
)
from apples.wire.credentials import peer_credentials

LOADED = (
    *("numpy", "mpi4py", "mpi4py.run", "apples.malleable", "apples.program"),
    *("argparse", "json", "logging", "math", "pathlib", "threading", "time"),
)
"""What ranks load. None of it begins MPI, or reads a variable that is not in `DECIDE`."""
DECIDE = (
    *("PYTHON", "LD_", "GLIBC_", "MALLOC_", "LC_", "LANG", "HOME"),
    *("OPENBLAS_", "OMP_", "MKL_", "NUMPY_", "NPY_"),
)
"""How the variables begin that decide what an interpreter loads, and how: a rank's must be this process's."""
REQUEST_BYTES = 1 << 18
"""Of a request, which holds an environment; a socket of the kernel's takes no longer message."""
BACKLOG = 4096
PR_SET_PTRACER = 0x59616D61
"""By which a process lets another see its system calls, where the kernel shows them to those above it only."""


class RankInterpreter:
    """Forks ranks for whoever stands for them.

    Parameters
    ----------
    bind
        The module `apples.launch.bind`, which is loaded by its path: it knows how a process becomes a rank.
    listener
        At which those connect who want a rank.
    """

    def __init__(self, bind: ModuleType, listener: socket.socket) -> None:
        self._bind, self._listener = bind, listener
        self._selector = selectors.DefaultSelector()
        self._decided = deciding(dict(os.environ))
        self._ranks: dict[int, socket.socket] = {}

    def run(self) -> NoReturn:
        """Fork until killed, as is done when the node supervisor ends."""
        reading, writing = os.pipe()
        for handle in (reading, writing):
            os.set_blocking(handle, False)
        signal.set_wakeup_fd(writing)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(reading, selectors.EVENT_READ, lambda: os.read(reading, 1 << 10))
        while True:
            for key, _ in self._selector.select():
                key.data()
            self._reap()

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            channel, _ = self._listener.accept()
            stand_in, user = peer_credentials(channel)
            if user != os.geteuid():
                channel.close()
                return
            channel.setblocking(False)
            self._selector.register(
                channel, selectors.EVENT_READ, lambda: self._read(channel, stand_in)
            )

    def _read(self, channel: socket.socket, stand_in: int) -> None:
        """Take a request; what comes after it is the end of who made it, and so of its rank."""
        handles: list[int] = []
        try:
            data, handles, _, _ = socket.recv_fds(channel, REQUEST_BYTES, 8)
            pid = self._forked(json.loads(data), handles, stand_in) if data else 0
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            pid = 0
        finally:
            for handle in handles:
                os.close(handle)
        if pid:
            self._ranks[pid] = channel
        with contextlib.suppress(OSError):
            if pid and channel.send(json.dumps({"pid": pid}).encode()):
                return
        self._selector.unregister(channel)
        channel.close()
        for rank in [rank for rank, one in self._ranks.items() if one is channel]:
            os.kill(rank, signal.SIGKILL)  # a child that was not reaped: its number is its own

    def _forked(self, request: dict[str, Any], handles: Sequence[int], stand_in: int) -> int:
        """Fork a rank; 0 where it is none that can be forked."""
        with open(request["launch"], encoding="utf-8") as stream:  # noqa: PTH123 - as in `bind`
            launch = json.load(stream)
        entry = launch["hosts"][request["index"]]
        environment = {**request["environment"], **entry.get("environment", {})}
        if not (may_be_forked(entry["program"]) and self._as_here(environment)):
            return 0
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._be_rank(request, handles, launch, (parent, stand_in))
        return pid

    def _as_here(self, environment: dict[str, str]) -> bool:
        """Whether an interpreter with this environment would have loaded what this one has."""
        first = environment.get("LD_PRELOAD") or environment.get(self._bind.COUNTING)
        return not first and deciding(environment) == self._decided

    def _be_rank(
        self,
        request: dict[str, Any],
        handles: Sequence[int],
        launch: dict[str, Any],
        beside: tuple[int, int],
    ) -> NoReturn:
        """Have nothing of this process's, then become the rank, in a fork."""
        parent, stand_in = beside
        entry, rank = launch["hosts"][request["index"]], request["rank"]
        try:
            os.setsid()  # as the launcher has each of its children: the kernel shares CPUs out by sessions
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._take(dict(zip((0, 1, 2, request["pmi"]), handles, strict=True)))
            os.environ.clear()
            os.environ.update({**request["environment"], self._bind.BESIDE: str(stand_in)})
            time.tzset()
            ctypes.CDLL(None).prctl(PR_SET_PTRACER, stand_in, 0, 0, 0)
            self._bind.die_with(parent)
            show_words(entry["program"], os.environ)
            self._bind.become(
                entry,
                launch,
                str(Path(request["launch"]).parent),
                rank,
                by_srun=False,
                run=be_program,
            )
        except BaseException:  # noqa: BLE001 - a child's last words
            sys.excepthook(*sys.exc_info())
        os._exit(self._bind.CANNOT_START)

    def _take(self, kept: dict[int, int]) -> None:
        """Have these open files, by the numbers they are to have, and no others."""
        for channel in (self._listener, *self._ranks.values()):
            channel.close()  # else its end would close what has its number by then
        self._selector.close()
        above = max(kept) + 1
        own = {k: fcntl.fcntl(v, fcntl.F_DUPFD_CLOEXEC, above) for k, v in kept.items()}
        for number, handle in own.items():
            os.dup2(handle, number)
        close_inherited(kept)

    def _reap(self) -> None:
        """Tell who stands for a rank how it ended."""
        while self._ranks:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            channel = self._ranks.pop(pid, None)
            if channel is not None and channel.fileno() >= 0:
                with contextlib.suppress(OSError):
                    channel.send(str(status).encode())
                self._selector.unregister(channel)
                channel.close()


def deciding(environment: dict[str, str]) -> dict[str, str]:
    """Return the variables that decide what an interpreter loads.

    Examples
    --------
    >>> deciding({"PYTHONPATH": "a", "PATH": "b", "OMP_NUM_THREADS": "1"})
    {'PYTHONPATH': 'a', 'OMP_NUM_THREADS': '1'}
    """
    return {k: v for k, v in environment.items() if k.startswith(DECIDE)}


def may_be_forked(program: Sequence[str]) -> bool:
    """Whether a program is a file or a module of Python's, run by this interpreter and without options.

    Examples
    --------
    >>> python = sys.executable
    >>> may_be_forked([python, "-m", "mpi4py", "p.py"]), may_be_forked([python, "p.py", "-v"])
    (True, True)
    >>> may_be_forked([python, "-O", "p.py"]), may_be_forked([python, "-"]), may_be_forked(["./a.out"])
    (False, False, False)
    """
    python, *words = program
    if python != sys.executable or not words:
        return False
    return len(words) > 1 if words[0] == "-m" else not words[0].startswith("-")


def be_program(program: Sequence[str]) -> NoReturn:
    """Run a program as the interpreter of its command line would, and end this process as that would."""
    code = 0
    for number in IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_IGN)
    try:
        if program[1] == "-m":
            _look_first(Path.cwd())
            sys.argv[:] = ["-m", *program[3:]]
            runpy.run_module(program[2], run_name="__main__", alter_sys=True)
        else:
            _demand(program)
            _look_first(Path(program[1]).resolve().parent)
            sys.argv[:] = program[1:]
            runpy.run_path(program[1], run_name="__main__")
    except SystemExit as end:
        code = _code(end)
    except BaseException as error:  # noqa: BLE001 - the program's, whatever it is
        trace = _without_ours(error.__traceback__)
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        code = 1
    # What an interpreter does at its end: threads, what was registered, streams, and then MPI's own.
    ctypes.pythonapi.Py_Exit(code)
    raise AssertionError("it has ended")


def _demand(program: Sequence[str]) -> None:
    """End as an interpreter does whose program cannot be read."""
    try:
        os.close(os.open(program[1], os.O_RDONLY))
    except OSError as error:
        place = str(Path.cwd() / program[1])
        why = f"can't open file {place!r}: [Errno {error.errno}] {error.strerror}"
        sys.stderr.write(f"{program[0]}: {why}\n")
        raise SystemExit(2) from None


def _look_first(folder: Path) -> None:
    """Have modules looked for in a folder first, as an interpreter does in that of its program."""
    if not getattr(sys.flags, "safe_path", False):  # of Python 3.11
        sys.path.insert(0, str(folder))


def _code(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return (end.code or 0) & 0xFF
    sys.stderr.write(f"{end.code}\n")
    return 1


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    """Leave out of a traceback how it was come to the program."""
    ours = (__file__, "<frozen runpy>")
    while trace and trace.tb_frame.f_code.co_filename in ours:
        trace = trace.tb_next
    return trace


def main() -> NoReturn:
    """Load everything, then fork: the command line has the path of `bind` and the number of the socket.

    Between them is `supervisor.ROOM`, for ranks to show command lines of their own.
    """
    path, given = sys.argv[1], socket.socket(fileno=int(sys.argv[3]))
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # the folder in which this was started: a rank has another in its place
    given.set_inheritable(False)
    for number in DEFAULTED:
        ignored = number in IGNORED_BY_PYTHON
        signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    bind = loaded(path)
    gc.disable()
    for name in LOADED:
        with contextlib.suppress(Exception):  # a program that needs it says what is wrong with it
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
    gc.enable()
    RankInterpreter(bind, given).run()


def loaded(path: str) -> ModuleType:
    """Return the module in a file."""
    spec = importlib.util.spec_from_file_location("apples_bind", path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
