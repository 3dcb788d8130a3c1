"""The first step of a daemon: read the journal, and change the kernel's containers to match it.

After a reboot all jobs are gone; after any other restart each job keeps its CPUs. A container that the journal
lacks is adopted if it has processes, and removed if it is empty.
"""

from __future__ import annotations

import contextlib
from typing import Final

from apples.errors import ApplesError
from apples.topology.cpus import NO_CPUS
from apples.topology.daemon.node import NodeLedger, boot
from apples.topology.daemon.sharing import violations
from apples.topology.daemon.state import AllocationState, CpuAllocation, EndCondition, taken
from apples.topology.isolation.backend import CpuContainer, IsolationError

DAMAGED: Final = (ValueError, KeyError, TypeError, ApplesError)


def recover(node: NodeLedger) -> None:
    """Restore the state of a node after a restart.

    Raises
    ------
    JournalError, OSError
        The disk fails: the journal cannot be read or written.
    """
    found = node.journal.recover()
    for problem in found.problems:
        node.report(f"journal: {problem}; a copy is beside it")
    for record in found.records:
        try:
            node.state.apply(record)
        except DAMAGED as error:
            node.report(f"journal: a record is left out: {type(error).__name__}: {error}")
    if not node.journal.whole:
        node.journal.rewrite(node.state.records())
    if node.state.boot != boot():
        node.record({"do": "boot", "boot": boot(), "jobs": dict.fromkeys(node.state.jobs)})
    _put_right(node)
    adopt_orphans(node)
    _fit_all(node)
    node.rescan()


def adopt_orphans(node: NodeLedger) -> None:
    """Adopt the containers that the journal lacks, or remove them if they are empty."""
    known = {job.name(node.mark) for job in node.state.jobs.values()}
    for name in sorted(node.containers() - known):
        with contextlib.suppress(IsolationError):
            if not node.isolation.processes(name):
                node.isolation.remove(name)
                continue
        _adopt(node, name)


def _adopt(node: NodeLedger, name: str) -> None:
    """Add a container with processes to the ledger, with those of its CPUs that no other job has."""
    inner, _, number = name.removeprefix(f"topologyd-{node.mark}-").rpartition("-")
    others = taken(node.state.jobs.values())
    cpus = node.isolation.cpus(name) - others
    if inner in node.state.jobs or not cpus:
        node.report(f"{name} has processes on CPUs of other jobs; the daemon leaves them there")
        return
    job = CpuAllocation(
        inner,
        int(number),
        "uid:0",
        owns=cpus,
        holds=cpus,
        mems=node.mems,
        count=len(cpus),
        until=EndCondition.EMPTY,
    )
    node.commit({inner: job})
    node.report(f"{name} was not in the journal and is adopted")


def _put_right(node: NodeLedger) -> None:
    """Resolve conflicts after lost records: the newer of two jobs keeps a CPU that both claim."""
    wrong = violations(node.state.jobs, node.topology.cpus)
    if not wrong:
        return
    seen = NO_CPUS
    changes: dict[str, CpuAllocation | None] = {}
    for job in sorted(node.state.jobs.values(), key=lambda job: -job.number):
        real = node.isolation.cpus(job.name(node.mark)) or job.holds
        holds = (real & node.topology.cpus) - seen
        if not holds and job.state is AllocationState.RUNNING:
            changes[job.job] = job.change(
                state=AllocationState.RELEASING, owns=NO_CPUS, holds=NO_CPUS
            )
            continue
        seen |= holds
        if (holds, holds) != (job.holds, job.owns):
            changes[job.job] = job.change(holds=holds, owns=holds)
    for problem in wrong:
        node.report(f"after damage to the journal: {problem}")
    if changes:
        node.commit(changes)


def _fit_all(node: NodeLedger) -> None:
    try:
        node.fit(list(node.state.jobs))
    except IsolationError as error:
        node.report(str(error))
    for job in node.state.jobs.values():
        name = job.name(node.mark)
        try:
            if job.state is AllocationState.RUNNING:
                node.isolation.thaw(name)
            elif job.state is AllocationState.SUSPENDED:
                if not node.isolation.cpus(name):
                    node.isolation.fit(CpuContainer(name, job.was, job.mems))
                node.isolation.freeze(name)
        except IsolationError as error:
            node.report(str(error))
