"""Loops over arrays that numba compiles where it is installed: what kernels and long queues have in common.

Read `compiled` (numba where there is one, plain Python elsewhere), `profile` (free units over time, in
blocks) and `compression` (which promises move when units come free). `apples.simulation.kernels` is made of
them, and conservative backfilling asks them where thousands of jobs wait.

Importing `compiled` imports numba, unless `PLAIN` is set: `apples.simulation.run` lets small logs have the
loops as they are.
"""

#: Whether the modules of this package leave numba alone; read once, when `compiled` is imported.
PLAIN = False
