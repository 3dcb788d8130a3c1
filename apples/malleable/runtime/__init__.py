"""The runtime, in every rank: what a program declares, and what happens to it at a safe point.

1. `job`: the program's side of its job; `channel`: the rank's connection to its node supervisor; `agent_task`: the
   task of a rank that an agent started.
2. `declared`: what may be declared, and how its rows go from rank to rank; `undeclared` finds what a change
   would lose.
3. `agreement`: all ranks learn at the same safe point that a change is requested; `membership`: the change itself.
4. `checkpoint`: commits on disk and the choice among them; `memory_checkpoint`: commits in memory.
5. `blocks`: objects that migrate one by one, by the block table and a load balancer; `packing`: a block as bytes.

`collectives` holds the waiting that leaves the CPU to others, and documents to and from all ranks.
"""
