"""Build the job that runs a plan under Slurm: script, machine file and launch file. Pure functions.

Words of the user (programs, paths, variables) go into the launch file, as JSON, and never into the script. The
script has only numbers, and host names and options that match a strict pattern.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from apples.errors import LaunchError
from apples.launch import rank_wrapper as bind
from apples.launch.hydra import LAUNCH_FILE, ONE_THREAD, TASK_FILE, LaunchCommand, RankGroup, check
from apples.launch.slurm.options import SCRIPT, SlurmOptions, check_node, minutes
from apples.launch.ssh import carried
from apples.topology.sources import probe

MACHINES, PYTHONS, RANK = "machines", "pythons", "rank.sh"
FIND_PYTHON = (
    'python=$(sed -n "$((SLURM_PROCID + 1))p" ./pythons)\n'
    'case $python in "~/"*) python=$HOME/${python#??} ;; esac\n'
)
START_RANK = f'#!/bin/sh\n{FIND_PYTHON}exec "$python" -I -S ./bind.py ./launch.json\n'
"""Script that starts a rank. It is always the same text: each rank reads its interpreter's path from a file."""
ASK, INTERPRETER = "ask.sh", "interpreter"
ASK_TASK = (
    "#!/bin/sh\n"
    f'[ "${{SLURM_LOCALID:-0}}" = 0 ] || set -- {probe.BRIEF}\n'
    f'{FIND_PYTHON}exec "$python" -I -S ./probe.py "$@" >"./cpus.$SLURM_PROCID"\n'
)
"""Script in which each task writes its CPUs to a file, and the first task of a node also the node's topology."""
# MPICH 5.0.2 sends UCX addresses as hex and compresses runs of zeros. Uninitialised memory that is not zero gives
# lines of up to 1,076 bytes; MPI_Init then fails or hangs. The wheel has no PMI-2 (pmodels/mpich issue 6924).
SHORT_ADDRESSES: Mapping[str, str] = {"MPIR_CVAR_CH4_NETMOD": "ofi"}
"""Use libfabric: MPICH's UCX addresses may need lines above the 1,024 bytes that Slurm's PMI-1 reads."""


@dataclass(frozen=True, slots=True)
class SlurmTarget:
    """The ranks of one host.

    Attributes
    ----------
    rank_group
        Ranks and program; the name of the host is the node name.
    python
        Path of the interpreter on the node that starts the ranks.
    directory
        Working directory of the program; empty: the `directory` of `slurm_command`.
    """

    rank_group: RankGroup
    python: str
    directory: str = ""


def slurm_command(
    targets: Sequence[SlurmTarget],
    task: Mapping[str, Any],
    *,
    job: str,
    seconds: float,
    directory: Path,
    options: SlurmOptions | None = None,
    allocation: str = "",
) -> LaunchCommand:
    """Return the command that runs `targets`, in rank order, as a job or as a step of one.

    Parameters
    ----------
    job
        Name of the run.
    seconds
        Predicted seconds of the run, from which the time limit is derived.
    directory
        A directory that all hosts share; the run's folder is created in it.
    allocation
        Number of the allocation to run in; empty: submit a job.

    Raises
    ------
    LaunchError
        The name of a host is invalid as a node name, or a program is invalid.
    """
    options = options or SlurmOptions()
    for target in targets:
        check(target.rank_group)
        check_node(target.rank_group.host)
        if "\n" in target.python:
            raise LaunchError(
                f"{target.rank_group.host}: no interpreter can be called {target.python!r}",
                code="python-invalid",
                host=target.rank_group.host,
                value=target.python,
            )
    if allocation and not allocation.isdecimal():
        raise LaunchError(
            f"SLURM_JOB_ID is {allocation!r}, which is not a job's number",
            code="allocation-invalid",
            field="SLURM_JOB_ID",
            value=allocation,
        )
    files = {
        SCRIPT: render(targets, job, minutes(seconds, options), options, bool(allocation)),
        MACHINES: "".join(f"{s.rank_group.host}\n" * s.rank_group.ranks for s in targets),
        PYTHONS: "".join(f"{s.python}\n" * s.rank_group.ranks for s in targets),
        RANK: START_RANK,
        "bind.py": Path(bind.__file__).read_text(encoding="utf-8"),
        ASK: ASK_TASK,
        "probe.py": Path(probe.__file__).read_text(encoding="utf-8"),
        INTERPRETER: f"{sys.executable}\n",
        TASK_FILE: json.dumps(task, indent=1, allow_nan=False),
        LAUNCH_FILE: _launch_file(targets, directory),
    }
    argv = (sys.executable, "-I", "-m", "apples.launch.slurm.follow", str(directory.absolute()))
    return LaunchCommand((*argv, *([allocation] if allocation else [])), {}, files)


def render(
    targets: Sequence[SlurmTarget], job: str, limit: int, options: SlurmOptions, step: bool
) -> str:
    """Return the text of the job script."""
    template = resources.files("apples.launch.slurm").joinpath("job.sh.j2").read_text("utf-8")
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - a shell script
    )
    return environment.from_string(template).render(
        name=f"apples-{job}",
        nodes=len(targets),
        ranks=sum(target.rank_group.ranks for target in targets),
        minutes=limit,
        mpi=options.mpi,
        options=[] if step else options.written(),
        step=step,
    )


def _launch_file(targets: Sequence[SlurmTarget], directory: Path) -> str:
    hosts = [
        {
            "host": target.rank_group.host,
            "ranks": target.rank_group.ranks,
            "program": target.rank_group.program,
            "directory": target.directory or str(directory.absolute()),
            "environment": {**SHORT_ADDRESSES, **ONE_THREAD, **carried()},
        }
        for target in targets
    ]
    return json.dumps({"hosts": hosts}, indent=1)
