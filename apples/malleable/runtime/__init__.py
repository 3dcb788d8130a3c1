"""The runtime, in every rank: the declared data of a program, and its changes at safe points.

1. `job`: the program's side of its job; `channel`: the rank's connection to its node supervisor; `agent_task`: the
   task of a rank that an agent started.
2. `declared`: the kinds of declared data, and how rows move from rank to rank; `undeclared` finds state that a
   change would lose.
3. `agreement`: all ranks learn at the same safe point that a change is requested; `membership`: the change itself.
4. `packing`: the format of packed data; `rank_image`: all data of a rank as one image, and its restore.
   `checkpoint` keeps images on disk and chooses among commits, `memory_checkpoint` keeps them at node supervisors,
   `saved_state` keeps them for an aborted change.
5. `blocks`: objects that migrate one by one, by the block table and a load balancer.

`collectives` has waits that leave the CPU to other processes, and documents to and from all ranks.
"""
