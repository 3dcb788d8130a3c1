"""The node supervisor: the parent of everything a job runs on one host, whatever happens to the others.

A fork of the job manager, with the standard library only; on another machine `remote_supervisor` takes its place.
It starts the group's launcher (mpiexec), notices a rank that ended or was stopped, and keeps the memory that ranks
hand it, so that a checkpoint in memory outlives its rank, though not its host. Three parties talk to it:

- The job manager, over standard input and output, in JSON lines. Its orders: ``start`` (group, ranks, argv,
  interpreter, files, environment, commits), ``send`` (a message to one rank or to all), ``end``, ``release`` (end
  with the group), ``ping``. The reports to it: ``alive``, ``message`` (of a rank), ``lost`` (why), ``empty`` (no
  process of the group is left). `remote_supervisor` has some of its own.
- The ranks, each over a connection of the local socket: `apples.malleable.runtime.channel`.
- The kernel: it is the subreaper of all its descendants, and none of them outlives it.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import selectors
import signal
import socket
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from apples.io.connection import call_ready
from apples.io.credentials import peer_credentials
from apples.io.json_lines import LineBuffer, LineError, decode, encode
from apples.io.naming import naming
from apples.launch import heartbeat as peer
from apples.launch.job_processes import (
    SHARED_MEMORY,
    become_subreaper,
    descendants,
    exec_launcher,
    expect_processes,
    kill_descendants,
    noted_processes,
    parent_of,
    remove_shared_memory,
    signal_at_parents_end,
    state_of,
)

LINE_LIMIT = 1 << 20
"""Bytes of a line, and of a rank's message."""
ORDER_LIMIT = 64 * LINE_LIMIT
"""Bytes of an order: it may carry the task of a job."""
INTERPRETER = "APPLES_RANK_INTERPRETER"
"""The variable by which what is to become a rank knows the interpreter that forks it (`rank_wrapper`)."""
ROOM = " " * 1000
"""A word of its command line, which is as long as that of a rank can be shown."""
HELLO = b"apples.node-supervisor/1\n"
"""The first bytes of a supervisor at the far end of a connection."""
CHECK_SECONDS = 0.25
"""Between two looks at its processes, and between two reports that it is alive."""
STOPPED_SECONDS = 1.0
"""A process that has been stopped for so long counts as lost."""
BEAT_SECONDS = 0.5
"""Between two beats of the thread that says that this process runs, whatever its loop is at."""
MPIEXEC_ENDED = "mpiexec ended"
"""Reason for the loss of a group's ranks; the launcher's exit code follows."""
ACCOUNT_SECONDS, SLOW_ACCOUNT_SECONDS = 0.5, 5.0
"""How long it may take until it is told how a rank ended that is gone. The process beside it is to tell it: where
that one is gone as well, and where it is there and may only have had no CPU."""
LONGEST_ACCOUNT = 200
TAKING_SECONDS = 5.0
"""How long a rank may take to take the next of the memories it asked for."""
KEPT_COMMITS = 2
"""Commits in memory that are kept: the newest, and the one before should it prove incomplete."""


class SupervisorProcess:
    """A process that supervises others for the job manager at the other end of its standard input and output.

    Whatever it supervises, it guarantees: orders are carried out in the order they came; it is the subreaper of
    all its descendants, so that none can escape it; and none is left when it ends. The end of its input ends it,
    as does a manager that takes no report; one that may outlive its connection (`remote_supervisor`) waits for
    another first.

    Attributes
    ----------
    selector
        What its loop listens to; the data of a key is a callable of no argument.
    silence
        How long the manager has been silent.
    last_report
        When it was last told something, on time.monotonic's clock.
    """

    death_signal = signal.SIGCONT
    """The kernel sends it when the parent dies: one that was stopped must come to see its input end."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.silence = peer.Silence(time.monotonic())
        self.last_report = 0.0
        self._lines = LineBuffer(ORDER_LIMIT)
        self._reporting = threading.Lock()

    def run(self) -> None:
        """Supervise until the manager is gone or wants it to end."""
        become_subreaper()
        signal_at_parents_end(self.death_signal)
        try:
            self.open()
            while True:
                call_ready(self.selector, CHECK_SECONDS)
                self.check()
        except EOFError:
            pass
        finally:
            self.close()

    def open(self) -> None:
        """Begin to listen."""
        self.selector.register(0, selectors.EVENT_READ, self._read_orders)

    def check(self) -> None:
        """Look at what is supervised; called after every turn of the loop."""

    def close(self) -> None:
        """Leave no process behind."""
        kill_descendants(os.getpid())

    def handle(self, order: dict[str, Any]) -> None:
        """Carry out one order of the manager."""
        raise NotImplementedError

    def report(self, event: str, **fields: object) -> None:
        """Send a report to the manager.

        Raises
        ------
        EOFError
            The manager is gone, or has not read for so long that the way to it counts as cut.
        """
        self.last_report = time.monotonic()
        rest = encode({"report": event, **fields})
        try:
            with self._reporting:
                while rest:
                    if not select.select([], [1], [], peer.UNSEEN_SECONDS)[1]:
                        raise EOFError
                    rest = rest[os.write(1, rest) :]
        except OSError:
            raise EOFError from None

    def on_input_end(self) -> None:
        """End, as the input of orders has."""
        raise EOFError

    def _read_orders(self) -> None:
        try:
            data = os.read(0, 1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.on_input_end()
            return
        self.silence.broken(time.monotonic())
        try:
            for line in self._lines.feed(data):
                self.handle(decode(line, ORDER_LIMIT))
        except LineError:
            raise EOFError from None  # the other end is no job manager


def below_launcher(launcher: int) -> tuple[set[int], set[int]]:
    """Return all descendants of a launcher, and the children of its children, which are hydra's proxies.

    Those start the ranks and stay beside them (`apples.launch.rank_wrapper`).
    """
    below: dict[int, set[int]] = {}
    for pid, parent in descendants(launcher):
        below.setdefault(parent, set()).add(pid)
    proxies = below.get(launcher, set())
    everybody = {pid for pids in below.values() for pid in pids}
    return everybody, {rank for proxy in proxies for rank in below.get(proxy, ())}


def may_be_forked(program: Sequence[str], python: str) -> bool:
    """Whether a program is a file or a module of Python's, run by this interpreter and without options.

    Examples
    --------
    >>> may_be_forked(["py", "-m", "mpi4py", "p.py"], "py"), may_be_forked(["py", "p.py", "-v"], "py")
    (True, True)
    >>> may_be_forked(["py", "-O", "p.py"], "py"), may_be_forked(["py"], "py"), may_be_forked(["./a.out"], "py")
    (False, False, False)
    """
    if program[0] != python or len(program) == 1:
        return False
    return len(program) > 2 if program[1] == "-m" else program[1].endswith(".py")


def readable(channel: socket.socket) -> bool:
    """Whether something, or an end, can be read now; unlike `select.select`, however many files are open."""
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    return bool(poll.poll(0))


def unlink_shared_memory(pids: set[int]) -> None:
    """Unlink the shared memory files of ranks that have all mapped them: a crash then leaves no file."""
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/maps") as stream:  # noqa: PTH123
            names = {line.split()[-1] for line in stream if f"{SHARED_MEMORY}/mpich_shm_" in line}
            for name in names:
                os.unlink(name)  # noqa: PTH108


class CheckpointMemory:
    """Memory that ranks gave their supervisor, as labels and descriptors: of commits, and of states they saved."""

    def __init__(self) -> None:
        self._kept: dict[int, list[tuple[dict[str, Any], int]]] = {}
        self._saved: dict[int, tuple[dict[str, Any], int]] = {}

    def keep(self, label: dict[str, Any], handle: int) -> None:
        """Keep one rank's memory: the state it saved, or a commit's; that of commits too old is closed."""
        if "saved" in label:
            self.forget(label["saved"])
            self._saved[label["saved"]] = label, handle
            return
        self._kept.setdefault(label["epoch"], []).append((label, handle))
        for number in sorted(self._kept)[:-KEPT_COMMITS]:
            for _, old in self._kept.pop(number):
                os.close(old)

    def forget(self, rank: int) -> None:
        """Close what a rank saved."""
        if rank in self._saved:
            os.close(self._saved.pop(rank)[1])

    def send_all(self, channel: socket.socket, saved: int | None = None) -> None:
        """Send a rank the labels and duplicates of their file descriptors, their number first.

        Parameters
        ----------
        saved
            Those of the state that this rank saved; None: of all commits.
        """
        kept = [one for labels in self._kept.values() for one in labels]
        if saved is not None:
            kept = [self._saved[saved]] if saved in self._saved else []
        channel.settimeout(
            TAKING_SECONDS
        )  # they are more than a socket holds: it takes them meanwhile
        with contextlib.suppress(OSError):
            channel.send(json.dumps({"count": len(kept)}).encode())
            for label, handle in kept:
                socket.send_fds(channel, [json.dumps(label).encode()], [handle])
        channel.setblocking(False)


class NodeSupervisor(SupervisorProcess):
    """Supervises one group of ranks, started by one launcher.

    Parameters
    ----------
    folder
        For the socket and the files of the group.
    account_seconds, slow_account_seconds
        How long the report of a rank that ended waits for the account of how: where the process that gives it is
        gone, and where it runs.

    Attributes
    ----------
    group
        Number of the group, as the manager counts them; 0 while there is none.
    launcher
        Process number of mpiexec; 0 when it has ended.
    launcher_talk
        What the launcher itself writes goes to this open file.
    interpreter
        Process number of the parked interpreter that forks the group's ranks; 0 where they are started one by one.
    ranks
        Connections of the ranks, each with the rank's number, process, and whether it said that it leaves.
    awaited
        Ranks of the group that have not connected yet.
    lost, ending, leaving
        What is known of the group: its loss was reported; the manager wants its end; a rank left by itself.
    releasing
        Whether the host is given back: then this process ends when the group has, without being asked to.
    """

    def __init__(
        self,
        folder: str,
        account_seconds: float = ACCOUNT_SECONDS,
        slow_account_seconds: float = SLOW_ACCOUNT_SECONDS,
    ) -> None:
        super().__init__()
        self.folder = folder
        self._account_seconds, self._slow_account_seconds = account_seconds, slow_account_seconds
        self.ranks: dict[socket.socket, dict[str, Any]] = {}
        self.launcher = self.interpreter = 0
        self.launcher_handle = -1
        self.launcher_talk = 2
        self.group = 0
        self.lost = self.ending = self.leaving = self.releasing = False
        self.awaited = 0
        self.last_check = 0.0
        self.ended: dict[
            int, tuple[int, int, float]
        ] = {}  # ranks by process, which process is to tell how, and since when that is waited for
        self.accounts: dict[int, str] = {}  # how each process ended of which that was told
        self.stopped: dict[int, float] = {}  # since when each stopped process is so
        self.unconnected: set[int] = set()  # processes that are to become ranks
        self.connected: set[int] = set()  # processes of the group that have been ranks
        self.files: set[str] = set()
        self.memory = CheckpointMemory()
        self.path = os.path.join(self.folder, f"supervisor-{os.getpid()}")  # noqa: PTH118 - pathlib is slow to load
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ended = threading.Event()

    def open(self) -> None:
        """Begin to listen to ranks and to the manager."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        expect_processes(self.folder)
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        # What each rank has in a commit is an open file here, and so is each copy of others, of several commits.
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        self.listener.bind(self.path)
        self.listener.listen(1024)
        self.listener.setblocking(False)
        self.selector.register(self.listener, selectors.EVENT_READ, self.accept_rank)
        super().open()
        threading.Thread(target=self._beat, daemon=True).start()

    def close(self) -> None:
        """Leave no process, no memory file and no file of its own behind."""
        self._ended.set()
        super().close()
        remove_shared_memory(noted_processes(self.folder))
        self.remove_files()

    def remove_files(self) -> None:
        """Remove what it wrote."""
        for path in (self.path, *self.files):
            with contextlib.suppress(OSError):
                os.unlink(path)  # noqa: PTH108

    def _beat(self) -> None:
        """Report now and then that this process runs, from a thread of its own: the loop may be at slow work."""
        with contextlib.suppress(EOFError):  # the loop hears of it too
            while not self._ended.wait(BEAT_SECONDS):
                self.report("alive")

    # --------------------------------------------------------------- orders of the manager

    def handle(self, order: dict[str, Any]) -> None:
        """Carry out one order of the manager; a ``ping`` only says that the manager is there."""
        what = order["order"]
        if what == "start":
            try:
                self.start(order)
            except (
                OSError
            ) as error:  # a full disk, no more processes: the manager is to hear which
                self._report_lost(f"{error.filename or self.folder}: {error.strerror}")
                self._report_empty()
        elif what == "send":
            for channel, rank in list(self.ranks.items()):
                if order.get("rank") in (None, rank["rank"]):
                    with contextlib.suppress(OSError):  # its end is read from its connection
                        channel.send(json.dumps(order["message"]).encode())
        elif what == "release":
            self.releasing = True
        elif what == "end":
            self.ending = True
            if self.launcher:
                os.kill(
                    self.launcher, signal.SIGKILL
                )  # a child that was not reaped: its number is its own
            kill_descendants(os.getpid(), spare=self.launcher)

    def start(self, order: dict[str, Any]) -> None:
        """Write the group's files, then fork its launcher."""
        self.group, self.lost, self.ending, self.leaving = order["group"], False, False, False
        self.ended, self.accounts, self.connected = {}, {}, set()
        self.awaited, self.unconnected = order["ranks"], set()
        for name, text in order["files"].items():
            path = os.path.join(self.folder, f"{name}-{os.getpid()}.json")  # noqa: PTH118
            with naming(path), open(path, "w", encoding="utf-8") as stream:  # noqa: PTH123 - as above
                stream.write(text)
            os.environ[f"APPLES_{name.upper()}"] = path
            self.files.add(path)
        argv = [os.environ["APPLES_LAUNCH"] if a == "{launch}" else a for a in order["argv"]]
        environment = {**os.environ, **order["environment"], "APPLES_MALLEABLE": self.path}
        if parked := order.get("interpreter"):
            try:
                environment[INTERPRETER] = self._park(parked, environment)
            except OSError as error:
                why = f"apples: note: each rank loads all by itself: {error.strerror or error}\n"
                with contextlib.suppress(OSError):
                    os.write(self.launcher_talk, why.encode())
        self.launcher = self._started(argv, environment)
        self.launcher_handle = os.pidfd_open(self.launcher)
        self.selector.register(self.launcher_handle, selectors.EVENT_READ, self._on_launcher_exit)

    def _park(self, argv: list[str], environment: Mapping[str, str]) -> str:
        """Fork the interpreter that is to fork the ranks; return where it listens, from now on."""
        path = f"{self.path}-ranks"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108 - that of a group before
        self.files.add(path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            with naming(path):
                listener.bind(path)
            listener.listen(1024)
            listener.set_inheritable(True)
            words = [*argv, ROOM, str(listener.fileno())]
            self.interpreter = self._started(words, environment, "/")
        return path

    def _started(
        self, argv: list[str], environment: Mapping[str, str], directory: str = ""
    ) -> int:
        """Fork a process that ends with this one."""
        supervisor = os.getpid()
        with self._reporting, warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # Python 3.12 warns of forks beside threads; an exec follows
            pid = os.fork()
        if pid == 0:
            for number in (1, 2):  # standard output is the wire to the manager
                os.dup2(self.launcher_talk, number)
            if directory:
                os.chdir(directory)
            exec_launcher(argv, supervisor, environment)
        return pid

    # --------------------------------------------------------------- messages of the ranks

    def accept_rank(self) -> None:
        """Accept a rank's connection; the kernel says which process of which user it is."""
        try:
            channel, _ = self.listener.accept()
        except BlockingIOError:
            return  # the launcher's end, in the same turn of the loop, has taken all there were
        pid, uid = peer_credentials(channel)
        if uid != os.getuid():
            channel.close()
            return
        channel.setblocking(False)
        self.ranks[channel] = {"rank": -1, "pid": pid, "beside": parent_of(pid), "leaving": False}
        self.selector.register(channel, selectors.EVENT_READ, lambda: self._read_rank(channel))

    def _read_rank(self, channel: socket.socket) -> None:
        """Take one message of a rank, or its end."""
        rank = self.ranks.get(channel)
        if rank is None:
            return  # its end was taken already
        try:
            data, handles, _, _ = socket.recv_fds(channel, LINE_LIMIT, 8)
        except BlockingIOError:
            return
        except OSError:
            data, handles = b"", []
        if data:
            self._on_message(channel, rank, json.loads(data), handles)
            return
        self.selector.unregister(channel)
        channel.close()
        del self.ranks[channel]
        if not rank["leaving"]:
            self.ended[rank["pid"]] = (rank["rank"], rank["beside"], time.monotonic())
            self.report_ended()

    def report_ended(self, *, in_time: bool = True) -> None:
        """Report ranks that ended, once it is known how or nobody has said it in time."""
        now = time.monotonic()
        for pid, (rank, beside, since) in list(self.ended.items()):
            there = peer.process_runs(beside)
            patience = self._slow_account_seconds if there else self._account_seconds
            if pid in self.accounts or now - since >= patience or not in_time:
                how = self.accounts.get(pid, "ended")
                self._report_lost(f"rank {rank} (process {pid}) {how}")
                del self.ended[pid]

    def _on_message(
        self,
        channel: socket.socket,
        rank: dict[str, Any],
        message: dict[str, Any],
        handles: list[int],
    ) -> None:
        """Take a rank's message: a few concern this supervisor alone, the manager gets all others."""
        event = message["event"]
        if event == "hello":
            rank["rank"] = message["rank"]
            rank["beside"] = message.get("beside") or rank["beside"]
            self.awaited -= 1
            self.connected.add(rank["pid"])
            # MPICH opens its shared memory by name until the last rank has mapped it; earlier
            # removal would break MPI_Init.
            if not self.awaited:
                unlink_shared_memory(self.connected)
        elif event == "leaving":
            rank["leaving"] = self.leaving = True
        if event == "ended":
            self.on_account(rank, message)
            return
        if event == "keep":
            self.memory.keep(message, handles[0])
        elif event == "memories":
            self.memory.send_all(channel, message.get("saved"))
        elif event == "forget":
            self.memory.forget(message["saved"])
        else:
            self.report("message", group=self.group, rank=rank["rank"], message=message)

    def on_account(self, teller: dict[str, Any], message: dict[str, Any]) -> None:
        """Take what became of a rank, from the process beside it (`rank_wrapper`), which is its parent."""
        teller["leaving"] = True
        how = str(message["how"])[:LONGEST_ACCOUNT]
        self.accounts[message["pid"]] = (
            f"was {how}" if how.startswith("killed") else f"ended: {how}"
        )
        if message["pid"] not in self.connected:
            rank = f"rank {message['rank']} (process {message['pid']})"
            self._report_lost(
                f"{rank} {self.accounts[message['pid']]} before its first safe point"
            )
        self.report_ended()

    # --------------------------------------------------------------- the group's processes

    def check(self) -> None:
        """See whether the manager is silent, and which processes ended or were stopped; report being alive."""
        now = time.monotonic()
        silent = self.silence.seconds(now)
        if self.manager_lost(silent):
            self.on_manager_silent()
            raise EOFError
        if self.group and not self.launcher:
            self._report_empty()
        self.report_ended()
        if now - self.last_check < CHECK_SECONDS:
            return
        self.last_check = now
        states = {pid: state_of(pid) for pid in self._supervised()}
        self.stopped = {p: self.stopped.get(p, now) for p, s in states.items() if s in "Tt"}
        for pid, since in self.stopped.items():
            if now - since > STOPPED_SECONDS:
                self._report_lost(f"process {pid} was stopped")
        self.report("alive")

    def manager_lost(self, silent: float) -> bool:
        """Return whether the manager, which was silent for so long, is lost."""
        return silent > peer.SILENCE_SECONDS and peer.lost(silent, self.manager_there())

    def manager_there(self) -> bool | None:
        """Return what is known of the manager beside what it says: it is the parent of this process."""
        return peer.process_runs(os.getppid())

    def on_manager_silent(self) -> None:
        """Kill a manager that was stopped: it could end nothing by itself, and would hear of no end."""
        if state_of(os.getppid()) in "Tt":
            with contextlib.suppress(OSError):
                os.kill(os.getppid(), signal.SIGKILL)

    def _supervised(self) -> set[int]:
        """Return the launcher, the ranks, and the processes between them."""
        found = {self.launcher, self.interpreter} - {0}
        if self.launcher and self.awaited > 0:
            found |= self._starting()
        for rank in self.ranks.values():
            for first in (rank["pid"], rank["beside"]):
                pid = first
                while pid not in {*found, 0, 1, os.getpid()}:
                    found.add(pid)
                    pid = parent_of(pid)
        return found

    def _starting(self) -> set[int]:
        """Return all processes below the launcher; one that is to become a rank and ends before it is, is lost."""
        everybody, ranks = below_launcher(self.launcher)
        if ended := self.unconnected - ranks:
            self._report_lost(f"process {min(ended)} ended before its first safe point")
        self.unconnected = ranks
        return everybody

    def _on_launcher_exit(self) -> None:
        """Reap the launcher; its end is a loss unless every rank had said that it leaves."""
        self.selector.unregister(self.launcher_handle)
        os.close(self.launcher_handle)
        _, status = os.waitpid(self.launcher, 0)
        self.launcher = 0
        while readable(self.listener):
            self.accept_rank()
        for channel in list(self.ranks):  # messages that are still in the sockets come first
            while channel in self.ranks and readable(channel):
                self._read_rank(channel)
        self.report_ended(in_time=False)
        if not self.leaving or not all(rank["leaving"] for rank in self.ranks.values()):
            self._report_lost(f"{MPIEXEC_ENDED} ({os.waitstatus_to_exitcode(status)})")
        self._report_empty()

    def _report_empty(self) -> None:
        """Kill what outlived its launcher, and report that nothing is left of the group."""
        kill_descendants(os.getpid())
        if not self.releasing:  # else it is about to end, and `close` does so
            remove_shared_memory(noted_processes(self.folder))
        for channel in list(self.ranks):
            self.selector.unregister(channel)
            channel.close()
        self.ranks.clear()
        self.report("empty", group=self.group)
        self.group = self.interpreter = 0
        if self.releasing:
            self.on_release()

    def on_release(self) -> None:
        """End, as the host is given back and nothing of the group is left."""
        raise EOFError

    def _report_lost(self, why: str) -> None:
        """Report the loss of the group, once, unless its end was wanted."""
        if self.lost or self.ending or not self.group:
            return
        self.lost = True
        self.report("lost", group=self.group, why=why)
