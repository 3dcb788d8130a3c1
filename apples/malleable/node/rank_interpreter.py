"""The parked interpreter of ranks: ``python -m apples.malleable.node.rank_interpreter BIND ROOM SOCKET``.

A child of the node supervisor that has loaded what ranks load, and forks them: a host with many ranks reads and
runs NumPy once, and not once a rank. MPI is no part of that: a rank loads and begins it for itself.

The launcher starts what it always starts, `apples.launch.rank_wrapper`, which asks here first: for its own place
it hands over its environment and open files, and stays, so that the launcher has a child that ends as the rank
does, and that passes on the signals it gets. A rank that is forked here is a child of this process; it is killed
when this one ends, or what stands for it. Anything but a Python program of this very interpreter, which would load
the same from the same places, is refused, and `rank_wrapper` starts it by itself.
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
import selectors
import signal
import socket
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from apples.io.credentials import peer_credentials
from apples.launch.job_processes import close_inherited, show_words
from apples.malleable.node.forked_program import be_program
from apples.malleable.node.supervisor import may_be_forked

LOADED = (
    *("numpy", "mpi4py", "mpi4py.run", "apples.malleable"),
    *("argparse", "json", "logging", "math", "pathlib", "threading", "time"),
    *("hashlib", "statistics", "subprocess", "tomllib"),
)
"""What ranks load. None of it begins MPI, or reads a variable that is not in `DECIDE`.

The last line is what a program's `Task` loads, whose module stands above this one.
"""
DECIDE = (
    *("PYTHON", "LD_", "GLIBC_", "MALLOC_", "LC_", "LANG", "HOME"),
    *("OPENBLAS_", "OMP_", "MKL_", "KMP_", "GOMP_", "BLIS_", "GOTO_", "NUMPY_", "NPY_"),
)
"""How the variables begin that decide what an interpreter loads, and how: a rank's must be this process's."""
REQUEST_BYTES = 1 << 18
"""Of a request, which holds an environment; a socket of the kernel's takes no longer message."""
HANDLES = 4
"""Open files that come with it: the first three, and the launcher's."""
PR_SET_PTRACER = 0x59616D61
"""By which a process lets another see its system calls, where the kernel shows them to those above it only."""
LEFT_TO_RANKS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
"""Whoever asks all processes of a job to end asks its ranks: they end before this process does."""


class RankInterpreter:
    """Forks ranks for whoever stands for them.

    Parameters
    ----------
    bind
        The module `apples.launch.rank_wrapper`, loaded by its path: it makes a process a rank.
    listener
        At which those connect who want a rank.
    """

    def __init__(self, bind: ModuleType, listener: socket.socket) -> None:
        self._bind, self._listener = bind, listener
        self._selector = selectors.DefaultSelector()
        self._decided = deciding(dict(os.environ))
        self._ranks: dict[
            socket.socket, int
        ] = {}  # 0 for one that has ended, to the connection's end

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
        with contextlib.suppress(OSError):
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
        """Take a request, then signals for the rank, and the end of who made it, which is the rank's."""
        rank = self._ranks.get(channel)
        handles: list[int] = []
        try:
            data, handles, _, _ = socket.recv_fds(channel, REQUEST_BYTES, 2 * HANDLES)
            if data and rank is not None:
                if rank:
                    os.kill(rank, int(data))  # a child that was not reaped: its number is its own
                return
            if data and (rank := self._forked(json.loads(data), handles, stand_in)):
                self._ranks[channel] = rank
                channel.send(json.dumps({"pid": rank}).encode())
                return
        except Exception as error:  # noqa: BLE001 - whatever was asked, the ranks of others live
            print(f"apples: a request for a rank: {error!r}", file=sys.stderr, flush=True)  # noqa: T201 - talk
        finally:
            for handle in handles:
                os.close(handle)
        self._selector.unregister(channel)
        self._ranks.pop(channel, None)
        channel.close()
        if rank:
            os.kill(rank, signal.SIGKILL)

    def _forked(self, request: dict[str, Any], handles: Sequence[int], stand_in: int) -> int:
        """Fork a rank; 0 where it is none that can be forked."""
        with open(request["launch"], encoding="utf-8") as stream:  # noqa: PTH123 - as in `rank_wrapper`
            launch = json.load(stream)
        entry = launch["hosts"][request["index"]]
        # MPI is loaded after the fork: the variables that steer it are the rank's. The hash seed is
        # the one state that all ranks of a host share.
        environment = {**request["environment"], **entry.get("environment", {})}
        program, directory = entry["program"], Path(launch["directory"])
        forked = may_be_forked(program, sys.executable) and self._as_here(environment)
        if not (forked and len(handles) == HANDLES and loads_the_same(program, directory)):
            return 0
        parent = os.getpid()
        with warnings.catch_warnings():
            # Python 3.12 warns of forks beside threads, which a library may have; none of ours is among them.
            warnings.simplefilter("ignore")
            pid = os.fork()
        if pid == 0:
            self._be_rank(request, handles, launch, (parent, stand_in))
        return pid

    def _as_here(self, environment: dict[str, str]) -> bool:
        """Whether an interpreter with this environment would have loaded what this one has."""
        first = environment.get("LD_PRELOAD") or environment.get(self._bind.COUNTING)
        places = environment.get("PYTHONPATH", "")
        everywhere = not places or all(map(os.path.isabs, places.split(os.pathsep)))
        return not first and everywhere and deciding(environment) == self._decided

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
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                ignored = number in request["ignored"]
                signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL)
            self._take(dict(zip((0, 1, 2, request["pmi"]), handles, strict=True)))
            os.environ.clear()
            os.environ.update({**request["environment"], self._bind.BESIDE: str(stand_in)})
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
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()  # else its end would close what has its number by then
        self._selector.close()
        above = max(kept) + 1
        own = {k: fcntl.fcntl(v, fcntl.F_DUPFD_CLOEXEC, above) for k, v in kept.items()}
        for number, handle in own.items():
            os.dup2(handle, number)
        close_inherited(kept)

    def _reap(self) -> None:
        """Tell who stands for a rank how it ended."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                for channel in [one for one, rank in self._ranks.items() if rank == ended[0]]:
                    # It is closed after the other end is: else what nobody has read would take this word along.
                    self._ranks[channel] = 0
                    with contextlib.suppress(OSError):
                        channel.send(str(ended[1]).encode())


def deciding(environment: dict[str, str]) -> dict[str, str]:
    """Return the variables that decide what an interpreter loads.

    Examples
    --------
    >>> deciding({"PYTHONPATH": "a", "PATH": "b", "OMP_NUM_THREADS": "1"})
    {'PYTHONPATH': 'a', 'OMP_NUM_THREADS': '1'}
    """
    return {k: v for k, v in environment.items() if k.startswith(DECIDE)}


def loads_the_same(program: Sequence[str], directory: Path) -> bool:
    """Whether a program's file is there, and beside it no other module of a name that is loaded here."""
    folders = [directory] if program[1] == "-m" else []
    for word in program[1:4:2]:  # a file, or that of a module which runs one
        if word.endswith(".py"):
            place = directory / word
            if not place.is_file():
                return False
            folders.append(place.resolve().parent)
    return all(
        name not in sys.modules or _is_in(name, one)
        for one in folders
        for name in _modules_in(one)
    )


def _modules_in(folder: Path) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if entry.name.endswith((".py", ".so", ".pyc")) or entry.is_dir():
                yield entry.name.partition(".")[0]


def _is_in(name: str, folder: Path) -> bool:
    """Whether a loaded module is that of a folder, or one that no folder could take the place of."""
    found = getattr(sys.modules[name], "__spec__", None)
    if found is None or found.origin in ("built-in", "frozen"):
        return True
    places = [found.origin] if found.origin else list(found.submodule_search_locations or ())
    return any(Path(place).is_relative_to(folder) for place in places)


def main() -> NoReturn:
    """Load everything, then fork: the command line has the path of `rank_wrapper` and the number of the socket.

    Between them is `supervisor.ROOM`, for ranks to show command lines of their own.
    """
    path, given = sys.argv[1], socket.socket(fileno=int(sys.argv[3]))
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # the folder in which this was started: a rank has another in its place
    given.set_inheritable(False)
    for number in LEFT_TO_RANKS:
        signal.signal(number, signal.SIG_IGN)
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
