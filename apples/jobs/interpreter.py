"""The parked interpreter: a process that has loaded what jobs and their verbs need, and forks.

Whoever needs it starts it (`apples.jobs.parked`). It plans the sample that comes with the package, once, and from
then on only accepts connections and forks: one fork a connection, which reads for itself what it is to do, and in
whose place. It reads nothing that anybody sends, runs no user's code, and has no threads. It ends when it has been
of no use to anybody for a while; its forks, among them the supervisors of all jobs, do not depend on it.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import Any

from apples.errors import failure_of
from apples.io import documents
from apples.io.credentials import peer_credentials
from apples.io.json_lines import LineBuffer, LineError, decode, encode
from apples.jobs.parked import (
    ALONE,
    BACKLOG,
    HELLO,
    LINE_LIMIT,
    REFUSAL,
    in_its_folder,
    log_of,
)

IDLE_SECONDS = 10.0
"""It stays for so long after its last fork has ended."""
LOOK_SECONDS = 1.0
STOP_SECONDS = 5.0
"""For a fork to end when nobody waits for it any more."""
PYTHONS = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that every Python ignores."""
MOST_HANDLES = 8
done: int | None = None
"""Exit code of a fork that has done what it was asked for."""
ANSWERS = {
    "check": "apples.jobs.supervisor:checked",
    "plan": "apples.jobs.resizing:plan",
}
"""What is answered, besides the functions that a question names itself."""
TASKS = {"supervise": "apples.jobs.supervisor:supervise"}
"""What lasts: it gets the open files that came with the request."""
USED = (
    *("numpy.random", "encodings.idna", "encodings.ascii", "psutil", "email.parser"),
    *("apples.launch.actuators.ssh", "apples.jobs.units"),
)
"""What these load only when they need it, and they always do."""

Request = Mapping[str, Any]


class ParkedInterpreter:
    """Accepts connections and forks.

    Parameters
    ----------
    path, listener
        The socket that it listens at: its name, and the socket itself.
    """

    def __init__(self, path: Path, listener: socket.socket) -> None:
        self._path, self._listener = path, listener
        self._place = path.stat().st_ino
        self._forks = set[int]()
        self._used = time.monotonic()
        self._ended, self._ends = os.pipe()
        self._selector = DefaultSelector()

    def run(self) -> socket.socket | None:
        """Fork, and fork again; returns in every fork its connection, and None when all is over."""
        self._listener.setblocking(False)
        for handle in (self._ended, self._ends):
            os.set_blocking(handle, False)
        signal.set_wakeup_fd(self._ends)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(self._listener, EVENT_READ)
        self._selector.register(self._ended, EVENT_READ)
        while not self._retired():
            for key, _ in self._selector.select(LOOK_SECONDS):
                if key.fileobj is not self._listener:
                    os.read(self._ended, 1 << 10)
                elif (connection := self._forked()) is not None:
                    return connection
            self._reap()
        return None

    def _forked(self) -> socket.socket | None:
        """Accept a connection of this user's and fork; returns it in the fork."""
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return None  # it is gone already
        with connection:
            if peer_credentials(connection)[1] != os.geteuid():
                return None
            try:
                pid = os.fork()
            except OSError as error:  # no more processes
                with suppress(OSError):
                    connection.send(REFUSAL + str(error.strerror).encode())
                return None
            if pid == 0:
                self._leave_to_the_parent()
                return connection.dup()
        self._used = time.monotonic()
        self._forks.add(pid)
        return None

    def _leave_to_the_parent(self) -> None:
        """Have, in a fork, nothing of the interpreter's."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        self._listener.close()
        os.close(self._ended)
        os.close(self._ends)

    def _reap(self) -> None:
        while self._forks:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            self._forks.discard(pid)
            self._used = time.monotonic()

    def _retired(self) -> bool:
        """Whether it is of no use any more: nobody can reach it, or has for long; then nobody can any more."""
        if not self._reachable():
            return True
        if self._forks or time.monotonic() - self._used < IDLE_SECONDS:
            return False
        try:
            with documents.locked(self._path.parent / "parked.lock", 0.0):
                if self._reachable():
                    self._path.unlink()
                    log_of(self._path).unlink(missing_ok=True)
        except OSError:
            return False
        return True

    def _reachable(self) -> bool:
        """Whether the socket of its name is its own: it may be removed, or replaced while it was stopped."""
        with suppress(OSError), in_its_folder(self._path) as name:
            return Path(name).stat().st_ino == self._place
        return False


def serve(connection: socket.socket) -> int:
    """Do in a fork what is asked for; return its exit code."""
    os.setsid()
    with connection:
        try:
            connection.sendall(HELLO)
            request, handles = _request(connection)
            own = stand_in(request, handles)
        except (OSError, LineError, KeyError, ValueError) as error:
            print(f"a request that is none: {error}", file=sys.stderr, flush=True)  # noqa: T201 - its log
            return 1
        if place := request.get("at") or ANSWERS.get(request["do"]):
            function = _named(place)
            _answer(connection, lambda: function(**request["arguments"]))
            return 0
    task: Callable[..., int] = _named(TASKS[request["do"]])
    return task(*own, **request["arguments"])


def _request(connection: socket.socket) -> tuple[Request, list[int]]:
    """Return what came, with its open files."""
    lines, found = LineBuffer(LINE_LIMIT), list[bytes]()
    data, handles, _, _ = socket.recv_fds(
        connection, 1 << 16, MOST_HANDLES, socket.MSG_CMSG_CLOEXEC
    )
    while data and not (found := lines.feed(data)):
        data = connection.recv(1 << 16)
    if not found:
        raise LineError("it ended before its line did")
    return decode(found[0], LINE_LIMIT), handles


def stand_in(request: Request, handles: Sequence[int]) -> Sequence[int]:
    """Become what a fork of the asker would be; returns the open files that are not of this."""
    talk, here, *own = handles
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.umask(request["umask"])
    os.sched_setaffinity(0, request["cpus"])
    os.fchdir(here)
    with suppress(OSError):  # it was removed; nothing can be imported from it
        sys.path.insert(0, str(Path.cwd()))
    for file, number in ((os.open(os.devnull, os.O_RDWR), 0), (talk, 1), (talk, 2)):
        os.dup2(file, number)
    os.close(here)
    sys.modules["numpy.random"].seed()  # no two forks draw the same numbers
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return own


def _answer(connection: socket.socket, function: Callable[[], object]) -> None:
    """Say what a function returns, or why it does not; stop it, as by Ctrl-C, when nobody waits any more.

    Whatever users' code leaves running in this process ends soon after the answer.
    """
    over = threading.Event()
    threading.Thread(target=_stop_unheard, args=(connection, over), daemon=True).start()
    try:
        answer: dict[str, object] = {"answer": function()}
    except KeyboardInterrupt:
        return
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, who asked must hear of it
        if os.environ.get("APPLES_DEBUG"):
            traceback.print_exc()
        answer = {"failure": failure_of(error).document()}
    over.set()
    with suppress(OSError):
        connection.sendall(encode(answer))


def _stop_unheard(connection: socket.socket, over: threading.Event) -> None:
    """End this process and what it has started when the other end of a connection goes, if it does not itself."""
    with suppress(OSError):
        connection.recv(1)
    if not over.is_set():
        for number in (1, 2):  # whoever reads them has another command by now
            os.dup2(0, number)
        os.killpg(0, signal.SIGINT)
    time.sleep(STOP_SECONDS)
    os.killpg(0, signal.SIGKILL)


def _named(place: str) -> Any:
    """Return the function of a place."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def without_inheritance() -> None:
    """Have no signal blocked or ignored because whoever started this interpreter has it so."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - {*PYTHONS}:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def main() -> int:
    """Load everything, then fork as long as anybody asks; the last arguments are the socket's name and number."""
    global done  # noqa: PLW0603 - a process has one end
    atexit.register(_leave)  # the first to be registered is the last to be called
    name, given = sys.argv[-2], socket.socket(fileno=int(sys.argv[-1]))
    given.set_inheritable(False)
    without_inheritance()
    if name != ALONE:
        given.listen(
            BACKLOG
        )  # again: who connects sees from now on that it is this process which listens
    gc.disable()  # what is loaded stays: looking for garbage in it would copy its pages in every fork
    for place in (*ANSWERS.values(), *TASKS.values()):
        _named(place)
    for module in USED:
        importlib.import_module(module)
    _plan_once()
    gc.collect()
    gc.freeze()
    gc.enable()
    os.chdir("/")
    connection = given if name == ALONE else ParkedInterpreter(Path(name), given).run()
    if connection is None:
        return 0
    done = serve(connection)
    return done


def _plan_once() -> None:
    """Plan the sample that comes with the package, from the values of its files alone, and forget the plan.

    The first plan of a process loads modules and makes validators, and the interpreter writes into the code that
    it runs often. Done here, once, forks share all of that: 9 MB more of each were its own, and it planned six
    times as long. Nothing of a user's is read, and nothing is started.
    """
    from apples.agent.session.running import prepare  # noqa: PLC0415 - loaded while nothing is collected
    from apples.agent.session.spec import RunSpec  # noqa: PLC0415 - likewise
    from apples.launch.sample import example_folder  # noqa: PLC0415 - likewise

    sample = example_folder()
    hosts, template, user = (sample / f"{name}.toml" for name in ("hosts", "template", "user"))
    prepared = prepare(RunSpec(hosts=hosts, template=template, user=user, weather="static"))
    prepared.plan()
    prepared.close()


def _leave() -> None:
    """End a fork that has done what it was asked for, after all that is done at its exit.

    To take apart what its parent has loaded copies the pages of that, some 60 ms of CPU, for nobody.
    """
    if done is not None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(done)
