"""`LaunchPlan`: everything an actuator is told, and the task document that the program gets.

The agent decides and builds a plan (`apples.agent.launching`); an actuator carries it out. A plan holds no
forecast and no model: strips, command lines, deadlines, quotas, and what is known of the hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from apples.errors import LaunchError, UsageError
from apples.launch.remote.fitness import Fitness, Needs
from apples.resources import Host, HostList
from apples.resources.distances import HostDistances
from apples.resources.schedule import Allocation
from apples.topology.message_matrix import Matrix
from apples.ui.units import counted, in_one_line, some

SCHEMA = "apples.task/1"
PROGRESS_SECONDS = 0.25
SILENCE_SECONDS = 60.0
"""The least time a program may say nothing before it counts as hung."""

MAX_ASSUMED_SECONDS = 7 * 86400.0
"""A run that is predicted to take longer by an assumed speed is not started: the speed is the mistake."""

Parameters = Mapping[str, int | float | str]


def refuse_assumed_weeks(unmeasured: Sequence[str], seconds: float) -> None:
    """Refuse a run whose long prediction stands on hosts of unknown speed.

    Parameters
    ----------
    unmeasured
        The hosts of the run whose speed was neither given nor measured.
    seconds
        Predicted for the whole run.

    Raises
    ------
    UsageError
        The prediction is longer than `MAX_ASSUMED_SECONDS`. Permanent.
    """
    if unmeasured and seconds > MAX_ASSUMED_SECONDS:
        raise UsageError(
            f"{seconds:.3g} s predicted with an assumed speed of {some(list(unmeasured))}: run apples calibrate, "
            "or give seconds_per_point in the host list",
            code="speed-assumed",
            hosts=list(unmeasured),
            value=seconds,
            bound=MAX_ASSUMED_SECONDS,
        )


@dataclass(frozen=True, slots=True)
class HostProgram:
    """How the application is started on one host.

    Attributes
    ----------
    host
        The host, as the host list describes it.
    implementation
        The template's implementation that runs there; empty: the template has only one.
    local
        The command line where the host is a part of this machine: with this interpreter.
    remote
        The command line where the host is another machine: with the host's own interpreter.
    files
        Words of `remote` that are files of the template's folder, which the host may keep in its own directory.
    """

    host: Host
    implementation: str
    local: tuple[str, ...]
    remote: tuple[str, ...]
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Strip:
    """The contiguous rows of one host, or its rectangle, and the ranks that share the rows.

    Attributes
    ----------
    program
        The host, and how the application is started there.
    first_row, rows
        Rows ``first_row`` to ``first_row + rows - 1`` of the data are the host's.
    ranks
        How many processes share them: the host's slots, but never more than its rows.
    first_column, columns
        Of a rectangle likewise; None and None are all columns.
    threads
        Of the one rank, where the implementation is by threads; 0: each rank has one.
    messages
        Bytes that each of the ranks sends to each of them; empty: nobody knows.
    """

    program: HostProgram
    first_row: int
    rows: int
    ranks: int
    first_column: int | None = None
    columns: int | None = None
    threads: int = 0
    messages: Matrix = ()

    @property
    def host(self) -> Host:
        """The host."""
        return self.program.host


@dataclass(frozen=True, slots=True)
class MalleableLimits:
    """What a malleable job may ever use.

    Attributes
    ----------
    programs
        Every host it may be moved to, in the order of the host list.
    minimum, maximum
        The user's limits in hosts; a maximum of 0 is none.
    """

    programs: tuple[HostProgram, ...]
    minimum: int = 1
    maximum: int = 0


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """One run, ready to be started: all that an actuator may know.

    Attributes
    ----------
    application
        Name of the application, for messages.
    parameters
        The program's parameters.
    strips
        The hosts used, in rank order.
    rows
        Rows of the whole data.
    hosts
        The host list: logins, ssh configuration, and the hosts that are not used.
    iterations, iteration_seconds
        How many iterations the run takes, and the predicted seconds of one.
    silence_seconds
        The longest time without a sign of life from the program: well above the prediction.
    cpu_quotas
        By host: how many CPUs a host gets that the host list describes, unmeasured, as slower than this machine.
    findings
        By host: what was found on those that were looked at from inside.
    malleable
        What the job may ever use; None where the program is not malleable.
    needs
        What a host must have, for those that can be looked at only when the queue has given them.
    distances
        Host -> other host -> what a byte between them costs beside one between the nearest (`host_distances`);
        empty where all are as far.
    partitions
        How the program is to cut its data, as ``redundant:4``; empty: as it does.
    """

    application: str
    parameters: Parameters
    strips: tuple[Strip, ...]
    rows: int
    hosts: HostList
    iterations: int = 1
    iteration_seconds: float = 0.0
    silence_seconds: float = SILENCE_SECONDS
    cpu_quotas: Mapping[str, float] = field(default_factory=dict)
    findings: Mapping[str, Fitness] = field(default_factory=dict)
    malleable: MalleableLimits | None = None
    needs: Needs = field(default_factory=Needs)
    distances: HostDistances = field(default_factory=dict)
    partitions: str = ""

    def __repr__(self) -> str:
        """Return the application, its hosts and its iterations."""
        hosts = some([strip.host.name for strip in self.strips])
        iterations = counted(self.iterations, "iteration")
        return in_one_line(self, f"{self.application} on {hosts}, {iterations}")

    @property
    def predicted_seconds(self) -> float:
        """The predicted seconds of the iteration loop."""
        return self.iterations * self.iteration_seconds


@dataclass(frozen=True, slots=True)
class HostSurvey:
    """What an actuator is to look at before a plan is carried out: the hosts, and what they must have.

    Attributes
    ----------
    hosts
        The host list.
    allowed
        The hosts that the user's constraints allow.
    needs
        What a host must have to run the program.
    findings
        By host: what is known already.
    malleable
        Whether the job is to be moved while it runs: its hosts need this version of apples then.
    """

    hosts: HostList
    allowed: tuple[Host, ...]
    needs: Needs
    findings: Mapping[str, Fitness] = field(default_factory=dict)
    malleable: bool = False

    def __repr__(self) -> str:
        """Return the hosts that may be used."""
        return in_one_line(self, f"of {some([host.name for host in self.allowed])}")

    @property
    def unseen(self) -> tuple[Host, ...]:
        """The allowed hosts that nobody has looked at."""
        return tuple(host for host in self.allowed if host.name not in self.findings)


def strips_of(
    allocations: Sequence[Allocation], program: Callable[[Allocation], HostProgram]
) -> tuple[Strip, ...]:
    """Return the strips of a schedule's allocations, one after the other, or their rectangles.

    Raises
    ------
    LaunchError
        No host, or strips that are no whole rows or less than one. Permanent.
    """
    if not allocations:
        raise LaunchError("the schedule uses no host", code="schedule-empty")
    strips: list[Strip] = []
    first = 0
    for one in allocations:
        if mine := one.rectangle:
            place = mine.first_row, mine.rows, one.ranks, mine.first_column, mine.columns
            strips.append(Strip(program(one), *place))
            continue
        if not (one.rows >= 1 and float(one.rows).is_integer()):
            raise LaunchError(
                f"{one.host.name}: a strip of {one.rows} rows cannot be run",
                code="strip-invalid",
                host=one.host.name,
                value=str(one.rows),
            )
        strips.append(Strip(program(one), first, int(one.rows), one.ranks, threads=one.threads))
        first += int(one.rows)
    return tuple(strips)


def ranks_of_hosts(strips: Sequence[Strip]) -> list[tuple[Strip, int]]:
    """Return each host's first strip and all its ranks: of several tasks it has a strip of each."""
    found: dict[str, tuple[Strip, int]] = {}
    for strip in strips:
        first, ranks = found.get(strip.host.name, (strip, 0))
        found[strip.host.name] = first, ranks + strip.ranks
    return list(found.values())


def run_task(
    plan: LaunchPlan,
    *,
    output: Path | None = None,
    save: bool = False,
    progress_seconds: float = PROGRESS_SECONDS,
) -> dict[str, Any]:
    """Return the task document (docs/reference/protocol.md) of a run.

    Parameters
    ----------
    output
        Directory the program may write to.
    save
        Whether it is asked to keep its result there.
    """
    return {
        "schema": SCHEMA,
        "mode": "run",
        "parameters": dict(plan.parameters),
        "implementations": {
            strip.host.name: strip.program.implementation
            for strip in plan.strips
            if strip.program.implementation
        },
        "partition": [
            {
                "host": strip.host.name,
                "address": strip.host.reached_at,
                "ranks": strip.ranks,
                "first_row": strip.first_row,
                "rows": strip.rows,
                **(
                    {"first_column": strip.first_column, "columns": strip.columns}
                    if strip.columns
                    else {}
                ),
                **({"threads": strip.threads} if strip.threads else {}),
            }
            for strip in plan.strips
        ],
        **({"distances": plan.distances} if plan.distances else {}),
        **({"partitions": plan.partitions} if plan.partitions else {}),
        "output": None if output is None else str(output.absolute()),
        "progress_seconds": progress_seconds,
        "save": save,
    }


def calibrate_task(
    implementation: str, parameters: Parameters, sizes: Sequence[int], threads: int = 0
) -> dict[str, Any]:
    """Return the task document that measures one implementation on strips of `sizes` rows, by so many threads.

    Examples
    --------
    >>> calibrate_task("numpy", {"grid": 100}, [50])["sizes"]
    [50]
    """
    return {
        "schema": SCHEMA,
        "mode": "calibrate",
        "parameters": dict(parameters),
        "implementation": implementation,
        "sizes": list(sizes),
        **({"threads": threads} if threads else {}),
        "output": None,
        "save": False,
    }
