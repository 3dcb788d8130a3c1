"""A trial launch for ``apples doctor``: one MPI rank on each fit host; all ranks must connect to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from apples.errors import ApplicationError, DeadlineError, LaunchError
from apples.launch import ssh
from apples.launch.hydra import RankGroup
from apples.launch.processes import job_name
from apples.launch.remote.connection import log_in
from apples.launch.remote.fitness import MEETING, Finding, Fitness
from apples.launch.remote.preflight import address_towards
from apples.launch.remote.ssh import reach
from apples.launch.run import Run
from apples.resources import HostList

Failure = LaunchError | ApplicationError | DeadlineError
START_UP_SECONDS = 60.0
PROGRAM = """
import json
from mpi4py import MPI
ranks = MPI.COMM_WORLD.allreduce(1)
if MPI.COMM_WORLD.rank == 0:
    event = {"event": "ready", "protocol": 1, "program": "meeting", "version": "1", "ranks": ranks}
    print("\\n" + json.dumps(event), flush=True)
    print("\\n" + json.dumps({"event": "done"}), flush=True)
"""
CURE = "allow TCP among the hosts; apples help ssh"


def with_meeting(found: Mapping[str, Fitness], listed: HostList) -> dict[str, Fitness]:
    """Return the fitness of each host, with the finding of a trial launch on all fit hosts.

    The launch uses the addresses, interpreters and connections of a real run. If it fails, each host is tried
    alone. Hosts that fail alone get the failure, and the others are tried together again. If no host fails alone,
    all get the failure.
    """
    judged = dict(found)
    while fit := [name for name, fitness in judged.items() if not _is_judged(fitness)]:
        error = _failure(fit, judged, listed)
        failed: dict[str, Failure | None] = dict.fromkeys(fit, error)
        if error is not None and len(fit) > 1:
            alone = {name: _failure([name], judged, listed) for name in fit}
            failed = {name: own for name, own in alone.items() if own} or failed
        for name, own in failed.items():
            finding = (
                Finding(MEETING, "ok", f"{len(fit)} ranks")
                if own is None
                else Finding(MEETING, "fail", str(own), CURE)
            )
            judged[name] = replace(judged[name], findings=(*judged[name].findings, finding))
    return judged


def _is_judged(fitness: Fitness) -> bool:
    return bool(fitness.refusal) or any(one.name == MEETING for one in fitness.findings)


def _failure(names: list[str], found: Mapping[str, Fitness], listed: HostList) -> Failure | None:
    """Launch a rank on each host; return the error if they did not connect, None if they did."""
    job = job_name()
    groups = [RankGroup(name, 1, ("{python}", "-c", PROGRAM)) for name in names]
    targets = [
        ssh.LaunchTarget(
            group, found[name].address or listed[name].reached_at, reach(listed[name], listed),
            listed[name].directory, back=found[name].back,
        )
        for group, name in zip(groups, names, strict=True)
    ]  # fmt: skip
    here = address_towards(target.address for target in targets) or "127.0.0.1"
    run = None
    try:
        order = ssh.command(targets, {}, job=job, here=here, directory=Path.cwd())
        connections = [log_in(reach(listed[name], listed), job) for name in names]
        run = Run(
            order, groups, job=job, talk=lambda _: None, startup_seconds=START_UP_SECONDS,
            connections=connections,
        )  # fmt: skip
        run.until_ready()
    except (LaunchError, ApplicationError, DeadlineError) as error:
        return error
    finally:
        if run is not None:
            run.cancel()
    return None
