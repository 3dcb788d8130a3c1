"""The process groups of a job, one on each host, as the job manager sees them.

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
"""Time limit for a supervisor to end its ranks: if its process does not run, and if it does."""

Phase = Literal["starting", "parked", "joining", "member", "leaving", "ending", "empty"]
Message = dict[str, Any]


class ProcessGroup(SupervisorConnection):
    """Processes of one launcher on one host.

    Parameters
    ----------
    spec
        Specification of the host: its connection and its program.
    number
        Number of the group, unique in the job.
    folder
        Folder of the run, for the files of supervisors on this machine.
    on_message
        Called with this group, the rank, and each message of a rank.
    on_lost
        Called with this group and the reason when the group is lost: at most once.
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
        """Run the supervisor in this fork of the manager, or execute the ssh that leads to it."""
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
        """Number of ranks."""
        return self.spec.slots

    def start(self) -> None:
        """Start the ranks, which park at their first safe point."""
        self.phase, self.declared, self.parked_ranks = "starting", {}, 0
        self.aborted = False
        self.sees_commits = True
        self._phase_started = time.monotonic()
        files = {"launch": self._launch_file()}
        if (
            self.job.task
        ):  # without a task the program uses its own parameters, as if started by hand
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
        """Count a rank that waits at its first safe point; the message may arrive while the group is ending."""
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
        """Order the supervisor to end after its ranks, which leave the job."""
        self.order("release")

    def check(self, now: float) -> None:
        """Treat a supervisor as lost if it is silent, or does not end its ranks in time."""
        super().check(now)
        if self.gone or self.phase != "ending":
            return
        ending = now - self._phase_started
        if ending > EXIT_SECONDS and ending > (SLOW_EXIT_SECONDS if self.runs else EXIT_SECONDS):
            self.give_up(SUPERVISOR_SILENT)

    def _argv(self) -> list[str]:
        """Return the launcher's command line; the supervisor replaces ``{launch}`` by the path of the file."""
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
        """Handle a report of the supervisor; late reports of an earlier group are ignored."""
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
        """Report the loss of the group, unless it was ordered to end."""
        if self.phase not in ("ending", "empty"):
            self._on_lost(self, why)
        if self.gone:
            self.phase = "empty"


def _is_message(message: object) -> bool:
    return isinstance(message, dict) and isinstance(message.get("event"), str)


REPORT_FIELDS = {"message": ("rank", "message"), "lost": ("why", "aborted")}
"""Name of a report -> its required fields."""


@dataclass
class ProcessGroups:
    """All process groups of one job, by host.

    Attributes
    ----------
    on_message, on_lost, on_output
        As for `ProcessGroup`.
    output_paused
        Whether forwarding of the output of ranks on other machines is paused.
    released
        Released hosts: no group is parked there, even if their specification has ``warm``.
    declared
        Summary of the declared data, equal in all groups; None before the first group has parked.
    on_disk
        Whether the directory has ever had a commit of the job.
    lost
        Hosts that were lost at any time, also if they were used again.
    directory
        Directory of commits on disk; empty: commits in memory only.
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
        """Yield every present group, from a copy, so that the caller may remove groups."""
        return iter(list(self.groups.values()))

    def start_on(self, *hosts: str) -> None:
        """Start a group on each host without one; it parks at its first safe point."""
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
        """Pause or resume the forwarding of output on other machines; in a pause, ranks that print wait."""
        if paused == self.output_paused:
            return
        self.output_paused = paused
        for group in self:
            if not group.gone:
                group.order("pause", paused=paused)

    def start_warm(self) -> None:
        """Start groups on the hosts with ``warm`` in their specification, unless they were released."""
        for place in self.job.hosts:
            if place.warm and place.host not in {*self.groups, *self.released}:
                self.start_on(place.host)

    def warm(self) -> tuple[str, ...]:
        """Return the hosts with a parked group."""
        return tuple(group.host for group in self if group.phase == "parked")

    def unfit(self, joining: Sequence[str]) -> tuple[str, str]:
        """Return a host with a parked group that must not join, and the reason; both empty if all may join."""
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
        """Return the unused hosts of the job's list, in the order in which they replace lost hosts.

        Hosts with a parked group come first, hosts that were lost before come last. Otherwise each job has its own
        order, so that jobs that lose the same host do not all use the same standby host.
        """
        if self.job.scheduled:
            return []
        there = [place.host for place in self.job.hosts if place.host not in used]
        warm = self.warm()
        return sorted(there, key=lambda host: (
            host in self.lost, host not in warm, crc32(f"{self.job.job} {host}".encode())
        ))  # fmt: skip

    def merge_worlds(self, order: str, joining: Sequence[str], **more: object) -> None:
        """Order parked groups to merge their worlds, in this order, and then to join the job or to launch it."""
        seconds = self.job.commit_seconds
        merging = {"order": order, "groups": len(joining), "commit_seconds": seconds}
        for place, key in enumerate(joining):
            self.groups[key].phase = "joining"
            self.groups[key].send({**merging, **more, "place": place})

    def relay(self, group: ProcessGroup, joining: Sequence[str], message: Message) -> None:
        """Pass a text of one merging group to the first rank of another, for example the name of an MPI port."""
        to = joining[message["place"]]
        place = joining.index(group.host)
        self.groups[to].send({"order": "relayed", "place": place, "text": message["text"]}, 0)

    def accept(self, joining: Sequence[str]) -> None:
        """Order groups that have merged to accept the job's connection."""
        for host in joining:
            self.groups[host].send({"order": "accept"})

    def commit_change(self, leaving: Sequence[str]) -> None:
        """Order all groups of a change, the new members and the leaving groups, to adopt the new map."""
        for group in self:
            if group.phase in ("joining", "member"):
                group.phase = "leaving" if group.host in leaving else "member"
                group.send({"order": "commit"})
                if group.phase == "leaving":
                    group.end_when_empty()

    def save(self) -> None:
        """Order every member to save its data of the safe point."""
        for group in self:
            if group.phase == "member":
                group.send({"order": "save"})

    def ranks_of(self, *phases: Phase) -> set[tuple[str, int]]:
        """Return all ranks of the groups in these phases, each as host and rank within the host."""
        found = (group for group in self if group.phase in phases)
        return {(group.host, rank) for group in found for rank in range(group.ranks)}

    def is_empty(self, host: str) -> bool:
        """Whether all processes of the job on a host have ended; the supervisor ends last."""
        group = self.groups[host]
        if group.phase == "empty" and not group.gone:
            group.dismiss()
        return group.gone

    def all_empty(self) -> bool:
        """Whether all processes of the job on all hosts have ended."""
        return self.all_empty_on(list(self.groups))

    def all_empty_on(self, hosts: Sequence[str]) -> bool:
        """Whether all processes of the job on these hosts have ended; dismiss the supervisors of empty hosts."""
        left = [host for host in hosts if not self.is_empty(host)]
        return not left

    def release(self, hosts: Sequence[str]) -> None:
        """Remove the groups of released hosts."""
        for host in hosts:
            del self.groups[host]
        self.released |= set(hosts)

    def discard_newcomers(self, hosts: Sequence[str], *, keep_parked: bool = True) -> None:
        """Kill joining groups; with `keep_parked`, parked groups on warm hosts stay."""
        for host in hosts:
            group = self.groups.get(host)
            warm = keep_parked and self.job.place(host).warm
            if group is not None and not (warm and group.phase == "parked"):
                self.discard(host)

    def discard(self, host: str) -> None:
        """Kill the group of a host and its supervisor."""
        self.groups.pop(host).kill()

    def retain(self, hosts: Sequence[str]) -> None:
        """Dismiss the supervisors of all other hosts, except warm hosts with a parked group."""
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
