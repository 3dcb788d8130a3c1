"""Simulates scheduling policies over workload logs.

Read in this order: `swf` (logs), `workload` (jobs as arrays: cleaning, transformations), `generators` (model
workloads), `sources` (which of them a name means; Slurm's accounting; the archive), `config` (what a
simulation assumes, and its result), `speedup`, `run` (the one verb, `simulate`), `engine` (any policy, on a
virtual clock), `kernels` (the built-in policies, compiled), `metrics` (what a result is judged by), `gantt`,
`placement` (jobs on the CPUs of one host), `prepare` (from a command's words to a simulation), `sweep`
(many simulations, compared).
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
