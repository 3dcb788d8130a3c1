"""Parse the nodes in the output of ``sinfo --json``, and build a host list of them. Pure; validates all input.

Two formats are read: that of Slurm up to 22.05, and that of Slurm from 23.02.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import hat
from apples.errors import LaunchError
from apples.launch.slurm.replies import document, entries, number, refuse_errors, text
from apples.resources import Host, HostListDocument

MAX_NAMES = 100_000
"""Maximum names in a list; a longer list is a mistake, or an attack on the memory."""
MAX_BRACKETS = 20
"""Maximum brackets in one element of a list: Slurm writes one for each dimension of a name."""
PART = re.compile(r"((?:\[[^\[\]]*\]|[^\[\],])+)(?:,|$)")
"""One element of a list of names: letters and brackets, to the next comma outside of brackets."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
"""A name that is valid in a host list."""
MEBIBYTE = 1 << 20
MAX_SLOTS = 4096
"""Maximum slots of a host in a host list."""
# Text is parsed because it is the same in all versions of Slurm; `squeue --json` has three formats.
ALLOCATED = re.compile(r"^ +Nodes=(\S+) CPU_IDs=([0-9,-]+) Mem=([0-9]{1,12})\b", re.MULTILINE)
"""A line of ``scontrol show job --details`` about nodes with equal CPUs and memory."""
CPU_IDS = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")
OUT_OF_SERVICE = frozenset(
    (
        *("DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "ERROR", "UNKNOWN", "FUTURE"),
        *("MAINTENANCE", "MAINT", "PERFCTRS", "POWERED_DOWN", "POWERING_DOWN", "REBOOT_ISSUED"),
        *("RESERVED", "NO_RESPOND", "NOT_RESPONDING", "INVALID"),
    )
)


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """One node as Slurm reports it; memory in bytes.

    Attributes
    ----------
    cores
        Number of physical cores.
    idle
        Number of CPUs that no job uses.
    """

    name: str
    address: str
    states: tuple[str, ...]
    cores: int
    cpus: int
    idle: int
    memory: int
    allocated_memory: int
    platform: str
    features: tuple[str, ...]
    partitions: tuple[str, ...]
    reason: str = ""

    @property
    def refusal(self) -> str:
        """The reason why the node takes no jobs; empty if it does."""
        bad = [state for state in self.states if state in OUT_OF_SERVICE]
        if not bad:
            return ""
        return f"Slurm reports it as {bad[0].lower()}" + (
            f" ({self.reason})" if self.reason else ""
        )


def nodes(listing: str) -> list[SlurmNode]:
    """Return the nodes in the output of ``sinfo --json``, each once.

    Raises
    ------
    LaunchError
        The text is not an answer of sinfo, or reports an error.
    """
    answer = document(listing, "sinfo")
    found: dict[str, SlurmNode] = {}
    listed = _newer(answer) if "sinfo" in answer else map(_older, entries(answer, "nodes"))
    for node in listed:
        before = found.get(node.name)
        partitions = {*(before.partitions if before else ()), *node.partitions}
        found[node.name] = replace(node, partitions=tuple(sorted(partitions)))
    if not found:
        refuse_errors(answer, "sinfo")
    return list(found.values())


def _older(entry: Any) -> SlurmNode:
    """Return a node from the format of Slurm up to 22.05."""
    entry = entry if isinstance(entry, dict) else {}
    states = [text(entry.get("state")), *map(text, entry.get("state_flags") or [])]
    cpus = _count(entry.get("cpus"))
    per_socket = _count(entry.get("cores"))
    return SlurmNode(
        name=text(entry.get("name")),
        address=text(entry.get("address")),
        states=tuple(state.upper() for state in states if state),
        cores=min(cpus, max(1, per_socket * max(1, _count(entry.get("sockets"))))),
        cpus=cpus,
        idle=max(0, cpus - _count(entry.get("alloc_cpus"))),
        memory=_count(entry.get("real_memory")) * MEBIBYTE,
        allocated_memory=_count(entry.get("alloc_memory")) * MEBIBYTE,
        platform=text(entry.get("architecture")),
        features=_words(entry.get("features")),
        partitions=tuple(text(p) for p in entry.get("partitions") or []),
        reason=text(entry.get("reason")),
    )


def _newer(answer: Mapping[str, Any]) -> Iterator[SlurmNode]:
    """Yield the nodes from the format of Slurm from 23.02, in which an entry describes a group of nodes."""
    for entry in entries(answer, "sinfo"):
        if not isinstance(entry, dict):
            continue
        group, names = _dict(entry, "nodes"), []
        for one in _list(group.get("nodes")):
            names += _expanded(text(one))
        addresses = [text(a) for a in _list(group.get("addresses"))]
        count = max(1, len(names))
        cpus = _count(_dict(entry, "cpus").get("minimum"))
        sockets = max(1, _count(_dict(entry, "sockets").get("minimum")))
        cores = _count(_dict(entry, "cores").get("minimum"))
        memory = _dict(entry, "memory")
        for i, name in enumerate(names):
            yield SlurmNode(
                name=name,
                address=addresses[i] if len(addresses) == len(names) else name,
                states=tuple(map(text, _list(_dict(entry, "node").get("state")))),
                cores=min(cpus, max(1, cores * sockets)),
                cpus=cpus,
                idle=_count(_dict(entry, "cpus").get("idle")) // count,
                memory=_count(memory.get("minimum")) * MEBIBYTE,
                allocated_memory=_count(memory.get("allocated")) // count * MEBIBYTE,
                platform="",
                features=_words(_dict(entry, "features").get("active")),
                partitions=(text(_dict(entry, "partition").get("name")),),
                reason=text(_dict(entry, "reason").get("description") or entry.get("reason")),
            )


def _expanded(names: str) -> list[str]:
    try:
        return expand(names)
    except ValueError:
        return []


def _dict(value: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _list(value: Any) -> list[Any]:
    """Return `value` if it is a list, else an empty list."""
    return value if isinstance(value, list) else []


def _count(value: Any) -> int:
    return int(number(value) or 0)


def _words(value: Any) -> tuple[str, ...]:
    joined = ",".join(map(str, value)) if isinstance(value, list) else text(value)
    return tuple(word for word in joined.split(",") if word)


@dataclass(frozen=True, slots=True)
class AllocatedPart:
    """The share of an allocation in a node.

    Attributes
    ----------
    cpus
        Number of CPUs.
    memory
        Bytes of memory; 0: this Slurm does not allocate memory.
    """

    cpus: int
    memory: int

    def slots(self, node: SlurmNode) -> int:
        """Return the number of whole cores that the CPUs make, at least 1.

        Examples
        --------
        >>> node = SlurmNode("n1", "n1", (), 4, 8, 8, 0, 0, "", (), ())
        >>> [AllocatedPart(cpus, 0).slots(node) for cpus in (1, 2, 5, 8)]
        [1, 1, 2, 4]
        """
        return max(1, self.cpus * node.cores // max(1, node.cpus))


def allocated_parts(said: str) -> dict[str, AllocatedPart]:
    r"""Return the share of an allocation in each node, from the output of ``scontrol show job --details``.

    Raises
    ------
    ValueError
        A list of node names is invalid.

    Examples
    --------
    >>> allocated_parts("   JobState=RUNNING\n     Nodes=n[1-2] CPU_IDs=0-1,4 Mem=2 GRES=\n")["n2"]
    AllocatedPart(cpus=3, memory=2097152)
    """
    found: dict[str, AllocatedPart] = {}
    for names, ids, memory in ALLOCATED.findall(said):
        spans = [(int(first), int(last or first)) for first, last in CPU_IDS.findall(ids)]
        cpus = sum(max(0, last - first + 1) for first, last in spans)
        for name in expand(names):
            found.setdefault(name, AllocatedPart(cpus, int(memory) * MEBIBYTE))
    return found


def left_out(nodes: Sequence[SlurmNode]) -> Iterator[str]:
    """Yield a line with the reason for each node that is left out of the host list."""
    for node in nodes:
        if not NAME.fullmatch(node.name):
            yield f"node {node.name!r} left out: a host's name is letters, digits, '.', '_' and '-'"
        elif node.refusal:
            yield f"node {node.name} left out: {node.refusal}"


def host_list(nodes: Sequence[SlurmNode], site_features: Sequence[str] = ()) -> str:
    """Return the text of ``hosts.toml`` for the nodes that take jobs.

    A slot is a core; hardware threads of a core do not count separately. Speeds are left out: `apples calibrate`
    measures them.

    Parameters
    ----------
    site_features
        Features that are names of sites: a node with such a feature is at that site.

    Raises
    ------
    hat.DocumentError
        Slurm's values do not make a valid host list.
    """
    content = {"host": host_entries(nodes, site_features)}
    text = "# Written by: hat import slurm\n" + hat.dump(content)
    hat.parse(text, HostListDocument, source="sinfo")
    return text


def host_entries(
    nodes: Sequence[SlurmNode], site_features: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Return the entries of a host list for the nodes that take jobs."""
    kept = [n for n in nodes if NAME.fullmatch(n.name) and not n.refusal]
    return [_host(node, site_features) for node in kept]


def _host(node: SlurmNode, site_features: Sequence[str]) -> dict[str, Any]:
    host: dict[str, Any] = {"name": node.name}
    site = next((f for f in site_features if f in node.features), "")
    if site:
        host["site"] = site
    if node.cores > 1:
        host["slots"] = min(node.cores, MAX_SLOTS)
    if node.memory > node.allocated_memory:
        host["free_memory"] = node.memory - node.allocated_memory
    if node.platform:
        host["platform"] = node.platform
    return host


# ------------------------------------------------ lists of names as Slurm writes them: n[01-03,7],login
def allocated() -> frozenset[str]:
    """Return the nodes of this process's allocation; empty outside an allocation.

    Raises
    ------
    LaunchError
        Slurm's list of node names is invalid.
    """
    text = os.environ.get("SLURM_JOB_NODELIST", "") or os.environ.get("SLURM_NODELIST", "")
    try:
        return frozenset(expand(text))
    except ValueError as error:
        raise LaunchError(
            f"SLURM_JOB_NODELIST: {error}", code="slurm-answer-invalid", field="SLURM_JOB_NODELIST"
        ) from None


def behind_a_queue(hosts: Iterable[Host]) -> tuple[Host, ...]:
    """Return the hosts behind a batch queue by the host list, except nodes of this process's allocation.

    Examples
    --------
    >>> [host.name for host in behind_a_queue([Host("ada"), Host("n1", queue_seconds=60.0)])]
    ['n1']
    """
    queued = [host for host in hosts if host.queue_seconds is not None]
    held = allocated() if queued else frozenset()
    return tuple(host for host in queued if host.name not in held)


def expand(text: str) -> list[str]:
    """Return the names in a compressed list of Slurm, in its order.

    Raises
    ------
    ValueError
        The list is invalid, or has more than `MAX_NAMES` names.

    Examples
    --------
    >>> expand("n[01-03,7],login")
    ['n01', 'n02', 'n03', 'n7', 'login']
    >>> expand("(null)"), expand("")
    ([], [])
    """
    if text in {"", "(null)", "None assigned"}:
        return []
    names: list[str] = []
    position = 0
    while position < len(text):
        part = PART.match(text, position)
        if part is None:
            raise ValueError(f"not a valid host list: {text[:80]!r}")
        position = part.end()
        if part[1].count("[") > MAX_BRACKETS:
            raise ValueError(f"more than {MAX_BRACKETS} brackets: {part[1][:80]!r}")
        for name in _names(part[1]):
            names.append(name)
            if len(names) > MAX_NAMES:
                raise ValueError(f"more than {MAX_NAMES} hosts: {text[:80]!r}")
    return names


def _names(part: str) -> Iterator[str]:
    """Yield the names of one element of a list; it may have several brackets."""
    before, opening, rest = part.partition("[")
    if not opening:
        yield part
        return
    inside, closing, after = rest.partition("]")
    if not closing:
        raise ValueError(f"not a valid host list: {part[:80]!r}")
    for one in _numbers(inside):
        for tail in _names(after):
            yield f"{before}{one}{tail}"


def _numbers(inside: str) -> Iterator[str]:
    for one in inside.split(","):
        first, dash, last = one.partition("-")
        if not dash:
            yield one
            continue
        if not (first.isdecimal() and last.isdecimal() and len(last) < 12):
            raise ValueError(f"not a valid host range: {one[:40]!r}")
        if int(last) - int(first) > MAX_NAMES:
            raise ValueError(f"more than {MAX_NAMES} hosts: {one[:40]!r}")
        for value in range(int(first), int(last) + 1):
            yield str(value).zfill(len(first))
