"""Heterogeneous Application Templates: descriptions of an application and of its user's requirements.

Reading order: `expression` (sizes), `modules` (the modules of the paper's Figures 12 to 14), `template` (they
make an `ApplicationTemplate`; its `bind` returns an `application` with numbers), `active_sets` (the
implementation that runs on each host), `specifications` (the user's side). Below these stands the reader, which
reports file, line and field of each problem: `document`, on `files` and `toml` (text to values, values to
text), `positions` (the line of each value), `validation` (messages for pydantic's errors), `fields` (the kinds
of values) and `problem`. On top stands `inspection` (``hat check``).

Berman et al. 1996, sections 4.3.2 and 4.3.3.

This package exports every name of ``__all__`` and loads its module on first use, so that a command loads only
the modules that it needs.
"""

from importlib import import_module

# The stub beside this file maps each public name to its module, as in SPEC 1 of Scientific Python. Type
# checkers and the interpreter read it. The names after the comment "Not public" are for the tests, so that a
# module can move.
__all__: list[str] = []
_HOME_OF: dict[str, tuple[str, str]] = {}
with open(f"{__file__}i", encoding="utf-8") as _stub:  # noqa: PTH123 - pathlib costs more than the rest
    for _line in _stub:
        if _line.startswith("from "):
            _, _module, _, _name, _, _alias = _line.split()
            _HOME_OF[_alias] = _module, _name
        elif _line.startswith("# Not public:"):
            __all__.extend(_HOME_OF)


_MOVED = ("ProgramKind", "ScaffoldError", "new", "new_document")
"""Names of apples 0.2 that moved to another package; its entry points give their new modules."""


def __getattr__(name: str) -> object:
    """Return the object called `name`; load its module on first use."""
    if name in _MOVED:
        (found,) = import_module("importlib.metadata").entry_points(group="hat_moved", name=name)
        text = f"hat.{name} moved: write `from {found.module} import {name}`"
        import_module("warnings").warn(text, FutureWarning, stacklevel=2)
        module, its_name = found.module, found.attr
    elif name in _HOME_OF:
        module, its_name = _HOME_OF[name]
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), its_name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
