"""Simulates scheduling policies over workload logs.

Read in this order: `swf` (logs), `workload` (jobs as arrays: cleaning, transformations), `generators` (model
workloads), `sources` (logs by name, accounting of batch systems, the archive), `config` (the configuration of a
simulation, and its result), `speedup`, `run` (the function `simulate`), `engine` (any policy, on a virtual clock),
`kernels` (the built-in policies, compiled), `metrics` (figures of a result), `gantt`, `placement` (jobs on the
CPUs of one host), `prepare` (from command-line arguments to a simulation), `sweep` (comparison of many
simulations), `log_validation` (the policy that explains recorded waits best) and `policy_checks` (the contract of
a policy). Front end: `commands`, `text` and `pages`.
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
