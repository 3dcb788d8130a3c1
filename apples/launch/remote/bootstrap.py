"""Programs that travel with their connection: standard library only, started with nothing of ours installed.

The remote command line is always the same; what runs and what it is told comes over standard input,
length first. Whatever follows on standard input is the program's own.

A caller names the function to run, for example ``apples.launch.host_agent:serve``. Its module travels with all
modules of apples that it imports at its top, which are read from the sources: no list of them has to be kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from apples.errors import LaunchError

START = (
    'import os;b=b"";'
    'exec("while len(b)<10:b+=os.read(0,10-len(b))or os._exit(9)");n=10+int(b if b.isdigit()else os._exit(9));'
    'exec("while len(b)<n:b+=os.read(0,n-len(b))or os._exit(9)");exec(b[10:].decode())'
)
"""Reads so many bytes of program as the first ten digits say, and becomes it. One line, no quote of a shell."""
NO_PROGRAM = 9
"""Exit code of `START` where standard input ends, or begins, otherwise: the login has read of it."""

LIMIT = 10**10
IMPORT = re.compile(r"^from (apples(?:\.\w+)*) import (?:\(([^)]*)\)|(.*))", re.MULTILINE)
"""The only form in which a module that travels may import another; ``tests/architecture`` starts each of them."""

_LOADER = """import json, sys, types
modules, place, told = json.loads({text!r})
for name, source in modules.items():
    module = sys.modules[name] = types.ModuleType(name)
    module.__path__ = []
    exec(compile(source, name, "exec"), module.__dict__)
home, _, function = place.partition(":")
raise SystemExit(getattr(sys.modules[home], function)(told))
"""


def words(*, site: bool) -> list[str]:
    """Return the interpreter's arguments; without `site` it starts faster and finds no packages."""
    return ["-I", *([] if site else ["-S"]), "-c", START]


class Program:
    """A program that travels: its module and those it imports, read once for however many hosts.

    Parameters
    ----------
    place
        ``module:function`` that is called with what a host is told.
    others
        Modules that `place` loads by name.
    """

    def __init__(self, place: str, *others: str) -> None:
        self._place = place
        self._sources: dict[str, str] = {}
        for module in (*others, place.partition(":")[0]):
            self._add(module, _spec(module))

    @property
    def modules(self) -> list[str]:
        """The modules that travel, each after those that it imports; their packages come along empty."""
        return [module for module, source in self._sources.items() if source]

    def _add(self, module: str, spec: ModuleSpec) -> None:
        """Add a module after all modules of apples that it imports."""
        if module in self._sources:
            return
        source = Path(str(spec.origin)).read_text(encoding="utf-8")
        for home, several, single in IMPORT.findall(source):
            found = _spec(home)
            if found.submodule_search_locations is None:
                self._add(home, found)
                continue
            for part in re.sub("#.*", "", several or single).split(","):
                if part.strip():
                    name = f"{home}.{part.split()[0]}"
                    self._add(name, _spec(name))
        for parent in _parents(module):
            self._sources.setdefault(parent, "")
        self._sources[module] = source

    def parcel(self, told: Mapping[str, Any]) -> bytes:
        """Return the bytes that start it on a host, to be written first."""
        text = json.dumps([self._sources, self._place, told], allow_nan=False)
        program = _LOADER.format(text=text).encode()
        if len(program) >= LIMIT:
            raise LaunchError(
                f"{len(program)} bytes are too many to send to a host",
                code="program-too-long",
                value=len(program),
                bound=LIMIT,
            )
        return b"%010d" % len(program) + program


def parcel(place: str, told: Mapping[str, Any]) -> bytes:
    """Return the bytes that start `place`, a ``module:function``, with `told`, for one host."""
    return Program(place).parcel(told)


def _parents(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:i]) for i in range(1, len(parts))]


def _spec(module: str) -> ModuleSpec:
    found = find_spec(module)
    if found is None or not found.origin:
        raise LaunchError(f"{module} cannot be read", code="module-missing", value=module)
    return found
