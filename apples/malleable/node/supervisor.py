"""The node supervisor: the parent of all processes of a job on one host, independent of the other hosts.

On the job manager's machine it is a fork of the manager. On another host it runs at the far end of an ssh or srun,
as ``python -I -m apples.malleable.node.supervisor APPLES_JOB=JOB ATTEMPT``. There it creates a folder of its own,
forwards the output of its ranks, and fills the host's own values into the ``start`` order (`far_host`).
Standard library only.

It starts the group's launcher (mpiexec), notices ranks that ended or were stopped, and holds memory for its ranks,
so that a checkpoint in memory outlives its rank, but not its host. It communicates with three parties:

- The job manager, by the protocol of `apples.launch.hostd`. Orders: ``start`` (group, ranks, argv, files,
  environment, commits), ``send`` (a message to one rank or to all), ``end``, ``release`` (end with the group),
  ``pause`` (pause or resume forwarding), ``ping``. Reports: ``alive``, ``output``, ``error``, ``message`` (of a
  rank), ``lost`` (with the reason), ``no_commits`` (the directory of commits does not exist here), ``empty`` (all
  processes of the group have ended).
- The ranks, each over a connection of the local socket: `apples.malleable.runtime.channel`.
- The kernel: it is the subreaper of all its descendants, and none of them outlives it.

It ends, with all its ranks, when its connection ends, for example when a user kills the ssh. If the network is
cut, sshd on its host does not notice for a long time; then it ends after `heartbeat.PATIENCE_SECONDS` without an
order of the manager.
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
import sys
import tempfile
import threading
import time
import warnings
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from apples.io.credentials import peer_credentials
from apples.io.json_lines import LineBuffer
from apples.io.naming import naming
from apples.io.sockets import socket_name
from apples.launch import heartbeat as peer
from apples.launch.hostd import HostAgent
from apples.launch.job_processes import (
    SHARED_MEMORY,
    descendants,
    exec_launcher,
    expect_processes,
    kill_descendants,
    noted_processes,
    parent_of,
    remove_run,
    remove_shared_memory,
    state_of,
)
from apples.launch.rank_ends import (
    THIS_MACHINE,
    ExitCodes,
    OutOfMemoryKills,
    how_unreaped,
    with_memory,
)
from apples.malleable.node.far_host import end_earlier_attempts, localize

MESSAGE_LIMIT = 1 << 20
"""Largest message of a rank, in bytes."""
MAX_UNSENT_BYTES = 16 * MESSAGE_LIMIT
"""Unread bytes of messages to a rank above which the rank counts as lost."""
CHECK_SECONDS = 0.25
"""Interval between two checks of its processes."""
STOPPED_SECONDS = 1.0
"""A process that is stopped for this time counts as lost."""
BEAT_SECONDS = 0.5
"""Interval of ``alive`` reports from a thread of their own, independent of the main loop."""
MPIEXEC_ENDED = "mpiexec ended"
"""Reason for the loss of a group's ranks; the launcher's exit code follows."""
EXIT_CODE_SECONDS = 2.0
"""Time limit for mpiexec to print the exit code of a rank, after all ranks of its group were killed."""
MAX_LAUNCHER_LINE = 1 << 16
TAKING_SECONDS = 5.0
"""Time limit for a rank to receive the next of its requested memories."""


def below_launcher(launcher: int) -> tuple[set[int], set[int]]:
    """Return all descendants of a launcher, and separately the children of its children.

    The launcher's children are hydra's proxies; their children become the ranks (`apples.launch.rank_wrapper`).
    """
    below: dict[int, set[int]] = {}
    for pid, parent in descendants(launcher):
        below.setdefault(parent, set()).add(pid)
    proxies = below.get(launcher, set())
    everybody = {pid for pids in below.values() for pid in pids}
    return everybody, {rank for proxy in proxies for rank in below.get(proxy, ())}


def _verb(how: str) -> str:
    """Return the end of a rank as the predicate of a sentence."""
    if how.startswith("killed"):
        return f"was {how}"
    return f"ended: {how}" if how else "ended"


def writable(handle: int) -> bool:
    """Whether a write to an open file does not block now."""
    poll = select.poll()
    poll.register(handle, select.POLLOUT)
    return bool(poll.poll(0))


def readable(channel: socket.socket) -> bool:
    """Whether data or the end can be read now; unlike `select.select`, for any number of open files."""
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    return bool(poll.poll(0))


def unlink_shared_memory(pids: set[int]) -> None:
    """Unlink shared memory files after all ranks have mapped them, so that a crash leaves no file."""
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/maps") as stream:  # noqa: PTH123
            names = {line.split()[-1] for line in stream if f"{SHARED_MEMORY}/mpich_shm_" in line}
            for name in names:
                os.unlink(name)  # noqa: PTH108


class CheckpointMemory:
    """Memory that ranks passed to their supervisor, as labels and descriptors: commits and saved states."""

    def __init__(self) -> None:
        self._kept: dict[int, list[tuple[dict[str, Any], int]]] = {}
        self._whole = 0
        self._saved: dict[int, tuple[dict[str, Any], int]] = {}

    def keep(self, label: dict[str, Any], handle: int) -> None:
        """Keep a rank's memory, of a saved state or of a commit; close the memory of incomplete commits."""
        if "saved" in label:
            self.forget(label["saved"])
            self._saved[label["saved"]] = label, handle
            return
        self._kept.setdefault(label["epoch"], []).append((label, handle))
        self._close_all_but(self._whole, label["epoch"])

    def complete(self, epoch: int) -> None:
        """Close all commits but this one, which is complete on all ranks."""
        self._whole = epoch
        self._close_all_but(epoch)

    def _close_all_but(self, *epochs: int) -> None:
        for number in self._kept.keys() - {*epochs}:
            for _, handle in self._kept.pop(number):
                os.close(handle)

    def forget(self, rank: int) -> None:
        """Close the memory of a rank's saved state."""
        if rank in self._saved:
            os.close(self._saved.pop(rank)[1])

    def send_all(self, channel: socket.socket, saved: int | None = None) -> None:
        """Send a rank the number of memories, then the label and a duplicate of the descriptor of each.

        Parameters
        ----------
        saved
            Rank for which to send the saved state; None: send all commits.
        """
        kept = [one for labels in self._kept.values() for one in labels]
        if saved is not None:
            kept = [self._saved[saved]] if saved in self._saved else []
        channel.settimeout(
            TAKING_SECONDS
        )  # the socket buffer does not hold all of them: the rank reads them meanwhile
        with contextlib.suppress(OSError):
            channel.send(json.dumps({"count": len(kept)}).encode())
            for label, handle in kept:
                socket.send_fds(channel, [json.dumps(label).encode()], [handle])
        channel.setblocking(False)


@dataclass(slots=True)
class RankConnection:
    """The supervisor's data about a connected rank.

    Attributes
    ----------
    pid
        Its process id, as the kernel reports it.
    rank
        Its number in the group; -1 until its first message.
    leaving
        Whether it has announced that it leaves.
    unsent
        Messages that wait for its socket.
    """

    pid: int
    rank: int = -1
    leaving: bool = False
    unsent: deque[bytes] = field(default_factory=deque)


class NodeSupervisor(HostAgent):
    """Supervises one group of ranks, started by one launcher.

    Parameters
    ----------
    folder
        Folder of the run, for the socket and the files of the group; the ranks print to the run's pipes. Empty on
        another machine than the manager's: the supervisor creates a folder, with pipes that it forwards.

    Attributes
    ----------
    group
        Number of the group, from the manager; 0 without a group.
    launcher
        Process id of mpiexec; 0 after its end.
    launcher_talk
        Open file for the launcher's own output.
    exit_codes
        Exit codes and signals of ended ranks, from mpiexec's output.
    ranks
        The ranks by their connections.
    awaited
        Ranks of the group that have not connected yet.
    lost, ending, leaving
        State of the group: its loss was reported; the manager ordered its end; a rank left by itself.
    releasing
        Whether the host is released: this process then ends after the group, without a further order.
    """

    def __init__(self, folder: str = "") -> None:
        super().__init__()
        self.is_far = not folder
        self.folder = folder or tempfile.mkdtemp(prefix="apples-", dir="/tmp")
        self.ranks: dict[socket.socket, RankConnection] = {}
        self.launcher = 0
        self.launcher_handle = self.launcher_output = -1
        self.launcher_lines = LineBuffer(MAX_LAUNCHER_LINE, truncating=True)
        self.exit_codes = ExitCodes([])
        self.kills: OutOfMemoryKills | None = None
        self.launcher_talk = 2
        self.group = 0
        self.lost = self.ending = self.leaving = self.releasing = False
        self.awaited = 0
        self.last_check = 0.0
        self.ended: dict[
            int, tuple[int, str, str, float]
        ] = {}  # by process: rank, end, memory, time
        self.stopped: dict[int, float] = {}  # stopped process -> time of its stop
        self.unconnected: set[int] = set()  # processes that will become ranks
        self.connected: set[int] = set()  # processes of the group that have connected as ranks
        self.files: set[str] = set()
        self.memory = CheckpointMemory()
        self.path = os.path.join(self.folder, f"supervisor-{os.getpid()}")  # noqa: PTH118 - pathlib is slow to load
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ended = threading.Event()

    def open(self) -> None:
        """Register the ranks' socket and the manager's orders with the selector."""
        expect_processes(self.folder)
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        # Each image of a rank in a commit is an open file here, and so is each copy for another host.
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        with socket_name(self.path) as name:
            self.listener.bind(name)
        self.listener.listen(1024)
        self.listener.setblocking(False)
        self.selector.register(self.listener, selectors.EVENT_READ, self.accept_rank)
        if self.is_far:
            self._forward_output()
        super().open()
        threading.Thread(target=self._beat, daemon=True).start()

    def close(self) -> None:
        """End all processes, and remove all memory files and the supervisor's own files."""
        self._ended.set()
        super().close()
        remove_shared_memory(noted_processes(self.folder))
        for path in (self.path, *self.files):
            with contextlib.suppress(OSError):
                os.unlink(path)  # noqa: PTH108
        if self.is_far:
            remove_run(self.folder, [])

    def _forward_output(self) -> None:
        """Create the pipes to which ranks print, and the launcher, so that their lines keep their order."""
        path = ""
        for name, event in (("output", "output"), ("errors", "error")):
            path = os.path.join(self.folder, name)  # noqa: PTH118 - as in `__init__`
            os.mkfifo(path, 0o600)
            self.forward(os.open(path, os.O_RDWR | os.O_NONBLOCK), event)
        self.launcher_talk = os.open(path, os.O_WRONLY)

    def _beat(self) -> None:
        """Report ``alive`` from a thread of its own, because the main loop may do slow work."""
        with contextlib.suppress(EOFError):  # the loop gets the error as well
            while not self._ended.wait(BEAT_SECONDS):
                self.report("alive")

    # --------------------------------------------------------------- orders of the manager

    def handle(self, order: dict[str, Any]) -> None:
        """Carry out an order of the manager."""
        what = order["order"]
        if what == "start":
            try:
                self.start(order)
            except OSError as error:  # for example a full disk or process table
                self._report_lost(f"{error.filename or self.folder}: {error.strerror}")
                self._report_empty()
        elif what == "send":
            message = json.dumps(order["message"]).encode()
            for channel, rank in list(self.ranks.items()):
                if order.get("rank") in (None, rank.rank):
                    self._send(channel, rank, message)
        elif what == "pause":
            self.hold_output(order["paused"])
        elif what == "release":
            self.releasing = True
        elif what == "end":
            self.ending = True
            if self.launcher:
                os.kill(self.launcher, signal.SIGKILL)  # not reaped, so the pid cannot be reused
            kill_descendants(os.getpid(), spare=self.launcher)

    def start(self, order: dict[str, Any]) -> None:
        """Write the group's files, then fork its launcher."""
        if self.is_far:
            localize(order)
            if order["commits"] and not os.path.isdir(order["commits"]):  # noqa: PTH112
                self.report("no_commits", group=order["group"])
        self.group, self.lost, self.ending, self.leaving = order["group"], False, False, False
        self.ended, self.connected, self.kills = {}, set(), None
        self.exit_codes = ExitCodes([(THIS_MACHINE, order["ranks"])])
        self.awaited, self.unconnected = order["ranks"], set()
        for name, text in order["files"].items():
            path = os.path.join(self.folder, f"{name}-{os.getpid()}.json")  # noqa: PTH118
            with naming(path), open(path, "w", encoding="utf-8") as stream:  # noqa: PTH123 - as above
                stream.write(text)
            os.environ[f"APPLES_{name.upper()}"] = path
            self.files.add(path)
        argv = [os.environ["APPLES_LAUNCH"] if a == "{launch}" else a for a in order["argv"]]
        environment = {**os.environ, **order["environment"], "APPLES_MALLEABLE": self.path}
        supervisor = os.getpid()
        self.launcher_output, written = os.pipe()
        os.set_blocking(self.launcher_output, False)
        try:
            with self.reporting, warnings.catch_warnings():
                # Python 3.12 warns of forks in a process with threads; an exec follows.
                warnings.simplefilter("ignore")
                self.launcher = os.fork()
            if not self.launcher:
                os.dup2(written, 1)  # standard output is the wire to the manager
                os.dup2(self.launcher_talk, 2)
                exec_launcher(argv, supervisor, environment)
        except OSError:
            os.close(self.launcher_output)
            raise
        finally:
            os.close(written)
        self.selector.register(self.launcher_output, selectors.EVENT_READ, self._read_launcher)
        self.launcher_handle = os.pidfd_open(self.launcher)
        self.selector.register(self.launcher_handle, selectors.EVENT_READ, self._on_launcher_exit)

    # --------------------------------------------------------------- messages of the ranks

    def accept_rank(self) -> None:
        """Accept a rank's connection; the kernel reports its process and user."""
        try:
            channel, _ = self.listener.accept()
        except BlockingIOError:
            return  # `_on_launcher_exit` has accepted all connections in the same turn of the loop
        pid, uid = peer_credentials(channel)
        if uid != os.getuid():
            channel.close()
            return
        channel.setblocking(False)
        self.ranks[channel] = RankConnection(pid)
        self.selector.register(channel, selectors.EVENT_READ, lambda: self._serve_rank(channel))

    def _send(self, channel: socket.socket, rank: RankConnection, message: bytes) -> None:
        """Send a message to a rank now, or when its socket takes it: a rank that computes does not read."""
        rank.unsent.append(message)
        if len(rank.unsent) == 1:
            self._send_unsent(channel, rank)
        elif sum(map(len, rank.unsent)) > MAX_UNSENT_BYTES:
            self._report_lost(f"rank {rank.rank} (process {rank.pid}) reads none of its messages")

    def _send_unsent(self, channel: socket.socket, rank: RankConnection) -> None:
        """Send the messages that a rank's socket takes now; the selector reports when it takes more."""
        try:
            while rank.unsent:
                channel.send(rank.unsent[0])
                rank.unsent.popleft()
        except BlockingIOError:
            pass
        except OSError:
            rank.unsent.clear()  # `_read_rank` detects the rank's end
        key = self.selector.get_key(channel)
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if rank.unsent else 0)
        if events != key.events:
            self.selector.modify(channel, events, key.data)

    def _serve_rank(self, channel: socket.socket) -> None:
        """Read a message of a rank, if any, and send the messages that wait for its socket."""
        self._read_rank(channel)
        rank = self.ranks.get(channel)
        if rank is not None and rank.unsent:
            self._send_unsent(channel, rank)

    def _read_rank(self, channel: socket.socket) -> None:
        """Handle a message of a rank, or its end."""
        rank = self.ranks.get(channel)
        if rank is None:
            return  # its end was handled already
        try:
            data, handles, _, _ = socket.recv_fds(channel, MESSAGE_LIMIT, 8)
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
        if not rank.leaving:
            self.on_rank_end(rank.rank, rank.pid)

    def on_rank_end(self, rank: int, pid: int) -> None:
        """Handle the end of a rank, which loses the group: kill the others, so that mpiexec prints exit codes."""
        how = how_unreaped(pid)  # first, because the parent is about to reap it
        memory = self.kills.how_it_ended() if self.kills else ""
        self.ended[pid] = (rank, how, memory, time.monotonic())
        for other in self.ranks.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(other.pid, signal.SIGKILL)
        self.report_ended()

    def report_ended(self) -> None:
        """Report ended ranks, once mpiexec printed the exit code, ended, or exceeded its time limit."""
        now = time.monotonic()
        for pid, (rank, reported, memory, since) in list(self.ended.items()):
            how = reported or self.exit_codes.ends.get(rank, "")
            if not how and self.launcher and now - since < EXIT_CODE_SECONDS:
                break  # later ends are of ranks that were killed because of this rank
            why = f"rank {rank} (process {pid}) {_verb(with_memory(how, memory))}"
            self._report_lost(why, aborted=how.startswith("exit code"))
            del self.ended[pid]

    def _read_launcher(self) -> None:
        """Read the exit codes that mpiexec prints; pass on its other lines as far as that does not block."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.launcher_output, MAX_LAUNCHER_LINE):
                for line in self.launcher_lines.feed(data):
                    if not self.exit_codes.take(line.decode(errors="replace")):
                        self._log(line + b"\n")

    def _log(self, text: bytes) -> None:
        """Write a line of the launcher as far as that does not block; drop the rest."""
        while text and writable(
            self.launcher_talk
        ):  # a writable pipe takes PIPE_BUF bytes without blocking
            text = text[os.write(self.launcher_talk, text[: select.PIPE_BUF]) :]

    def _on_message(
        self,
        channel: socket.socket,
        rank: RankConnection,
        message: dict[str, Any],
        handles: list[int],
    ) -> None:
        """Handle a rank's message: a few are for this supervisor, all others go to the manager."""
        event = message["event"]
        if event == "hello":
            rank.rank = message["rank"]
            self.awaited -= 1
            self.connected.add(rank.pid)
            self.kills = self.kills or OutOfMemoryKills(
                rank.pid
            )  # ranks of a group share its cgroup
            # MPICH opens its shared memory by name until the last rank has mapped it; earlier
            # removal would break MPI_Init.
            if not self.awaited:
                unlink_shared_memory(self.connected)
        elif event == "leaving":
            rank.leaving = self.leaving = True
        if event == "keep":
            self.memory.keep(message, handles[0])
        elif event == "whole":
            self.memory.complete(message["epoch"])
        elif event == "memories":
            self.memory.send_all(channel, message.get("saved"))
        elif event == "forget":
            self.memory.forget(message["saved"])
        else:
            self.report("message", group=self.group, rank=rank.rank, message=message)

    # --------------------------------------------------------------- the group's processes

    def check(self) -> None:
        """Check whether the manager is silent, and which processes ended or were stopped."""
        super().check()
        now = time.monotonic()
        silent = self.silence.seconds(now)
        # A manager's process on another machine is not visible: only the end of the connection shows its end.
        if silent > peer.SILENCE_SECONDS and peer.lost(
            silent, runs=self.is_far or peer.process_runs(os.getppid())
        ):
            if not self.is_far:
                self._kill_stopped_manager()
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

    def _kill_stopped_manager(self) -> None:
        """Kill a stopped manager: it can neither end its job nor read reports."""
        if state_of(os.getppid()) in "Tt":
            with contextlib.suppress(OSError):
                os.kill(os.getppid(), signal.SIGKILL)

    def _supervised(self) -> set[int]:
        """Return the launcher, the ranks, and the processes between them."""
        found = {self.launcher} - {0}
        if self.launcher and self.awaited > 0:
            found |= self._starting()
        for rank in self.ranks.values():
            pid = rank.pid
            while pid not in {*found, 0, 1, os.getpid()}:
                found.add(pid)
                pid = parent_of(pid)
        return found

    def _starting(self) -> set[int]:
        """Return all processes below the launcher; report a loss if a process ended before it became a rank."""
        everybody, ranks = below_launcher(self.launcher)
        if ended := self.unconnected - ranks:
            self._report_lost(f"process {min(ended)} ended before its first safe point")
        self.unconnected = ranks
        return everybody

    def _on_launcher_exit(self) -> None:
        """Reap the launcher; its end is a loss unless every rank had announced that it leaves."""
        self.selector.unregister(self.launcher_handle)
        os.close(self.launcher_handle)
        _, status = os.waitpid(self.launcher, 0)
        self.launcher = 0
        while readable(self.listener):
            self.accept_rank()
        for channel in list(self.ranks):  # read the messages that are still in the sockets first
            while channel in self.ranks and readable(channel):
                self._read_rank(channel)
        self._read_launcher()
        self.selector.unregister(self.launcher_output)
        os.close(self.launcher_output)
        self.report_ended()
        if not self.leaving or not all(rank.leaving for rank in self.ranks.values()):
            ends = self.exit_codes.ends.items()
            failed = [f"rank {rank} {_verb(how)}" for rank, how in ends if how != "exit code 0"]
            self._report_lost(
                f"{failed[0]} before its first safe point"
                if failed and not self.connected
                else f"{MPIEXEC_ENDED} ({os.waitstatus_to_exitcode(status)})",
                aborted=bool(failed),
            )
        self._report_empty()

    def _report_empty(self) -> None:
        """Kill all processes that outlived the launcher, and report that the group is empty."""
        kill_descendants(os.getpid())
        self.drain_forwarded()
        if not self.releasing:  # else this process is about to end, and `close` removes it
            remove_shared_memory(noted_processes(self.folder))
        for channel in list(self.ranks):
            self.selector.unregister(channel)
            channel.close()
        self.ranks.clear()
        self.report("empty", group=self.group)
        self.group = 0
        if self.releasing:
            self.finish()

    def _report_lost(self, why: str, *, aborted: bool = False) -> None:
        """Report the loss of the group, once, unless the manager ordered its end.

        A rank that `aborted` ended with an exit code, as MPI ends a rank when a rank on another host was killed.
        """
        if self.lost or self.ending or not self.group:
            return
        self.lost = True
        self.report("lost", group=self.group, why=why, aborted=aborted)


def main() -> int:
    """Run the supervisor on another machine than the manager's; arguments: ``APPLES_JOB=JOB ATTEMPT`` of a job."""
    if len(sys.argv) == 3 and int(sys.argv[2]) > 1:
        end_earlier_attempts(sys.argv[1].partition("=")[2], int(sys.argv[2]))
    NodeSupervisor().run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
