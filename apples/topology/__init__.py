"""The topology of a host's CPUs, the choice of CPUs for a job, and the division of CPUs between jobs.

Read in this order: `cpus` (`CpuSet`, a frozen set of CPU numbers), `parts` and `machine` (`Topology`: parts,
memory nodes, latencies), `hops` (distances between CPUs), `sources` (readers of sysfs, hwloc files and
descriptions), `requirement` (the CPUs that a job asks for, a field for each key), `language`
(``CPUSET[KEY=value;...]`` as text), `allocator` (``fit(topology, free, requirement) -> Fit | Unsatisfied``, pure)
and `selection` (the search below it), `broker` (judges and ranks hosts), `bindings` (the same CPUs as options of
other tools), `mapping` with `message_matrix` (places tasks near those they exchange most data with). Then the
jobs of one host: `distribute` (numbers of CPUs), `isolation` (containers), `daemon` (owners and holders of CPUs),
`execution`, `starter` and `threads` (the side of the job). Front end: `commands`, `options` and `text`.
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
