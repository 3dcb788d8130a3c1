"""Programs that travel with their connection: standard library only, started with nothing of ours installed.

The remote command line is always the same; what runs and what it is told comes over standard input,
length first. Whatever follows on standard input is the program's own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from apples.errors import LaunchError

START = (
    'import os;b=b"";'
    'exec("while len(b)<10:b+=os.read(0,10-len(b))or os._exit(9)");n=10+int(b);'
    'exec("while len(b)<n:b+=os.read(0,n-len(b))or os._exit(9)");exec(b[10:].decode())'
)
"""Reads so many bytes of program as the first ten digits say, and becomes it. One line, no quote of a shell."""

LIMIT = 10**10

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
    """Modules of ours that travel, read once for however many hosts.

    Parameters
    ----------
    modules
        Their names, in the order they import one another; their packages come along empty.
    place
        ``module:function`` that is called with what a host is told.
    """

    def __init__(self, modules: tuple[str, ...], place: str) -> None:
        self._place = place
        self._sources: dict[str, str] = {}
        for module in modules:
            for parent in _parents(module):
                self._sources.setdefault(parent, "")
            self._sources[module] = _source(module)

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


def parcel(modules: tuple[str, ...], place: str, told: Mapping[str, Any]) -> bytes:
    """Return the bytes that start ``place`` of `modules` with `told`, for one host."""
    return Program(modules, place).parcel(told)


def _parents(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:i]) for i in range(1, len(parts))]


def _source(module: str) -> str:
    found = find_spec(module)
    if found is None or not found.origin:
        raise LaunchError(f"{module} cannot be read", code="module-missing", value=module)
    return Path(found.origin).read_text(encoding="utf-8")
