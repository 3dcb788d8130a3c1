"""`NodeAllocation`: nodes that Slurm gives to a run whose ranks another launcher starts on them.

A job that does nothing holds them. The run's launcher is started by this module (``python -I -m
apples.launch.slurm.allocation NAME COMMAND..``), which ends it when that job is over: nothing of a run goes on on
nodes that are no longer ours.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from typing import NoReturn

from apples.errors import ApplesError, LaunchError
from apples.launch import job_processes
from apples.launch.events import Talk
from apples.launch.hydra import LaunchCommand
from apples.launch.remote.fitness import Finding, Fitness
from apples.launch.slurm import client, nodes
from apples.launch.slurm.follow import (
    ASK_SECONDS,
    FAILED,
    MOST_ASK_SECONDS,
    STATE_SECONDS,
    SlurmJob,
    own_code,
    time_limit_judged,
    waiting_words,
    write,
)
from apples.launch.slurm.nodes import SlurmNode
from apples.launch.slurm.options import SlurmOptions, check_node, minutes
from apples.launch.slurm.replies import SlurmJobState
from apples.resources import Host

HOLDING, HELD = "hold.sh", "nodes"
"""The script of a job that holds nodes, and the file that names them."""
QUEUE_SECONDS = 7 * 24 * 3600.0
"""The longest that a run waits in the queue."""
GRACE_SECONDS = 20.0
"""Seconds from a request to end a job to Slurm's answer that it is gone."""
LOOK_SECONDS = 3.0
"""How often Slurm is asked whether the nodes are still ours."""
END_SECONDS = 1.0
"""How long a launcher may take to end."""


class NodeAllocation:
    """Whole nodes, asked for and waited for. Ends by `release`, or with this process.

    Parameters
    ----------
    hosts
        The nodes.
    job
        Name of the run.
    seconds
        What the run is predicted to take: the time limit is made from it.
    talk
        Is told why the queue holds it back.

    Attributes
    ----------
    queue_seconds
        How long the queue held it back; None where Slurm does not say.

    Raises
    ------
    LaunchError
        Slurm would not give them, or ended the job that was to hold them.
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
            self._job = SlurmJob(folder, script=HOLDING)
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
        """Return once Slurm has given the nodes."""
        pause, told, job = ASK_SECONDS, "", self._job.number
        deadline = time.monotonic() + QUEUE_SECONDS
        while time.monotonic() < deadline:
            state, unknown = SlurmJobState(""), ""
            try:
                state = self._job.state()
            except LaunchError as error:  # the controller is busy
                unknown = f"job {job}: {error}"
            if state.running:
                return
            if not (state.waiting or unknown):
                end = self._job.last_state()
                raise LaunchError(
                    f"job {job}, which was to hold the nodes, was ended: {_how(end)}",
                    code="allocation-ended",
                    job=job,
                    reason=_how(end),
                )
            line = unknown or waiting_words(job, state)
            if line.partition(";")[0] != told.partition(";")[0] and state.reason != "None":
                self._talk(f"note: {line}")
                told = line
            time.sleep(pause)
            pause = min(MOST_ASK_SECONDS, pause * 1.3)
        raise LaunchError(
            f"job {job} waited {QUEUE_SECONDS / 3600:g} h in the queue",
            code="queue-timeout",
            job=job,
            seconds=QUEUE_SECONDS,
        )

    def release(self) -> None:
        """Give the nodes back; Slurm does not list the job any more when this returns. May be called again."""
        try:
            self._job.end()
        except LaunchError as error:
            self._talk(
                f"warning: {error}; job {self._job.number} may hold its nodes until this ends"
            )


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
        check_node(host)
    lines = [
        "#!/bin/bash",
        f"# Written by apples. By hand: sbatch {HOLDING}, in the folder of these files.",
        f"#SBATCH --job-name=apples-{job}",
        # Whole nodes: a login over ssh is not bound to a job's CPUs and memory.
        f"#SBATCH --nodes={len(hosts)} --nodelist=./{HELD} --exclusive --mem=0",
        f"#SBATCH --time={minutes(seconds, options)} --no-requeue",
        "#SBATCH --output=/dev/null --error=/dev/null --chdir=/",
        *(f"#SBATCH --{option}={value}" for option, value in options.written()),
        "exec sleep infinity",
    ]
    return {HOLDING: "\n".join(lines) + "\n", HELD: "".join(f"{host}\n" for host in hosts)}


def within(name: str, command: LaunchCommand) -> LaunchCommand:
    """Return the command that runs another one as long as the job of that name holds its nodes."""
    return LaunchCommand(
        (sys.executable, "-I", "-m", "apples.launch.slurm.allocation", name, *command.argv),
        command.environment,
        command.files,
    )


def nodes_looked_at(
    hosts: Sequence[Host], talk: Talk, *, partition: str = "", allocation: str = ""
) -> Mapping[str, Fitness]:
    """Ask Slurm about hosts that nobody has looked at: does it know them, and are they in service.

    Parameters
    ----------
    allocation
        Its number, where nodes outside are of no use.

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
    """Return why no rank may be sent to a node; empty where one may."""
    if node is None:
        where = f" in partition '{partition}'" if partition else ""
        return f"Slurm knows no node of that name{where}"
    return node.refusal


# ------------------------------------------ the launcher of the run, as long as the nodes are ours
def main() -> int:
    """Run a launcher until it ends, or the job does that holds its nodes."""
    name, *argv = sys.argv[1:]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _asked)
    parent, launcher = os.getpid(), os.fork()
    if launcher == 0:
        job_processes.exec_launcher(argv, parent)
    ended = os.pidfd_open(launcher)
    job = 0
    try:
        job = _number(name)
        while not select.select([ended], [], [], LOOK_SECONDS)[0]:
            with contextlib.suppress(LaunchError):  # the controller is busy: the job may run on
                if not client.job_state(job).running:
                    return _over(job, launcher, ended)
        return own_code(os.waitstatus_to_exitcode(os.waitpid(launcher, 0)[1]))
    except InterruptedError:
        _end(launcher, ended)
        return time_limit_judged(
            128 + signal.SIGTERM,
            lambda: client.job_now(job, STATE_SECONDS) if job else SlurmJobState(""),
            lambda words: _say(f"job {job}: {words}"),
        )
    except ApplesError as error:
        _end(launcher, ended)
        _say(str(error))
        return FAILED


def _over(job: int, launcher: int, ended: int) -> int:
    """End the launcher of a job that is over before its ranks call that their failure; return our exit code."""
    end = client.job_end(job)
    _end(launcher, ended, signal.SIGKILL)
    if not end.out_of_time:
        _say(f"job {job}, which holds the nodes, was ended: {_how(end)}")
    return time_limit_judged(FAILED, lambda: end, lambda words: _say(f"job {job}: {words}"))


def _how(end: SlurmJobState) -> str:
    return (end.state or "Slurm does not know how") + (f" ({end.reason})" if end.reason else "")


def _number(name: str) -> int:
    """Return the number of the job of a name."""
    listed = client.run(["squeue", "--noheader", "--format=%i", f"--name={name}"]).split()
    if not listed or not listed[0].isdecimal():
        raise LaunchError(
            f"no job is called {name}: submit {HOLDING} first",
            code="allocation-missing",
            value=name,
        )
    return int(listed[0])


def _end(launcher: int, ended: int, first: signal.Signals = signal.SIGTERM) -> None:
    for number in (first, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(launcher, number)
        if select.select([ended], [], [], END_SECONDS)[0]:
            return


def _asked(number: int, frame: object) -> NoReturn:
    del frame
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    raise InterruptedError(number, "asked to end")


def _say(line: str) -> None:
    with contextlib.suppress(OSError):
        write(2, f"apples: {line}\n".encode())


if __name__ == "__main__":
    sys.exit(main())
