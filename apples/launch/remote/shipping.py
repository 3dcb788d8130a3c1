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


def parcel(modules: tuple[str, ...], place: str, told: Mapping[str, Any]) -> bytes:
    """Return the bytes that start ``place`` (``module:function``) with `told`, to be written first.

    Parameters
    ----------
    modules
        Names of modules of ours, in the order they import one another; their packages come along empty.
    """
    sources: dict[str, str] = {}
    for module in modules:
        for parent in _parents(module):
            sources.setdefault(parent, "")
        sources[module] = _source(module)
    text = json.dumps([sources, place, told], allow_nan=False)
    program = _LOADER.format(text=text).encode()
    if len(program) >= LIMIT:
        raise LaunchError(f"{len(program)} bytes are too many to tell a host")
    return b"%010d" % len(program) + program


def _parents(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:i]) for i in range(1, len(parts))]


def _source(module: str) -> str:
    found = find_spec(module)
    if found is None or not found.origin:
        raise LaunchError(f"{module} cannot be read")
    return Path(found.origin).read_text(encoding="utf-8")
