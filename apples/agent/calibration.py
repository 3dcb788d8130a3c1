"""Calibration: measure the application's own kernel at several strip sizes on each host, and store the speeds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np

from apples.agent.information import (
    InformationPool,
    is_measured,
    needs_of,
    offers,
    program_of,
    refusal,
)
from apples.agent.launching import calibration_plan
from apples.agent.models import StripModel, recall, store_speeds
from apples.agent.models.model import SpeedFunction
from apples.errors import ApplesError
from apples.io.log import Log, discard
from apples.launch.calibrate import calibrate as measure
from apples.launch.events import Calibration, Talk
from apples.launch.remote.addresses import remote_hosts
from apples.launch.remote.preflight import preflight
from apples.launch.slurm.nodes import behind_a_queue
from apples.launch.ssh import LaunchTarget
from apples.launch.targets import first_target
from apples.resources import Host
from apples.resources.schedule import Allocation, Schedule
from apples.ui.units import listed
from apples.weather.sensing import Others
from hat import Implementation

SHARES = (0.02, 0.1, 0.3, 0.6, 1.0)
"""Strip sizes to measure, as shares of the grid: from a strip that fits into a cache to the whole grid."""

Measure = Callable[..., Sequence[Calibration]]
"""Measures a program's kernel on a host at given strip sizes, like `apples.launch.calibrate.calibrate`."""
PROBE_SECONDS = 5.0
"""Time limit of a measurement beside a run, for its start and for each size: the next decision waits for it."""

FIRST_SECONDS = 5.0
"""`measure_first` begins no measurement after this time, so that a run with many new hosts starts soon."""

MAX_AT_ONCE = 8
"""Processes that are measured at the same time on a host, at most: each needs a connection."""

Speeds = dict[str, SpeedFunction]


def looked_at(information: InformationPool) -> InformationPool:
    """Return the pool with the results of checking the other machines of the list."""
    others = remote_hosts(information.hosts)
    if not others:
        return information
    return information.with_findings(preflight(others, information.hosts, needs_of(information)))


def calibrate_hosts(
    information: InformationPool,
    rows: Sequence[int],
    talk: Talk = lambda _: None,
    *,
    at_once: bool = False,
    on_store_error: Callable[[OSError], object] | None = None,
    measure: Measure = measure,
) -> dict[str, Speeds]:
    """Measure every other machine, and this machine for each set of CPUs; store and return the speed functions.

    Parameters
    ----------
    on_store_error
        Called with the error if speeds cannot be stored, as on a full disk. Default: log a warning.
    at_once
        Whether to measure hosts with different CPUs at the same time. They share memory then, as in a run on
        all hosts.
    measure
        Runs the program's kernel on a host; tests pass their own.
    """
    warn = on_store_error or (lambda error: talk(f"warning: {error.filename}: {error.strerror}"))
    places: dict[str | tuple[int, ...], list[Host]] = {}
    for host in information.hosts:
        if reason := refusal(information, host):
            talk(f"warning: {host.name} cannot be used: {reason}")
            continue
        which = host.name if host.name in information.findings else host.cpus
        places.setdefault(which, []).append(host)

    def measured(hosts: Sequence[Host]) -> Speeds:
        speeds = _speeds(hosts, information, rows, talk, measure)
        for host in hosts:
            try:
                store_speeds(information.learned_key, host.identity, speeds)
            except OSError as error:
                warn(error)
        return speeds

    if at_once:
        with ThreadPoolExecutor(max(1, len(places))) as pool:
            every = list(pool.map(measured, places.values()))
    else:
        every = [measured(hosts) for hosts in places.values()]
    of = {
        host.name: speeds
        for hosts, speeds in zip(places.values(), every, strict=True)
        for host in hosts
    }
    return {host.name: of[host.name] for host in information.hosts if host.name in of}


def measure_first(
    information: InformationPool,
    propose: Callable[[InformationPool], Schedule | None],
    log: Log = discard,
    *,
    clock: Callable[[], float] = time.monotonic,
    measure: Measure = measure,
) -> InformationPool:
    """Measure the hosts of the plan that have no measurement at this problem size; return the updated pool.

    Each of them runs its planned implementation, on strips around its planned size. Then the function plans
    again and measures new hosts of that plan, too. Hosts on the same CPUs are measured one after the other, all
    others at once. A host that cannot be measured keeps its assumed speed, and the plan stays marked
    (`apples.agent.information.is_measured`). For a model of the user's own the function measures nothing.

    Parameters
    ----------
    propose
        Returns the schedule that the agent would choose under a pool; None without a feasible plan.
    log
        Receives a line with the hosts before a measurement, and a line with the hosts that could not be
        measured.
    clock
        Monotonic clock, in seconds.
    measure
        Runs the program's kernel on a host; tests pass their own.
    """
    if not isinstance(information.model, StripModel):
        return information  # another model may have no speeds of strips
    template, tried, pool = information.template, dict[str, None](), information
    deadline = clock() + FIRST_SECONDS
    while clock() < deadline:
        schedule = propose(information)
        allocations = [] if schedule is None else schedule.allocations
        pool = information if schedule is None else information.pool_of(schedule)
        unmeasured = [
            one
            for one in allocations
            if one.host.name not in tried
            and not is_measured(pool, one.host)
            and _may_be_measured(pool, one.host)
        ]
        if not unmeasured:
            break
        names = [one.host.name for one in unmeasured]
        tried.update(dict.fromkeys(names))
        log(
            f"measuring {template.name} on {listed(names)} first: its speed there was never measured at this size "
            "(--no-calibrate skips this)"
        )

        def measured(lane: Sequence[list[Allocation]], pool: InformationPool = pool) -> bool:
            stored = False
            for alike in lane:
                if clock() < deadline:
                    stored |= _store_first(alike, pool, log, measure)
            return stored

        lanes = _lanes(unmeasured, pool)
        with ThreadPoolExecutor(len(lanes)) as threads:
            if not any(list(threads.map(measured, lanes))):
                break
        learned = recall(information.learned_key, hosts=information.hosts)
        information = replace(information, learned=learned)
    known = information.for_threads if pool.threads else information
    left = [name for name in tried if not is_measured(known, information.hosts[name])]
    if left:
        log(
            f"warning: {template.name} was not measured on {listed(left)}: the plan has other speeds there"
        )
    return information


def _may_be_measured(information: InformationPool, host: Host) -> bool:
    """Return whether a host can run a process now: it is behind no queue, and another machine was checked."""
    if host in behind_a_queue(information.hosts):
        return False
    return host.name in information.findings or host not in remote_hosts(information.hosts)


def _lanes(
    allocations: Sequence[Allocation], information: InformationPool
) -> list[list[list[Allocation]]]:
    """Return lanes of groups of hosts. A group has the same CPUs and is measured once; lanes share no CPUs."""
    groups: dict[tuple[str, str | tuple[int, ...]], list[Allocation]] = {}
    for one in allocations:
        which = one.host.name if one.host.name in information.findings else one.host.cpus
        groups.setdefault((information.conditions.machine(one.host), which), []).append(one)
    machines: dict[str, list[list[Allocation]]] = {}
    for (machine, _), group in groups.items():
        machines.setdefault(machine, []).append(group)
    lanes = []
    for parts in machines.values():
        cpus = [set(group[0].host.cpus) for group in parts]
        apart = all(cpus) and len(set().union(*cpus)) == sum(map(len, cpus))
        lanes += [[group] for group in parts] if apart else [parts]
    return lanes


def _store_first(
    alike: Sequence[Allocation], information: InformationPool, log: Log, measure: Measure
) -> bool:
    """Measure the implementations planned on hosts with the same CPUs; return whether speeds were stored."""
    hosts = [one.host for one in alike]
    own = [max(1, math.ceil(one.height / one.host.slots)) for one in alike]
    largest = min(2 * max(own), information.application.rows)
    room = information.memory_offered(hosts[0])
    around = (
        [min(own) // 8, largest] if information.application.strip_memory(largest) <= room else []
    )
    sizes = list(dict.fromkeys(max(1, size) for size in (*own, *around)))
    short = partial(measure, silence_seconds=PROBE_SECONDS, within_seconds=PROBE_SECONDS)
    names = dict.fromkeys(information.implementation(host) for host in hosts)
    speeds = _speeds(hosts, information, sizes, log, short, names)
    for host in hosts:
        try:
            store_speeds(information.learned_key, host.identity, speeds)
        except OSError as error:
            log(f"warning: {error.filename}: {error.strerror}")
            return False
    return bool(speeds)


def probe_hosts(
    information: InformationPool,
    rows: Mapping[str, float],
    others: Others = remote_hosts,
    *,
    silence_seconds: float = PROBE_SECONDS,
    measure: Measure = measure,
) -> dict[str, float]:
    """Return the present slowdown of the application's kernel by host: measured over predicted seconds.

    The kernel runs on all hosts at the same time, one process on each, for about 0.2 s. Hosts that cannot be
    measured are left out, for example other machines that were not checked.

    Parameters
    ----------
    information
        The pool under the present weather.
    rows
        Rows that each host would have.
    others
        Returns the hosts of a list that are other machines.
    silence_seconds
        Time limit for the start of a kernel, and for its measurement.
    measure
        Runs the program's kernel on a host; tests pass their own.
    """
    plain = replace(information, slowdown={})
    away = {host.name for host in others(plain.hosts)} - set(plain.findings)
    near = [name for name in rows if name not in away]

    def probed(name: str) -> float | None:
        host, parameters = replace(plain.hosts[name], slots=1), plain.application.parameters
        implementation = plain.implementation(host)
        size = max(1, round(rows[name] / plain.hosts[name].slots))
        try:
            (found,) = measure(
                host, program_of(plain, implementation), implementation, parameters, [size],
                silence_seconds=silence_seconds, within_seconds=silence_seconds, talk=lambda _: None,
                target=_target(host, implementation, plain),
            )  # fmt: skip
        except ApplesError:
            return None
        if found.wall_seconds_per_point is None:
            return found.seconds_per_point / plain.speeds[name].at(size)
        seconds = found.wall_seconds_per_point * plain.application.columns * size
        return seconds / float(plain.model.computation([host], np.array([float(size)]))[0])

    with ThreadPoolExecutor(max(1, len(near))) as pool:
        every = zip(near, pool.map(probed, near), strict=True)
        return {name: slowdown for name, slowdown in every if slowdown is not None}


def _speeds(
    hosts: Sequence[Host],
    information: InformationPool,
    rows: Sequence[int],
    talk: Talk,
    measure: Measure,
    only: Collection[str] | None = None,
) -> Speeds:
    """Return the speeds of all implementations that may run on hosts with the same CPUs.

    Parameters
    ----------
    only
        Names of the implementations to measure; None: all.
    """
    speeds: Speeds = {}
    application = information.application
    by_threads = any(one.threads for one in information.template.implementations)
    for one in information.template.implementations:
        if only is not None and one.name not in only:
            continue
        host = next((host for host in hosts if _may_run(host, one, information)), None)
        if host is None or not _all_have_its_sweeps(one, information):
            continue
        program = program_of(information, one.name)
        parameters = application.parameters
        target = _target(host, one.name, information)
        threads = host.slots if one.threads else 0
        measured = partial(
            measure, host, program, one.name, parameters, rows, target=target, threads=threads
        )
        # Threads that are measured together share the host's memory, while one process alone has it to itself.
        # For a fair comparison, ranks are measured together as well.
        at_once = min(host.slots, MAX_AT_ONCE) if by_threads and not one.threads else 1
        try:
            with ThreadPoolExecutor(at_once) as pool:
                every = [each.result() for each in [pool.submit(measured) for _ in range(at_once)]]
        except ApplesError as error:
            talk(f"warning: {one.name} on {host.name}: {error}")
            continue
        speeds[one.name] = SpeedFunction.measured(
            # A process that was stopped at the time limit may have measured fewer sizes.
            [_middle(points, max(1, threads)) for points in zip(*every, strict=False)],
            application.columns,
            min(
                (p.free_memory for ps in every for p in ps if p.free_memory is not None),
                default=math.inf,
            ),
            float(application.rows * application.columns),
        )
    return speeds


def _middle(points: Sequence[Calibration], threads: int) -> tuple[float, float, float]:
    """Return rows per slot, seconds per point and error: the median of several processes at one size."""
    ranked = sorted(points, key=lambda one: one.seconds_per_point)
    one = ranked[len(ranked) // 2]
    return one.rows / threads, one.seconds_per_point, one.error


def _may_run(host: Host, one: Implementation, information: InformationPool) -> bool:
    """Return whether a host can run an implementation and the template's active set does not require another."""
    bound = information.template.active_set.get(host.name, one.name)
    fits = bound == one.name and one.runs_on(host.platform)
    return fits and offers(information, host.name, one)


def _all_have_its_sweeps(one: Implementation, information: InformationPool) -> bool:
    """Return whether every host has an implementation with as many sweeps; always true for threads (one host)."""
    if one.threads:
        return True
    alike = [
        other
        for other in information.template.implementations
        if other.sweeps == one.sweeps and not other.threads
    ]
    fit = (host for host in information.hosts if not refusal(information, host))
    return all(any(_may_run(host, other, information) for other in alike) for host in fit)


def _target(host: Host, implementation: str, information: InformationPool) -> LaunchTarget | None:
    """Return the launch target of one process on another machine; None for this machine."""
    if host.name not in information.findings:
        return None
    plan = calibration_plan(replace(host, slots=1), implementation, information)
    return first_target(plan)


def calibration_rows(information: InformationPool) -> list[int]:
    """Return the default strip sizes of a calibration, in rows."""
    total = information.application.rows
    return sorted({max(1, round(total * share)) for share in SHARES})
