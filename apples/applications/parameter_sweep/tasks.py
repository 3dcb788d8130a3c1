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
    """A file that tasks read, of `size` bytes, and `storage`, the host on which it lies at first."""

    name: str
    size: float
    storage: str


@dataclass(frozen=True, slots=True)
class SweepTask:
    """One run of the program.

    Attributes
    ----------
    name
        Unlike that of any other task.
    work
        How much it computes, in units that a host needs its `seconds_per_point` for.
    inputs
        Names of the files that must be at its site before it starts.
    """

    name: str
    work: float = 1.0
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SiteCache:
    """A folder that some hosts share: a file that came to it once is there for all of them.

    Attributes
    ----------
    name
        What plans and messages call it.
    hosts
        Those who read it; the first is the one that receives files.
    capacity
        Bytes.
    """

    name: str
    hosts: tuple[str, ...]
    capacity: float = math.inf


@dataclass(frozen=True)
class ParameterSweep:
    """Tasks, in the order in which a work queue would take them, and their files.

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
        """Refuse what cannot be planned."""
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
    """Return a cache without a limit for each site, in the order in which the list names the sites."""
    sites: dict[str, list[str]] = {}
    for host in hosts:
        sites.setdefault(host.site, []).append(host.name)
    return tuple(SiteCache(site, tuple(names)) for site, names in sites.items())


def check_places(sweep: ParameterSweep, caches: Sequence[SiteCache], hosts: HostList) -> None:
    """Refuse a sweep whose files lie, or whose caches are, on hosts that the list does not have.

    Raises
    ------
    UsageError
        With the name, and the nearest that exists. Permanent.
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
