"""The actuators: each implements a schedule through one resource manager.

Read `local` (this machine), `malleable` (this machine, as a job that can be resized), `ssh` (other
machines), `slurm` (a cluster with a queue), then `recording`
(starts nothing: plans, dry runs, tests).
"""

from collections.abc import Mapping

from apples.launch.actuator import Actuator
from apples.launch.actuators.local import LocalActuator
from apples.launch.actuators.malleable import MalleableActuator, MalleableExecution
from apples.launch.actuators.recording import RecordingActuator, RecordingExecution
from apples.launch.actuators.slurm import SlurmActuator
from apples.launch.actuators.ssh import SshActuator
from apples.launch.slurm.script import SlurmOptions

ACTUATORS: Mapping[str, type[Actuator]] = {
    "local": LocalActuator,
    "ssh": SshActuator,
    "slurm": SlurmActuator,
    "recording": RecordingActuator,
}
"""What ``--actuator`` may name."""

__all__ = [
    "ACTUATORS",
    "LocalActuator",
    "MalleableActuator",
    "MalleableExecution",
    "RecordingActuator",
    "RecordingExecution",
    "SlurmActuator",
    "SlurmOptions",
    "SshActuator",
]
