"""Heterogeneous Application Templates: what an application is, and what its user wants.

In the order to read it: `expression` (sizes), `modules` (those of the paper's Figures 12 to 14),
`template` (they make an `ApplicationTemplate`; its `bind` gives an `application` with numbers),
`active_sets` (which implementation runs on which host), `specifications` (the user's side).
Underneath, the reader that knows file, line and field: `document`, on `files` and `toml` (text to values, values
to text), `positions` (on which line a value stands), `validation` (pydantic's errors in words),
`fields` (the kinds of values) and `problem`. On top, `inspection` (``hat check``).

Berman et al. 1996, sections 4.3.2 and 4.3.3.

Everything in ``__all__`` is to be had from here and loaded when it is first asked for, so that a
command pays only for what it uses.
"""

from importlib import import_module

# The stub beside this file is the table of the front door: which module each name comes from (as in
# SPEC 1 of Scientific Python). Type checkers read it, and so does the interpreter. The names after the
# comment "Not public" are for the tests, so that a module can move.
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
"""Names that were here in apples 0.2. The package that has them now names their places in its entry points."""


def __getattr__(name: str) -> object:
    """Return what `name` of the front door stands for, loading its module on first use."""
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
