"""``nws load``: the load and the free part of every host of a list, and the use of jobs there."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from apples.errors import LaunchError
from apples.launch.remote.addresses import remote_hosts
from apples.resources import read_host_list
from apples.scheduling.decider import PRIORITIES, NodeCapacity
from apples.ui import options
from apples.ui.command_line import answers_a_terminal, command, repaint, say, show_answer
from apples.ui.options import json_option
from apples.ui.parameters import Excludes, Requires, integer, number, option
from apples.ui.tables import in_columns
from apples.ui.units import amount, digits
from apples.weather.commands.ask import asking, ca_option, token_path_option
from apples.weather.documents import MonitorDocument, MonitoredHost
from apples.weather.load.monitor import WINDOW, LoadMonitor
from apples.weather.load.remote import load_slaves
from apples.weather.load.series import LoadReporter
from apples.weather.load.snapshot import NOBODY, NodeSnapshot

SILENT_SECONDS = 15.0
"""Time limit for the first snapshot of a host, beside the time that its snapshots take."""
ATTRIBUTES = ("cpu", "memory", "swap", "disk", "network")


@command(
    rules=(
        *(Requires(name, "--service") for name in ("--rounds", "--token-file", "--ca")),
        Excludes("--watch", "--json"),
        Excludes("--ranks", "--json"),
    )
)
@options.hosts_option
@option("--watch", is_flag=True, help="Repeat on a terminal until Ctrl-C.")
@option(
    "--every",
    metavar="SECONDS",
    type=number(0.2, 3600),
    default=1.0,
    help="Seconds between two snapshots.",
)
@option(
    "--snapshots", type=integer(1, 1000), default=WINDOW, help="Number of snapshots to average."
)
@option(
    "--ranks",
    is_flag=True,
    help="Show the use of each rank, if its launcher reported its processes.",
)
@option("--service", metavar="URL", help="Report to this weather service too, until stopped.")
@token_path_option
@ca_option
@option("--rounds", type=integer(1), help="With --service: end after this many snapshots.")
@json_option
def load(
    hosts: Path | None,
    watch: bool,
    every: float,
    snapshots: int,
    ranks: bool,
    service: str | None,
    token_file: Path | None,
    ca: Path | None,
    rounds: int | None,
    json: bool,
) -> int:
    """Show the load and the free CPUs of every host, and the CPUs and memory that jobs use there.

    With --service, the service also stores these figures as series and forecasts them: see nws top 'capacity*'.

    Example: nws load --hosts hosts.toml --watch
    """
    found = read_host_list((hosts or Path("hosts.toml")).absolute())
    far = remote_hosts(found)
    heard = _Heard([host.name for host in found])
    slaves = load_slaves(found, far, every)
    shows = watch and not json and answers_a_terminal()
    least = snapshots if service is None and not shows else 1
    with ExitStack() as stack:
        report = None
        if service is not None:
            client = stack.enter_context(asking(service, token_file, ca))
            reporter = LoadReporter(client, every, partial(heard.problem, service))
            stack.callback(reporter.close)
            report = reporter.hear
        stack.enter_context(
            LoadMonitor(slaves, heard.hear, snapshots, least, heard.problem, report)
        )
        heard.wait(SILENT_SECONDS + least * every)
        document = heard.document(snapshots, every)
        if not shows and not document["hosts"]:
            said = "; ".join(f"{one['machine']}: {one['text']}" for one in document["problems"])
            raise LaunchError(
                f"no host answered{': ' if said else ''}{said}",
                code="host-unreachable",
                problems=document["problems"],
            )
        try:
            while (shows or service) and not heard.enough(rounds):
                if shows:
                    repaint(monitor_text(heard.document(snapshots, every), ranks))
                else:
                    heard.say_problems()
                time.sleep(every)
        except KeyboardInterrupt:
            return 0
    if not shows:
        document = heard.document(snapshots, every)
        if service:  # a problem must not appear in the answer alone
            heard.say_problems()
        show_answer(document, lambda: monitor_text(document, ranks), json)
    return 0


class _Heard:
    """The latest snapshot and problem of each host."""

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self._last: dict[str, NodeSnapshot] = {}
        self._problems: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._said: set[tuple[str, str]] = set()
        self._changed = threading.Condition()

    def hear(self, one: NodeSnapshot) -> None:
        with self._changed:
            self._last[one.host] = one
            self._counts[one.host] = self._counts.get(one.host, 0) + 1
            self._changed.notify_all()

    def enough(self, rounds: int | None) -> bool:
        """Return whether each host with a snapshot has at least `rounds` of them."""
        with self._changed:
            return rounds is not None and min(self._counts.values(), default=0) >= rounds

    def say_problems(self) -> None:
        """Print the problems that were not printed yet."""
        with self._changed:
            problems = {*self._problems.items()}
        for machine, text in sorted(problems - self._said):
            if text:
                say(f"{machine}: {text}")
        self._said = problems

    def problem(self, machine: str, text: str) -> None:
        with self._changed:
            self._problems[machine] = text
            self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        """Wait until every host has a snapshot, at most `seconds`."""
        with self._changed:
            self._changed.wait_for(
                lambda: all(name in self._last for name in self._names), seconds
            )

    def document(self, window: int, every: float) -> MonitorDocument:
        with self._changed:
            last, problems = dict(self._last), dict(self._problems)
        silent = {name: "it has not been heard" for name in self._names if name not in last}
        said = {**silent, **{machine: text for machine, text in problems.items() if text}}
        return {
            "schema": "apples.monitor/1",
            "time": time.time(),
            "window": window,
            "every": every,
            "hosts": [_host(last[name]) for name in self._names if name in last],
            "problems": [{"machine": machine, "text": text} for machine, text in said.items()],
        }


def _host(one: NodeSnapshot) -> MonitoredHost:
    capacity = NodeCapacity(one.host, one.available).capacity(PRIORITIES)
    return {
        "host": one.host, "time": one.time, "cpus": one.cpus, "wanted": sum(one.wanting.values()),
        "others": one.wanting.get(NOBODY, 0.0), "available": one.available, "capacity": capacity,
        "load": 1 - capacity,
        "jobs": [
            {
                "job": job, "wanted": one.wanting.get(job, 0.0), "processes": each.processes,
                "cpu_seconds": each.cpu_seconds, "memory": each.memory,
            }
            for job, each in one.jobs.items()
        ],
        "ranks": [
            {
                "job": job, "rank": rank, "processes": each.processes, "cpu_seconds": each.cpu_seconds,
                "memory": each.memory,
            }
            for (job, rank), each in sorted(one.ranks.items())
        ],
    }  # fmt: skip


def monitor_text(document: MonitorDocument, ranks: bool = False) -> str:
    """Return a line per host, a line per job and host, with `ranks` a line per rank, then the problems."""
    head = ("host", "CPUs", "wanted", *ATTRIBUTES, "C", "L")
    rows = [
        (
            one["host"], str(one["cpus"]), digits(one["wanted"]),
            *(_share(one["available"].get(name)) for name in ATTRIBUTES),
            _share(one["capacity"]), _share(one["load"]),
        )
        for one in document["hosts"]
    ]  # fmt: skip
    lines = list(in_columns([head, *rows], numbers=True))
    jobs = [
        (
            each["job"], one["host"], str(each["processes"]), digits(each["wanted"]),
            digits(each["cpu_seconds"]), amount(each["memory"]),
        )
        for one in document["hosts"]
        for each in one["jobs"]
    ]  # fmt: skip
    if jobs:
        titles = ("job", "host", "processes", "wanted", "CPU s", "memory")
        lines += ["", *in_columns([titles, *jobs], numbers=True)]
    if ranks:
        each_rank = [
            (
                each["job"], str(each["rank"]), one["host"], str(each["processes"]),
                digits(each["cpu_seconds"]), amount(each["memory"]),
            )
            for one in document["hosts"]
            for each in one["ranks"]
        ]  # fmt: skip
        titles = ("job", "rank", "host", "processes", "CPU s", "memory")
        lines += ["", *in_columns([titles, *each_rank], numbers=True)]
    lines += [f"{one['machine']}: {one['text']}" for one in document["problems"]]
    return "\n".join(lines)


def _share(part: float | None) -> str:
    return "-" if part is None else f"{part:.2f}"
