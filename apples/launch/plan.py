"""`LaunchPlan`: the input of an actuator, and the task document for the program.

The agent decides and builds a plan (`apples.agent.launching`); an actuator carries it out. A plan has strips,
command lines, time limits, quotas and findings about the hosts, but no forecast and no model.
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
"""Minimum silence of a program after which it counts as hung."""

MAX_ASSUMED_SECONDS = 7 * 86400.0
"""Longest predicted run that is started with an assumed speed; a longer one suggests that the speed is wrong."""

Parameters = Mapping[str, int | float | str]


def refuse_assumed_weeks(unmeasured: Sequence[str], seconds: float) -> None:
    """Reject a run if its long prediction depends on hosts of unknown speed.

    Parameters
    ----------
    unmeasured
        Hosts of the run with a speed that was neither given nor measured.
    seconds
        Predicted seconds of the whole run.

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
    """The command lines of the application on one host.

    Attributes
    ----------
    host
        The host, as the host list describes it.
    implementation
        The template's implementation for this host; empty: the template has only one.
    local
        The command line if the host is a part of this machine, with this interpreter.
    remote
        The command line if the host is another machine, with the host's own interpreter.
    files
        Words of `remote` that are files of the template's folder; the host may have them in its own directory.
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
        Number of processes that share the rows: the host's slots, but at most its rows.
    first_column, columns
        Columns of a rectangle, as for rows; None: all columns.
    threads
        Number of threads of the only rank, if the implementation uses threads; 0: each rank has one thread.
    messages
        Bytes that each rank sends to each other rank; empty: unknown.
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
        """The host of `program`."""
        return self.program.host


@dataclass(frozen=True, slots=True)
class MalleableLimits:
    """The hosts that a malleable job may ever use.

    Attributes
    ----------
    programs
        Every host to which the job may move, in the order of the host list.
    minimum, maximum
        The user's limits of the number of hosts; a maximum of 0 means no limit.
    """

    programs: tuple[HostProgram, ...]
    minimum: int = 1
    maximum: int = 0


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """One run, ready to start: the complete input of an actuator.

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
        The host list: logins, ssh configuration, and also the unused hosts.
    iterations, iteration_seconds
        Number of iterations of the run, and the predicted seconds of one.
    silence_seconds
        Time limit from one output line of the program to the next, well above the prediction.
    cpu_quotas
        Host -> CPUs, for hosts without a measured speed that the host list describes as slower than this machine.
    findings
        Host -> results of the checks on that host (`preflight`).
    malleable
        Hosts that the job may ever use; None if the program is not malleable.
    needs
        Requirements of a host, for hosts that can be checked only after the queue has allocated them.
    distances
        Host -> other host -> cost of a byte between them, relative to the nearest pair (`host_distances`); empty
        if all pairs are equal.
    partitions
        The data partition that the program must use, for example ``redundant:4``; empty: the program's default.
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
    """The hosts that an actuator must check before the start, and their requirements.

    Attributes
    ----------
    hosts
        The host list.
    allowed
        The hosts that the user's constraints allow.
    needs
        Requirements of a host for running the program.
    findings
        Host -> results of earlier checks.
    malleable
        Whether the job may move while it runs; its hosts then need this version of apples.
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
        """The allowed hosts without findings."""
        return tuple(host for host in self.allowed if host.name not in self.findings)


def strips_of(
    allocations: Sequence[Allocation], program: Callable[[Allocation], HostProgram]
) -> tuple[Strip, ...]:
    """Return the strips of a schedule's allocations in order, or their rectangles.

    Raises
    ------
    LaunchError
        The schedule has no host, or the rows of a strip are not a whole number above 0. Permanent.
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
    """Return each host's first strip and its total ranks: a host may have a strip of each of several tasks."""
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
        Whether the program must save its result there.
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
    """Return the task document that measures one implementation on strips of `sizes` rows.

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
