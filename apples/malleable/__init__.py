"""Malleable jobs: a running MPI program that shrinks, grows and migrates.

The job's side, for a program: `Job` and what it declares. Reading order: `command` (what control and
mechanism tell each other), `job_file` (what an anchor is told), `strips` (rows and who holds them).

Everything in ``__all__`` is loaded when it is first asked for: a rank that is only parked loads no NumPy.
"""

from importlib import import_module

_HOMES = {
    "Change": "apples.malleable.changes",
    "DeclarationError": "apples.malleable.changes",
    "Job": "apples.malleable.job",
    "Member": "apples.malleable.command",
    "RowArray": "apples.malleable.row_array",
    "State": "apples.malleable.state",
    "Released": "apples.malleable.changes",
    "Rollback": "apples.malleable.changes",
    "UndeclaredStateError": "apples.malleable.changes",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> object:
    """Return what `name` of the front door stands for, loading its module."""
    if name not in _HOMES:
        raise AttributeError(f"module 'apples.malleable' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
