"""The process groups of a job, one a host, as the job manager has them.

`ProcessGroup` is the group of one host, `ProcessGroups` holds all of a job.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from selectors import BaseSelector
from typing import Any, Literal
from zlib import crc32

from apples.io.json_lines import LineError
from apples.launch.host_spec import HostSpec
from apples.launch.hostd import output_lines
from apples.launch.job_processes import be, mark
from apples.malleable.control.job_file import JobFile
from apples.malleable.node.connection import (
    SUPERVISOR_SILENT,
    SupervisorConnection,
    run_command,
)
from apples.malleable.node.far_host import MODULE
from apples.malleable.node.supervisor import NodeSupervisor

SUPERVISOR = "apples-node"
"""The process name of the supervisor of a part of this machine."""
EXIT_SECONDS, SLOW_EXIT_SECONDS = 2.0, 20.0
"""Time for a supervisor to end its ranks: if its process does not run, and if it does."""

Phase = Literal["starting", "parked", "joining", "member", "leaving", "ending", "empty"]
Message = dict[str, Any]


class ProcessGroup(SupervisorConnection):
    """Processes of one launcher on one host.

    Parameters
    ----------
    spec
        How the host is reached, and what runs there.
    number
        Of the group, among all that the job had.
    folder
        Where supervisors of this machine put their files: that of the run.
    on_message
        Called with this group, the rank, and each message of a rank.
    on_lost
        Called with this group and the reason when it is lost: at most once.
    on_output
        Called with ``output`` or ``error``, and the lines that ranks on another machine wrote there.

    Attributes
    ----------
    aborted
        Whether a rank ended with an exit code, as MPI ends one when a rank on another host was killed.
    """

    def __init__(
        self,
        job: JobFile,
        spec: HostSpec,
        number: int,
        selector: BaseSelector,
        folder: Path,
        on_message: Callable[[ProcessGroup, int, Message], None],
        on_lost: Callable[[ProcessGroup, str], None],
        on_output: Callable[[str, list[bytes]], None] = lambda _event, _lines: None,
    ) -> None:
        self.job, self.spec, self.number = job, spec, number
        self.phase: Phase = "starting"
        self.declared: Message = {}
        self.parked_ranks = 0
        self.aborted = False
        self.sees_commits = True
        self.on_message, self._on_lost, self._on_output = on_message, on_lost, on_output
        self._phase_started = time.monotonic()
        self._folder = str(folder.absolute())
        super().__init__(selector, job.job, is_far=bool(spec.reach))

    def be_supervisor(self) -> int | None:
        """Be the supervisor, which shares this process's memory, or become the ssh that leads to it."""
        if self.is_far:
            words = ("-I", "-m", MODULE, mark(self.job.job), str(self.job.attempt))
            run_command([*self.spec.reach, *words])
        return be(SUPERVISOR, lambda: NodeSupervisor(self._folder).run())

    @property
    def host(self) -> str:
        """Name of the host."""
        return self.spec.host

    @property
    def ranks(self) -> int:
        """How many processes there are."""
        return self.spec.slots

    def start(self) -> None:
        """Start the ranks, which park at their first safe point."""
        self.phase, self.declared, self.parked_ranks = "starting", {}, 0
        self.aborted = False
        self.sees_commits = True
        self._phase_started = time.monotonic()
        files = {"launch": self._launch_file()}
        if self.job.task:  # else it is as if started by hand: its parameters are its own
            files["task"] = json.dumps(self.job.task)
        environment = {
            **self.spec.environment, "APPLES_JOB": self.job.job, "APPLES_HOST": self.host
        }  # fmt: skip
        self.order(
            "start",
            ranks=self.ranks,
            group=self.number,
            argv=self._argv(),
            files=files,
            environment=environment,
            commits=self.job.commits,
        )

    def parked(self, declared: Message) -> None:
        """Count a rank that waits at its first safe point; the message may come when the group is being ended."""
        self.declared = self.declared or declared
        self.parked_ranks += 1
        if self.parked_ranks == self.ranks and self.phase == "starting":
            self.phase = "parked"

    def send(self, message: Message, rank: int | None = None) -> None:
        """Send a message to one rank or to all."""
        self.order("send", rank=rank, message=message)

    def end(self) -> None:
        """Kill the ranks; the supervisor stays."""
        if self.phase in ("ending", "empty"):
            return
        self.phase = "ending"
        self._phase_started = time.monotonic()
        if self.spawn_error:
            self.give_up(self.spawn_error)
        else:
            self.order("end")

    def end_when_empty(self) -> None:
        """Let the supervisor end when its ranks have, which leave."""
        self.order("release")

    def check(self, now: float) -> None:
        """Give up a supervisor that is silent, or does not end its ranks in time."""
        super().check(now)
        if self.gone or self.phase != "ending":
            return
        ending = now - self._phase_started
        if ending > EXIT_SECONDS and ending > (SLOW_EXIT_SECONDS if self.runs else EXIT_SECONDS):
            self.give_up(SUPERVISOR_SILENT)

    def _argv(self) -> list[str]:
        """Return the launcher's command line; the supervisor writes the file that ``{launch}`` stands for."""
        spec = self.spec
        wrapper = [spec.python, "-I", "-S", spec.bind, "{launch}", "0"]
        return [*spec.enter, spec.mpiexec, *spec.options, "-n", str(spec.slots), *wrapper]

    def _launch_file(self) -> str:
        first = self.spec
        hosts: list[Message] = [
            {
                "host": first.host, "program": first.program, "cpus": first.cpus, "cgroup": first.cgroup
            }
        ]  # fmt: skip
        if first.reach:
            hosts[0]["programs"] = first.programs
            return json.dumps({"directory": first.directory, "hosts": hosts})
        return json.dumps({"directory": first.directory or self.job.directory, "hosts": hosts})

    def handle(self, report: Message) -> None:
        """Take one report of the supervisor; those of a group before this one are late, and ignored."""
        name = report["report"]
        if any(key not in report for key in REPORT_FIELDS.get(name, ())):
            raise LineError("a report without its fields")
        if name == "message" and not _is_message(report["message"]):
            raise LineError("a message without an event")
        if name in ("output", "error"):
            self._on_output(name, output_lines(report))
        elif report.get("group", self.number) != self.number:
            return
        elif name == "message":
            self.on_message(self, report["rank"], report["message"])
        elif name == "lost":
            self.aborted = bool(report["aborted"])
            self.on_end(report["why"])
        elif name == "no_commits":
            self.sees_commits = False
        elif name == "empty":
            self.phase = "empty"
            self.on_message(self, -1, {"event": "empty"})

    def on_end(self, why: str) -> None:
        """Report the loss of the group, unless its end was wanted."""
        if self.phase not in ("ending", "empty"):
            self._on_lost(self, why)
        if self.gone:
            self.phase = "empty"


def _is_message(message: object) -> bool:
    return isinstance(message, dict) and isinstance(message.get("event"), str)


REPORT_FIELDS = {"message": ("rank", "message"), "lost": ("why", "aborted")}
"""Fields that a report of this name must have."""


@dataclass
class ProcessGroups:
    """All process groups of one job, by host.

    Attributes
    ----------
    on_message, on_lost, on_output
        As for `ProcessGroup`.
    output_paused
        Whether the output of ranks on other machines is not to be forwarded.
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
    on_output: Callable[[str, list[bytes]], None] = lambda _event, _lines: None
    output_paused: bool = False
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
                group = self.groups[host] = self._new(self.job.place(host))
                group.start()
            elif group.phase == "empty":
                group.start()

    def _new(self, spec: HostSpec) -> ProcessGroup:
        self._numbers += 1
        group = ProcessGroup(
            self.job,
            spec,
            self._numbers,
            self.selector,
            self.folder,
            self.on_message,
            self.on_lost,
            self.on_output,
        )
        if self.output_paused:
            group.order("pause", paused=True)
        return group

    def pause_output(self, paused: bool) -> None:
        """Have supervisors on other machines forward no output, so that ranks which print wait, or forward it."""
        if paused == self.output_paused:
            return
        self.output_paused = paused
        for group in self:
            if not group.gone:
                group.order("pause", paused=paused)

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
                self.on_output("error", [f"warning: {line}".encode()])
        return "", ""

    def standby_hosts(self, used: Collection[str]) -> list[str]:
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

    def merge_worlds(self, order: str, joining: Sequence[str], **more: object) -> None:
        """Have the worlds of parked groups merge, in this order, and then join the job or, at a launch, be it."""
        seconds = self.job.commit_seconds
        merging = {"order": order, "groups": len(joining), "commit_seconds": seconds}
        for place, key in enumerate(joining):
            self.groups[key].phase = "joining"
            self.groups[key].send({**merging, **more, "place": place})

    def relay(self, group: ProcessGroup, joining: Sequence[str], message: Message) -> None:
        """Send the first rank of a group a text of a group that merges with it, for example the name of a port."""
        to = joining[message["place"]]
        place = joining.index(group.host)
        self.groups[to].send({"order": "relayed", "place": place, "text": message["text"]}, 0)

    def accept(self, joining: Sequence[str]) -> None:
        """Let groups that have merged, and wait for the job, accept its connection."""
        for host in joining:
            self.groups[host].send({"order": "accept"})

    def commit_change(self, leaving: Sequence[str]) -> None:
        """Order all groups of a change to adopt the new map: the members from now on, and those that leave."""
        for group in self:
            if group.phase in ("joining", "member"):
                group.phase = "leaving" if group.host in leaving else "member"
                group.send({"order": "commit"})
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

    def is_empty(self, host: str) -> bool:
        """Whether nothing of the job is on a host any more; its supervisor goes last."""
        group = self.groups[host]
        if group.phase == "empty" and not group.gone:
            group.dismiss()
        return group.gone

    def all_empty(self) -> bool:
        """Whether nothing of the job is anywhere."""
        return self.all_empty_on(list(self.groups))

    def all_empty_on(self, hosts: Sequence[str]) -> bool:
        """Whether nothing of the job is on these hosts any more; supervisors of empty hosts are dismissed."""
        left = [host for host in hosts if not self.is_empty(host)]
        return not left

    def release(self, hosts: Sequence[str]) -> None:
        """Forget hosts that were given back."""
        for host in hosts:
            del self.groups[host]
        self.released |= set(hosts)

    def discard_newcomers(self, hosts: Sequence[str], *, keep_parked: bool = True) -> None:
        """Kill groups that were to join; a warm one that is parked may stay."""
        for host in hosts:
            group = self.groups.get(host)
            warm = keep_parked and self.job.place(host).warm
            if group is not None and not (warm and group.phase == "parked"):
                self.discard(host)

    def discard(self, host: str) -> None:
        """Kill the group of a host, with its supervisor."""
        self.groups.pop(host).kill()

    def retain(self, hosts: Sequence[str]) -> None:
        """Dismiss the supervisors of all hosts but these, and those where a group may wait until it is needed."""
        for key, group in list(self.groups.items()):
            if key in hosts or (self.job.place(key).warm and group.phase == "parked"):
                continue
            group.end()
            self.groups.pop(key).dismiss()

    def end(self, keep_parked: bool = False) -> None:
        """Kill all ranks; the supervisors stay."""
        for group in self:
            if not (keep_parked and group.phase == "parked"):
                group.end()
