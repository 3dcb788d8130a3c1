"""Send programs over a connection and start them on hosts where apples is not installed. Standard library only.

The remote command line is always the same. The program and its configuration are sent over standard input, after
their length. All further standard input is for the program.

A caller names the function to run, for example ``apples.launch.host_agent:serve``. Its module is sent with all
modules of apples that it imports at its top; they are found by reading the sources, so no list must be maintained.
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
"""Code that reads a length of ten digits and a program of that length, and runs it. One line, no shell quotes."""
NO_PROGRAM = 9
"""Exit code of `START` if standard input is incomplete or has no length: the login has read a part of it."""

LIMIT = 10**10
IMPORT = re.compile(r"^from (apples(?:\.\w+)*) import (?:\(([^)]*)\)|(.*))", re.MULTILINE)
"""The only form in which a sent module may import another; ``tests/architecture`` starts each sent module."""

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
    """Return the interpreter's arguments; without `site` it starts faster, but finds no installed packages."""
    return ["-I", *([] if site else ["-S"]), "-c", START]


class Program:
    """A program to send: its module and the modules that it imports, read once for all hosts.

    Parameters
    ----------
    place
        The ``module:function`` to call; its argument is the host's configuration.
    others
        More modules to send, which the program loads by name.
    """

    def __init__(self, place: str, *others: str) -> None:
        self._place = place
        self._sources: dict[str, str] = {}
        for module in (*others, place.partition(":")[0]):
            self._add(module, _spec(module))

    @property
    def modules(self) -> list[str]:
        """Names of the sent modules, each after the modules that it imports; without empty packages."""
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
        """Return the bytes that start the program on a host with the configuration `told`; write them first."""
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
    """Return the bytes that start `place`, a ``module:function``, with the configuration `told` on one host."""
    return Program(place).parcel(told)


def _parents(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:i]) for i in range(1, len(parts))]


def _spec(module: str) -> ModuleSpec:
    found = find_spec(module)
    if found is None or not found.origin:
        raise LaunchError(f"{module} cannot be read", code="module-missing", value=module)
    return found
