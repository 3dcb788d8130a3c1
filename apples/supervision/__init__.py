"""What every supervising program is made of: standard library only, for it also runs where nothing is installed.

A supervisor is the parent of what it starts, the subreaper of all below it, and dies with whoever holds its
input. `job_processes` finds and kills the processes of a job; `this_host` says what a program must know of the
host it runs on; `program_counter` sees whether a process waits inside the MPI library. The programs themselves:
`apples.launch.supervisor` (a run), `apples.malleable.node` (a host of a malleable job).
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
