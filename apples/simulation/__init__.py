"""Simulates scheduling policies over workload logs.

Read in this order: `swf` (logs), `workload` (jobs as arrays: cleaning, transformations), `generators` (model
workloads), `sources` (the log of a name; Slurm's accounting; the archive), `config` (the assumptions of a
simulation, and its result), `speedup`, `run` (the one verb, `simulate`), `engine` (any policy, on a
virtual clock), `kernels` (the built-in policies, compiled), `metrics` (the figures of a result), `gantt`,
`placement` (jobs on the CPUs of one host), `prepare` (from a command's words to a simulation), `sweep`
(many simulations, compared), `log_validation` (the policy that explains recorded waits best) and `policy_checks`
(the contract of a policy). Front end: `commands`, `text` and `pages`.
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
