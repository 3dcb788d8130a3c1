"""Loops over arrays that numba compiles, shared by the kernels and the policies for long queues.

Read `compiled` (numba), `profile` (free units over time, in blocks) and `compression` (moves of promises when
units come free). `apples.simulation.kernels` uses them, and so does conservative backfilling if thousands of jobs
wait.

Importing `compiled` imports numba, which takes a second; small logs and short queues avoid it.
"""

import os
from importlib.util import find_spec


def can_compile() -> bool:
    """Return whether numba is installed and compiles; NUMBA_DISABLE_JIT=1 turns numba off."""
    return find_spec("numba") is not None and os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")
