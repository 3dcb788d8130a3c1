"""How a plan becomes processes that say what they measure, and are gone afterwards.

Read in this order: `plan` (`LaunchPlan`: what the agent hands down), `actuator` (the contract: a launcher is one
file), `actuators` (the launchers), then what they are made of. Commands are built and not run by `hydra` (this
machine), `ssh` with `targets` (other machines), `slurm.script` and `job_manager` (malleable jobs); `host_spec`
holds how a malleable job gets to a host, `binding` and `quota` say which CPUs ranks get. `run` is one run seen
through the application protocol (`events`) and `endings` why one is over, `processes` and `channels` its processes
as the agent holds them, `supervisor` the program that is their parent on each host. What starts there: `reach`
(hydra's ssh), `bind` (starts one rank and tells how it ended). `last_words` is what a failed run says of it.
`remote` looks at other hosts. `calibrate` and `conformance` run a program to measure and to check it.
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
