"""A real Slurm in the lab: munged and slurmctld beside the switch, slurmd on every host.

All of it lives in the lab's own directories and namespaces, and ends with the hosts. Programs outside the
lab find it by the environment variable SLURM_CONF.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from apples.errors import LaunchError
from apples.lab import requirements
from apples.lab.execution import leave_running, run
from apples.lab.host_list import slots
from apples.lab.quoting import for_slurm
from apples.lab.record import TRANSPORT, EmulatedHost

READY_SECONDS = 30.0


def configuration(
    name: str, head: EmulatedHost, machines: Sequence[EmulatedHost], sockets: Path, spool: Path
) -> str:
    """Return ``slurm.conf``.

    Parameters
    ----------
    sockets
        Directory of munged's socket: a short path, the same inside and outside the hosts.
    spool
        Directory of slurmctld's state.

    Raises
    ------
    UsageError
        The file cannot express that path.
    """
    nodes = []
    for m in machines:
        memory = (m.memory or psutil.virtual_memory().total) >> 20
        features = f"Feature={m.site}"
        nodes.append(
            f"NodeName={m.name} NodeAddr={m.address} CPUs={slots(m.cpu, m.cpus)} "
            f"RealMemory={memory} {features} State=UNKNOWN"
        )
    names = ",".join(m.name for m in machines)
    # task/none: task/affinity would bind each node of a lab to CPU 0.
    return f"""ClusterName={name}
SlurmctldHost={head.host_name}({head.address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={sockets / "munge.socket"}
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog={for_slurm(spool.parent / PROLOG)}
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
StateSaveLocation={for_slurm(spool)}
SlurmdSpoolDir=/run/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_min_interval=100000,bf_interval=1
KillWait=2
MinJobAge=300
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/filetxt
JobCompLoc={for_slurm(spool / "finished.txt")}
DebugFlags=NO_CONF_HASH
{chr(10).join(nodes)}
PartitionName=lab Nodes={names} Default=YES MaxTime=INFINITE State=UP
"""


PROLOG = "task_prolog"
CGROUPS = "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n"
"""slurmd 22.05 looks for systemd without this line, also where it uses no cgroup."""


def write(
    name: str, head: EmulatedHost, machines: Sequence[EmulatedHost], sockets: Path, folder: Path
) -> Path:
    """Write the configuration and the key under `folder`; return the path of ``slurm.conf``."""
    spool = folder / "spool"
    spool.mkdir(parents=True, mode=0o755)
    key = os.open(folder / "munge.key", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(key, "wb") as stream:
        stream.write(secrets.token_bytes(128))
    text = configuration(name, head, machines, sockets, spool)
    (folder / "slurm.conf").write_text(text, encoding="utf-8")
    (folder / "cgroup.conf").write_text(CGROUPS, encoding="ascii")
    lines = [f"echo export {name}={value}" for name, value in TRANSPORT.items()]
    (folder / PROLOG).write_text("\n".join(["#!/bin/sh", *lines, ""]), encoding="ascii")
    (folder / PROLOG).chmod(0o755)
    return folder / "slurm.conf"


def serve(
    identity: str, head: EmulatedHost, machines: Sequence[EmulatedHost], sockets: Path, conf: Path
) -> None:
    """Start the daemons; when this returns, each host is idle and accepts jobs.

    Raises
    ------
    LaunchError
        A daemon did not start; the message has the end of its log.
    """
    folder, deadline = conf.parent, time.monotonic() + READY_SECONDS
    socket = sockets / "munge.socket"
    words = [requirements.path_of("munged"), "--foreground", "--force", f"--socket={socket}"]
    words += [f"--key-file={folder / 'munge.key'}", f"--pid-file={folder / 'munged.pid'}"]
    words += [f"--log-file={folder / 'munged.log'}", f"--seed-file={folder / 'munge.seed'}"]
    leave_running(identity, head, words, folder / "munged.out")
    while not socket.exists():
        _patience(deadline, "munged", folder / "munged.log")
    daemon = [requirements.path_of("slurmctld"), "-D", "-i", "-f", str(conf)]
    leave_running(identity, head, daemon, folder / "slurmctld.log")
    for machine in machines:
        daemon = [requirements.path_of("slurmd"), "-D", "-f", str(conf)]
        leave_running(identity, machine, daemon, folder / f"slurmd-{machine.name}.log")
    while not _all_idle(conf, len(machines)):
        _patience(deadline, "Slurm", folder / "slurmctld.log")


def _all_idle(conf: Path, count: int) -> bool:
    try:
        states = run(["sinfo", "--noheader", "--Node", "--format=%T"], settings=conf).split()
    except LaunchError:
        return False
    return states.count("idle") == count


def _patience(deadline: float, what: str, log: Path) -> None:
    if time.monotonic() > deadline:
        text = log.read_text(errors="replace").strip()[-300:] if log.exists() else ""
        raise LaunchError(
            f"{what} is not ready within {READY_SECONDS:g} s: {text}",
            code="startup-timeout",
            value=what,
            seconds=READY_SECONDS,
        )
    time.sleep(0.05)
