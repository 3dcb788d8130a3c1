"""Decides inside a job which CPUs each rank runs on, from what every task of it was given.

``python -I -m apples.launch.slurm.placing`` in the run's folder, between two steps of the job: in the first
each task wrote down its CPUs (`apples.topology.sources.probe`), the first of each node also its machine; the ranks
are the second and read what is written here. Without it they run as Slurm bound them.
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
"""And the number of the rank: what its task wrote down."""


def main() -> int:
    """Write down the CPUs of each rank."""
    folder = Path.cwd()
    try:
        launch = json.loads((folder / LAUNCH_FILE).read_text(encoding="utf-8"))
        ranks = sum(entry["ranks"] for entry in launch["hosts"])
        names = [target(launch["hosts"], rank)["host"] for rank in range(ranks)]
        # Files, not the step's output: srun cuts lines of more than 1 KB into pieces that mix.
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
    """Return the CPUs of each rank of a job; empty where ranks must share CPUs.

    What Slurm gave to several tasks alike is divided among them, all of it; what it gave to one alone is
    that one's.

    Parameters
    ----------
    hosts
        The host of each rank.
    told
        What the probe printed in its task.

    Raises
    ------
    LaunchError
        A task told nothing that makes sense; names the host.
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
    """Return what one task wrote down."""
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
