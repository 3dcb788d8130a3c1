"""The job manager's end of every host: the supervisors it started there, and through them the ranks.

`ProcessGroup` is one host's, `ProcessGroups` holds all of a job. Nothing here blocks: what is sent waits in a
buffer, what comes is read when the selector says so.

A connection to another machine that ended, or fell silent, is no lost host yet where the supervisor outlives it
(`HostSpec.again`): the host is *out of sight*, the job computes on, and new connections are tried until one takes
its place or `peer.HOLD_SECONDS` have passed since the host's last word. Nothing that was said meanwhile is lost or
comes twice (`apples.io.resumable_stream`).
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import secrets
import select
import selectors
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from selectors import BaseSelector
from typing import IO, Any, Literal
from zlib import crc32

from apples.io.json_lines import Greeting, LineBuffer, LineError, decode, encode
from apples.io.resumable_stream import ResumableStream
from apples.launch import heartbeat as peer
from apples.launch.host_spec import SSH_FAILED, HostSpec
from apples.launch.job_processes import MARK, as_child, be, close_inherited, exec_program, mark
from apples.malleable.control.job_file import JobFile
from apples.malleable.node.supervisor import (
    HELLO,
    LINE_LIMIT,
    ORDER_LIMIT,
    NodeSupervisor,
    may_be_forked,
)

SUPERVISOR = "apples-node"
"""What the kernel calls the supervisor of a part of this machine."""
RANK_INTERPRETER = "apples.malleable.node.rank_interpreter"
"""The module of the interpreter that forks the ranks of a host."""
REMOTE_SUPERVISOR = "apples.malleable.node.remote_supervisor"
"""The module of the supervisor at the far end of a connection."""
SUCCESSOR = "apples.malleable.node.successor"
BIRTH_SECONDS = 12.0
"""How much longer than later ones the first report of a supervisor may take."""
EXIT_SECONDS, SLOW_EXIT_SECONDS = 2.0, 20.0
"""For a supervisor to end its ranks: where nothing shows that it runs, and where it does."""
TRY_SECONDS, BETWEEN_TRIES_SECONDS = 7.5, 0.5
"""For a new connection to a host that is out of sight, and from one that failed to the next."""
EXIT_CODE_SECONDS = 0.5
"""For what leads to a host to end when it has nothing more to pass on."""
GONE_SECONDS = 5.0
"""For what leads to a host to end once its supervisor was dismissed."""
UNCOUNTED = ("alive", "resumed", "nobody")
"""Reports that nobody keeps."""
ACKNOWLEDGED_BYTES = 1 << 20
"""Of reports, after which the supervisor is told at once how many were heard."""
KEPT_BYTES = 2 * ORDER_LIMIT
"""Of orders to a host that is out of sight: with more than that it is given up."""
CHUNK = 1 << 16
LONGEST_LINE = 8 * LINE_LIMIT
"""Bytes of a report: a line of a rank's output is up to six times as long in JSON."""
LONGEST_GREETING = 1 << 16
"""Bytes a login may print before the supervisor does."""

RECONNECTED = "warning: lost sight of host {host} for {seconds:.1f} s, taken up again"
"""Line about a host that is connected again."""
OWN_LOGIN = "note: host {host} has a login of this job's own: none that jobs share could be used"
"""Line about a host for which the job logged in by itself."""
OUT_OF_SIGHT, SUPERVISOR_ENDED = "it was out of sight for", "its supervisor ended"
GREETING_TOO_LONG = "its login prints too much before the supervisor does"
REPORT_INVALID = "it sends what no supervisor sends"
"""Reasons for the loss of a host; seconds follow the first."""

Phase = Literal["starting", "parked", "joining", "member", "leaving", "ending", "empty"]
Message = dict[str, Any]


class ProcessGroup:
    """Processes of one launcher, on one host or, for a restart engine, on all hosts of the map.

    Parameters
    ----------
    places
        Host, or hosts in rank order.
    folder
        Where supervisors of this machine put their files: that of the run.
    on_message
        Called with this group, the rank, and each message of a rank.
    on_lost
        Called with this group and the reason when it is lost: at most once.

    Attributes
    ----------
    pid
        The supervisor's process here: its own, a fork of this one, or that of the connection to it.
    gone
        Whether the supervisor has ended, or counts as lost.
    in_sight
        Whether there is a connection to it.
    reconnect_socket
        Path on the host where the supervisor waits for a successor of the connection; empty: it does not wait.
    reported
        Whether the supervisor has sent a report.
    last_report_at
        Time of its last report, by `time.monotonic`.
    """

    def __init__(
        self,
        job: JobFile,
        places: Sequence[HostSpec],
        number: int,
        selector: selectors.BaseSelector,
        folder: Path,
        on_message: Callable[[ProcessGroup, int, Message], None],
        on_lost: Callable[[ProcessGroup, str], None],
    ) -> None:
        self.job, self.places, self.number = job, tuple(places), number
        self.phase: Phase = "starting"
        self.declared: Message = {}
        self.parked_ranks = 0
        self.sees_commits = True
        self.on_message, self._on_group_lost, self._selector = on_message, on_lost, selector
        self._stream = ResumableStream(KEPT_BYTES, keeping=bool(self.places[0].reach))
        self._begun = self._last_ping = self.last_report_at = time.monotonic()
        self._silence, self.reported = peer.Silence(self._begun), False
        self.gone, self.in_sight = False, True
        self._dismissed = self._releasing = False
        self._secret = secrets.token_hex(16)  # for a successor
        self.reconnect_socket = ""  # where the supervisor waits for a new connection
        self._login = ""  # through which the supervisor was reached first, which others may share
        self._tried, self._tries = 0.0, 0
        # Whether it is reached through a login that this user's jobs share.
        self._joins = self.places[0].again not in ((), self.places[0].reach)
        self._unacknowledged = 0
        self._folder = str(folder.absolute())
        self.pid = 0
        self._to: IO[bytes] = io.BytesIO()
        self._from: IO[bytes] = self._to
        self._to.close()
        self._unborn = ""  # why there is no process here yet
        self._be_born()

    def _be_born(self) -> None:
        """Start the supervisor; where there can be no process at the moment, it is tried again (`check`)."""
        self._tried = time.monotonic()
        try:
            self._connect()
        except OSError as error:
            self._unborn = error.strerror or str(error)
        else:
            self._unborn = ""
            self._flush()

    def _check_birth(self, now: float) -> None:
        """Try again to start the supervisor, until nobody wants it any more or it has taken too long."""
        if self.phase == "ending" or self._dismissed or now - self._begun > BIRTH_SECONDS:
            why = self._unborn
            self._end()
            self._on_lost(f"no process can be started for it: {why}")
        elif now - self._tried >= BETWEEN_TRIES_SECONDS:
            self._be_born()

    def _connect(self) -> None:
        """Start the supervisor or, once there is one, a new connection to it.

        Raises
        ------
        OSError
            There can be no more processes or open files here; nothing has changed. Transient.
        """
        pipes: list[int] = []
        try:
            pipes += os.pipe()
            pipes += os.pipe()
            with warnings.catch_warnings():
                # Python 3.12 warns of forks beside threads; those of a manager only wait for supervisors' ends.
                warnings.simplefilter("ignore")
                pid = os.fork()
        except OSError:
            for handle in pipes:
                os.close(handle)
            raise
        orders, to, come_from, reports = pipes
        self.pid, self._lines = pid, LineBuffer(LONGEST_LINE)
        self._greeting = Greeting(HELLO, LONGEST_GREETING) if self.places[0].reach else None
        if pid == 0:
            as_child(lambda: self._be_supervisor(orders, reports))
        os.close(orders)
        os.close(reports)
        self._to, self._from = os.fdopen(to, "wb", 0), os.fdopen(come_from, "rb", 0)
        os.set_blocking(to, False)
        os.set_blocking(come_from, False)
        self._selector.register(self._from, selectors.EVENT_READ, self._read_reports)

    def _be_supervisor(self, orders: int, reports: int) -> int:
        """Be the supervisor, in a child: it has started already, and shares this process's memory."""
        os.setsid()
        os.dup2(orders, 0)
        os.dup2(reports, 1)
        os.environ[MARK] = self.job.job
        first, job = self.places[0], mark(self.job.job)
        if first.reach:
            close_inherited()
            if self.reconnect_socket:
                exec_program([*first.again, "-I", "-m", SUCCESSOR, job])
            reach = first.reach if self._joins else first.again or first.reach
            exec_program([*reach, "-I", "-m", REMOTE_SUPERVISOR, job, str(self.job.attempt)])
        return be(SUPERVISOR, lambda: NodeSupervisor(self._folder).run())

    @property
    def has_process(self) -> bool:
        """Whether there is a process here that is the supervisor or a connection to it."""
        return not self._from.closed

    @property
    def host(self) -> str:
        """Name of the host; of the first, where there are several."""
        return self.places[0].host

    @property
    def ranks(self) -> int:
        """How many processes there are."""
        return sum(place.slots for place in self.places)

    def start(self) -> None:
        """Start the ranks, which park at their first safe point."""
        self.phase, self.declared, self.parked_ranks = "starting", {}, 0
        self.sees_commits = True
        self._begun = time.monotonic()
        files = {"launch": self._launch_file()}
        if self.job.task:  # else it is as if started by hand: its parameters are its own
            files["task"] = json.dumps(self.job.task)
        environment = {**self.places[0].environment, "APPLES_JOB": self.job.job}
        if len(self.places) == 1:
            environment["APPLES_HOST"] = self.host
        self._order(
            "start",
            ranks=self.ranks,
            group=self.number,
            argv=self._argv(),
            interpreter=self._interpreter(),
            files=files,
            environment=environment,
            commits=self.job.commits,
        )

    def parked(self, declared: Message) -> None:
        """Count a rank that waits at its first safe point; its word may come when it is being ended already."""
        self.declared = self.declared or declared
        self.parked_ranks += 1
        if self.parked_ranks == self.ranks and self.phase == "starting":
            self.phase = "parked"

    def send(self, message: Message, rank: int | None = None) -> None:
        """Send a message to one rank or to all."""
        self._order("send", rank=rank, message=message)

    def end(self) -> None:
        """Kill the ranks; the supervisor stays."""
        if self.phase not in ("ending", "empty"):
            self.phase = "ending"
            self._begun = time.monotonic()
            self._order("end")

    def end_when_empty(self) -> None:
        """Let the supervisor end when its ranks have, which leave."""
        self._releasing = True
        self._order("release")

    def dismiss(self) -> None:
        """Let the supervisor end, and with it all there is of the job on the host."""
        if self._dismissed or self.gone:
            return
        if self.places[0].reach and self.in_sight:
            self._order("dismiss")
        self._dismissed = True
        self._flush()
        if not self.in_sight:  # nobody can tell it: it ends by itself when nobody has come
            self._end()

    def kill(self) -> None:
        """End the supervisor, and with it all there is; one on another machine at the latest when it misses us."""
        if self.gone:
            return
        if self.places[0].reach and self.in_sight and self.reported:
            self.dismiss()
        else:
            self._kill_process()
        self._end()

    def check(self, now: float) -> None:
        """Let the supervisor know that the manager is there; notice when the supervisor is not."""
        if self.gone:
            return
        if self._unborn:
            self._check_birth(now)
            return
        if now - self._last_ping > 1.0:
            self._acknowledge(now)
        silent = self._silence.seconds(now) - (0.0 if self.reported else BIRTH_SECONDS)
        if not self.in_sight:
            self._look_for(now, silent)
            return
        ending = now - self._begun if self.phase == "ending" else 0.0
        if max(silent - peer.SILENCE_SECONDS, ending - EXIT_SECONDS) <= 0:
            return
        there = peer.started(self.pid, elsewhere=bool(self.places[0].reach))
        if there is None:
            there = peer.login_connection(self._login, dialed=True)
        if peer.lost(silent, there) and self.outlives:
            self.lose_connection()
        elif peer.lost(silent, there) and self._may_log_in_alone:
            self.log_in_alone()
        elif peer.lost(silent, there) or ending > (SLOW_EXIT_SECONDS if there else EXIT_SECONDS):
            self.give_up("its supervisor does not answer")

    # --------------------------------------------------------------- out of sight

    @property
    def outlives(self) -> bool:
        """Whether the supervisor is still there when the connection to it is not."""
        leaves = self._dismissed or (self._releasing and self.phase == "empty")
        return bool(self.reconnect_socket) and not leaves

    @property
    def _may_log_in_alone(self) -> bool:
        """Whether nothing was heard yet through a login that jobs share, which may have ended or hang."""
        return self._joins and not (self.reported or self._dismissed)

    def log_in_alone(self) -> None:
        """Begin again, through a login of its own."""
        self._joins = False
        self._kill_process()
        self._disconnect()
        self._stream.cut()
        self._stream.resume(0)
        self._silence.broken(time.monotonic())
        try:
            self._connect()
        except OSError as error:
            self._end()
            self._on_lost(f"no other connection to it can be made: {error.strerror}")
        else:
            self._flush()

    def lose_connection(self) -> None:
        """Give the connection up, not the host."""
        self.in_sight = False
        self._stream.cut()
        self._kill_process()
        self._disconnect()
        self._tried = time.monotonic() - BETWEEN_TRIES_SECONDS

    def _look_for(self, now: float, silent: float) -> None:
        """Try to reach a supervisor that is out of sight, until it must have ended by itself."""
        if silent > peer.HOLD_SECONDS or self._stream.full:
            self.give_up(f"{OUT_OF_SIGHT} {now - self.last_report_at:.0f} s")
        elif self._from.closed and now - self._tried >= BETWEEN_TRIES_SECONDS:
            self._tried, self._tries = now, self._tries + 1
            told = {
                "path": self.reconnect_socket,
                "secret": self._secret,
                "heard": self._stream.heard,
                "number": self._tries,
            }
            # No process can be had at the moment, or the one that was had has just ended: it is tried again.
            with contextlib.suppress(OSError):
                self._connect()
                os.write(self._to.fileno(), encode(told))
        elif not self._from.closed and now - self._tried > TRY_SECONDS:
            self._kill_process()
            self._disconnect()
            self._tried = now

    def _find(self, report: Message) -> None:
        """Take what came first over a new connection: the supervisor's word, or that there is none."""
        if report["report"] == "nobody":
            self.give_up(SUPERVISOR_ENDED)
            return
        if report["report"] != "resumed":
            raise LineError("no word of a supervisor that waits")
        self._stream.resume(report["heard"])
        seconds = time.monotonic() - self.last_report_at
        self.in_sight = True
        self._hear()
        self._begun = time.monotonic()  # of its end, if that is wanted: it may just have heard so
        self._flush()
        line = RECONNECTED.format(host=self.host, seconds=seconds)
        print(line, file=sys.stderr, flush=True)  # noqa: T201 - talk

    # --------------------------------------------------------------- what the supervisor is told

    def _argv(self) -> list[str]:
        """Return the launcher's command line; the supervisor writes the file that ``{launch}`` stands for."""
        first = self.places[0]
        argv = [*first.enter, *(self.job.world or [first.mpiexec, *first.options])]
        for index, place in enumerate(self.places):
            argv += [":"] if index else []
            argv += [
                "-n",
                str(place.slots),
                place.python,
                "-I",
                "-S",
                place.bind,
                "{launch}",
                str(index),
            ]
        return argv

    def _interpreter(self) -> list[str]:
        """Return the command line of the interpreter that is to fork the ranks; empty where each is started.

        One rank starts as soon by itself.
        """
        first = self.places[0]
        if self.ranks < 2 or len(self.places) > 1 or self.job.world:
            return []
        if not may_be_forked(first.program, first.python):
            return []
        return [*first.enter, first.python, "-m", RANK_INTERPRETER, first.bind]

    def _launch_file(self) -> str:
        first = self.places[0]
        hosts: list[Message] = [
            {"host": p.host, "program": p.program, "cpus": p.cpus, "cgroup": p.cgroup}
            for p in self.places
        ]
        if first.reach:
            hosts[0]["programs"] = first.programs
            return json.dumps({"directory": first.directory, "hosts": hosts})
        return json.dumps({"directory": first.directory or self.job.directory, "hosts": hosts})

    def _order(self, what: str, **fields: object) -> None:
        """Send an order to the supervisor, or keep it until it is in sight again."""
        self._stream.send(encode({"order": what, **fields}))
        self._flush()

    def _say(self, what: str, **fields: object) -> None:
        """Send an order that may be lost."""
        self._stream.say(encode({"order": what, **fields}))
        self._flush()

    def _flush(self) -> None:
        """Write what can be written now; the rest follows after the supervisor's next report."""
        if self._to.closed or not self.in_sight:
            return
        try:
            while self._stream.unsent:
                self._stream.written(os.write(self._to.fileno(), self._stream.unsent))
        except BlockingIOError:
            return
        except OSError:
            self._stream.cut()  # the supervisor is gone: reading from it says so
        if self._dismissed:
            self._to.close()

    def _acknowledge(self, now: float) -> None:
        """Say how many reports were heard, and that the manager is there."""
        self._last_ping, self._unacknowledged = now, 0
        self._say("ping", heard=self._stream.heard)

    # --------------------------------------------------------------- what it reports

    def _read_reports(self) -> None:
        data = os.read(self._from.fileno(), CHUNK)
        if not data:
            self._on_end()
            return
        if self._greeting is not None:
            try:
                data = self._greeting.skip(data)
            except LineError:
                self.give_up(GREETING_TOO_LONG)
                return
            if not self._greeting.heard:
                return
        if self.in_sight:
            self._hear()
        try:
            for line in self._lines.feed(data):
                self._take(parse_report(line))
        except LineError:
            self.give_up(REPORT_INVALID)
        self._unacknowledged += len(data)
        # Acknowledged once a second with the ping alone, the 4 MB that a supervisor keeps would
        # limit a host's output to 4 MB/s.
        if self._unacknowledged > ACKNOWLEDGED_BYTES:
            self._acknowledge(time.monotonic())

    def _hear(self) -> None:
        self._silence.broken(time.monotonic())
        self.last_report_at = time.monotonic()
        if not self.reported:
            self.reported = True
            # Not before it is heard: a supervisor of which nothing is known must not outlive its connection,
            # since another one may be started in its place (`log_in_alone`).
            if self.places[0].again:
                self._order("hold", secret=self._secret)

    def _on_end(self) -> None:
        """Take the end of the supervisor, or of the connection to it."""
        if not self.in_sight:  # this try failed
            self._disconnect()
        elif self.outlives and _may_be_there(self.pid):
            self.lose_connection()
        elif self._may_log_in_alone and _may_be_there(self.pid):
            self.log_in_alone()
        else:
            self._end()
            self._on_lost(SUPERVISOR_ENDED)

    def _take(self, report: Message) -> None:
        """Take one report of the supervisor; over a new connection, what became of it."""
        what = report["report"]
        if self.gone:
            return
        if not self.in_sight:
            self._find(report)
            return
        if what not in UNCOUNTED:
            self._stream.heard += 1
        if what == "alive" and "heard" in report:
            self._stream.acknowledged(report["heard"])
        self._flush()
        self._handle(report)

    def give_up(self, why: str) -> None:
        """Kill the group and report its loss, unless it is gone."""
        if not self.gone:
            self.kill()
            self._on_lost(why)

    def _handle(self, report: Message) -> None:
        """Take one report of the supervisor; those of a group before this one are late, and ignored."""
        what = report["report"]
        if what in ("output", "errors"):
            stream = sys.stdout if what == "output" else sys.stderr
            stream.write(report["line"] + "\n")
            stream.flush()
        elif report.get("group", self.number) != self.number:
            return
        elif what == "message":
            self.on_message(self, report["rank"], report["message"])
        elif what == "lost":
            self._on_lost(report["why"])
        elif what == "no_commits":
            self.sees_commits = False
        elif what == "waiting":
            self._waits_at(report["path"], report["login"])
        elif what == "empty":
            self.phase = "empty"
            if self._releasing:  # it ends when all that it said was heard
                self._acknowledge(time.monotonic())
            self.on_message(self, -1, {"event": "empty"})

    def _waits_at(self, path: str, login: str) -> None:
        """Take in where successors are waited for and how it was reached; say so where no login is shared."""
        self.reconnect_socket, self._login = path, login
        if not self._joins or peer.connection_of(self.pid) is not None:
            line = OWN_LOGIN.format(host=self.host)
            print(line, file=sys.stderr, flush=True)  # noqa: T201 - talk

    def _on_lost(self, why: str) -> None:
        """Say that the group is lost, unless its end was wanted."""
        if self.phase not in ("ending", "empty"):
            self._on_group_lost(self, why)
        if self.gone:
            self.phase = "empty"

    def _kill_process(self) -> None:
        if not self._from.closed:
            os.kill(self.pid, signal.SIGKILL)  # a child that was not reaped: its number is its own

    def _disconnect(self) -> None:
        """Let go of the process here, which is the supervisor or the way to it."""
        if self._from.closed:
            return
        self._selector.unregister(self._from)
        self._from.close()
        self._to.close()
        # In a thread of its own, because the manager's loop must not stand still while this one ends. Where there
        # can be no more threads the process stays to be reaped by the run's supervisor, which ends what is left.
        with contextlib.suppress(RuntimeError):
            threading.Thread(target=_reap, args=(self.pid,), daemon=True).start()

    def _end(self) -> None:
        self.gone = True
        self._disconnect()


def _may_be_there(pid: int) -> bool:
    """Whether a connection whose process here has closed it ended by itself, and not with the supervisor.

    Then ssh says so by its exit code, or was killed; that of the supervisor's login is another.
    """
    _ends_within(EXIT_CODE_SECONDS, pid)
    # ssh exits with 255 both for a lost connection and for a command that a signal ended, so
    # `hold_login` never returns 255.
    found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return found is None or found.si_code != os.CLD_EXITED or found.si_status == SSH_FAILED


def _reap(pid: int) -> None:
    """Wait for a child to end, and kill it where it does not."""
    if not _ends_within(GONE_SECONDS, pid):
        os.kill(pid, signal.SIGKILL)  # not reaped yet: its number is its own
    os.waitpid(pid, 0)


def _ends_within(seconds: float, pid: int) -> bool:
    """Wait for a child to end, and leave it to be reaped; whether it has."""
    handle = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(seconds * 1000))
    finally:
        os.close(handle)


REPORT_FIELDS = {
    "output": ("line",),
    "errors": ("line",),
    "message": ("rank", "message"),
    "lost": ("why",),
    "waiting": ("path", "login"),
    "resumed": ("heard",),
}
"""Fields that a report of this name must have."""


def parse_report(line: bytes) -> Message:
    """Return the report that a line is; raises `LineError` where it is none."""
    report = decode(line, LONGEST_LINE)
    name = report.get("report")
    if not isinstance(name, str) or any(f not in report for f in REPORT_FIELDS.get(name, ())):
        raise LineError("no report of a supervisor")
    if name == "waiting":
        path, login = report["path"], report["login"]
        if not (isinstance(path, str) and path and isinstance(login, str)):
            raise LineError("no path, or no login")
    return report


WORLD = "*"
"""Key of the one group that a restarting job has, on all its hosts."""


@dataclass
class ProcessGroups:
    """All process groups of one job, by host.

    Attributes
    ----------
    on_message, on_lost
        As for `ProcessGroup`.
    released
        Hosts that were given back: no group is parked there, though their specification says ``warm``.
    declared
        Summary of the data that the programs of all groups declare alike; None before the first has parked.
    on_disk
        Whether a state of the job was ever committed in the directory.
    lost
        Hosts that were lost, whatever has become of them since.
    directory
        Where states are committed, besides in memory; empty: nowhere.
    """

    job: JobFile
    selector: BaseSelector
    folder: Path
    on_message: Callable[[ProcessGroup, int, Message], None]
    on_lost: Callable[[ProcessGroup, str], None]
    groups: dict[str, ProcessGroup] = field(default_factory=dict)
    released: set[str] = field(default_factory=set)
    declared: object = None
    on_disk: bool = False
    lost: set[str] = field(default_factory=set)
    _numbers: int = 0

    def __post_init__(self) -> None:
        self.directory = self.job.commits

    def __getitem__(self, host: str) -> ProcessGroup:
        """Return the group of a host."""
        return self.groups[host]

    def __iter__(self) -> Iterator[ProcessGroup]:
        """Yield every group, of those there are now."""
        return iter(list(self.groups.values()))

    def start_on(self, *hosts: str) -> None:
        """Start a group on each host that has none; it parks at its first safe point."""
        for host in hosts:
            group = self.groups.get(host)
            self.released.discard(host)
            if group is None or group.gone:
                group = self.groups[host] = self._new([self.job.place(host)])
                group.start()
            elif group.phase == "empty":
                group.start()

    def start_world(self, hosts: Sequence[str]) -> None:
        """Start all ranks of some hosts as one world."""
        old = self.groups.pop(WORLD, None)
        if old is not None:
            old.dismiss()
        self.groups[WORLD] = self._new([self.job.place(host) for host in hosts])
        self.groups[WORLD].start()

    def _new(self, places: Sequence[HostSpec]) -> ProcessGroup:
        self._numbers += 1
        return ProcessGroup(
            self.job,
            places,
            self._numbers,
            self.selector,
            self.folder,
            self.on_message,
            self.on_lost,
        )

    def start_warm(self) -> None:
        """Start groups on the hosts whose specification says ``warm`` and that were not given back."""
        for place in self.job.hosts:
            if place.warm and place.host not in {*self.groups, *self.released}:
                self.start_on(place.host)

    def warm(self) -> tuple[str, ...]:
        """Return the hosts where a group is parked."""
        return tuple(group.host for group in self if group.phase == "parked")

    def unfit(self, joining: Sequence[str]) -> tuple[str, str]:
        """Return a host whose group has parked and must not join, and why; both empty if nothing is wrong."""
        for key in joining:
            group = self.groups[key]
            found = group.declared["declared"]
            self.declared = self.declared or found
            if found != self.declared:
                return group.host, "it declares other data than the job's others"
            if self.directory and not group.sees_commits:
                what = f"does not see {self.directory}"
                if self.on_disk:
                    return group.host, f"it {what}, where states of this job are kept"
                self.directory = ""
                line = f"{group.host} {what}: states are kept in memory only"
                print(f"warning: {line}", file=sys.stderr, flush=True)  # noqa: T201 - talk
        return "", ""

    def spares(self, used: Collection[str]) -> list[str]:
        """Return the hosts of the job's list that are not in use, in the order in which they are to be taken.

        A host where a group is parked comes first, and one that was lost before last. Among the others each job
        has an order of its own, so that jobs that lose the same host do not all go to the same spare.
        """
        if self.job.scheduled:
            return []
        there = [place.host for place in self.job.hosts if place.host not in used]
        warm = self.warm()
        return sorted(there, key=lambda host: (
            host in self.lost, host not in warm, crc32(f"{self.job.job} {host}".encode())
        ))  # fmt: skip

    def meet(self, order: str, joining: Sequence[str], **more: object) -> None:
        """Let groups that have parked meet, in this order, and then join the job or, at a launch, be it."""
        seconds = self.job.commit_seconds
        if WORLD in self.groups and seconds is None:
            seconds = 0.0  # its one supervisor ends with it: no copy in memory would be left after a loss
        meeting = {"order": order, "groups": len(joining), "commit_seconds": seconds}
        for place, key in enumerate(joining):
            self.groups[key].phase = "joining"
            self.groups[key].send({**meeting, **more, "place": place})

    def hand_on(self, group: ProcessGroup, joining: Sequence[str], message: Message) -> None:
        """Give the first rank of a group that meets others the word of another group's."""
        to = joining[message["place"]]
        place = joining.index(group.host)
        self.groups[to].send({"order": "word", "place": place, "word": message["word"]}, 0)

    def accept(self, joining: Sequence[str]) -> None:
        """Let groups that have met, and wait for the job, accept its connection."""
        for host in joining:
            self.groups[host].send({"order": "accept"})

    def hold(self, leaving: Sequence[str]) -> None:
        """Tell all who took part in a change that it holds: the members from now on, and those that leave."""
        for group in self:
            if group.phase in ("joining", "member"):
                group.phase = "leaving" if group.host in leaving else "member"
                group.send({"order": "hold"})
                if group.phase == "leaving":
                    group.end_when_empty()

    def save(self) -> None:
        """Have every member save what it had at the safe point."""
        for group in self:
            if group.phase == "member":
                group.send({"order": "save"})

    def ranks_of(self, *phases: Phase) -> set[tuple[str, int]]:
        """Return every rank of the groups in these phases: the host of its group, and its number there."""
        found = (group for group in self if group.phase in phases)
        return {(group.host, rank) for group in found for rank in range(group.ranks)}

    def emptied(self, host: str) -> bool:
        """Whether nothing of the job is on a host any more; its supervisor goes last."""
        group = self.groups[host]
        if group.phase == "empty" and not group.gone:
            group.dismiss()
        return group.gone

    def all_emptied(self) -> bool:
        """Whether nothing of the job is anywhere."""
        return self.have_emptied(list(self.groups))

    def have_emptied(self, hosts: Sequence[str]) -> bool:
        """Whether nothing of the job is on these hosts any more; supervisors of empty hosts are dismissed."""
        left = [host for host in hosts if not self.emptied(host)]
        return not left

    def release(self, hosts: Sequence[str]) -> None:
        """Forget hosts that were given back."""
        for host in hosts:
            del self.groups[host]
        self.released |= set(hosts)

    def give_up(self, hosts: Sequence[str], *, spare_parked: bool = True) -> None:
        """Kill groups that were to join; a warm one that is parked may stay."""
        for host in hosts:
            group = self.groups.get(host)
            warm = spare_parked and self.job.place(host).warm
            if group is not None and not (warm and group.phase == "parked"):
                self.discard(host)

    def discard(self, host: str) -> None:
        """Kill the group of a host, with its supervisor."""
        self.groups.pop(host).kill()

    def retain(self, hosts: Sequence[str]) -> None:
        """Dismiss the supervisors of all hosts but these, and those where a group may wait until it is needed."""
        for key, group in list(self.groups.items()):
            if key in (*hosts, WORLD) or (self.job.place(key).warm and group.phase == "parked"):
                continue
            group.end()
            self.groups.pop(key).dismiss()

    def end(self, spare_parked: bool = False) -> None:
        """Kill all ranks; the supervisors stay."""
        for group in self:
            if not (spare_parked and group.phase == "parked"):
                group.end()
