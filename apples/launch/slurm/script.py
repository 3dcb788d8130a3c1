"""The job that runs a plan under Slurm: script, machine file and launch file. Pure: nothing is run or written.

What a user named (programs, paths, variables) goes into the launch file, as JSON, and never into the
script; the script holds names of hosts and options that one pattern each lets through, and numbers.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any

from apples.errors import LaunchError, UsageError
from apples.launch import bind
from apples.launch.hydra import LAUNCH_FILE, ONE_THREAD, TASK_FILE, LaunchCommand, RankGroup, check
from apples.launch.ssh import carried
from apples.topology.sources import probe

SCRIPT, MACHINES, PYTHONS, RANK = "job.sh", "machines", "pythons", "rank.sh"
NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:+,=&|*-]*")
"""What an option's value may be made of: nothing that a shell or Slurm's own parser would take apart."""
LEAST_MINUTES, MOST_MINUTES = 2, 60 * 24 * 365
START_UP_SECONDS = 60.0
"""Part of the time limit beside the iterations: interpreters, data, the result."""
GENEROUS = 3.0
"""Unless the user says otherwise, the time limit is so many times the prediction, and start-up."""
START_RANK = (
    "#!/bin/sh\n"
    'exec "$(sed -n "$((SLURM_PROCID + 1))p" ./pythons)" -I -S ./bind.py ./launch.json\n'
)
"""The same text always: each rank finds its interpreter in a file."""
ASK, INTERPRETER = "ask.sh", "interpreter"
ASK_TASK = (
    "#!/bin/sh\n"
    f'[ "${{SLURM_LOCALID:-0}}" = 0 ] || set -- {probe.BRIEF}\n'
    'exec "$(sed -n "$((SLURM_PROCID + 1))p" ./pythons)" -I -S ./probe.py "$@" >"./cpus.$SLURM_PROCID"\n'
)
"""Likewise: each task writes down what it was given, the first of a node its machine too."""


@dataclass(frozen=True, slots=True)
class SlurmOptions:
    """What a site may want to be told.

    Attributes
    ----------
    minutes
        The job's time limit; made from the prediction when None.
    mpi
        The interface between srun and the MPI library.
    """

    partition: str = ""
    account: str = ""
    qos: str = ""
    reservation: str = ""
    constraint: str = ""
    mpi: str = "pmi2"
    minutes: int | None = None

    def __post_init__(self) -> None:
        for name in ("partition", "account", "qos", "reservation", "constraint", "mpi"):
            value = getattr(self, name)
            if value and not WORD.fullmatch(value):
                raise UsageError(f"Slurm's {name} cannot be {value!r}")
        if self.minutes is not None and not 1 <= self.minutes <= MOST_MINUTES:
            raise UsageError(f"Slurm's time limit cannot be {self.minutes} minutes")

    @classmethod
    def of(cls, pairs: Mapping[str, str]) -> SlurmOptions:
        """Return the options that a user gave as words.

        Raises
        ------
        UsageError
            An unknown one, or a value Slurm cannot take.

        Examples
        --------
        >>> SlurmOptions.of({"partition": "debug", "minutes": "10"}).minutes
        10
        """
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(pairs) - known)
        if unknown:
            raise UsageError(f"Slurm option '{unknown[0]}': known are {', '.join(sorted(known))}")
        given: dict[str, Any] = dict(pairs)
        if "minutes" in given:
            if not given["minutes"].isdecimal() or len(given["minutes"]) > 9:
                raise UsageError(
                    f"Slurm option 'minutes': {given['minutes']!r} is no whole number"
                )
            given["minutes"] = int(given["minutes"])
        return cls(**given)

    def written(self) -> list[tuple[str, str]]:
        """Return the options of the script that are not empty."""
        names = ("partition", "account", "qos", "reservation", "constraint")
        return [(name, getattr(self, name)) for name in names if getattr(self, name)]


@dataclass(frozen=True, slots=True)
class SlurmTarget:
    """The ranks of one host.

    Attributes
    ----------
    rank_group
        Ranks and program; the host's name is the node's.
    python
        The interpreter there that starts them.
    directory
        Where the program works; empty: where the agent does.
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
        What the run is predicted to take: the time limit is made from it.
    directory
        A directory that all hosts see: the run's folder is made there.
    allocation
        Number of the allocation to run in; empty: a job is submitted.

    Raises
    ------
    LaunchError
        A host whose name no node can have, or a program that no process can be started with.
    """
    options = options or SlurmOptions()
    for target in targets:
        check(target.rank_group)
        _check_node(target.rank_group.host)
        if "\n" in target.python:
            raise LaunchError(
                f"{target.rank_group.host}: no interpreter can be called {target.python!r}"
            )
    if allocation and not allocation.isdecimal():
        raise LaunchError(f"SLURM_JOB_ID is {allocation!r}, which is no job's number")
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
    """Return the job script."""
    import jinja2  # noqa: PLC0415 - where a job is submitted, and a run over ssh may have none

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


HOLDING, HELD = "hold.sh", "nodes"
"""The script of a job that holds nodes, and the file that names them."""


def holding_files(
    hosts: Sequence[str], job: str, seconds: float, options: SlurmOptions
) -> dict[str, str]:
    """Return the files of a job that holds whole nodes for ranks that another launcher starts there.

    Whole ones: a login is not bound to the CPUs and the memory of a job.

    Raises
    ------
    LaunchError
        A host whose name no node can have.

    Examples
    --------
    >>> print(holding_files(["n1", "n2"], "7f", 60.0, SlurmOptions())["hold.sh"], end="")
    #!/bin/bash
    # Written by apples. By hand: sbatch hold.sh, in the folder of these files.
    #SBATCH --job-name=apples-7f
    #SBATCH --nodes=2 --nodelist=./nodes --exclusive --mem=0
    #SBATCH --time=5 --no-requeue
    #SBATCH --output=/dev/null --error=/dev/null --chdir=/
    exec sleep infinity
    """
    for host in hosts:
        _check_node(host)
    lines = [
        "#!/bin/bash",
        f"# Written by apples. By hand: sbatch {HOLDING}, in the folder of these files.",
        f"#SBATCH --job-name=apples-{job}",
        f"#SBATCH --nodes={len(hosts)} --nodelist=./{HELD} --exclusive --mem=0",
        f"#SBATCH --time={minutes(seconds, options)} --no-requeue",
        "#SBATCH --output=/dev/null --error=/dev/null --chdir=/",
        *(f"#SBATCH --{option}={value}" for option, value in options.written()),
        "exec sleep infinity",
    ]
    return {HOLDING: "\n".join(lines) + "\n", HELD: "".join(f"{host}\n" for host in hosts)}


def _check_node(host: str) -> None:
    if not NODE.fullmatch(host):
        raise LaunchError(f"no node can be called {host!r}")


def minutes(seconds: float, options: SlurmOptions) -> int:
    """Return a job's time limit.

    Examples
    --------
    >>> minutes(30.0, SlurmOptions()), minutes(3600.0, SlurmOptions()), minutes(1.0, SlurmOptions(minutes=1))
    (4, 182, 1)
    """
    if options.minutes is not None:
        return options.minutes
    wanted = math.ceil(seconds * GENEROUS / 60) + LEAST_MINUTES
    return min(MOST_MINUTES, max(LEAST_MINUTES, wanted))


def _launch_file(targets: Sequence[SlurmTarget], directory: Path) -> str:
    hosts = [
        {
            "host": target.rank_group.host,
            "ranks": target.rank_group.ranks,
            "program": target.rank_group.program,
            "directory": target.directory or str(directory.absolute()),
            "environment": {**ONE_THREAD, **carried()},
        }
        for target in targets
    ]
    return json.dumps({"hosts": hosts}, indent=1)
