"""From a plan to processes that report their measurements, and that end with the run.

Read in this order: `plan` (`LaunchPlan`: the agent's order), `actuator` (the contract: a launcher is one file),
`actuators` (the launchers), then their parts. `hydra` (this machine), `ssh` with `targets` (other machines) and
`slurm` build commands and run none. `host_spec` describes how the processes of a job are started on a host, and
`host_spec_builders` makes the descriptions. `binding` and `quota` choose the CPUs of ranks.

`run` follows one run through the application protocol (`events`); `endings` finds the reason for its end.
`processes` and `channels` control the processes of a run from the agent. `host_agent` is their parent on each
host, derived from the base class of `hostd`. `job_processes` finds and ends the processes of a job. `rank_wrapper`
becomes one rank on a host. `message_counts` counts the messages of ranks.

`remote` examines other hosts, `calibrate` measures a program and `program_check` checks it. `dask_cluster`
connects to a Dask cluster. Front end: `text`.
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
