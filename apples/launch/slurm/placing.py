"""Choose the CPUs of each rank inside a Slurm job, from the CPUs that Slurm gave to each task.

The job script runs ``python -I -m apples.launch.slurm.placing`` in the run's folder between two steps. In the
first step, each task writes its CPUs to a file (`apples.topology.sources.probe`), and the first task of each node
also the topology of its machine. This module writes the CPUs of each rank. The second step runs the ranks, which
read that file. If it is missing, the ranks keep the CPUs of Slurm's binding.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from apples.errors import ApplesError, LaunchError
from apples.launch.binding import RankCpus, bound_apart
from apples.launch.hydra import LAUNCH_FILE, RankGroup
from apples.launch.rank_wrapper import PLACES, target
from apples.topology import Topology
from apples.topology.sources.sysfs import MAX_BYTES, read_probe

TOLD = "cpus."
"""Name prefix of the file of a task's CPUs, before the number of its rank."""


def main() -> int:
    """Write the CPUs of each rank to the file `PLACES`; return the exit code."""
    folder = Path.cwd()
    try:
        launch = json.loads((folder / LAUNCH_FILE).read_text(encoding="utf-8"))
        ranks = sum(entry["ranks"] for entry in launch["hosts"])
        names = [target(launch["hosts"], rank)["host"] for rank in range(ranks)]
        # Files, not the step's output: srun splits lines above 1 KB and mixes the pieces of several tasks.
        told = [_read(folder / f"{TOLD}{rank}", names[rank]) for rank in range(ranks)]
        found = places(names, told)
    except (ApplesError, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201 - the job's script passes it on
        return 1
    part = folder / f"{PLACES}.part"
    part.write_text(json.dumps(found), encoding="ascii")
    part.rename(folder / PLACES)
    return 0


def places(hosts: Sequence[str], told: Sequence[dict[str, Any]]) -> RankCpus:
    """Return the CPUs of each rank of a job; empty if ranks must share CPUs.

    If Slurm gave several tasks the same set of CPUs, the whole set is divided among them. A task with a set of its
    own keeps it.

    Parameters
    ----------
    hosts
        The host of each rank.
    told
        The topology probe's output for the task of each rank.

    Raises
    ------
    LaunchError
        The probe's output for a task is invalid; the message names the host.
    """
    files = {str(one["boot"]): one["files"] for one in told if one["files"]}
    groups: dict[tuple[str, str], list[int]] = {}
    machines: dict[tuple[str, str], Topology] = {}
    for rank, one in enumerate(told):
        boot = str(one["boot"])
        if not boot or boot not in files:
            raise LaunchError(
                f"{hosts[rank]} did not report its machine",
                code="topology-answer-invalid",
                host=hosts[rank],
            )
        key = boot, str(one["cpus"])
        if key not in machines:
            machines[key] = read_probe(json.dumps({**one, "files": files[boot]}), hosts[rank])
        groups.setdefault(key, []).append(rank)
    parties = [
        (
            RankGroup(hosts[ranks[0]], len(ranks), (), tuple(machines[key].cpus)),
            key[0],
            machines[key],
        )
        for key, ranks in groups.items()
    ]
    found: dict[int, tuple[int, ...]] = {}
    for ranks, rank_group in zip(groups.values(), bound_apart(parties), strict=True):
        found.update(zip(ranks, rank_group.rank_cpus, strict=False))
    return tuple(found[rank] for rank in sorted(found))


def _read(path: Path, host: str) -> dict[str, Any]:
    """Return the probe's output of one task."""
    try:
        with path.open("rb") as stream:
            told = json.loads(stream.read(MAX_BYTES))
        return {name: told[name] for name in ("schema", "boot", "cpus", "memory", "files")}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise LaunchError(
            f"{host}: no answer of the topology probe: {error}",
            code="topology-answer-invalid",
            host=host,
        ) from error


if __name__ == "__main__":
    sys.exit(main())
