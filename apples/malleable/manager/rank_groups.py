"""`ProcessGroup`: the anchor's end of one host: its guard, and through it the ranks that run there."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from selectors import BaseSelector
from typing import Any, Literal

from apples.malleable.control.job_file import HostSpec, JobFile
from apples.malleable.node import supervisor
from apples.malleable.node.supervisor import HELLO, LINE_LIMIT

SUPERVISOR = Path(supervisor.__file__)
REMOTE_SUPERVISOR = "apples.malleable.node.remote_supervisor"
SILENCE_SECONDS = 3.0
"""Of a guard that was heard before."""
BIRTH_SECONDS = 15.0
"""Until a guard is first heard."""
EXIT_SECONDS = 2.0
CHUNK = 1 << 16
LONGEST_LINE = 8 * LINE_LIMIT
"""A line of a rank may be so long, and in JSON six times as long."""
MOST_BEFORE_HELLO = 1 << 16
"""Bytes a login may say before the guard does."""

Phase = Literal["starting", "parked", "joining", "member", "leaving", "ending", "empty"]
Message = dict[str, Any]


class ProcessGroup:
    """Processes of one launcher, on one host or, for a restart engine, on all hosts of the map.

    Parameters
    ----------
    places
        Host, or hosts in rank order.
    folder
        Where guards of this machine put their files: that of the run.
    hear
        Called with this group, the rank, and each message of a rank.
    lose
        Called with this group and the reason when it is lost: at most once.
    """

    def __init__(
        self,
        job: JobFile,
        places: Sequence[HostSpec],
        number: int,
        selector: selectors.BaseSelector,
        folder: Path,
        hear: Callable[[ProcessGroup, int, Message], None],
        lose: Callable[[ProcessGroup, str], None],
    ) -> None:
        self.job, self.places, self.number = job, tuple(places), number
        self.phase: Phase = "starting"
        self.declared: Message = {}
        self.parked_ranks = 0
        self.sees_commits = True
        self._hear, self._lose, self._selector = hear, lose, selector
        self._input = b""
        self._greeted = not self.places[0].reach
        self._unsent = b""
        self._heard: float | None = None
        self._begun = self._pinged = time.monotonic()
        first = self.places[0]
        here = [first.python, "-I", "-S", str(SUPERVISOR), str(folder.absolute())]
        there = [*first.reach, "-I", "-m", REMOTE_SUPERVISOR]
        self._guard = subprocess.Popen(
            there if first.reach else here,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "APPLES_JOB": job.job},
            start_new_session=True,
        )
        assert self._guard.stdin is not None  # noqa: S101 - for the type checker: both are pipes
        assert self._guard.stdout is not None  # noqa: S101
        self._to, self._from = self._guard.stdin.fileno(), self._guard.stdout.fileno()
        os.set_blocking(self._to, False)
        os.set_blocking(self._from, False)
        selector.register(self._from, selectors.EVENT_READ, self._read)

    @property
    def host(self) -> str:
        """Name of the host; of the first, where there are several."""
        return self.places[0].host

    @property
    def ranks(self) -> int:
        """How many processes there are."""
        return sum(place.slots for place in self.places)

    @property
    def gone(self) -> bool:
        """Whether the guard has ended too."""
        return self._from < 0

    def start(self) -> None:
        """Start the ranks, which park at their first safe point."""
        self.phase, self.declared, self.parked_ranks = "starting", {}, 0
        self.sees_commits = True
        self._begun = time.monotonic()
        files = {"launch": self._launch_file(), "task": json.dumps(self.job.task)}
        environment = {**self.places[0].environment, "APPLES_JOB": self.job.job}
        if len(self.places) == 1:
            environment["APPLES_HOST"] = self.host
        self._send(
            "start",
            ranks=self.ranks,
            group=self.number,
            argv=self._argv(),
            files=files,
            environment=environment,
            commits=self.job.commits,
        )

    def parked(self, declared: Message) -> None:
        """Count a rank that waits at its first safe point."""
        self.declared = self.declared or declared
        self.parked_ranks += 1
        if self.parked_ranks == self.ranks:
            self.phase = "parked"

    def tell(self, message: Message, rank: int | None = None) -> None:
        """Send a message to one rank or to all."""
        self._send("tell", rank=rank, message=message)

    def end(self) -> None:
        """Kill the ranks; the guard stays."""
        if self.phase not in ("ending", "empty"):
            self.phase = "ending"
            self._begun = time.monotonic()
            self._send("end")

    def dismiss(self) -> None:
        """Let the guard end, and with it all there is of the job on the host."""
        with contextlib.suppress(OSError):
            if self._guard.stdin is not None and not self._guard.stdin.closed:
                self._guard.stdin.close()
        self._to = -1

    def kill(self) -> None:
        """End the guard at once, and with it, by the kernel, what it guards; a far one when it misses us."""
        self._guard.kill()
        self._close()

    def look(self, now: float) -> None:
        """Say that the anchor is there; notice that the guard is not."""
        if self.gone:
            return
        if now - self._pinged > 1.0:
            self._pinged = now
            self._send("ping")
        late = (
            now - self._begun > BIRTH_SECONDS
            if self._heard is None
            else now - self._heard > SILENCE_SECONDS
        )
        if late or (self.phase == "ending" and now - self._begun > EXIT_SECONDS):
            self._give_up("its guard does not answer")

    def _argv(self) -> list[str]:
        """Return the launcher's command line; ``{launch}`` is where the guard put the file."""
        first = self.places[0]
        argv = list(self.job.world) or [first.mpiexec, *first.options]
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

    def _send(self, word: str, **fields: object) -> None:
        self._unsent += json.dumps({"do": word, **fields}).encode() + b"\n"
        self._flush()

    def _flush(self) -> None:
        """Write what can be written; the rest follows when the guard is heard next."""
        if self._to < 0:
            return
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._to, self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent = b""  # it is gone: reading says so

    def _read(self) -> None:
        data = os.read(self._from, CHUNK)
        if not data:
            self._close()
            self._lost("its guard ended")
            return
        self._input += data
        if not self._greeted:
            self._greet()
            return
        self._understand()

    def _greet(self) -> None:
        """Leave out what a login says before the guard does."""
        _, hello, rest = self._input.partition(HELLO)
        if hello:
            self._greeted, self._input = True, rest
            self._understand()
        elif len(self._input) > MOST_BEFORE_HELLO:
            self._give_up("its login says too much before the guard does")

    def _understand(self) -> None:
        """Take the lines that are whole."""
        self._heard = time.monotonic()
        self._flush()
        *lines, self._input = self._input.split(b"\n")
        for line in lines:
            message = supervisor.parse_report(line)
            if message is None:
                self._give_up("it says what no guard says")
                return
            self._take(message)
        if len(self._input) > LONGEST_LINE:
            self._give_up("it says what no guard says")

    def _give_up(self, why: str) -> None:
        if not self.gone:
            self.kill()
            self._lost(why)

    def _take(self, message: Message) -> None:
        word = message["say"]
        if word in ("output", "errors"):
            stream = sys.stdout if word == "output" else sys.stderr
            stream.write(message["line"] + "\n")
            stream.flush()
        elif message.get("group", self.number) != self.number:
            return
        elif word == "said":
            self._hear(self, message["rank"], message["message"])
        elif word == "lost":
            self._lost(message["why"])
        elif word == "blind":
            self.sees_commits = False
        elif word == "empty":
            self.phase = "empty"
            self._hear(self, -1, {"say": "empty"})

    def _lost(self, why: str) -> None:
        before = self.phase
        if self.gone:
            self.phase = "empty"
        if before not in ("ending", "empty"):
            self._lose(self, why)

    def _close(self) -> None:
        if self._from < 0:
            return
        self._selector.unregister(self._from)
        self._from = -1
        self.dismiss()
        if self._guard.stdout is not None:
            self._guard.stdout.close()
        # The loop must not stand still meanwhile: the other guards wait for its word.
        threading.Thread(target=self._guard.wait, daemon=True).start()


WORLD = "*"
"""The one group of a restart engine."""


@dataclass
class ProcessGroups:
    """The groups there are.

    Attributes
    ----------
    hear, lose
        As for `ProcessGroup`.
    released
        Hosts that were given back: nothing waits there, though they were opted in.
    declared
        What the programs of the job's groups declare, all alike; None before the first.
    committed
        Whether a state of the job was ever kept.
    directory
        Where states are kept, beside memory; empty: nowhere.
    """

    job: JobFile
    selector: BaseSelector
    folder: Path
    hear: Callable[[ProcessGroup, int, Message], None]
    lose: Callable[[ProcessGroup, str], None]
    groups: dict[str, ProcessGroup] = field(default_factory=dict)
    released: set[str] = field(default_factory=set)
    declared: object = None
    committed: bool = False
    _numbers: int = 0

    def __post_init__(self) -> None:
        self.directory = self.job.commits

    def __getitem__(self, host: str) -> ProcessGroup:
        """Return the group of a host."""
        return self.groups[host]

    def __iter__(self) -> Iterator[ProcessGroup]:
        """Yield every group, of those there are now."""
        return iter(list(self.groups.values()))

    def have(self, *hosts: str) -> None:
        """Have a group on each host, parked soon if it is not."""
        for host in hosts:
            group = self.groups.get(host)
            self.released.discard(host)
            if group is None or group.gone:
                group = self.groups[host] = self._new([self.job.place(host)])
                group.start()
            elif group.phase == "empty":
                group.start()

    def have_world(self, hosts: Sequence[str]) -> None:
        """Start all ranks of some hosts as one world."""
        old = self.groups.pop(WORLD, None)
        if old is not None:
            old.dismiss()
        self.groups[WORLD] = self._new([self.job.place(host) for host in hosts])
        self.groups[WORLD].start()

    def _new(self, places: Sequence[HostSpec]) -> ProcessGroup:
        self._numbers += 1
        return ProcessGroup(
            self.job, places, self._numbers, self.selector, self.folder, self.hear, self.lose
        )

    def warm_up(self) -> None:
        """Park groups on the hosts that were opted in and not given back."""
        for place in self.job.hosts:
            if place.warm and place.host not in {*self.groups, *self.released}:
                self.have(place.host)

    def warm(self) -> tuple[str, ...]:
        """Return the hosts where a group is parked."""
        return tuple(group.host for group in self if group.phase == "parked")

    def objection(self, joining: Sequence[str]) -> str:
        """Return why groups that have parked must not join; empty if nothing is wrong."""
        for key in joining:
            group = self.groups[key]
            found = group.declared["declared"]
            self.declared = self.declared or found
            if found != self.declared:
                return f"{group.host} declares other data than the job's others"
            if self.directory and not group.sees_commits:
                what = f"{group.host} does not see {self.directory}"
                if self.committed:
                    return f"{what}, where states of this job are kept"
                self.directory = ""
                line = f"warning: {what}: rows are kept in memory only, blocks not at all"
                print(line, file=sys.stderr, flush=True)  # noqa: T201 - talk
        return ""

    def order(self, word: str, group: ProcessGroup) -> Message:
        """Return what every rank of a group is told when it becomes a member."""
        names = [place.host for place in self.job.hosts]
        seats = [(names.index(p.host), rank) for p in group.places for rank in range(p.slots)]
        return {"do": word, "seats": seats, "commit_seconds": self.job.commit_seconds}

    def invite(self, joining: Sequence[str], port: str) -> None:
        """Tell the next group that joins where."""
        waiting = [host for host in joining if self.groups[host].phase == "parked"]
        if waiting:
            group = self.groups[waiting[0]]
            group.phase = "joining"
            group.tell({**self.order("join", group), "port": port})

    def settle(self, leaving: Sequence[str]) -> None:
        """Take note who is a member and who leaves."""
        for group in self:
            if group.phase in ("joining", "member"):
                group.phase = "leaving" if group.host in leaving else "member"

    def emptied(self, host: str) -> bool:
        """Whether nothing of the job is on a host any more; its guard goes last."""
        group = self.groups[host]
        if group.phase == "empty" and not group.gone:
            group.dismiss()
        return group.gone

    def all_emptied(self) -> bool:
        """Whether nothing of the job is anywhere."""
        return self.have_emptied(list(self.groups))

    def have_emptied(self, hosts: Sequence[str]) -> bool:
        """Whether nothing of the job is on these hosts any more; all of them are seen to."""
        left = [host for host in hosts if not self.emptied(host)]
        return not left

    def release(self, hosts: Sequence[str]) -> None:
        """Forget hosts that were given back."""
        for host in hosts:
            del self.groups[host]
        self.released |= set(hosts)

    def give_up(self, hosts: Sequence[str]) -> None:
        """End groups that were to join; one that was parked there before the command may stay."""
        for host in hosts:
            if self.job.place(host).warm and self.groups[host].phase == "parked":
                continue
            self.groups.pop(host).kill()

    def drop(self, host: str) -> None:
        """Let a host's guard go, if there is one, and what it guards with it."""
        if host in self.groups:
            self.groups.pop(host).dismiss()

    def end(self, spare_parked: bool = False) -> None:
        """Kill all ranks; the guards stay."""
        for group in self:
            if not (spare_parked and group.phase == "parked"):
                group.end()
