"""An agent that schedules one parallel application on machines that are unequal, shared and changing.

Reading order: `resources` (hosts, links), `schedule` (what the subsystems hand one another), `agent` (one
application, one decision), `launch` (from a schedule to processes), `malleable` (jobs that change while they run),
`scheduling` and `simulation` (many jobs on one cluster), `topology` (inside a host), `views` and `cli`.

Everything in ``__all__`` is loaded when it is first asked for, so that a command pays only for what it uses.
"""

from importlib import import_module

# The stub beside this file is the table of the front door: which module each name comes from (as in
# SPEC 1 of Scientific Python). Type checkers read it, and so does the interpreter.
with open(f"{__file__}i", encoding="utf-8") as _stub:  # noqa: PTH123 - pathlib costs more than the rest
    _HOME_OF = {line.split()[3]: line.split()[1] for line in _stub if line.startswith("from ")}

__all__ = list(_HOME_OF)


def __getattr__(name: str) -> object:
    """Return what `name` of the front door stands for, loading its module on first use."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
