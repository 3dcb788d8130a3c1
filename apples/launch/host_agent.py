"""Supervise one run on a host: this machine, or another one over ssh. At its end no process of the run is left.

On the agent's machine it is started by path, as ``python -I -S host_agent.py DIRECTORY LAUNCHER_OUTPUT
AGENT_PID``, in a new session. It starts mpiexec or a job manager, and hydra's proxy for this machine. On another
host, the agent sends this module over the ssh connection (`apples.launch.remote.bootstrap`), and it starts hydra's
proxy. Standard library only.

The protocol is that of `apples.launch.hostd`. Orders: ``prepare`` (on the agent's machine: the cgroups to remove,
the ranks to expect), ``start`` (argument list of the launcher), ``proxy`` (on the agent's machine: argument list
of the proxy), ``ready`` (all ranks have started), ``end``. Reports: ``rank`` (a rank ended, and how), ``exit``
(the launcher's exit code), ``messages`` (the counts of a rank, base64), ``clear`` (no process and no file of the
run is left on this host).

If this process is killed, its launcher dies with it (parent-death signal), the proxies with the launcher, the
ranks with their proxy.
"""

from __future__ import annotations

import binascii
import contextlib
import importlib
import json
import os
import select
import selectors
import signal
import sys
import time
from collections.abc import Iterable
from typing import Any

if __name__ == "__main__":  # started by path and without site packages: add the folder of apples
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))  # noqa: PTH100, PTH120

from apples.io.json_lines import LineBuffer
from apples.io.naming import naming
from apples.launch import job_processes
from apples.launch.hostd import STALLED_SECONDS, HostAgent
from apples.launch.message_counts import on_host as counting
from apples.launch.rank_ends import OutOfMemoryKills, how_unreaped, with_memory
from apples.launch.this_host import lacking_shared_memory, locate_programs, ssh_network

SHARED_MEMORY = job_processes.SHARED_MEMORY + "/mpich_shm_"
"""Path prefix of MPICH's shared memory segments, which this agent removes."""
DESCRIPTION = "/tmp/hydra_hwloc_xmlfile_"  # noqa: S108 - hydra's own name for it
"""Path prefix of a file in which a proxy describes the machine to its ranks; a killed proxy leaves the file."""
QUIET_SECONDS = 1.0
"""Time without an event after which the agent searches for ranks that ended before they registered."""
EXIT_CODE_SECONDS = 1.0
"""Time limit for a launcher to end after its ranks were killed; until then hydra passes on their exit codes."""
KILLS_BY_SHARED_MEMORY = (
    *("killed by SIGBUS", "killed by SIGSEGV", "killed by SIGUSR1"),
    *("exit code 7", "exit code 10", "exit code 11"),
)
"""Possible ends of ranks in MPI_Init when shared memory is full: a signal, or its number as exit code."""
COUNTS_SECONDS = 5.0
"""Interval between two reports of message counts."""
MAX_REGISTRATION = 512
OUTPUT, ERRORS = "output", "errors"
"""Names of the pipes to which ranks write."""
OWN_ERRORS, MAX_OWN_ERRORS = "errors-", 256
"""Name prefix of one rank's standard error pipe, before its number. Ranks above the limit share `ERRORS`."""
MAX_RANK_DIGITS = 9
CHUNK = 1 << 16
MANAGER = "apples-manager"
"""Name of a job manager's process in the kernel."""


class RunAgent(HostAgent):
    """Supervises the launcher and the registered ranks of one run on this host, and cleans up after them."""

    beat_seconds = 10.0
    wait_seconds = QUIET_SECONDS

    def __init__(self, directory: str) -> None:
        super().__init__()
        self.directory = directory
        self.launcher, self.launcher_handle = 0, -1
        self.status: int | None = None
        self.cgroups: list[str] = []
        self.ranks: dict[int, tuple[int, int, OutOfMemoryKills]] = {}
        self.awaited, self.missing = set[int](), set[int]()
        self.initialising = 0
        self.files = set[str]()
        self.listener = -1
        self.registered = LineBuffer(MAX_REGISTRATION, truncating=True)
        self.last_event = 0.0

    def open(self) -> None:
        """Create the pipe to which ranks write their process ids, and begin to read it."""
        job_processes.expect_processes(self.directory)
        os.mkfifo(self.path("ranks"), 0o600)
        self.listener = os.open(self.path("ranks"), os.O_RDWR | os.O_NONBLOCK)
        self.selector.register(self.listener, selectors.EVENT_READ, self.on_registration)
        super().open()

    def handle(self, order: dict[str, Any]) -> None:
        """Carry out an order."""
        self.last_event = time.monotonic()
        what = order["order"]
        if what == "start":
            self.start(order)
        elif what == "ready":
            self.awaited.clear()
            self.initialising = 0
            self._note_files()
            self._unlink_files()  # every rank has opened them
        elif what == "end":
            raise EOFError

    def start(self, order: dict[str, Any]) -> None:
        """Start the launcher."""
        raise NotImplementedError

    def fork(self, argv: list[str], output: int, *, forks: bool = False) -> int:
        """Start a child that dies with this process and writes to `output`; return its process id.

        Parameters
        ----------
        forks
            Whether `argv` is ``python -m MODULE ..`` and the child calls the module's ``main`` without a new
            interpreter.
        """
        agent = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.dup2(output, 1)  # the agent's own standard output is its reports
            if forks and argv[:2] == [sys.executable, "-m"]:
                job_processes.as_child(lambda: be_manager(argv[2], argv[3:], agent))
            job_processes.exec_launcher(argv, agent)
        return pid

    def watch_launcher(self, pid: int) -> None:
        """Watch the launcher; this agent ends when the launcher ends."""
        self.launcher, self.launcher_handle = pid, os.pidfd_open(pid)
        self.selector.register(self.launcher_handle, selectors.EVENT_READ, self._on_launcher_exit)

    # ------------------------------------------------------------- ranks

    def on_registration(self) -> None:
        """Read registrations: watch each new rank, and report ranks with an end that Slurm printed."""
        self.last_event = time.monotonic()
        with contextlib.suppress(BlockingIOError):
            for line in self.registered.feed(os.read(self.listener, CHUNK)):
                rank, _, what = line.decode(errors="replace").partition(" ")
                if rank.isdecimal() and len(rank) < MAX_RANK_DIGITS:
                    self._on_rank_line(int(rank), what)

    def _on_rank_line(self, rank: int, what: str) -> None:
        if not what.isdecimal():
            self.report("rank", rank=rank, what=what)
            return
        try:
            pidfd = os.pidfd_open(int(what))
        except (OSError, OverflowError):
            self.report("rank", rank=rank)
            return
        self.ranks[pidfd] = (rank, int(what), OutOfMemoryKills(int(what)))
        self.awaited.discard(rank)
        self.selector.register(pidfd, selectors.EVENT_READ, lambda: self._on_rank_exit(pidfd))

    def await_ranks(self, hosts: Iterable[dict[str, Any]]) -> None:
        """Expect the ranks of these entries of a launch file to register."""
        for entry in hosts:
            if "first_rank" in entry:  # ranks on other machines and under Slurm register elsewhere
                first = entry["first_rank"]
                self.awaited.update(range(first, first + entry["ranks"]))
        self.initialising = len(self.awaited)

    def check(self) -> None:
        """Examine the processes after `QUIET_SECONDS` without an event."""
        super().check()
        now = time.monotonic()
        if now - self.last_event >= QUIET_SECONDS:
            self.last_event = now
            self.on_quiet()

    def on_quiet(self) -> None:
        """Report ranks that ended before they registered: the kernel sends no notification of them.

        A proxy starts its ranks in quick succession. Once it has reaped a rank or a rank has registered, a rank
        that is missing among its processes in two successive calls has ended.
        """
        # If a rank exits before it registers, hydra's proxy reaps it, spins on a CPU and reports nothing. Two
        # checks are needed because a proxy may get no CPU between two forks.
        proxies = self._proxies() if self.awaited else set()
        if not proxies or any(job_processes.state_of(proxy) not in "RS" for proxy in proxies):
            return
        there = {
            _rank_of(pid)
            for pid in job_processes.all_processes()
            if job_processes.parent_of(pid) in proxies and job_processes.state_of(pid) not in "ZX"
        }
        if None in there:  # a process that is about to become a rank
            return
        missing = self.awaited - there
        for rank in sorted(missing & self.missing):
            self.report("rank", rank=rank)
        self.missing = missing

    def _proxies(self) -> set[int]:
        """Return the proxies that have started ranks: they are parents of registered ranks, or reaped a rank."""
        reaped = {proxy for proxy in self.proxies() if job_processes.has_reaped(proxy)}
        return reaped | self._parents_of_ranks()

    def _parents_of_ranks(self) -> set[int]:
        return {job_processes.parent_of(pid) for _, pid, _ in self.ranks.values()}

    def proxies(self) -> Iterable[int]:
        """Return the process ids of hydra's proxies on this host."""
        raise NotImplementedError

    def _on_rank_exit(self, pidfd: int) -> None:
        """Report a rank that ended, with its exit code or signal if its parent has not reaped it yet."""
        self.last_event = time.monotonic()
        rank, pid, kills = self.ranks.pop(pidfd)
        how = how_unreaped(pid)  # must come first: the parent is about to reap the rank
        self._explain_by_shared_memory(rank, how)
        self._note_files()
        self.selector.unregister(pidfd)
        os.close(pidfd)
        job_processes.remove_shared_memory({pid})
        self.report("rank", rank=rank, what=with_memory(how, kills.how_it_ended()))

    def _explain_by_shared_memory(self, rank: int, how: str) -> None:
        """Add a line to a rank's standard error if too little shared memory may have killed it in MPI_Init."""
        killed = how in ("", *KILLS_BY_SHARED_MEMORY)
        if self.initialising and killed and (lacking := lacking_shared_memory(self.initialising)):
            self.report("error", rank=rank, lines=[f"apples: {lacking}"])
            self.initialising = 0  # report this only once

    def end_ranks(self, number: signal.Signals) -> None:
        """Send a signal to the ranks that registered."""
        for pidfd in self.ranks:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, number)

    def _on_launcher_exit(self) -> None:
        self.reap_launcher()
        self.last_reports_seconds = STALLED_SECONDS  # the agent must receive the end of the run
        raise EOFError

    def launcher_ends(self, seconds: float) -> bool:
        """Whether the launcher ends within `seconds`."""
        return bool(select.select([self.launcher_handle], [], [], seconds)[0])

    def reap_launcher(self) -> None:
        """Reap the launcher and report its exit code, after the rank ends that are known by now."""
        self.on_registration()
        _, status = os.waitpid(self.launcher, 0)
        self.launcher = 0
        code = os.waitstatus_to_exitcode(status)
        self.status = code if code >= 0 else 128 - code
        self.report("exit", code=code)

    # ------------------------------------------------------------- files and the end

    def path(self, name: str) -> str:
        """Return the path of a file of the run."""
        return os.path.join(self.directory, name)  # noqa: PTH118 - pathlib is slow to load

    def _note_files(self) -> None:
        """Note the run's files outside its folder: shared memory of ranks, machine descriptions of proxies."""
        for proxy in self._parents_of_ranks():
            self.files.update(name for name in _opened(proxy) if name.startswith(DESCRIPTION))
        for _, pid, _ in self.ranks.values():
            maps = job_processes.read(f"/proc/{pid}/maps").decode(errors="replace")
            for line in maps.splitlines():
                _, _, name = line.partition(SHARED_MEMORY)
                if name and "/" not in name and not name.endswith(" (deleted)"):
                    self.files.add(SHARED_MEMORY + name)

    def _unlink_files(self) -> None:
        for name in self.files:
            with contextlib.suppress(OSError):
                os.unlink(name)  # noqa: PTH108 - pathlib is slow to load
        self.files.clear()

    def close(self) -> None:
        """Kill every descendant until none is left, remove the run's files on this machine, and report that."""
        self._note_files()
        super().close()
        self._unlink_files()
        self.report_last()
        if self.directory:
            job_processes.remove_run(self.directory, self.cgroups)
        self.report("clear")

    def report_last(self) -> None:
        """Report data of the run's files before they are removed; all its processes have ended."""


class LocalRunAgent(RunAgent):
    """Supervises the part of a run on the agent's machine: the launcher and this machine's proxy.

    The agent itself reads the pipes of the ranks; the launcher writes to `launcher_output`.
    """

    def __init__(self, directory: str, launcher_output: int, agent: int) -> None:
        super().__init__(directory)
        os.set_inheritable(launcher_output, False)
        self.launcher_output, self.agent = launcher_output, agent
        self.grace, self.several, self.proxy = 0.0, False, 0

    def open(self) -> None:
        """Begin to read orders, and watch the agent's process: a fork of it may keep the order pipe open."""
        super().open()
        for name in os.listdir(self.directory):  # noqa: PTH208 - pathlib is slow to load
            if name in (OUTPUT, ERRORS) or name.startswith(OWN_ERRORS):
                os.open(self.path(name), os.O_WRONLY | os.O_NONBLOCK)  # open until the run ends
        agent = os.pidfd_open(os.getppid())
        if os.getppid() != self.agent:
            raise EOFError
        self.selector.register(agent, selectors.EVENT_READ, _end)

    def handle(self, order: dict[str, Any]) -> None:
        """Carry out an order."""
        if order["order"] == "prepare":
            self.cgroups, self.grace = order["cgroups"], order["grace"]
            self.several = order["several"]
            self.await_ranks(order["hosts"])
        elif order["order"] == "proxy":
            null = os.open(os.devnull, os.O_WRONLY)
            self.proxy = self.fork(order["argv"], null)  # its ranks and mpiexec end when it ends
            os.close(null)
        super().handle(order)

    def start(self, order: dict[str, Any]) -> None:
        """Start the launcher."""
        self.watch_launcher(self.fork(order["argv"], self.launcher_output, forks=order["forks"]))
        os.close(self.launcher_output)

    def proxies(self) -> Iterable[int]:
        """Return the proxy of this machine: a child of this process, or of mpiexec."""
        if self.several:
            return [self.proxy] if self.proxy else []
        parent_of = job_processes.parent_of
        return [pid for pid in job_processes.all_processes() if parent_of(pid) == self.launcher]

    def on_quiet(self) -> None:
        """Report the ranks of an ended proxy, and continue a stopped launcher.

        A proxy ends if its only rank is killed before it registers, but mpiexec still waits. Once all ranks have
        ended, no event would show that the launcher is stopped.
        """
        if self.proxy and job_processes.state_of(self.proxy) in "ZX":
            for rank in sorted(self.awaited):
                self.report("rank", rank=rank)
            self.awaited.clear()
        super().on_quiet()
        if self.launcher and job_processes.state_of(self.launcher) == "T":
            os.kill(self.launcher, signal.SIGCONT)

    def close(self) -> None:
        """Ask the launcher to end within the grace time. Else kill the ranks; it then prints their exit codes."""
        if self.launcher:
            self._note_files()
            ended = False
            if self.several:  # mpiexec fails on a SIGTERM if one of several proxies has ended
                self.end_ranks(signal.SIGTERM)
                ended = self.launcher_ends(EXIT_CODE_SECONDS)
            if not ended:
                os.kill(self.launcher, signal.SIGTERM)  # not reaped, so the pid cannot be reused
                ended = self.launcher_ends(self.grace)
            if not ended and self.ranks:
                self.end_ranks(signal.SIGKILL)
                ended = self.launcher_ends(EXIT_CODE_SECONDS)
            if ended:
                self.reap_launcher()
        super().close()


class RemoteRunAgent(RunAgent):
    """Supervises the part of a run on a host over ssh: its launcher is hydra's proxy.

    Parameters
    ----------
    config
        ``job``, the name of the run; ``directory``, the folder to create for it; ``home``, the program's working
        directory; ``launch``, the launch file of this host; more ``files`` of the run; ``counting``, the library
        that counts messages (`message_counts`) or None.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__("")
        self.config = config
        self.counts, self.counts_due = "", 0.0
        self.compilation: counting.Compilation | None = None
        self.waiting_start: dict[str, Any] = {}  # the start order, until the compilation ends
        os.umask(0o077)
        os.environ[job_processes.MARK] = config["job"]

    def open(self) -> None:
        """Create the folder of the run, its files and its pipes, before any order is read.

        Once the folder is created, `close` removes it.
        """
        os.mkdir(self.config["directory"], 0o700)  # noqa: PTH102 - pathlib is slow to load
        self.directory = self.config["directory"]
        super().open()
        launch = self.config["launch"]
        locate_programs(launch, self.config["home"])
        for entry in launch["hosts"]:
            entry["environment"] = {**ssh_network(), **entry["environment"]}
        for name, text in self.config["files"].items():
            self._write_file(name, text)
        os.symlink(sys.executable, self.path("python"))  # noqa: PTH211 - likewise
        self.await_ranks(launch["hosts"])
        self._forward_pipe(OUTPUT, "output")
        self._forward_pipe(ERRORS, "error")
        for rank in range(entry["first_rank"], entry["first_rank"] + entry["ranks"])[
            :MAX_OWN_ERRORS
        ]:
            self._forward_pipe(f"{OWN_ERRORS}{rank}", "error", rank=rank)
        self._begin_counting()

    def proxies(self) -> Iterable[int]:
        """Return the launcher, which is the only proxy on this host."""
        return [self.launcher] if self.launcher else []

    def _forward_pipe(self, name: str, event: str, **fields: object) -> None:
        os.mkfifo(self.path(name), 0o600)
        self.forward(os.open(self.path(name), os.O_RDWR | os.O_NONBLOCK), event, **fields)

    def _write_file(self, name: str, text: str) -> None:
        path = self.path(name)
        with naming(path), open(path, "w", encoding="utf-8") as stream:  # noqa: PTH123 - likewise
            stream.write(text)

    # ------------------------------------------------------------- counted messages

    def _begin_counting(self) -> None:
        """Install the library that counts messages, if requested; start a compiler if it must be built first."""
        if not self.config["counting"]:
            return
        try:
            self.compilation = counting.begin(self.config["counting"], self.directory)
        except OSError as error:
            self._report_uncounted(error)
            return
        if self.compilation is None:
            self.counts = self.directory
        else:
            self.selector.register(
                self.compilation.errors, selectors.EVENT_READ, self._on_compiler_output
            )

    def _on_compiler_output(self) -> None:
        if self.compilation is not None and self.compilation.read():
            self._on_compiled()

    def _on_compiled(self) -> None:
        """Use the compiled library, or report why compiling failed; then carry out a waiting start order."""
        if self.compilation is None:
            return
        self.selector.unregister(self.compilation.errors)
        try:
            self.compilation.finish()
            self.counts = self.directory
        except OSError as error:
            self._report_uncounted(error)
        self.compilation = None
        if self.waiting_start:
            self.start(self.waiting_start)

    def _report_uncounted(self, error: OSError) -> None:
        host = self.config["launch"]["hosts"][0]["host"]
        note = f"note: {host}: messages are not counted there: {error.strerror}"
        self.report("error", lines=[note])

    def _report_counts(self) -> None:
        """Report the current message counts of all ranks."""
        self.counts_due = time.monotonic() + COUNTS_SECONDS
        for data in counting.counted(self.counts) if self.counts else ():
            self.report("messages", data=binascii.b2a_base64(data, newline=False).decode())

    # ------------------------------------------------------------- the proxy

    def start(self, order: dict[str, Any]) -> None:
        """Start the proxy; if a compilation of the counting library runs, start it after that."""
        if self.compilation is not None:
            self.waiting_start = order
            return
        launch = self.config["launch"]
        if self.counts:
            for entry in launch["hosts"]:
                entry["environment"] = {**entry["environment"], **counting.variables(self.counts)}
        self._write_file("launch.json", json.dumps(launch))
        proxy = os.path.join(os.path.dirname(sys.executable), "hydra_pmi_proxy")  # noqa: PTH118, PTH120
        self.watch_launcher(self.fork([proxy, *order["argv"]], 2))
        self.counts_due = time.monotonic() + COUNTS_SECONDS

    def check(self) -> None:
        """Report counts every `COUNTS_SECONDS`; end a compiler that exceeds its time limit."""
        super().check()
        if self.compilation is not None and self.compilation.late:
            self._on_compiled()
        if (
            self.counts
            and self.launcher
            and time.monotonic() >= self.counts_due
            and not self.paused
        ):
            self._report_counts()

    def close(self) -> None:
        """Kill the ranks first, so that the proxy passes their exit codes on to mpiexec."""
        if self.launcher and self.ranks:
            self.end_ranks(signal.SIGKILL)
            self.launcher_ends(EXIT_CODE_SECONDS)
        super().close()

    def report_last(self) -> None:
        """Report the remaining output of the ranks and their final message counts."""
        self.drain_forwarded()
        self._report_counts()


def be_manager(name: str, arguments: list[str], agent: int) -> int:
    """Run the job manager of module `name` in this forked child, which saves the start of an interpreter."""
    job_processes.die_with(agent)
    sys.argv = [name, *arguments]

    def main() -> int | None:
        code: int | None = importlib.import_module(name).main()
        return code

    return job_processes.be(MANAGER, main)


def _rank_of(pid: int) -> int | None:
    """Return the rank number that a proxy gave a process; None if it has none yet or is gone."""
    for variable in job_processes.read(f"/proc/{pid}/environ").split(b"\0"):
        name, _, number = variable.partition(b"=")
        if name == b"PMI_RANK" and number.isdigit():
            return int(number)
    return None


def _opened(pid: int) -> list[str]:
    """Return the paths of a process's open files; empty if it is gone or belongs to another user."""
    names = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                names.append(os.readlink(entry.path))  # noqa: PTH115 - pathlib is slow to load
    return names


def _end() -> None:
    raise EOFError


def serve(config: dict[str, Any]) -> int:
    """Supervise the part of a run on this host over a connection; at its end no process of the run is left."""
    try:
        agent = RemoteRunAgent(config)
        agent.run()
    except OSError as error:
        sys.stderr.write(f"apples: {error.filename or 'the connection'}: {error.strerror}\n")
        return 1
    if agent.ended_by:
        sys.stderr.write(f"apples: ended by signal {agent.ended_by}\n")
        return 1
    return agent.status or 0


def main() -> int:
    """Supervise the run in the directory that the first argument names."""
    agent = LocalRunAgent(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    agent.run()
    return agent.status or 0


if __name__ == "__main__":
    sys.exit(main())
