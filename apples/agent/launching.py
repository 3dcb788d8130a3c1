"""Input of an actuator, made from an information pool: `launch_plan`, and the host survey before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from apples.agent.information import InformationPool, needs_of, own_files, program_of, refusal
from apples.agent.partitioning import decomposition_of
from apples.launch.plan import (
    SILENCE_SECONDS,
    HostProgram,
    HostSurvey,
    LaunchPlan,
    MalleableLimits,
    Strip,
    strips_of,
)
from apples.launch.this_host import PYTHON
from apples.resources import Host, Link
from apples.resources.distances import HostDistances, host_distances, tells
from apples.resources.schedule import Allocation, Schedule
from apples.topology.message_matrix import MessageMatrix

SILENT_ITERATIONS = 50.0
"""Predicted iterations that may pass without output of the program."""
SLOWEST_BYTES_PER_SECOND = 20e6
"""Assumed rate of a result's transfer, unless a link is slower. The program prints nothing meanwhile."""
SHARE_OF_LINK = 0.25
"""Assumed rate as a share of the slowest forecast link to the first rank's host."""


def launch_plan(
    schedule: Schedule, information: InformationPool, messages: MessageMatrix | None = None
) -> LaunchPlan:
    """Return the plan by which an actuator executes a schedule.

    Parameters
    ----------
    messages
        Bytes between each two ranks; ignored if the number of ranks differs from the schedule's.

    Raises
    ------
    LaunchError
        The schedule is not a partition: no host, or strips without at least one whole row. Permanent.
    """
    application = information.application
    strips = strips_of(
        schedule.allocations,
        lambda one: host_program(one.host, one.implementation, information),
    )
    if messages is not None:
        strips = _with_messages(strips, messages)
    return LaunchPlan(
        information.template.name,
        application.parameters,
        strips,
        application.rows,
        information.hosts,
        iterations=application.iterations,
        iteration_seconds=information.model_of(schedule).iteration_seconds(schedule),
        silence_seconds=silence_seconds(schedule, information),
        cpu_quotas=_cpu_quotas(schedule, information),
        findings=information.findings,
        malleable=(limits := _malleable_limits(information)),
        needs=needs_of(information),
        partitions=decomposition_of(schedule, information),
        distances=distances(
            [one.host for one in limits.programs] if limits else schedule.resources, information
        ),
    )


def _with_messages(strips: tuple[Strip, ...], messages: MessageMatrix) -> tuple[Strip, ...]:
    """Add to each strip the bytes between its ranks, if `messages` has as many ranks as the strips."""
    found, first = [], 0
    for strip in strips:
        here = slice(first, first + strip.ranks)
        found.append(replace(strip, messages=tuple(row[here] for row in messages.bytes[here])))
        first += strip.ranks
    return tuple(found) if first == len(messages.ranks) else strips


MAX_PAIRED = 64
"""Largest number of hosts with a table of distances for the program: the table grows with its square."""


def distances(
    hosts: Sequence[Host], information: InformationPool, most: int = MAX_PAIRED
) -> HostDistances:
    """Return the distances between hosts; empty if all are equal, or for more hosts than `most`.

    A link measured by runs has priority over its forecast, and the forecast over the host list.
    """

    def link(one: Host, other: Host) -> Link:
        forecast = information.conditions.link(one, other).link
        learned = information.learned.links.of(one, other)
        return learned.under(forecast) if learned else forecast

    if not 2 < len(hosts) <= most:
        return {}
    found = host_distances(hosts, link)
    return found if tells(found) else {}


def calibration_plan(host: Host, implementation: str, information: InformationPool) -> LaunchPlan:
    """Return the launch plan of one process that measures an implementation on a host."""
    program = host_program(host, implementation, information)
    strip = strips_of((Allocation(host, 1, implementation),), lambda _: program)
    return LaunchPlan(
        information.template.name,
        information.application.parameters,
        strip,
        1,
        information.hosts,
        findings=information.findings,
    )


def host_survey(information: InformationPool) -> HostSurvey:
    """Return the hosts that an actuator must check, the needs of the program, and earlier findings."""
    refused = information.specifications.constraints.refusal
    return HostSurvey(
        information.hosts,
        tuple(host for host in information.hosts if refused(host.name, host.site) is None),
        needs_of(information),
        information.findings,
    )


def host_program(host: Host, implementation: str, information: InformationPool) -> HostProgram:
    """Return the command and the files of an implementation on one host."""
    remote = program_of(information, implementation, PYTHON)
    return HostProgram(
        host,
        implementation,
        program_of(information, implementation),
        remote,
        own_files(information, remote),
    )


def silence_seconds(schedule: Schedule, information: InformationPool) -> float:
    """Return the output timeout of the program in seconds: generous, because a prediction can be wrong."""
    return max(
        SILENCE_SECONDS,
        SILENT_ITERATIONS * information.model_of(schedule).iteration_seconds(schedule),
        _result_seconds(schedule, information),
    )


def _result_seconds(schedule: Schedule, information: InformationPool) -> float:
    """Return the longest assumed transfer of the result to the first rank, in seconds."""
    application = information.application
    size = application.rows * application.columns * application.element_bytes
    link = SHARE_OF_LINK * _slowest_link(schedule, information)
    return size / min(SLOWEST_BYTES_PER_SECOND, link)


def _slowest_link(schedule: Schedule, information: InformationPool) -> float:
    """Return the least forecast bandwidth of the links to the first host, in bytes per second."""
    first, *others = schedule.resources
    links = (information.conditions.link(host, first).link for host in others)
    return min((link.bandwidth for link in links), default=float("inf"))


def _cpu_quotas(schedule: Schedule, information: InformationPool) -> dict[str, float]:
    """Return a quota of CPUs for each host with a described, not measured, CPU share below 1."""
    hosts = {host.name: host for host in (*information.hosts, *schedule.resources)}
    return {
        host.name: host.cpu * host.slots
        for host in hosts.values()
        if host.cpu < 1 and not information.conditions.measured(host)
    }


def _malleable_limits(information: InformationPool) -> MalleableLimits | None:
    """Return the hosts that a malleable job may use: fit, allowed by the user, and with an implementation."""
    if not information.template.malleable:
        return None
    limits = information.specifications.constraints
    hosts = [
        host
        for host in information.hosts
        if information.implementation(host)
        and not refusal(information, host)
        and limits.refusal(host.name, host.site) is None
    ]
    return MalleableLimits(
        tuple(host_program(host, information.implementation(host), information) for host in hosts),
        limits.minimum_hosts,
        limits.maximum_hosts or 0,
    )
