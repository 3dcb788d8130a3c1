"""Malleable jobs: a running MPI program that shrinks, grows and migrates.

This front door is what a program imports: `Job`, what it declares, and what a safe point tells it; besides
`HostWeight`, of which a rehearsal's processor maps are made. Each folder below is named for the process that
runs its code. Reading order: `control` (what agent and job manager say to each other), `manager` (one process
a job: carries out commands), `node` (one process a host: starts, watches and ends the ranks there), `runtime`
(in the ranks: safe points, redistribution of rows, checkpoints, blocks), `balancers` (who owns which block),
`migration` (the same for an unmodified program, by CRIU).

Everything in ``__all__`` is loaded when it is first asked for: a rank that is only parked loads no NumPy.
"""

from importlib import import_module

_HOMES = {
    "Blocks": ("apples.malleable.runtime.blocks", "Blocks"),
    "Change": ("apples.malleable.runtime.membership", "HostChange"),
    "DeclarationError": ("apples.malleable.runtime.state", "DeclarationError"),
    "HostRows": ("apples.malleable.control.command", "HostRows"),
    "HostWeight": ("apples.malleable.control.command", "HostWeight"),
    "Job": ("apples.malleable.runtime.job", "MalleableJob"),
    "Released": ("apples.malleable.runtime.membership", "Released"),
    "ResizeDone": ("apples.malleable.control.command", "ResizeDone"),
    "Rollback": ("apples.malleable.runtime.membership", "Rollback"),
    "RowArray": ("apples.malleable.runtime.row_array", "RowArray"),
    "State": ("apples.malleable.runtime.state", "State"),
    "UndeclaredStateError": ("apples.malleable.runtime.state", "UndeclaredStateError"),
    "wait": ("apples.malleable.runtime.collectives", "wait"),
}
"""Where each name lives, and its name there: in a program `Job` and `Change` can mean nothing else, while
in the whole repository they could mean a scheduler's job or a change of threads."""

__all__ = [*_HOMES]


def __getattr__(name: str) -> object:
    """Return what `name` of the front door stands for, loading its module."""
    if name not in _HOMES:
        raise AttributeError(f"module 'apples.malleable' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
