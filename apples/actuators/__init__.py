"""The actuators: each implements a schedule through one resource manager.

Read `local` (this machine), then `recording` (starts nothing: plans, dry runs, tests).
"""

from collections.abc import Mapping

from apples.actuator import Actuator
from apples.actuators.local import LocalActuator, LocalExecution
from apples.actuators.recording import RecordingActuator, RecordingExecution

ACTUATORS: Mapping[str, type[Actuator]] = {"local": LocalActuator, "recording": RecordingActuator}
"""What ``--actuator`` may name."""

__all__ = [
    "ACTUATORS",
    "LocalActuator",
    "LocalExecution",
    "RecordingActuator",
    "RecordingExecution",
]
