"""Run Slurm's commands. Only `cancel`, which runs as a separate program, also starts some itself."""

from __future__ import annotations

import getpass
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from apples.errors import LaunchError, ManagerUnreachableError, UsageError
from apples.launch.events import readable
from apples.launch.slurm import nodes as node_list
from apples.launch.slurm import replies
from apples.launch.slurm.nodes import AllocatedPart, SlurmNode
from apples.launch.slurm.options import WORD
from apples.launch.slurm.replies import SlurmAllocationState, SlurmJobState
from apples.launch.ssh import carried

SECONDS = 60.0
"""Time limit of a command: a busy controller may take long, but a slower one counts as unreachable."""
USUAL_CONFIGURATIONS = (Path("/etc/slurm/slurm.conf"), Path("/etc/slurm-llnl/slurm.conf"))
UNREACHED = re.compile(
    r"configuration (?:file|source)|fetch_config|contact slurm controller|[Cc]onnection (?:refused|timed)"
    r"|Unable to establish|Zero Bytes were transmitted|Socket timed out|munge|authentication"
)
"""Error messages of Slurm's commands when they reach no cluster."""
KEPT = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "SLURM_CONF", "SLURM_CLUSTERS")
"""Variables of the agent's environment that a job gets, besides those passed to ranks (`carried`)."""


def run(
    words: Sequence[str],
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    seconds: float = SECONDS,
) -> str:
    """Run a command; return its standard output followed by its standard error.

    Raises
    ------
    ManagerUnreachableError
        The command is not installed or reaches no cluster; the message names the configuration that it reads.
    LaunchError
        The command failed; the message has its error output.
    """
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            cwd=folder,
            env=environment,
            check=False,
        )
    except FileNotFoundError:
        raise ManagerUnreachableError(
            f"no {words[0]} here: is this a machine of a Slurm cluster?", command=words[0]
        ) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ManagerUnreachableError(
            f"{words[0]}: {readable(str(error))}; {configuration()}",
            command=words[0],
            reason=readable(str(error)),
            file=os.environ.get("SLURM_CONF"),
        ) from None
    if done.returncode != 0:
        said = done.stderr or done.stdout
        if UNREACHED.search(said):
            last = readable(said.strip().splitlines()[-1])
            why = last.removeprefix(f"{words[0]}: ").removeprefix("fatal: ")
            raise ManagerUnreachableError(
                f"{words[0]}: Slurm cannot be asked: {why}; {configuration()}",
                command=words[0],
                reason=why,
                file=os.environ.get("SLURM_CONF"),
            )
        said = readable(said) or f"exit code {done.returncode}"
        why = said.removeprefix(f"{words[0]}: ")
        raise LaunchError(
            f"{words[0]}: {why}",
            code="slurm-command-failed",
            command=words[0],
            reason=why,
            exit_status=done.returncode,
        )
    return done.stdout + done.stderr


def configuration() -> str:
    """Return words for error messages that name the configuration which Slurm's commands read."""
    named = os.environ.get("SLURM_CONF")
    if named:
        there = "" if Path(named).exists() else ", which is not there"
        return f"SLURM_CONF names {named}{there}"
    here = next((str(path) for path in USUAL_CONFIGURATIONS if path.exists()), "")
    if here:
        return f"SLURM_CONF is not set, {here} is read"
    return "SLURM_CONF is not set: let it name the cluster's slurm.conf"


def nodes(partition: str = "") -> list[SlurmNode]:
    """Return the cluster's nodes, or those of one partition.

    Raises
    ------
    UsageError
        The partition has no node.
    LaunchError
        Slurm does not answer.
    """
    if partition and not WORD.fullmatch(partition):
        raise UsageError(
            f"Slurm's partition cannot be {partition!r}",
            code="value-invalid",
            field="partition",
            value=partition,
        )
    found = node_list.nodes(run(["sinfo", "--json"]))  # 22.05 ignores --partition with --json
    if not partition:
        return found
    chosen = [node for node in found if partition in node.partitions]
    if not chosen:
        known = sorted({name for node in found for name in node.partitions})
        raise UsageError(
            f"no node is in a partition '{partition}' (Slurm has {', '.join(known) or 'none'})",
            code="partition-unknown",
            value=partition,
            known=known,
        )
    return chosen


def job_state(job: int) -> SlurmJobState:
    """Return the state of a queued or running job."""
    return replies.job_state(run(["squeue", "--json", f"--jobs={job}"]), job)


def allocations() -> list[SlurmAllocationState]:
    """Return this user's running jobs with their nodes.

    Raises
    ------
    LaunchError
        Slurm does not answer.
    """
    return replies.allocations(run(["squeue", "--json"]), getpass.getuser())


def allocated_parts(job: int) -> Mapping[str, AllocatedPart]:
    """Return the CPUs and memory that an allocation has on each node; omit nodes that Slurm does not describe.

    Raises
    ------
    LaunchError
        Slurm does not answer, or does not know the allocation any more.
    """
    said = run(["scontrol", "show", "job", "--details", str(job)])
    try:
        return node_list.allocated_parts(said)
    except ValueError as error:
        raise LaunchError(
            f"scontrol: allocation {job}: {error}", code="slurm-answer-invalid", job=job
        ) from None


def job_now(job: int, seconds: float = SECONDS) -> SlurmJobState:
    """Return the controller's state of a job, running or ended; an empty state if it does not answer."""
    words = ["scontrol", "show", "job", "--oneliner", str(job)]
    try:
        return replies.job_end(run(words, seconds=seconds))
    except LaunchError:
        return SlurmJobState("")


def job_end(job: int) -> SlurmJobState:
    """Return the final state of a job, from the controller, else from Slurm's accounting."""
    found = job_now(job)
    if found.state:
        return found
    try:
        columns = ["--allocations", "--parsable2", "--noheader", "--format=State,ExitCode"]
        return replies.accounted(run(["sacct", f"--jobs={job}", *columns]))
    except LaunchError:
        return SlurmJobState("")


def number_of(name: str) -> int:
    """Return the number of the job with a name.

    Raises
    ------
    LaunchError
        No job has that name, or Slurm does not answer.
    """
    listed = run(["squeue", "--noheader", "--format=%i", f"--name={name}"]).split()
    if not listed or not listed[0].isdecimal():
        raise LaunchError(
            f"no job is called {name}: submit the script that holds the nodes first",
            code="allocation-missing",
            value=name,
        )
    return int(listed[0])


def submit(folder: Path, script: str) -> int:
    """Submit a script in a folder; return the job's number."""
    return replies.submitted(run(["sbatch", "--parsable", script], folder, passed()))


@contextmanager
def folder_of(files: Mapping[str, str]) -> Iterator[Path]:
    """Yield a temporary folder with these files."""
    with tempfile.TemporaryDirectory(prefix="apples-") as folder:
        for name, text in files.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        yield Path(folder)


def wait_seconds(files: Mapping[str, str], script: str) -> float:
    """Return the seconds that Slurm expects the job of a script among `files` to wait; 0 if it gives none.

    Raises
    ------
    LaunchError
        Slurm would reject such a job; the message has its reason.
    """
    clock = {**passed(), "TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}
    with folder_of(files) as folder:
        start = replies.planned_start(run(["sbatch", "--test-only", script], folder, clock))
    return 0.0 if start is None else max(0.0, (start - datetime.now(UTC)).total_seconds())


def held_back_seconds(name: str) -> float | None:
    """Return the seconds that a running job waited in the queue, by job name; None if Slurm gives none."""
    clock = {**passed(), "TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}
    words = ["squeue", "--noheader", "--format=%V %S", f"--name={name}"]
    try:
        return replies.held_back(run(words, environment=clock))
    except LaunchError:
        return None


def passed() -> dict[str, str]:
    """Return the environment for submitting a job. It has only necessary variables, because Slurm stores it."""
    return {**{k: os.environ[k] for k in KEPT if k in os.environ}, **carried()}
