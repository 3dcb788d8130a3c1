"""`ParameterSweep`: one program at many settings: independent tasks, the files they read, the sites' caches."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from apples.applications.host_inputs import check_hosts, did_you_mean
from apples.errors import UsageError
from apples.resources import HostList


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file that tasks read: `size` in bytes, and `storage`, the host that has it at first."""

    name: str
    size: float
    storage: str


@dataclass(frozen=True, slots=True)
class SweepTask:
    """One run of the program.

    Attributes
    ----------
    name
        Unique in the sweep.
    work
        Work in units; a host needs its `seconds_per_point` for a unit.
    inputs
        Names of the files that its site must have before it starts.
    """

    name: str
    work: float = 1.0
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SiteCache:
    """A folder that some hosts share: a file is sent to it once for all of them.

    Attributes
    ----------
    name
        Name in plans and messages.
    hosts
        Hosts that read it; the first one receives the files.
    capacity
        Bytes.
    """

    name: str
    hosts: tuple[str, ...]
    capacity: float = math.inf


@dataclass(frozen=True)
class ParameterSweep:
    """Tasks, in the order of a work queue, and their files.

    Raises
    ------
    UsageError
        Two tasks or files of one name, an invalid number, or an unknown file. Permanent.

    Examples
    --------
    >>> ParameterSweep((SweepTask("a", inputs=("mesh",)),), (InputFile("mash", 1e6, "store"),))
    Traceback (most recent call last):
    ...
    apples.errors.UsageError: task a: unknown file 'mesh'; did you mean 'mash'?
    """

    tasks: tuple[SweepTask, ...]
    files: tuple[InputFile, ...] = ()
    numbers: dict[str, int] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Raise an error if the sweep is inconsistent."""
        _each_once("task", [task.name for task in self.tasks])
        _each_once("file", [file.name for file in self.files])
        for file in self.files:
            if not 0 <= file.size < math.inf:
                raise UsageError(
                    f"file {file.name}: its size must be bytes (is {file.size})",
                    code="value-range",
                    file=file.name,
                    field="size",
                    value=file.size,
                    bound=0,
                )
        self.numbers.update({file.name: number for number, file in enumerate(self.files)})
        for task in self.tasks:
            if not 0 < task.work < math.inf:
                raise UsageError(
                    f"task {task.name}: its work must be positive (is {task.work})",
                    code="value-range",
                    task=task.name,
                    field="work",
                    value=task.work,
                    bound=0,
                )
            _each_once(f"input of task {task.name}", task.inputs)
            for name in task.inputs:
                if name not in self.numbers:
                    raise UsageError(
                        f"task {task.name}: unknown file '{name}'{did_you_mean(name, sorted(self.numbers))}",
                        code="file-unknown",
                        task=task.name,
                        file=name,
                    )


def one_cache_a_site(hosts: HostList) -> tuple[SiteCache, ...]:
    """Return an unlimited cache for each site, in the order of the sites in the list."""
    sites: dict[str, list[str]] = {}
    for host in hosts:
        sites.setdefault(host.site, []).append(host.name)
    return tuple(SiteCache(site, tuple(names)) for site, names in sites.items())


def check_places(sweep: ParameterSweep, caches: Sequence[SiteCache], hosts: HostList) -> None:
    """Raise an error if the files or caches of a sweep are on hosts that the list lacks.

    Raises
    ------
    UsageError
        A name is unknown; the message suggests the nearest known name. Permanent.
    """
    for file in sweep.files:
        check_hosts(hosts, [file.storage], f"file.{file.name}.storage", file=file.name)
    _each_once("cache", [cache.name for cache in caches])
    _each_once("host of a cache", [name for cache in caches for name in cache.hosts])
    for cache in caches:
        if not cache.hosts:
            raise UsageError(
                f"cache {cache.name}: has no hosts", code="cache-empty", cache=cache.name
            )
        check_hosts(hosts, cache.hosts, f"cache.{cache.name}", cache=cache.name)
        if len({hosts[name].site for name in cache.hosts}) > 1:
            raise UsageError(
                f"cache {cache.name}: its hosts are at several sites",
                code="cache-sites-differ",
                cache=cache.name,
                hosts=list(cache.hosts),
            )


def _each_once(kind: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise UsageError(
                f"{kind} '{name}' is there twice", code="name-repeated", kind=kind, name=name
            )
        seen.add(name)
