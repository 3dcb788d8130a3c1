"""Supervises one run, here or on another host: whatever happens to the agent, no process of the run is left.

One program with two ways to be reached. On the agent's machine it is run by path, as ``python -I -S host_agent.py
DIRECTORY REPORT_FD AGENT_PID`` in a session of its own, and its launcher is mpiexec, or a job manager, which is a
fork of it; on every other host it
travels with the ssh connection (`apples.launch.remote.bootstrap`), and its launcher is hydra's proxy. Standard
library only.

In both, standard input is held by the agent: its end, or the word ``end``, ends every process of the run
here. As subreaper the supervisor inherits every orphan of the run. If the supervisor itself is killed, its
launcher dies with it (parent-death signal), the proxies with the launcher, the ranks with their proxy.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import select
import signal
import sys
import time
from collections.abc import Iterable
from typing import Any

if __name__ == "__main__":  # run by path, without site packages: it finds the rest of itself
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))  # noqa: PTH100, PTH120

from apples.io.json_lines import LineBuffer
from apples.io.naming import naming
from apples.launch import job_processes
from apples.launch.message_counts import on_host as counting
from apples.launch.program_counter import waiting_in_mpi
from apples.launch.this_host import located, network

SHARED_MEMORY = job_processes.SHARED_MEMORY + "/mpich_shm_"
"""How the names begin that MPICH gives its segments, removed here."""
HELLO = b"apples.supervisor/1\n"
"""What a supervisor at the end of a connection says first; a login may say other things before it."""
DESCRIPTION = "/tmp/hydra_hwloc_xmlfile_"  # noqa: S108 - hydra's own name for it
"""The machine as a proxy describes it to ranks that initialise, in a file that it removes unless it is killed."""
QUIET_MILLISECONDS = 1000
"""After so long without a word it is seen whether somebody is gone of whom nobody tells."""
COUNTS_SECONDS = 5.0
"""How often the messages that ranks have counted are sent to the agent."""
LAST_WORDS_SECONDS = 5.0
"""For the agent to read what is said once no process of the run is left."""
BEAT_MILLISECONDS = 10_000
"""A word now and then: a network that is cut is noticed by whoever has sent something."""
CHUNK = 1 << 16
LONGEST_ORDER = 1 << 26
"""Bytes of the agent's line that says what to start: it grows with the ranks."""
LONGEST_REGISTRATION = 512
FIFOS = {"output": "output", "errors": "error"}
"""The pipes that ranks on another host write to, and how their frames are called."""
OWN_ERRORS, MOST_OWN_ERRORS = "errors-", 256
"""What one rank writes to standard error, by its number, so that its last words are known to be its; among more
ranks than that all share one pipe."""
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
MANAGER = "apples-manager"
"""What the kernel calls the process of a job manager."""


class RunSupervisor:
    """What both have in common: a launcher, the ranks that registered themselves, and clearing up."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.launcher = 0
        self.status: int | None = None
        self.cgroups: list[str] = []
        self.linger = 0.0
        self.ranks: dict[int, tuple[int, int]] = {}
        self.left = set[int]()
        self.awaited, self.missing = set[int](), set[int]()
        self.files = set[str]()
        self.poll = select.poll()
        self.listener = -1
        self.registered = LineBuffer(LONGEST_REGISTRATION, truncating=True)

    def report(self, line: str) -> None:
        """Tell the agent what became of the launcher, of a rank, or of all."""
        raise NotImplementedError

    def on_message(self) -> bool:
        """Read what the agent says; False when it is gone or wants the run gone."""
        data = os.read(0, CHUNK)
        if b"ready" in data:
            self.awaited.clear()
            self._note_files()
            self._unlink_files()  # every rank has them open: nobody needs the names any more
        if b"look" in data:
            self._look_at_ranks()
        return bool(data) and b"end" not in data

    def _look_at_ranks(self) -> None:
        """Report of each rank that has not left whether it waits inside the MPI library."""
        there = [(rank, pid) for rank, pid in self.ranks.values() if rank not in self.left]
        waiting = waiting_in_mpi(pid for _, pid in there)
        for rank, pid in there:
            self.report(f"rank {rank} {'in MPI' if pid in waiting else 'works'}")

    def on_registration(self) -> None:
        """Watch the ranks that registered themselves; pass on what their `rank_wrapper` reports."""
        for line in self.registered.feed(os.read(self.listener, CHUNK)):
            rank, _, told = line.decode(errors="replace").partition(" ")
            if not told.isdecimal():
                (self.left.add if told == "waits" else self.left.discard)(int(rank))
                self.report(f"rank {rank} {told}")
                continue
            try:
                pidfd = os.pidfd_open(int(told))
            except OSError:
                self.report(f"rank {rank}")
                continue
            self.ranks[pidfd] = (int(rank), int(told))
            self.awaited.discard(int(rank))
            self.poll.register(pidfd, select.POLLIN)

    def await_ranks(self, hosts: Iterable[dict[str, Any]]) -> None:
        """Expect the ranks of these entries of a launch file to register themselves."""
        for entry in hosts:
            if "first_rank" in entry:  # those of other machines, and Slurm's, register elsewhere
                first = entry["first_rank"]
                self.awaited.update(range(first, first + entry["ranks"]))

    def on_quiet(self) -> None:
        """Report ranks that ended before they registered: nobody else tells of one that ended with an exit code.

        A proxy starts its ranks one right after the other. So a rank has ended that is not among its processes
        when another one has registered, and still is not at the next look.
        """
        # hydra's proxy reaps a rank that ends with an exit code before it registers, spins on a
        # CPU and reports nothing. Two checks are needed: a proxy may lack a CPU between two forks.
        proxies = self._proxies() if self.awaited else set()
        if not proxies or any(job_processes.state_of(proxy) not in "RS" for proxy in proxies):
            return
        there = {
            _rank_of(pid)
            for pid in job_processes.all_processes()
            if job_processes.parent_of(pid) in proxies and job_processes.state_of(pid) not in "ZX"
        }
        if None in there:  # one is about to become what bears a number
            return
        missing = self.awaited - there
        for rank in sorted(missing & self.missing):
            self.report(f"rank {rank}")
        self.missing = missing

    def _proxies(self) -> set[int]:
        """Return the processes that started what started the ranks that registered."""
        parent_of = job_processes.parent_of
        return {parent_of(parent_of(pid)) for _, pid in self.ranks.values()}

    def on_rank_exit(self, pidfd: int) -> None:
        """Report a rank that ended."""
        self._note_files()
        rank, pid = self.ranks.pop(pidfd)
        self.poll.unregister(pidfd)
        os.close(pidfd)
        job_processes.remove_shared_memory({pid})
        self.report(f"rank {rank}")

    def on_launcher_exit(self) -> None:
        """Take the launcher's exit code and report it, after what was told of ranks."""
        if select.select([self.listener], [], [], 0)[0]:
            self.on_registration()
        _, status = os.waitpid(self.launcher, 0)
        code = os.waitstatus_to_exitcode(status)
        self.status = code if code >= 0 else 128 - code
        self.report(f"exit {code}")

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)  # noqa: PTH118 - pathlib is slow to load

    def _open_registration(self) -> None:
        """Make the pipe on which `rank_wrapper` says which process is which rank, and the file that lists them."""
        job_processes.expect_processes(self.directory)
        os.mkfifo(self._path("ranks"), 0o600)
        self.listener = os.open(self._path("ranks"), os.O_RDWR | os.O_NONBLOCK)

    def _note_files(self) -> None:
        """Note what lies outside the run's folder: shared memory of ranks, descriptions by their proxies."""
        for proxy in self._proxies():
            self.files.update(name for name in _opened(proxy) if name.startswith(DESCRIPTION))
        for _, pid in self.ranks.values():
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

    def _await_farewells(self) -> None:
        """Give connections to other hosts a moment to end by themselves, with their last words."""
        deadline = time.monotonic() + self.linger
        while (
            time.monotonic() < deadline
            and job_processes.reap()
            and any(job_processes.descendants(os.getpid()))
        ):
            time.sleep(0.01)

    def clear(self) -> None:
        """Kill every descendant until none is left; remove what the run had on this machine."""
        self._note_files()
        self._await_farewells()
        job_processes.kill_descendants(os.getpid())
        self._unlink_files()
        self.say_last()
        job_processes.remove_run(self.directory, self.cgroups)
        self.report("clear")

    def say_last(self) -> None:
        """Say what only files of the run know, whose processes have all ended, before these are removed."""


class LocalSupervisor(RunSupervisor):
    """The supervisor on the agent's machine: its launcher is mpiexec.

    The agent's first line is JSON and says what to start; later lines are words
    of it: ``go``, ``ready``, ``look``, ``end``.
    """

    def __init__(self, directory: str, report: int, agent: int) -> None:
        super().__init__(directory)
        os.set_inheritable(report, False)  # its end is to tell the agent that this process is gone
        self.report_pipe, self.agent = report, agent
        self.input, self.came = LineBuffer(LONGEST_ORDER), list[bytes]()

    def report(self, line: str) -> None:
        """Write to the pipe that the agent reads."""
        with contextlib.suppress(OSError):
            os.write(self.report_pipe, f"{line}\n".encode())

    def run(self) -> int:
        """Supervise until the launcher ended or the agent is gone; return the launcher's code."""
        try:
            self._open_registration()
            for name in os.listdir(self.directory):  # noqa: PTH208 - pathlib is slow to load
                if name in FIFOS or name.startswith(OWN_ERRORS):
                    os.open(self._path(name), os.O_WRONLY | os.O_NONBLOCK)  # until the run ends
            asked, asking = os.pipe()
            for number in ENDING:
                signal.signal(number, lambda *_: os.write(asking, b"x"))
            config = json.loads(self._line() or b"{}")
            self.cgroups, self.linger = config.get("cgroups", []), config.get("linger", 0.0)
            self.await_ranks(config.get("hosts", []))
            if self._line() == b"go":
                self._start(config["argv"], forks=config["forks"])
                self._supervise(asked, config["grace"])
        finally:
            self.clear()
        return self.status or 0

    def _line(self) -> bytes:
        """Return the next line of the agent; empty when it is gone."""
        while not self.came:
            data = os.read(0, CHUNK)
            if not data:
                return b""
            self.came += self.input.feed(data)
        return self.came.pop(0)

    def _start(self, argv: list[str], *, forks: bool) -> None:
        supervisor = os.getpid()
        self.launcher = os.fork()
        if self.launcher == 0:
            if forks and argv[:2] == [sys.executable, "-m"]:
                job_processes.as_child(lambda: be_manager(argv[2], argv[3:], supervisor))
            job_processes.exec_launcher(argv, supervisor)
        os.dup2(null := os.open(os.devnull, os.O_WRONLY), 1)
        os.close(null)

    def _supervise(self, asked: int, grace: float) -> None:
        """Wait for the end of the launcher or of the agent."""
        launcher, agent = os.pidfd_open(self.launcher), os.pidfd_open(os.getppid())
        if os.getppid() != self.agent:
            self._end_launcher(launcher, grace)
            return
        ends = (asked, agent)
        for pipe in (0, self.listener, launcher, *ends):
            self.poll.register(pipe, select.POLLIN)
        while True:
            ready = self.poll.poll(QUIET_MILLISECONDS)
            if not ready:
                self.on_quiet()
            for pipe, _ in ready:
                if pipe == launcher:
                    self.on_launcher_exit()
                    return
                if pipe in ends or (pipe == 0 and not self.on_message()):
                    self._end_launcher(launcher, grace)
                    return
                if pipe == self.listener:
                    self.on_registration()
                elif pipe in self.ranks:
                    self.on_rank_exit(pipe)

    def on_quiet(self) -> None:
        """Let a launcher that was stopped go on, too: when all others have ended nobody else would notice."""
        super().on_quiet()
        if job_processes.state_of(self.launcher) == "T":
            os.kill(self.launcher, signal.SIGCONT)

    def _end_launcher(self, launcher: int, grace: float) -> None:
        """Ask the launcher to end, for as long as the grace lasts."""
        self._note_files()
        os.kill(self.launcher, signal.SIGTERM)
        if select.select([launcher], [], [], grace)[0]:
            self.on_launcher_exit()


class RemoteSupervisor(RunSupervisor):
    """The supervisor at the end of an ssh connection: its launcher is hydra's proxy.

    Its standard output is frames, ``KIND LENGTH`` and so many bytes: what ranks wrote (``output``, ``error``),
    what became of them (``report``), and what messages they have counted (``messages``).
    """

    def __init__(self, told: dict[str, Any]) -> None:
        super().__init__(told["directory"])
        self.told = told
        self.pipes: dict[int, str] = {}
        self.counts, self.counts_due = "", 0.0
        self.deadline = math.inf  # after which nothing is written any more

    def report(self, line: str) -> None:
        """Send a frame; where the connection is gone nobody is told."""
        with contextlib.suppress(OSError):
            self._send("report", line.encode())

    def run(self) -> int:
        """Start the proxy and supervise it to its end or the agent's."""
        os.umask(0o077)
        os.environ[job_processes.MARK] = self.told["job"]
        os.write(1, HELLO)
        os.mkdir(self.directory, 0o700)  # noqa: PTH102 - pathlib is slow to load
        try:
            self._furnish()
            self._start_proxy()
            self._supervise()
        except counting.NotWanted:
            pass
        finally:
            self.clear()
        return self.status or 0

    def _furnish(self) -> None:
        """Write the files of the run and make its pipes."""
        self._point_at_the_network()
        self._count_messages()
        for name, text in self.told["files"].items():
            path = self._path(name)
            with naming(path), open(path, "w", encoding="utf-8") as stream:  # noqa: PTH123 - likewise
                stream.write(text)
        os.symlink(sys.executable, self._path("python"))  # noqa: PTH211 - likewise
        self._open_registration()
        self.await_ranks(self.told["launch"]["hosts"])
        entry = self.told["launch"]["hosts"][0]
        numbers = range(entry["first_rank"], entry["first_rank"] + entry["ranks"])
        own = {f"{OWN_ERRORS}{rank}": f"error-{rank}" for rank in numbers[:MOST_OWN_ERRORS]}
        for name, kind in (FIFOS | own).items():
            os.mkfifo(self._path(name), 0o600)
            self.pipes[os.open(self._path(name), os.O_RDWR | os.O_NONBLOCK)] = kind

    def _point_at_the_network(self) -> None:
        """Keep MPI on the interface that the agent reaches this host by, and find the program."""
        server = (os.environ.get("SSH_CONNECTION", "").split() + [""] * 4)[2]
        directory = os.path.expanduser(self.told["home"] or "~")  # noqa: PTH111
        launch = self.told["launch"]
        launch["directory"] = directory
        for entry in launch["hosts"]:
            entry["environment"] = {**network(server), **entry["environment"]}
            files = set(entry.pop("programs"))
            entry["program"] = [
                located(word, directory) if word in files else word for word in entry["program"]
            ]
        self.told["files"]["launch.json"] = json.dumps(launch)

    def _count_messages(self) -> None:
        """Have the ranks count their messages, where that is wanted; where it cannot be done say why."""
        if not self.told["counting"]:
            return
        entry = self.told["launch"]["hosts"][0]
        try:
            found = counting.begin(self.told["counting"], self.directory, 0, self.on_message)
        except OSError as error:
            why = f"note: {entry['host']}: messages are not counted there: {error.strerror}\n"
            self._send("error", why.encode())
            return
        self.counts = found[counting.FOLDER]
        entry["environment"] = {**entry["environment"], **found}
        self.told["files"]["launch.json"] = json.dumps(self.told["launch"])

    def _send_counts(self) -> None:
        """Send what ranks have counted by now."""
        self.counts_due = time.monotonic() + COUNTS_SECONDS
        for data in counting.counted(self.counts) if self.counts else ():
            self._send("messages", data)

    def clear(self) -> None:
        """Clear up as ever; requests to end change nothing any more."""
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)
        super().clear()

    def say_last(self) -> None:
        """Send what ranks have counted; an agent that does not read holds nothing up for long."""
        self.deadline = time.monotonic() + LAST_WORDS_SECONDS
        with contextlib.suppress(OSError):
            self._send_counts()

    def _start_proxy(self) -> None:
        proxy = os.path.join(os.path.dirname(sys.executable), "hydra_pmi_proxy")  # noqa: PTH118, PTH120
        supervisor = os.getpid()
        self.launcher = os.fork()
        if self.launcher == 0:
            os.dup2(2, 1)  # standard output is frames
            job_processes.exec_launcher([proxy, *self.told["proxy"]], supervisor)

    def _supervise(self) -> None:
        """Pass on what is said until the proxy ends or the agent is gone."""
        proxy = os.pidfd_open(self.launcher)
        for pipe in (0, self.listener, proxy, *self.pipes):
            self.poll.register(pipe, select.POLLIN)
        while True:
            patience = QUIET_MILLISECONDS if self.awaited or self.counts else BEAT_MILLISECONDS
            if self.counts and time.monotonic() >= self.counts_due:
                self._send_counts()
            ready = [pipe for pipe, _ in self.poll.poll(patience)]
            if not ready:
                self.on_quiet()
                self._send("beat", b"")
            if not all(self._handle(pipe) for pipe in ready if pipe != proxy):
                return
            if proxy in ready:
                self.on_launcher_exit()
                for pipe in self.pipes:
                    while self._pass_on(pipe):
                        pass
                return

    def _handle(self, pipe: int) -> bool:
        """Do what a pipe that is ready asks for; False when the agent is gone or wants the run gone."""
        if pipe == 0:
            return self.on_message()
        if pipe in self.pipes:
            self._pass_on(pipe)
        elif pipe == self.listener:
            self.on_registration()
        elif pipe in self.ranks:
            self.on_rank_exit(pipe)
        return True

    def _pass_on(self, pipe: int) -> bool:
        """Pass on what a pipe holds; False when it holds nothing."""
        try:
            data = os.read(pipe, CHUNK)
        except BlockingIOError:
            return False
        self._send(self.pipes[pipe], data)
        return True

    def _send(self, kind: str, data: bytes) -> None:
        """Write a frame; a connection that is gone ends this process' watch by the error.

        Raises
        ------
        OSError
            It is gone or, after the run's end, takes nothing: then nothing is written any more.
        """
        left = memoryview(f"{kind} {len(data)}\n".encode() + data)
        size = len(left)
        while left:
            if self.deadline < math.inf:
                size = select.PIPE_BUF  # so much does not wait where the end is ready
                seconds = self.deadline - time.monotonic()
                if seconds <= 0 or not select.select([], [1], [], seconds)[1]:
                    raise TimeoutError
            left = left[os.write(1, left[:size]) :]


def be_manager(name: str, arguments: list[str], supervisor: int) -> int:
    """Have this child be the job manager of that module: its Python has started already."""
    job_processes.die_with(supervisor)
    sys.argv = [name, *arguments]

    def main() -> int | None:
        code: int | None = importlib.import_module(name).main()
        return code

    return job_processes.be(MANAGER, main)


def _rank_of(pid: int) -> int | None:
    """Return the number that a proxy gave a process that it started; None where it has none yet, or is gone."""
    for variable in job_processes.read(f"/proc/{pid}/environ").split(b"\0"):
        name, _, number = variable.partition(b"=")
        if name == b"PMI_RANK" and number.isdigit():
            return int(number)
    return None


def _opened(pid: int) -> list[str]:
    """Return the names of the files that a process has open; nothing where it is gone or another user's."""
    found = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found.append(os.readlink(entry.path))  # noqa: PTH115 - pathlib is slow to load
    return found


def serve(told: dict[str, Any]) -> int:
    """Supervise the part of a run on this host, at the end of a connection; nothing of it is left afterwards."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    for number in ENDING:
        signal.signal(number, _end)
    job_processes.become_subreaper()
    try:
        return RemoteSupervisor(told).run()
    except OSError as error:
        sys.stderr.write(f"apples: {error.filename or 'the connection'}: {error.strerror}\n")
        return 1
    except EndedBySignal as ended:
        sys.stderr.write(f"apples: {ended}\n")
        return 1


class EndedBySignal(BaseException):
    """A signal asks this process to end: raised anywhere, and no fault of what it is raised in."""


def _end(number: int, frame: object) -> None:
    del frame
    raise EndedBySignal(f"ended by signal {number}")


def main() -> int:
    """Supervise the run in the directory of the first argument."""
    job_processes.become_subreaper()
    job_processes.signal_at_parents_end(signal.SIGCONT)  # one that was stopped must hear of it too
    return LocalSupervisor(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])).run()


if __name__ == "__main__":
    sys.exit(main())
