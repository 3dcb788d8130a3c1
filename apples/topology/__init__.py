"""Where CPUs sit inside a host, which of them a job gets, and how a host's CPUs are divided.

Read in this order: `cpus` (`CpuSet`, a frozen set of CPU numbers), `parts` and `machine` (`Topology`:
parts, memory nodes, latencies), `hops` (how far CPUs are from each other), `sources` (where a topology
comes from), `requirement` (what a job asks for, a field for each key), `language` (``CPUSET[KEY=value;...]``
as text), `allocator` (``fit(topology, free, requirement) -> Fit | Unsatisfied``, pure) and `selection` (the
search below it), `broker` (which hosts can, which is best), `bindings` (the same CPUs for other tools),
`mapping` with `message_matrix` (tasks near those they exchange most data with).
Then how the jobs of one host share it: `distribute` (how many each), `isolation` (what keeps them there),
`daemon` (who owns and who holds which), `execution`, `starter` and `threads` (the side of the job).
Front end: `commands`, `options` and `text`.
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
