"""An unmodified program as a job: the check before its start, and its result."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from apples.agent.session.results import RUN_SCHEMA
from apples.errors import LaunchError, UsageError
from apples.jobs.spec import ProgramSpec, working_directory
from apples.jobs.store import StoredJob
from apples.launch.events import Outcome, Talk
from apples.launch.remote.addresses import remote_hosts
from apples.malleable.actuator import ProgramExecution, start_program
from apples.malleable.migration.manager import signal_number
from apples.malleable.migration.ranks import functions_outside
from apples.resources import HostList, read_host_list
from apples.weather.local import LocalSensing

if TYPE_CHECKING:
    from apples.jobs.documents import RunDocument


def program_spec(
    program: Sequence[str],
    hosts: str | Path,
    *,
    on: str = "",
    signal: str = "USR1",
    signal_seconds: float = 1.0,
    weather: str = "live",
    output: Path | None = None,
) -> ProgramSpec:
    """Return the checked specification of a program's job.

    Parameters
    ----------
    on
        The first host; empty: the host with the highest forecast speed, under live or static weather. Several
        hosts, separated by commas: an MPI program with a rank on each, in this order.

    Raises
    ------
    UsageError
        An unknown host, weather or signal, or an MPI program that cannot be moved. Permanent.
    """
    known = read_host_list(hosts)
    first = tuple(name.strip() for name in on.split(",")) if on else ()
    for name in first:
        if not name:
            raise UsageError(
                f"--on {on}: a host name is missing between two commas",
                code="value-invalid",
                option="--on",
                value=on,
            )
        if name not in known:
            there = [host.name for host in known]
            raise UsageError(
                f"--on {name}: the host list has {', '.join(there)}",
                code="host-unknown",
                option="--on",
                host=name,
                known=there,
            )
        if first.count(name) > 1:
            raise UsageError(
                f"--on {name}: is named twice, and a host has one rank",
                code="host-repeated",
                option="--on",
                host=name,
            )
    if weather not in {"live", "static"}:
        raise UsageError(
            f"--weather {weather}: must be live or static",
            code="value-unknown",
            option="--weather",
            value=weather,
            known=["live", "static"],
        )
    try:
        signal_number(signal)
    except ValueError as error:
        raise UsageError(
            f"--signal: {error}", code="signal-unknown", option="--signal", value=signal
        ) from None
    if len(first) > 1 and (outside := functions_outside(program[0], working_directory())):
        raise UsageError(
            f"{program[0]} cannot be moved: it calls {', '.join(outside)}",
            code="mpi-call-unsupported",
            file=program[0],
            calls=list(outside),
        )
    first = first or (most_able(known, weather),)
    return ProgramSpec(tuple(program), Path(hosts), first, signal, signal_seconds, output)


def most_able(hosts: HostList, weather: str) -> str:
    """Return the host with the highest forecast speed: CPU share of a new process over the seconds per point."""
    share = {host.name: host.cpu for host in hosts}
    if weather == "live":
        told = LocalSensing(hosts).weather()
        share |= {name: one.value for name, one in told.cpu.items()}
    return max(hosts, key=lambda host: share[host.name] / (host.seconds_per_point or 1.0)).name


def start(spec: ProgramSpec, job: StoredJob, talk: Talk) -> ProgramExecution:
    """Start the program of a specification as a job; return once it runs."""
    return start_program(
        spec.program,
        read_host_list(spec.hosts),
        spec.on,
        job.folder,
        job.commits,
        job.id,
        signal=spec.signal,
        signal_seconds=spec.signal_seconds,
        output=spec.output,
        talk=talk,
    )


def dry_program_document(spec: ProgramSpec) -> dict[str, Any]:
    """Return the ``apples.run/1`` document of a program that is not started.

    Raises
    ------
    LaunchError
        All hosts are parts of this machine, and the program is not installed here. Permanent.
    """
    remote = {host.name for host in remote_hosts(read_host_list(spec.hosts))}
    if not remote.intersection(spec.on) and shutil.which(spec.program[0]) is None:
        raise LaunchError(
            f"{spec.on[0]}: cannot start {spec.program[0]}: no such program",
            code="program-not-started",
            host=spec.on[0],
            value=spec.program[0],
        )
    return {
        "schema": RUN_SCHEMA,
        "program": list(spec.program),
        "on": list(spec.on),
        "plan": None,
        "execution": None,
        "command": {"argv": list(spec.program), "environment": {}, "files": {}},
        "verified": None,
        "result_sha256": None,
    }


def program_document(spec: ProgramSpec, outcome: Outcome) -> RunDocument:
    """Return the ``apples.run/1`` document of a program, without a plan and a verification."""
    return {
        "schema": RUN_SCHEMA,
        "program": list(spec.program),
        "plan": None,
        "execution": {
            "iterations": 1,
            "predicted_seconds": None,
            "measured_seconds": outcome.seconds,
            "iteration_seconds": outcome.seconds,
            "startup_seconds": outcome.startup_seconds,
            "hosts": [{"host": times.host} for times in outcome.hosts],
        },
        "verified": None,
        "result_sha256": None,
    }
