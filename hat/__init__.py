"""Heterogeneous Application Templates: what an application is, and what its user wants.

In the order to read it: `expression` (sizes), `parameter`, `structure`, `implementation` (the
modules of the paper's Figures 12 to 14), `template` (they make an `ApplicationTemplate`; its
`bind` gives an `application` with numbers), `active_sets` (which implementation runs where),
`specifications` (the user's side). Underneath, the reader that knows file, line and field:
`document`, on `files`, `syntax`, `lines`, `wording` and `problem`; `writer` is its opposite. On
top, `inspection` (``hat check``) and `scaffold` (``hat new``).

Berman et al. 1996, sections 4.3.2 and 4.3.3.

Everything in ``__all__`` is to be had from here and loaded when it is first asked for, so that a
command pays only for what it uses.
"""

from importlib import import_module

_HOMES = {
    "hat.active_sets": (
        "ActiveSet",
        "active_set",
    ),
    "hat.application": ("Application",),
    "hat.document": (
        "Document",
        "Fault",
        "parse",
        "read",
        "refuse",
        "schema",
    ),
    "hat.expression": (
        "Expression",
        "ExpressionError",
    ),
    "hat.fields": ("Size",),
    "hat.implementation": (
        "Implementation",
        "Requirements",
    ),
    "hat.inspection": (
        "Inspection",
        "Kind",
        "check",
        "inspect",
    ),
    "hat.parameter": ("Parameter",),
    "hat.problem": (
        "DocumentError",
        "HatError",
        "Problem",
        "nearest",
        "printable",
        "shown",
    ),
    "hat.scaffold": (
        "ScaffoldError",
        "new",
    ),
    "hat.specifications": (
        "Constraints",
        "Objective",
        "Preferences",
        "UserSpecifications",
    ),
    "hat.structure": (
        "Data",
        "Interface",
        "Structure",
        "Task",
    ),
    "hat.template": (
        "ApplicationTemplate",
        "Assumption",
    ),
    "hat.writer": ("dump",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = list(_HOME_OF)


def __getattr__(name: str) -> object:
    """Return what `name` of the front door stands for, loading its module."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'hat' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
