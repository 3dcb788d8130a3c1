"""Built-in policies as compiled loops over arrays: the same results as their values, 50 to 90 times faster.

Read in this order: `backfill` (FCFS, SJF, first-fit, EASY), `conservative`, `sharing` and
`slowdown_driven` (SD-Policy), `dispatch` (arrays in, a result out). Each kernel is a whole simulation of one
policy: an event loop of its own with the policy's pass inside. A policy exists in two forms on purpose
(`apples.simulation.run.KERNELS`): `tests/simulation/test_oracles.py` runs both on random logs and compares
them bit for bit.

They are compiled by `apples.scheduling.loops`: importing one imports numba, so only `apples.simulation.run`
does it, when a run needs a kernel.
"""
