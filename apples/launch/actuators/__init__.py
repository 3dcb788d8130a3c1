"""The actuators: each implements a schedule through one resource manager.

Read `local` (this machine), `malleable` (this machine, as a job that can be resized), `ssh` (other
machines), `slurm` (a cluster with a queue), then `recording`
(starts nothing: plans, dry runs, tests).
"""

from apples.launch.actuator import Actuator
from apples.plugins import Catalogue

ACTUATORS: Catalogue[type[Actuator]] = Catalogue(
    {
        "local": "apples.launch.actuators.local:LocalActuator",
        "ssh": "apples.launch.actuators.ssh:SshActuator",
        "slurm": "apples.launch.actuators.slurm:SlurmActuator",
        "recording": "apples.launch.actuators.recording:RecordingActuator",
    }
)
"""What ``--actuator`` may name; each is loaded when it is asked for."""

__all__ = ["ACTUATORS"]
