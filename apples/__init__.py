"""An agent that schedules one parallel application on machines that are unequal, shared and changing.

Reading order: `resources` (hosts, links), `schedule` (what the subsystems hand one another), `agent` (one
application, one decision), `launch` (from a schedule to processes), `malleable` (jobs that change while they run),
`scheduling` and `simulation` (many jobs on one cluster), `topology` (inside a host), `views` and `cli`.

Everything in ``__all__`` is loaded when it is first asked for, so that a command pays only for what it uses.
"""

from collections.abc import Callable
from importlib import import_module
from sys import modules

INTERNAL = "# Not public:"
"""The comment in a stub after which names are not in ``__all__``. Tests import them, so that a module can move."""


def lazy(
    package: str, file: str
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` for a package whose stub is beside `file`.

    As in SPEC 1 of Scientific Python: type checkers read ``__init__.pyi``, and so does the interpreter. The names
    of a package are listed once. The function stands here because Python loads this file before any module below.
    In a package's ``__init__.py``::

        from apples import lazy

        __getattr__, __dir__, __all__ = lazy(__name__, __file__)

    A statement of the stub is ``from MODULE import NAME as ALIAS``, or ``ALIAS = NAME`` after it; nothing else
    counts. NAME may be a module. The formatter sets a long statement on three lines, with NAME in parentheses.
    """
    homes: dict[str, tuple[str, str]] = {}
    public: list[str] | None = None
    with open(f"{file}i", encoding="utf-8") as stub:  # noqa: PTH123 - pathlib costs more than the rest
        for line in stub.read().replace("(\n    ", "").replace(",\n)", "").splitlines():
            words = line.split()
            if words[:1] == ["from"]:
                homes[words[5]] = words[1], words[3]
            elif words[1:2] == ["="]:
                homes[words[0]] = homes[words[2]]
            elif line.startswith(INTERNAL):
                public = list(homes)

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, its_name = homes[name]
        home = import_module(module)
        if not hasattr(home, its_name):
            import_module(f"{module}.{its_name}")
        value = getattr(home, its_name)
        setattr(modules[package], name, value)  # the next time it is found without asking here
        return value

    names = list(homes) if public is None else public

    def listed() -> list[str]:
        return sorted({*vars(modules[package]), *names})

    return load, listed, names


__getattr__, __dir__, __all__ = lazy(__name__, __file__)
