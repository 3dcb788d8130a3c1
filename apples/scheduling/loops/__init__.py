"""Loops over arrays that numba compiles: what kernels and long queues have in common.

Read `compiled` (numba), `profile` (free units over time, in blocks) and `compression` (which promises move when
units come free). `apples.simulation.kernels` is made of them, and conservative backfilling asks them where
thousands of jobs wait.

Importing `compiled` imports numba, which takes a second: small logs and short queues do without.
"""

import os
from importlib.util import find_spec


def can_compile() -> bool:
    """Return whether numba is installed and compiles; its own switch NUMBA_DISABLE_JIT=1 turns it off."""
    return find_spec("numba") is not None and os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")
