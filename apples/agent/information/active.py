"""What this machine can run: the local answer to "is this implementation available there?"."""

from __future__ import annotations

import importlib.util
import shutil
from functools import lru_cache

from hat import Implementation


def available_here(host: str, implementation: Implementation) -> bool:
    """Whether this machine has the modules and commands an implementation requires."""
    del host  # every host of a local run is a part of this machine
    requires = implementation.requires
    return all(map(_importable, requires.modules)) and all(map(shutil.which, requires.commands))


@lru_cache(maxsize=256)
def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
