"""Judge the answer of a host's probe: a finding for each check, and whether a run may use the host. Pure."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from apples.launch.remote.addresses import is_number
from apples.launch.remote.ask import RemoteAnswer, printable
from apples.launch.remote.bootstrap import NO_PROGRAM
from apples.launch.remote.probe import SCHEMA
from apples.ui.units import amount, duration

Status = Literal["ok", "warn", "fail"]
MIN_PYTHON = (3, 11)
SKEW_SECONDS, MAX_SKEW_SECONDS = 2.0, 60.0
"""Clock differences above which a warning is printed, and above which the host is rejected: its measurements would
be rejected too."""
DISK_BYTES, MIN_DISK_BYTES = 100e6, 10e6
RESOLVE_SECONDS = 1.9
"""Time limit for a host to resolve its own name (the probe waits 2 s): MPI resolves it at every start."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Requirements of a host besides MPI.

    Attributes
    ----------
    modules, commands
        Python modules and commands that implementations require. A host that lacks some can run other
        implementations.
    programs
        Paths that must exist on the host; a file may also be in the host's directory.
    probe
        Name of the module that is sent to describe the host's CPUs; empty: not requested.
    ipv6
        Whether IPv6 alone between the hosts is enough: True for the manager of a malleable job, False for mpiexec.
    """

    modules: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    probe: str = ""
    ipv6: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check, with a remedy if it is not ok."""

    name: str
    status: Status
    detail: str
    cure: str = ""


MEETING = "meeting"
"""Name of the check by a trial launch on all hosts (`apples.launch.meeting`); the probe does not make it."""


@dataclass(frozen=True, slots=True)
class Fitness:
    """The results of the checks of one host.

    Attributes
    ----------
    host
        Name of the host.
    findings
        The result of every check, in the order of `CHECKS`; only the first if the host was not reached.
    missing
        Required modules and commands that the host does not have.
    cpus
        Number of CPUs that a process on the host may use; 0: unknown.
    machine
        Boot id of the machine, equal for hosts that are parts of one machine; empty: unknown.
    address
        IP address of the host on its way to this machine; empty: unknown.
    back
        IP address by which the host reaches this machine; empty: unknown.
    apples
        Version of apples in the host's interpreter; empty: not installed.
    memory
        Available memory of the whole machine in bytes; 0: unknown.
    topology
        The host's unvalidated description of its CPUs; empty: none.
    """

    host: str
    findings: tuple[Finding, ...]
    missing: frozenset[str] = frozenset()
    cpus: int = 0
    machine: str = ""
    address: str = ""
    back: str = ""
    apples: str = ""
    memory: int = 0
    topology: str = ""

    @property
    def refusal(self) -> str:
        """The reason why a run may not use the host, with the remedy; empty if it may."""
        for one in self.findings:
            if one.status == "fail":
                return f"{one.name}: {one.detail}" + (f" ({one.cure})" if one.cure else "")
        return ""


def judge(
    host: str, answer: RemoteAnswer, seconds: float, python: str, login: str = ""
) -> Fitness:
    """Return the fitness of a host from the answer of its probe.

    Parameters
    ----------
    seconds
        Time from the question to the answer.
    python
        Path of the interpreter that should run the probe.
    login
        Command line that logs in, for a remedy; empty: ``ssh`` with the host's name.
    """
    found = _document(answer.output)
    if found is None:
        return Fitness(host, (_silence(answer, seconds, python, login or f"ssh {host}"),))
    try:
        return _judged(host, found, answer.at, seconds)
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        detail = f"its answer makes no sense: {type(error).__name__}: {error}"
        return Fitness(host, (Finding("ssh", "fail", detail),))


def _document(output: bytes) -> dict[str, Any] | None:
    """Return the probe's JSON answer; a login may print other text before it. None if it is missing."""
    for line in reversed(output.splitlines()):
        if line.startswith(b'{"schema"'):
            try:
                document = json.loads(line)
            except (ValueError, RecursionError):
                return None
            return document if document.get("schema") == SCHEMA else None
    return None


NO_COMMAND = (126, 127)
"""Exit codes of a shell that cannot run a command."""


def _silence(answer: RemoteAnswer, seconds: float, python: str, login: str) -> Finding:
    """Return a finding with the reason why a host did not answer, and the text that it printed instead."""
    printed = answer.last_line
    shown = f": it prints {printed!r}" if printed else ""
    quiet = f"its shell and start-up files: {login} true </dev/null must print and read nothing"
    if answer.code == NO_PROGRAM:
        return Finding("login", "fail", f"its login reads standard input{shown}", quiet)
    if answer.code is None:
        detail = f"no answer within {seconds:.1f} s{shown}"
        return Finding("ssh", "fail", detail, quiet if printed else "is it switched on?")
    if answer.code == 255:
        detail = answer.last_words.removeprefix("ssh: ") or f"the connection ended{shown}"
        return Finding("ssh", "fail", detail, f"this must work without a question: {login} true")
    by_python = PYTHON_WORDS.search(answer.talk.decode(errors="replace"))
    if answer.code in NO_COMMAND or by_python:
        why = answer.last_words or printed or f"exit code {answer.code}"
        detail = f"{python} does not run there: {why}"
        return Finding("python", "fail", detail, "give the host its python in the host list")
    words = answer.last_words or printed
    instead = f"prints {words!r} and ends" if words else "ends without a word"
    detail = f"its login {instead} (exit code {answer.code}) in place of running {python}"
    return Finding("login", "fail", detail, quiet)


PYTHON_WORDS = re.compile(
    r"^(Traceback|usage: |Unknown option|\w*Error\b|Fatal Python)|python", re.MULTILINE
)
"""Text that a Python interpreter prints to standard error when it fails."""


def _judged(host: str, found: Mapping[str, Any], at: float, seconds: float) -> Fitness:
    asked = {**found["modules"], **found["commands"]}
    findings = (*(check(found) for check in CHECKS), _clock(float(found["time"]) - at))
    address, back = str(found["address"]), str((found["back"] or {}).get("value", ""))
    return Fitness(
        host,
        (
            Finding("ssh", "ok", f"answers in {duration(seconds)}"),
            *(Finding(f.name, f.status, printable(f.detail), printable(f.cure)) for f in findings),
        ),
        frozenset(str(name) for name, there in asked.items() if not there),
        max(0, int(found["cpus"])),
        printable(str(found["boot"])),
        address if is_number(address) else "",  # it is written into the machine file
        back if is_number(back) else "",  # it is passed to the proxy of this host
        printable(str(found["packages"]["apples"])),
        max(0, int(found.get("memory", 0))),
        str(found.get("topology", "")),
    )


def _python(found: Mapping[str, Any]) -> Finding:
    there = tuple(int(part) for part in found["python"])
    shown = ".".join(map(str, there))
    if there < MIN_PYTHON:
        return Finding("python", "fail", shown, "needs Python 3.11 or newer")
    if there[:2] != sys.version_info[:2]:
        ours = ".".join(map(str, sys.version_info[:2]))
        return Finding("python", "warn", f"{shown}, here it is {ours}")
    return Finding("python", "ok", shown)


def _mpi(found: Mapping[str, Any]) -> Finding:
    there, here = str(found["packages"]["mpich"]), own_version("mpich")
    cure = f"pip install mpich=={here} mpi4py there"
    if not there or not found["proxy"]:
        return Finding("mpi", "fail", "no mpich beside its python", cure)
    if there.split(".")[:2] != here.split(".")[:2]:
        return Finding("mpi", "fail", f"mpich {there}, here it is {here}", cure)
    return Finding("mpi", "ok", f"mpich {there}")


def _apples(found: Mapping[str, Any]) -> Finding:
    there, here = str(found["packages"]["apples"]), own_version("apples")
    if there == here:
        return Finding("apples", "ok", there)
    detail = f"{there}, here it is {here}" if there else "not installed: it cannot be measured"
    return Finding("apples", "warn", detail, "pip install apples there, the same as here")


def _program(found: Mapping[str, Any]) -> Finding:
    if missing := [str(place) for place in found["programs"]]:
        return Finding(
            "program", "fail", f"no {missing[0]}", "copy it there, or into the host's directory"
        )
    return Finding("program", "ok", "found" if found["asked"] else "not asked for")


def _directory(found: Mapping[str, Any]) -> Finding:
    if wrong := str(found["directory"]):
        return Finding("directory", "fail", wrong, "make it, or name another in the host list")
    return Finding("directory", "ok", "can be written to")


def _disk(found: Mapping[str, Any]) -> Finding:
    known = [int(free) for free in found["disk"].values() if free is not None]
    least = min(known, default=0)
    if least < MIN_DISK_BYTES:
        return Finding("disk", "fail", f"{amount(least)} free", "make room")
    return Finding("disk", "warn" if least < DISK_BYTES else "ok", f"{amount(least)} free")


LARGER_SHM = "make it larger: docker run --shm-size=1g, or mount -o remount,size=1g /dev/shm"


def _shm(found: Mapping[str, Any]) -> Finding:
    if lacking := str(found["shm"]):
        return Finding("shm", "fail", lacking, LARGER_SHM)
    return Finding("shm", "ok", "enough for a rank on each slot")


def _name(found: Mapping[str, Any]) -> Finding:
    name, told = str(found["name"]), found["resolves"]
    took = float(told["seconds"])
    cure = f"name it in its /etc/hosts: {found['address'] or 'ADDRESS'} {name}"
    if took > RESOLVE_SECONDS:
        detail = f"{name} takes more than {duration(took)} to resolve there: MPI waits for it"
        return Finding("name", "fail", detail, cure)
    if "error" in told:
        return Finding("name", "warn", f"{name} does not resolve there ({told['error']})", cure)
    return Finding("name", "ok", f"{name} is {told['value']}")


def _back(found: Mapping[str, Any]) -> Finding:
    told = found["back"]
    if told is None:
        return Finding("back", "ok", "not asked")
    if value := told.get("value"):
        took = duration(float(told["seconds"]))
        return Finding("back", "ok", f"reaches this machine as {value} in {took}")
    errors = dict(told["errors"])
    tried = (
        "; ".join(f"{address}: {error}" for address, error in errors.items())
        or "it has no address"
    )
    address = str(found["address"])
    if ":" in address:
        detail = f"is reached over IPv6 alone ({address}), and mpiexec speaks IPv4 ({tried})"
        cure = "give both machines IPv4 addresses; sweeps and malleable jobs do without"
        return Finding("back", "fail", detail, cure)
    detail = f"cannot connect back to this machine ({tried})"
    cure = "open the firewall, or list the address the machines have among themselves: MPI needs both ways"
    return Finding("back", "fail", detail, cure)


def _clock(skew: float) -> Finding:
    detail = f"{abs(skew):.1f} s {'ahead' if skew > 0 else 'behind'}"
    if abs(skew) > MAX_SKEW_SECONDS:
        return Finding("clock", "fail", detail, "set it (NTP)")
    return Finding("clock", "warn" if abs(skew) > SKEW_SECONDS else "ok", detail)


def own_version(package: str) -> str:
    """Return the version of a package in this interpreter; empty if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - not for a plan

    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def names() -> Iterator[str]:
    """Yield the names of the checks, in their order."""
    yield "ssh"
    yield from (check.__name__.removeprefix("_") for check in CHECKS)
    yield "clock"
    yield MEETING


CHECKS = (_python, _mpi, _apples, _program, _directory, _disk, _shm, _name, _back)
