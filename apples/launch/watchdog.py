"""Guards one run: whatever happens to the agent or the launcher, no process of the run is left.

Run by path as ``python -I -S watchdog.py DIRECTORY REPORT_FD AGENT_PID`` in a session of its own; standard
library only. Standard input is a pipe the agent holds: a JSON line says what to start, later lines are
words (``go``, ``ready``), and its end says that the agent is gone or wants the run gone. As subreaper it inherits
every orphan of the run. If the watchdog itself is killed, the launcher dies with it (parent-death
signal), the proxies with the launcher, the ranks with their proxy.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterator

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
FOLDER = "/dev/shm/"  # noqa: S108 - libfabric names its segments by process
SHARED_MEMORY = FOLDER + "mpich_shm_"  # the name MPICH gives its segments, removed here
PATIENCE_SECONDS = 2.0
"""How long a cgroup is waited for after its last process is gone."""
DEFAULTED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)


class Watchdog:
    """One run's guard: starts the launcher, reports who ended, and clears up."""

    def __init__(self, directory: str, report: int, agent: int) -> None:
        self.directory, self.report_pipe, self.agent = directory, report, agent
        self.launcher = 0
        self.status: int | None = None
        self.cgroups: list[str] = []
        self.linger = 0.0
        self.ranks: dict[int, tuple[int, int]] = {}
        self.shared, self.inboxes = set[str](), set[str]()
        self.poll = select.poll()
        self.input = self.registered = b""

    def run(self) -> int:
        """Guard until the launcher ended or the agent is gone; return the launcher's code."""
        fifo = os.path.join(self.directory, "ranks")  # noqa: PTH118 - pathlib is slow to load
        try:
            os.mkfifo(fifo, 0o600)
            self.listener = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
            for name in ("output", "errors"):  # open until the run ends, not between two ranks
                os.open(os.path.join(self.directory, name), os.O_WRONLY | os.O_NONBLOCK)  # noqa: PTH118
            asked, told = os.pipe()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, lambda *_: os.write(told, b"x"))
            config = json.loads(self._line() or b"{}")
            self.cgroups, self.linger = config.get("cgroups", []), config.get("linger", 0.0)
            if self._line() == b"go":
                self._start(config["argv"])
                self._guard(asked, config["grace"])
        finally:
            self._clear()
        return self.status or 0

    def _line(self) -> bytes:
        """Return the next line of the agent; empty when it is gone."""
        while b"\n" not in self.input:
            data = os.read(0, 65536)
            if not data:
                return b""
            self.input += data
        line, _, self.input = self.input.partition(b"\n")
        return line

    def _start(self, argv: list[str]) -> None:
        watchdog = os.getpid()
        self.launcher = os.fork()
        if self.launcher == 0:
            become(argv, watchdog)
        os.dup2(null := os.open(os.devnull, os.O_WRONLY), 1)
        os.close(null)

    def _guard(self, asked: int, grace: float) -> None:
        """Wait for the end of the launcher or of the agent."""
        launcher, agent = os.pidfd_open(self.launcher), os.pidfd_open(os.getppid())
        if os.getppid() != self.agent:
            self._dismiss(launcher, grace)
            return
        ends = (asked, agent)
        for pipe in (0, self.listener, launcher, *ends):
            self.poll.register(pipe, select.POLLIN)
        while True:
            for pipe, _ in self.poll.poll(1000) or self._wake():
                if pipe == launcher:
                    self._reap_launcher()
                    return
                if pipe in ends or (pipe == 0 and not self._hear()):
                    self._dismiss(launcher, grace)
                    return
                if pipe == self.listener:
                    self._admit()
                elif pipe in self.ranks:
                    self._mourn(pipe)

    def _wake(self) -> tuple[()]:
        """Let a launcher that was stopped go on: when all others have ended nobody else would notice."""
        if _stat(self.launcher)[0] == b"T":
            os.kill(self.launcher, signal.SIGCONT)
        return ()

    def _hear(self) -> bool:
        """Read what the agent says; False when it is gone or wants the run gone."""
        data = os.read(0, 65536)
        if b"ready" in data:
            self._note_shared_memory()
            self._unlink_shared_memory()  # every rank has it mapped: nobody needs the name any more
        return bool(data) and b"end" not in data

    def _admit(self) -> None:
        """Watch the ranks that registered themselves."""
        self.registered += os.read(self.listener, 65536)
        *lines, self.registered = self.registered.split(b"\n")
        for line in lines:
            rank, pid = map(int, line.split())
            try:
                pidfd = os.pidfd_open(pid)
            except OSError:
                self._report(f"rank {rank}")
                continue
            self.ranks[pidfd] = (rank, pid)
            self.poll.register(pidfd, select.POLLIN)

    def _mourn(self, pidfd: int) -> None:
        """Report a rank that ended."""
        self._note_shared_memory()
        rank, _ = self.ranks.pop(pidfd)
        self.poll.unregister(pidfd)
        os.close(pidfd)
        self._report(f"rank {rank}")

    def _dismiss(self, launcher: int, grace: float) -> None:
        """Ask the launcher to end, for as long as the grace lasts."""
        self._note_shared_memory()
        os.kill(self.launcher, signal.SIGTERM)
        if select.select([launcher], [], [], grace)[0]:
            self._reap_launcher()

    def _reap_launcher(self) -> None:
        _, status = os.waitpid(self.launcher, 0)
        code = os.waitstatus_to_exitcode(status)
        self.status = code if code >= 0 else 128 - code
        self._report(f"exit {code}")

    def _report(self, line: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self.report_pipe, f"{line}\n".encode())

    def _note_shared_memory(self) -> None:
        for _, pid in self.ranks.values():
            for line in _read(f"/proc/{pid}/maps").decode(errors="replace").splitlines():
                _, _, name = line.partition(SHARED_MEMORY)
                if name and "/" not in name and not name.endswith(" (deleted)"):
                    self.shared.add(SHARED_MEMORY + name)
                _, _, name = line.partition(FOLDER)
                if ":" in name and name.partition(":")[0].isdigit():
                    self.inboxes.add(FOLDER + name)  # of ranks that later ones may still look up

    def _unlink_shared_memory(self) -> None:
        for name in self.shared:
            with contextlib.suppress(OSError):
                os.unlink(name)  # noqa: PTH108 - pathlib is slow to load
        self.shared.clear()

    def _see_off(self) -> None:
        """Give connections to other hosts a moment to end by themselves, with their last words."""
        deadline = time.monotonic() + self.linger
        while time.monotonic() < deadline and reap() and any(descendants(os.getpid())):
            time.sleep(0.01)

    def _clear(self) -> None:
        """Kill every descendant until none is left; remove what the run had on this machine."""
        self._note_shared_memory()
        self._see_off()
        clear(os.getpid())
        self.shared |= self.inboxes
        self._unlink_shared_memory()
        remove(self.directory, self.cgroups)
        self._report("clear")


def become(argv: list[str], watchdog: int) -> None:
    """Turn this child into the launcher, which dies with the watchdog; in a group that hydra may kill."""
    try:
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        for number in DEFAULTED:
            signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if os.getppid() == watchdog:
            os.execv(argv[0], argv)  # noqa: S606 - an argument list, no shell
    except OSError as error:
        sys.stderr.write(f"apples: cannot start {argv[0]}: {error.strerror}\n")
        sys.stderr.flush()
    finally:
        os._exit(127)


def clear(ancestor: int) -> None:
    """Kill all descendants of this process and reap them, until none is left."""
    while True:
        found = list(descendants(ancestor))
        for pid, parent in found:
            kill(pid, parent)
        reap()
        if not found:
            return
        time.sleep(0.005)


def reap() -> bool:
    """Take note of every child that ended; whether there may be more."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    return False


def kill(pid: int, parent: int) -> None:
    """Kill the process `pid` if it still is the child of `parent` (numbers are used again)."""
    with contextlib.suppress(OSError):
        pidfd = os.pidfd_open(pid)
        try:
            if _parent(pid) == parent:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)


def descendants(ancestor: int) -> Iterator[tuple[int, int]]:
    """Yield every descendant with its parent, parents first."""
    children: dict[int, list[int]] = {}
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):  # noqa: PTH208
        children.setdefault(_parent(pid), []).append(pid)
    waiting = [ancestor]
    while waiting:
        parent = waiting.pop()
        for pid in children.get(parent, ()):
            yield pid, parent
            waiting.append(pid)


def _parent(pid: int) -> int:
    """Return the parent of a process; 0 when it is gone."""
    return int(_stat(pid)[1])


def _stat(pid: int) -> list[bytes]:
    """Return the fields after the name: state, parent and more."""
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split() or [b"", b"0"]


def _read(path: str) -> bytes:
    """Return a file of /proc; empty when its process is gone or another user's."""
    try:
        with open(path, "rb") as stream:  # noqa: PTH123 - pathlib is slow to load
            return stream.read()
    except OSError:
        return b""


def remove(directory: str, cgroups: list[str]) -> None:
    """Remove the run's cgroups and its directory of plain files; what is gone already is fine."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    for cgroup in cgroups:
        while True:
            try:
                os.rmdir(cgroup)  # noqa: PTH106 - pathlib is slow to load
            except FileNotFoundError:
                break
            except OSError:  # its last process is still being taken away
                if time.monotonic() > deadline:
                    break
                time.sleep(0.005)
    with contextlib.suppress(OSError):
        for entry in os.scandir(directory):
            os.unlink(entry.path)  # noqa: PTH108
        os.rmdir(directory)  # noqa: PTH106


def main() -> int:
    """Guard the run in the directory of the first argument."""
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    prctl(PR_SET_PDEATHSIG, int(signal.SIGCONT), 0, 0, 0)  # a stopped watchdog must hear of it too
    return Watchdog(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])).run()


if __name__ == "__main__":
    sys.exit(main())
