"""The requirements of a lab on this machine: all that are missing are reported in one error, before any change."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence

from apples.errors import UsageError
from apples.lab import cgroups
from apples.lab.document import LabDocument

PACKAGES: Mapping[str, str] = {
    "ip": "iproute2",
    "tc": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "munged": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sinfo": "slurm-client",
}
"""Command -> the Debian package that has it."""
ALWAYS = ("ip", "nsenter", "unshare")
SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Directories of administrators' commands, which a user's PATH may lack."""
PROBE_SECONDS = 10.0
ON_LOOPBACK = ("tc", "qdisc", "add", "dev", "lo", "root")
SHAPER = (*ON_LOOPBACK, "tbf", "rate", "1mbps", "burst", "5kb", "limit", "300kb")
DELAYER = (*ON_LOOPBACK, "netem", "delay", "1ms")


def find(command: str, places: Sequence[str] = SBIN) -> str | None:
    """Return the path of a command, on PATH or in `places`; None if it is not installed."""
    return shutil.which(command, path=os.pathsep.join([os.environ.get("PATH", ""), *places]))


def path_of(command: str) -> str:
    """Return the path of a command.

    Raises
    ------
    UsageError
        It is not installed; the message names the package.
    """
    place = find(command)
    if place is None:
        raise UsageError(
            f"the lab needs {command} (Debian: {PACKAGES.get(command, command)})",
            code="lab-tool-missing",
            tool=command,
            package=PACKAGES.get(command, command),
        )
    return place


def needed(document: LabDocument) -> tuple[str, ...]:
    """Return the commands a lab needs.

    Examples
    --------
    >>> needed(LabDocument(name="a", host=[{"name": "h"}], ssh=False))
    ('ip', 'nsenter', 'unshare')
    """
    ssh = ("sshd", "ssh", "ssh-keygen") if document.ssh else ()
    slurm = ("munged", "slurmctld", "slurmd", "sinfo") if document.slurm else ()
    shaped = ("tc",) if _limited(document) or _delayed(document) else ()
    return (*ALWAYS, *shaped, *ssh, *slurm)


def require(
    document: LabDocument, *, user: int | None = None, places: Sequence[str] = SBIN
) -> None:
    """Reject a lab that this machine cannot emulate.

    Parameters
    ----------
    user
        User id of the process that makes the lab; default: of this process.
    places
        Directories of administrators' commands, searched after PATH.

    Raises
    ------
    UsageError
        Everything that is missing. Permanent until it is installed.
    """
    missing = list(_missing(document, os.geteuid() if user is None else user, places))
    if missing:
        raise UsageError(
            f"lab '{document.name}' cannot be had here: {'; '.join(missing)}",
            code="lab-unsupported",
            lab=document.name,
            missing=missing,
        )


def can_delay() -> bool:
    """Whether the kernel can delay packets."""
    return find("tc") is not None and _works("--net", *DELAYER)


def _missing(document: LabDocument, user: int, places: Sequence[str]) -> Iterator[str]:
    yield from _cpus(document)
    if user != 0:
        yield f"it needs root (this is user {user})"
    absent = [name for name in needed(document) if find(name, places) is None]
    for name in absent:
        yield f"no {name} (Debian: {PACKAGES[name]})"
    if user == 0 and not absent:
        yield from _refused(document)


def _refused(document: LabDocument) -> Iterator[str]:
    """Yield a line for each operation that the kernel denies to root, tried in temporary namespaces."""
    if not _works("--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "true"):
        yield "no namespaces may be made here (a container without privileges?)"
        return
    if not _works("--net", "ip", "link", "add", "name", "one", "type", "veth"):
        yield "the kernel makes no veth pairs"
    if not _works("--net", "ip", "link", "add", "name", "one", "type", "bridge"):
        yield "the kernel makes no bridges"
    if _limited(document) and not _works("--net", *SHAPER):
        yield "the kernel has no tbf (module sch_tbf), and the file limits a bandwidth"
    yield from _no_cgroups(document)


def _no_cgroups(document: LabDocument) -> Iterator[str]:
    found = cgroups.hierarchies()
    for name in dict.fromkeys(c for host in document.host for c in cgroups.wanted(host)):
        if name not in found:
            yield f"no cgroup controller '{name}' is mounted"
        elif (
            not os.access(found[name].root / "cgroup.procs", os.W_OK)
            or os.statvfs(found[name].root).f_flag & os.ST_RDONLY
        ):
            yield f"cgroups cannot be made in {found[name].root}"


def _cpus(document: LabDocument) -> Iterator[str]:
    own = os.sched_getaffinity(0)
    for host in document.host:
        absent = sorted(set(host.cpus) - own)
        if absent:
            yield f"host '{host.name}' is pinned to CPU {absent[0]}, this machine has {_ranges(own)}"


def _ranges(cpus: set[int]) -> str:
    return ", ".join(map(str, sorted(cpus)))


def _limited(document: LabDocument) -> bool:
    rates = [site.bandwidth for site in document.site] + [h.bandwidth for h in document.host]
    return any(rates)


def _delayed(document: LabDocument) -> bool:
    return any(site.latency for site in document.site)


def _works(*words: str) -> bool:
    """Whether a command succeeds in namespaces of its own."""
    command: Sequence[str] = [path_of("unshare"), *words]
    environment = {**os.environ, "PATH": os.pathsep.join([os.environ.get("PATH", ""), *SBIN])}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_SECONDS,
            env=environment,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
