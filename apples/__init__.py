"""An agent that schedules one parallel application on machines that are unequal, shared and changing.

The packages, from the lowest up; a package imports only packages below it:

1. `errors` (codes and exit codes), `io` (files that survive a crash, JSON lines, users' code), `resources` (hosts,
   links, schedules), `ui` (parts of front ends).
2. `topology` (the CPUs inside a host), `launch` (from a plan to processes), `scheduling` (policies for many jobs).
3. `weather` (forecasts of hosts and links), `malleable` (jobs that change while they run), `simulation` (policies
   over workload logs).
4. `agent` (one application, one decision), `applications` (sweeps, master/worker, pipelines, users' files),
   `program` (the module for users' programs).
5. `jobs` (runs and their records), `lab` (an emulated cluster), `cluster` (the live scheduler).

All packages name their front ends alike: `commands`, `text`, `pages`, ``templates/`` and `routes`. A name of
``__all__`` is loaded at its first use, so that a command loads only the modules that it uses.
"""

from collections.abc import Callable
from importlib import import_module
from sys import meta_path, modules

INTERNAL = "# Not public:"
"""The comment in a stub after which names are not in ``__all__``. Tests import them, so that a module can move."""


def lazy(
    package: str, file: str
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` for a package; its stub is beside `file`.

    As in SPEC 1 of Scientific Python: type checkers read ``__init__.pyi``, and so does the interpreter. The names
    of a package are listed once. The function stands here because Python loads this file before any module below.
    In a package's ``__init__.py``::

        from apples import lazy

        __getattr__, __dir__, __all__ = lazy(__name__, __file__)

    A statement of the stub is ``from MODULE import NAME as ALIAS``, or ``ALIAS = NAME`` after it; nothing else
    has an effect. NAME may be a module. The formatter sets a long statement on three lines, with NAME in
    parentheses.
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
        setattr(modules[package], name, value)  # the next access does not call this function
        return value

    names = list(homes) if public is None else public

    def listed() -> list[str]:
        return sorted({*vars(modules[package]), *names})

    return load, listed, names


__getattr__, __dir__, __all__ = lazy(__name__, __file__)

MOVED = {
    "agent.weather": ("weather",),
    "agent.weather.conditions": ("weather.conditions",),
    "malleable.migration.supervisor": ("malleable.migration.on_host",),
    "master_worker": ("applications",),
    "monitoring": ("weather.load",),
    "monitoring.slave": ("weather.load.reporter",),
    "pipelines": ("applications",),
    "plugins": ("io.plugins",),
    "schedule": ("resources.schedule",),
    "simulation.queue_planner": ("cluster.queue_planner",),
    "sweeps": ("applications",),
    "testing": ("simulation", "malleable", "launch", "topology", "agent"),
    "testing.actuator_checks": ("launch.actuators.checks",),
}
"""Modules of apples 0.2 -> the modules that replace them, all below `apples`.

Programs import them, or run them by ``python -m``: also jobs, schedulers and other hosts
that were not upgraded yet.
"""


class MovedModules:
    """Make the modules of `MOVED` when a program imports them by their old names.

    Python calls this finder last, for a module that no other finder knows. The first use of a name warns and
    gives the new import. The warning is a `FutureWarning`, which Python shows from any file of a user.
    """

    @classmethod
    def find_spec(cls, name: str, *_: object) -> object:
        """Return the spec of module `name`, or None if the table lacks it."""
        old = name.removeprefix(f"{__name__}.")
        if old == name or old not in MOVED:
            return None
        spec = import_module("importlib.machinery").ModuleSpec(name, cls, origin="moved")
        if any(below.startswith(f"{old}.") for below in MOVED):
            spec.submodule_search_locations = []
        return spec

    @staticmethod
    def create_module(_: object) -> None:
        """Let Python make an empty module."""

    @staticmethod
    def exec_module(module: object) -> None:
        """Give `module` the names of the modules that replace it."""
        old: str = module.__name__  # type: ignore[attr-defined]
        places = [f"{__name__}.{place}" for place in MOVED[old.removeprefix(f"{__name__}.")]]
        warned = set[str]()

        def load(name: str) -> object:
            for place in [] if name.startswith("__") else places:
                home = import_module(place)
                if name in getattr(home, "__all__", vars(home)):
                    if place not in warned:
                        warned.add(place)
                        text = f"{old} moved: write `from {place} import {name}`"
                        import_module("warnings").warn(text, FutureWarning, stacklevel=2)
                    return getattr(home, name)
            raise AttributeError(f"module {old!r} has no attribute {name!r}")

        module.__getattr__ = load  # type: ignore[attr-defined]

    @staticmethod
    def get_code(name: str) -> object:
        """Return the code for ``python -m``: the module at its new place."""
        place = f"{__name__}.{MOVED[name.removeprefix(f'{__name__}.')][0]}"
        text = f"{name} moved: write `python -m {place}`"
        import_module("warnings").warn(text, FutureWarning, stacklevel=2)
        run = f"from runpy import run_module; run_module({place!r}, run_name='__main__', alter_sys=True)"
        return compile(run, name, "exec")


meta_path.append(MovedModules)  # type: ignore[arg-type]  # typing costs more to import than all this
