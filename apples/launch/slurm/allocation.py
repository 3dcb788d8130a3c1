"""`NodeAllocation`: Slurm nodes on which another launcher starts the ranks of a run.

A Slurm job that only sleeps holds the nodes. `apples.launch.slurm.follow` runs the launcher as long as that job
runs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence

from apples.errors import LaunchError
from apples.launch.events import Talk
from apples.launch.hydra import LaunchCommand
from apples.launch.remote.fitness import Finding, Fitness
from apples.launch.slurm import client, follow, nodes
from apples.launch.slurm.nodes import SlurmNode
from apples.launch.slurm.options import SlurmOptions, check_node, minutes
from apples.resources import Host

HOLDING, NODES = "hold.sh", "nodes"
"""The script of a job that holds nodes, and the file with the names of the nodes."""
QUEUE_SECONDS = 7 * 24 * 3600.0
"""Time limit for a run to wait in the queue."""
GRACE_SECONDS = 20.0
"""Time from a request to end a job until Slurm does not list it any more."""


class NodeAllocation:
    """Allocated whole nodes; the constructor waits for them. Ends by `release`, or with this process.

    Parameters
    ----------
    hosts
        Names of the nodes.
    job
        Name of the run.
    seconds
        Predicted seconds of the run, from which the time limit is derived.
    talk
        Receives the reason why the job waits in the queue.

    Attributes
    ----------
    queue_seconds
        Seconds that the job waited in the queue; None if Slurm does not report them.

    Raises
    ------
    LaunchError
        Slurm rejected the job or ended it before it had the nodes.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        job: str,
        seconds: float,
        options: SlurmOptions,
        talk: Talk,
    ) -> None:
        self._talk = talk
        with client.folder_of(holding_files(hosts, job, seconds, options)) as folder:
            self._job = follow.SubmittedJob(folder, HOLDING)
            try:
                self._job.start()
            except BaseException:
                self._job.end()
                raise
        try:
            self._await_nodes()
        except BaseException:
            self.release()
            raise
        self.queue_seconds = client.held_back_seconds(self._job.name)

    def _await_nodes(self) -> None:
        """Wait until Slurm has allocated the nodes."""
        job, deadline = self._job.number, time.monotonic() + QUEUE_SECONDS
        poll = follow.StatePoll(self._job, lambda line: self._talk(f"note: {line}"))
        while time.monotonic() < deadline:
            state = poll.wait()
            if state is None or state.waiting:
                continue
            if state.running:
                return
            how = follow.how_it_ended(self._job.last_state(), state)
            raise LaunchError(
                f"job {job}, which was to hold the nodes, was ended: {how}",
                code="allocation-ended",
                job=job,
                reason=how,
            )
        raise LaunchError(
            f"job {job} waited {QUEUE_SECONDS / 3600:g} h in the queue",
            code="queue-timeout",
            job=job,
            seconds=QUEUE_SECONDS,
        )

    def release(self) -> None:
        """Release the nodes and wait until Slurm does not list the job any more. May be called again."""
        try:
            self._job.end()
        except LaunchError as error:
            self._talk(
                f"warning: {error}; job {self._job.number} may hold its nodes until this ends"
            )


def holding_files(
    hosts: Sequence[str], job: str, seconds: float, options: SlurmOptions
) -> dict[str, str]:
    """Return the files of a job that holds whole nodes for the ranks of another launcher.

    The nodes must be whole, because a login over ssh is not limited to the CPUs and the memory of a job.

    Raises
    ------
    LaunchError
        The name of a host is invalid as a node name.

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
        check_node(host)
    lines = [
        "#!/bin/bash",
        f"# Written by apples. By hand: sbatch {HOLDING}, in the folder of these files.",
        f"#SBATCH --job-name=apples-{job}",
        # Whole nodes: a login over ssh is not limited to a job's CPUs and memory.
        f"#SBATCH --nodes={len(hosts)} --nodelist=./{NODES} --exclusive --mem=0",
        f"#SBATCH --time={minutes(seconds, options)} --no-requeue",
        "#SBATCH --output=/dev/null --error=/dev/null --chdir=/",
        *(f"#SBATCH --{option}={value}" for option, value in options.written()),
        "exec sleep infinity",
    ]
    return {HOLDING: "\n".join(lines) + "\n", NODES: "".join(f"{host}\n" for host in hosts)}


def within(name: str, command: LaunchCommand) -> LaunchCommand:
    """Return a command that runs `command` as long as the job named `name` holds its nodes."""
    return LaunchCommand(
        (
            sys.executable,
            "-I",
            "-m",
            "apples.launch.slurm.follow",
            follow.HELD,
            name,
            *command.argv,
        ),
        command.environment,
        command.files,
    )


def nodes_looked_at(
    hosts: Sequence[Host], talk: Talk, *, partition: str = "", allocation: str = ""
) -> Mapping[str, Fitness]:
    """Check whether Slurm knows these hosts and has them in service; return the findings by host name.

    Parameters
    ----------
    allocation
        Number of this process's allocation, if only its nodes can be used; else empty.

    Raises
    ------
    LaunchError
        Slurm does not answer.
    """
    if not hosts:
        return {}
    known = {node.name: node for node in client.nodes(partition)}
    allocated = nodes.allocated() if allocation else None
    found = {}
    for host in hosts:
        if allocated is not None:
            reason = "" if host.name in allocated else f"it is not in allocation {allocation}"
        else:
            reason = _refusal(known.get(host.name), partition)
        finding = Finding("slurm", "fail" if reason else "ok", reason or "in service")
        found[host.name] = Fitness(host.name, (finding,))
        if reason:
            talk(f"warning: {host.name} cannot be used: {reason}")
    return found


def _refusal(node: SlurmNode | None, partition: str) -> str:
    """Return the reason why a node cannot run ranks; empty if it can."""
    if node is None:
        where = f" in partition '{partition}'" if partition else ""
        return f"Slurm knows no node of that name{where}"
    return node.refusal
