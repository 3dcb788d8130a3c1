"""The contract of an `IsolationBackend` as executable checks, one for each guarantee.

Every check takes a function that returns a backend. It makes its own containers, removes them, and raises
AssertionError with the violated guarantee. The tests run the checks on all backends of apples that work on a
machine. Users can run them on their own: ``check_isolation_backend(lambda: MyBackend())``.

If a check needs a process, it starts one that sleeps and has the container's name in its environment, and ends
it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final

from apples.topology.cpus import MAX_CPUS, CpuSet
from apples.topology.isolation.affinity import MARK
from apples.topology.isolation.backend import (
    CpuContainer,
    Guarantee,
    IsolationBackend,
    IsolationError,
)

Make = Callable[[], IsolationBackend]
SECONDS: Final = 20.0
"""Time limit for asynchronous effects of the kernel: signals, control groups that become empty."""


def check_something_can_be_given(make: Make) -> None:
    """Check that CPUs and memory nodes exist, and that two calls return the same."""
    backend = make()
    cpus, mems = backend.universe()
    _require(bool(cpus), "no CPU can be given")
    _require(bool(mems), "no memory node can be given")
    _require(backend.universe() == (cpus, mems), "looking twice finds other CPUs")


def check_a_container_is_as_it_was_last_made(make: Make) -> None:
    """Check that a container can be created, created again, changed, listed and removed."""
    backend = make()
    with _container(backend) as container:
        guarantee = backend.fit(container)
        _require(guarantee in Guarantee, f"{guarantee!r} is no Guarantee")
        _require(backend.fit(container) is guarantee, "made twice it guarantees something else")
        _require(container.name in backend.names(), "a container that was made has no name")
        for cpus in _choices(backend):
            backend.fit(CpuContainer(container.name, cpus, container.mems))
            found = backend.cpus(container.name)
            _require(found == cpus, f"asked for CPUs {cpus}, the container has {found}")
            _require(not backend.processes(container.name), "an empty container has processes")


def check_what_is_not_there_is_empty_and_can_be_removed(make: Make) -> None:
    """Check that every query of a container that never existed has an answer and no effect."""
    backend = make()
    name = _name()
    _require(name not in backend.names(), f"{name} has not been made")
    _require(not backend.cpus(name), f"{name} has CPUs and has not been made")
    _require(not backend.processes(name), f"{name} has processes and has not been made")
    _require(backend.remove(name), f"{name} has not been made and cannot be removed")


def check_removing_may_be_repeated(make: Make) -> None:
    """Check that a removed container is gone, and that a second removal is no error."""
    backend = make()
    with _container(backend) as container:
        backend.fit(container)
        for _ in range(2):
            _require(backend.remove(container.name), "an empty container cannot be removed")
            _require(container.name not in backend.names(), "a removed container has a name")
            _require(not backend.cpus(container.name), "a removed container has CPUs")


def check_cpus_that_are_not_there_are_refused(make: Make) -> None:
    """Check that the error is `IsolationError`, and that the container can be created correctly afterwards."""
    backend = make()
    cpus, _ = backend.universe()
    missing = CpuSet.of([next(n for n in reversed(range(MAX_CPUS)) if n not in cpus)])
    with _container(backend) as container:
        try:
            backend.fit(CpuContainer(container.name, missing, container.mems))
        except IsolationError as error:
            _require(bool(str(error)), "a refusal without a reason")
        else:
            raise AssertionError(f"the backend allocated CPU {missing}, which this machine lacks")
        backend.fit(container)
        _require(backend.cpus(container.name) == container.cpus, "a refusal is not made good")


def check_containers_do_not_disturb_each_other(make: Make) -> None:
    """Check that a change of one container leaves the other unchanged."""
    backend = make()
    with _container(backend) as one, _container(backend) as other:
        backend.fit(one)
        backend.fit(other)
        backend.kill(one.name)
        _require(backend.remove(one.name), "an empty container cannot be removed")
        _require(other.name in backend.names(), "removing a container removed another")
        _require(backend.cpus(other.name) == other.cpus, "removing a container changed another")


def check_a_process_that_enters_is_inside_until_it_is_killed(make: Make) -> None:
    """Check that the process runs on the container's CPUs, the container remains, and a kill empties it."""
    backend = make()
    with _container(backend) as container, _process(container.name) as process:
        guarantee = backend.fit(container)
        backend.admit(container.name, process)
        _require(process in backend.processes(container.name), "it entered and is not inside")
        if guarantee is not Guarantee.NONE:
            mask = CpuSet.of(os.sched_getaffinity(process))
            _require(mask <= container.cpus, f"it runs on {mask}, not on {container.cpus}")
        _require(not backend.strays(container), "a process that has just entered has strayed")
        _require(not backend.remove(container.name), "a container was removed from a process")
        _require(process in backend.processes(container.name), "a refused removal lost a process")
        _until(lambda: _emptied(backend, container.name), "killing does not empty the container")
        _require(backend.remove(container.name), "a container that is empty cannot be removed")


def check_a_process_does_not_enter_what_is_not_there(make: Make) -> None:
    """Check that the error is `IsolationError`."""
    backend = make()
    name = _name()
    with _process(name) as process:
        try:
            backend.admit(name, process)
        except IsolationError:
            return
    raise AssertionError(f"a process entered {name}, which has not been made")


def check_freezing_and_thawing_may_be_repeated_and_the_frozen_die(make: Make) -> None:
    """Check that both may be repeated, and that a frozen process can be killed."""
    backend = make()
    with _container(backend) as container, _process(container.name) as process:
        backend.fit(container)
        backend.admit(container.name, process)
        for act in (backend.freeze, backend.freeze, backend.thaw, backend.thaw, backend.freeze):
            act(container.name)
            _require(process in backend.processes(container.name), "freezing lost a process")
        _until(lambda: _emptied(backend, container.name), "a frozen process is not killed")


ISOLATION_CHECKS: Final[tuple[Callable[[Make], None], ...]] = (
    check_something_can_be_given,
    check_a_container_is_as_it_was_last_made,
    check_what_is_not_there_is_empty_and_can_be_removed,
    check_removing_may_be_repeated,
    check_cpus_that_are_not_there_are_refused,
    check_containers_do_not_disturb_each_other,
    check_a_process_that_enters_is_inside_until_it_is_killed,
    check_a_process_does_not_enter_what_is_not_there,
    check_freezing_and_thawing_may_be_repeated_and_the_frozen_die,
)


def check_isolation_backend(make: Make) -> None:
    """Check every promise of `ISOLATION_CHECKS`.

    Raises
    ------
    AssertionError
        A guarantee is violated. The check stops at the first.

    Examples
    --------
    >>> from apples.topology import CpuSet, DryRun
    >>> check_isolation_backend(lambda: DryRun(CpuSet.parse("0-3")))
    """
    for check in ISOLATION_CHECKS:
        check(make)


def _name() -> str:
    return f"topologyd-{secrets.token_hex(4)}-check-1"


@contextlib.contextmanager
def _container(backend: IsolationBackend) -> Iterator[CpuContainer]:
    """Yield a description of a container with one CPU, not created yet; remove it at the end."""
    cpus, mems = backend.universe()
    container = CpuContainer(_name(), CpuSet.of([max(cpus)]), mems)
    try:
        yield container
    finally:
        deadline = time.monotonic() + SECONDS
        while not backend.remove(container.name) and time.monotonic() < deadline:
            backend.kill(container.name)
            os.sched_yield()


@contextlib.contextmanager
def _process(name: str) -> Iterator[int]:
    """Yield a sleeping process with the name of a container in its environment."""
    words = [sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"]
    with subprocess.Popen(words, env={**os.environ, MARK: name}) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def _choices(backend: IsolationBackend) -> list[CpuSet]:
    """Return the first CPU, all CPUs and the last, so that checks grow, shrink and move a container."""
    cpus, _ = backend.universe()
    return [CpuSet.of([min(cpus)]), cpus, CpuSet.of([max(cpus)])]


def _emptied(backend: IsolationBackend, name: str) -> bool:
    backend.kill(name)
    return not backend.processes(name)


def _until(true: Callable[[], bool], broken: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not true():
        _require(time.monotonic() < deadline, broken)
        os.sched_yield()


def _require(kept: bool, promise: str) -> None:
    if not kept:
        raise AssertionError(promise)
