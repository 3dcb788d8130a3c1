"""From what the agent knows to what an actuator is told: `launch_plan`, and the survey of hosts before it."""

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
"""How many predicted iterations may pass without a line."""
SLOWEST_BYTES_PER_SECOND = 20e6
"""A result streams at least this fast where no link is slower; nothing is said meanwhile."""
SHARE_OF_LINK = 0.25
"""And with at least this share of the slowest forecast link to the first rank's host."""


def launch_plan(
    schedule: Schedule, information: InformationPool, messages: MessageMatrix | None = None
) -> LaunchPlan:
    """Return everything an actuator needs to carry out a schedule.

    Parameters
    ----------
    messages
        Which rank sends which how much: believed where it is of as many ranks.

    Raises
    ------
    LaunchError
        The schedule is no partition: no host, or strips that are no whole rows or less than one. Permanent.
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
    """Return strips with what the ranks of each send each other, where as many ranks were counted."""
    found, first = [], 0
    for strip in strips:
        here = slice(first, first + strip.ranks)
        found.append(replace(strip, messages=tuple(row[here] for row in messages.bytes[here])))
        first += strip.ranks
    return tuple(found) if first == len(messages.ranks) else strips


MAX_PAIRED = 64
"""Hosts up to which a program is told how far each two are from each other: the table has their square."""


def distances(
    hosts: Sequence[Host], information: InformationPool, most: int = MAX_PAIRED
) -> HostDistances:
    """Return how far some hosts are from each other; empty where that tells nothing, or of more hosts than `most`.

    What runs measured of a link stands above its forecast, and that above what the host list says.
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
    """Return the plan of one process on one host, which measures an implementation there."""
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
    """Return which hosts an actuator is to look at, for what, and what is known of them."""
    refused = information.specifications.constraints.refusal
    return HostSurvey(
        information.hosts,
        tuple(host for host in information.hosts if refused(host.name, host.site) is None),
        needs_of(information),
        information.findings,
    )


def host_program(host: Host, implementation: str, information: InformationPool) -> HostProgram:
    """Return how an implementation is started on one host."""
    remote = program_of(information, implementation, PYTHON)
    return HostProgram(
        host,
        implementation,
        program_of(information, implementation),
        remote,
        own_files(information, remote),
    )


def silence_seconds(schedule: Schedule, information: InformationPool) -> float:
    """Return for how long the program may say nothing: generous, for a prediction can be wrong."""
    return max(
        SILENCE_SECONDS,
        SILENT_ITERATIONS * information.model_of(schedule).iteration_seconds(schedule),
        _result_seconds(schedule, information),
    )


def _result_seconds(schedule: Schedule, information: InformationPool) -> float:
    """Return for how long the result may be on its way to the first rank."""
    application = information.application
    size = application.rows * application.columns * application.element_bytes
    link = SHARE_OF_LINK * _slowest_link(schedule, information)
    return size / min(SLOWEST_BYTES_PER_SECOND, link)


def _slowest_link(schedule: Schedule, information: InformationPool) -> float:
    """Return the least forecast bandwidth of the ways to the first host, bytes per second."""
    first, *others = schedule.resources
    links = (information.conditions.link(host, first).link for host in others)
    return min((link.bandwidth for link in links), default=float("inf"))


def _cpu_quotas(schedule: Schedule, information: InformationPool) -> dict[str, float]:
    """Return how many CPUs each host is to get that is described, not measured, as slower than this machine."""
    hosts = {host.name: host for host in (*information.hosts, *schedule.resources)}
    return {
        host.name: host.cpu * host.slots
        for host in hosts.values()
        if host.cpu < 1 and not information.conditions.measured(host)
    }


def _malleable_limits(information: InformationPool) -> MalleableLimits | None:
    """Return what a malleable job may ever use: hosts with an implementation, fit, and allowed by the user."""
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
