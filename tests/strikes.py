"""Strikes at the processes of a malleable job, made in the loop of its job manager in a stage of its engine."""

import contextlib
import os
import signal
from pathlib import Path

from apples.launch import descendants, marked, read
from apples.malleable import far_host

VICTIMS = ("rank", "launcher", "proxy", "supervisor", "connection")
NEWCOMER, MEMBER, LEAVER = "newcomer", "member", "leaver"
"""In place of a host's name: one that joins in the change under way, one of the map, or one that leaves."""
AFTER = ("save", "clear", "launch")
"""Stages that come only where a change was taken back."""


class Strike:
    """Kills, stops or holds up a process of a host once, when the engine is in a stage of a change.

    Parameters
    ----------
    host
        Its name, `NEWCOMER` or `MEMBER`.
    how
        ``KILL``, ``STOP``, or ``PAUSE``: stopped, and continued after so many turns of the loop as `pause` says.
    after
        How many turns of the loop the stage has been under way for.
    first
        Whether the host's ranks are stopped before: then it cannot become a member before its loss is noticed.

    Attributes
    ----------
    struck
        Process that was met; 0 before, 1 for a connection.
    """

    def __init__(self, stage, host, victim, how="KILL", *, after=0, pause=3, first=False):
        self.stage, self.host, self.victim, self.how, self.first = stage, host, victim, how, first
        self.left, self.pause, self.struck = after, pause, 0

    def __str__(self):
        return f"{self.victim} of {self.host} {self.how} in {self.stage}"

    def look(self, engine):
        """Strike if it is time; return whether it was."""
        if self.struck:
            self._go_on()
            return False
        launch = engine.change.origin == "start" and engine.stage != "idle"
        if engine.stage != self.stage or launch:  # which is no change of a job
            return False
        if self.left > 0:
            self.left -= 1
            return False
        group = self._group(engine)
        if group is None or group.gone:
            return False
        found = [group.pid]
        if self.victim not in ("supervisor", "connection"):
            found = self._processes(group.pid, self.victim)
        if found and self.first:
            self._stop_ranks(group)
        if self.victim == "connection":
            return self._strike_connection(group)
        if found:
            with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
                os.kill(found[-1], signal.SIGKILL if self.how == "KILL" else signal.SIGSTOP)
                self.struck = found[-1]
        return bool(self.struck)

    def _strike_connection(self, group):
        """End the pipes to a supervisor, or strike the process that leads to one elsewhere."""
        if not group.spec.reach:
            group.dismiss()
        elif not group.reported:
            return False
        else:
            os.kill(group.pid, signal.SIGKILL if self.how == "KILL" else signal.SIGSTOP)
            if self.how == "KILL":  # until its end can be read: the next strike meets another
                os.waitid(os.P_PID, group.pid, os.WEXITED | os.WNOWAIT)
        self.struck = 1
        return True

    def hold_back(self, engine):
        """Stop the ranks of a newcomer that is to be struck in the change which begins now.

        A change may be complete, and the newcomer a member, before this process gets a CPU again.
        """
        group = self._group(engine)
        at_once = self.left == 0 and self.how != "PAUSE"
        if self.stage == "change" and at_once and group and group.host in engine.change.joining:
            self._stop_ranks(group)

    def _stop_ranks(self, group):
        for pid in self._processes(group.pid, "rank"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def _group(self, engine):
        host = self.host
        if host == NEWCOMER:
            host = next(iter(engine.change.joining), "")
        elif host == LEAVER:
            host = next(iter(engine.change.leaving), "")
        elif host == MEMBER:
            host = engine.members[-1].host
        return engine.groups.groups.get(host)

    def _processes(self, supervisor, kind):
        return [pid for pid, _ in descendants(supervisor) if self._is(pid, kind)]

    def _is(self, pid, kind):
        argv = read(f"/proc/{pid}/cmdline").decode(errors="replace").split("\0")
        if kind == "far supervisor":
            return far_host.MODULE in argv and "relay.py" not in argv[1]
        if kind == "rank":
            return any(word.endswith(("counting.py", "shapes.py")) for word in argv[1:2])
        return argv[0].endswith({"launcher": "mpiexec", "proxy": "hydra_pmi_proxy"}[kind])

    def _go_on(self):
        if self.how == "PAUSE" and self.victim != "connection":
            self.pause -= 1
            if self.pause == 0:
                with contextlib.suppress(ProcessLookupError):  # it was ended meanwhile
                    os.kill(self.struck, signal.SIGCONT)


def strike_in_loop(manager, strikes, told=lambda _: None, before_tick=lambda _: None):
    """Have the strikes made in a manager's loop, each after the one before it; `told` hears of each that was.

    Each meets another command, but for those in stages that come only where a change was taken back. One looks
    before every message that the manager takes and before every look of its own at the clock, so that a stage
    cannot pass unseen, however seldom this process gets a CPU.
    """
    engine, tick, take = manager.engine, manager.engine.tick, manager.engine.groups.on_message
    met = []

    def is_for_another(one):
        return one.stage in AFTER or not met or met[-1] is not engine.change.command

    def look():
        for one in strikes:
            command = engine.change.command
            if (one.struck or is_for_another(one)) and one.look(engine):
                met.append(command)
                told(one)
            if not one.struck:
                break

    def look_then_tick():
        before_tick(engine)
        look()
        tick()

    def look_then_take(group, rank, message):
        look()
        one = next((one for one in strikes if not one.struck), None)
        begins = message["event"] == "safepoint" and engine.stage == "wait"
        begins = begins and not engine.prefetches
        if begins and one and is_for_another(one):
            one.hold_back(engine)
        take(group, rank, message)

    engine.tick, engine.groups.on_message = look_then_tick, look_then_take
    for group in engine.groups:
        group.on_message = look_then_take


class Killer:
    """Kills the ranks of a program on a host once the job has committed twice."""

    def __init__(self, manager, host, program):
        self.job, self.host, self.program = manager.engine.job.job, host, program
        self.commits = 0
        self.take = manager.engine.groups.on_message
        manager.engine.groups.on_message = self.look_then_take
        for group in manager.engine.groups:
            group.on_message = self.look_then_take

    def look_then_take(self, group, rank, message):
        self.take(group, rank, message)
        self.commits += message["event"] == "committed"
        if message["event"] == "committed" and self.commits == 2:
            self.kill()

    def kill(self):
        for pid in marked(self.job):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                if (
                    self.program.encode() in words
                    and f"APPLES_HOST={self.host}".encode() in variables
                ):
                    os.kill(pid, signal.SIGKILL)
