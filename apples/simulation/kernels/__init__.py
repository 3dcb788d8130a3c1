"""Built-in policies as compiled loops over arrays: the same results as the event engine, 50 to 90 times faster.

Read in this order: `backfill` (FCFS, SJF, first-fit, EASY), `conservative`, `sharing` and `slowdown_driven`
(SD-Policy), `dispatch` (calls a kernel and returns a result). Each kernel is a complete simulation of one policy:
an event loop with the policy's pass inside. `apples.simulation.run.KERNELS` lists the policies with both forms;
`tests/simulation/test_oracles.py` runs both on random logs and compares them bit for bit.

`apples.scheduling.loops` compiles the kernels. Importing a kernel imports numba, so only `apples.simulation.run`
does that, when a run needs a kernel.
"""
