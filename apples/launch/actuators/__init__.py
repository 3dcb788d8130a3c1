"""The actuators: each carries out a plan through one launcher.

Read `local` (this machine), `ssh` (other machines), `slurm` (a cluster with a queue), then `recording` (starts
nothing: plans, dry runs, tests) and `choice` (the actuator of a name). `checks` tests any actuator's contract.
`apples.malleable.actuator` starts a malleable job through any of them.
"""

from apples.errors import UsageError
from apples.io.plugins import Catalogue, resolve
from apples.launch.actuator import Actuator

LOCAL = "local"
"""Name of the actuator for a host list with parts of this machine only."""
SSH = "ssh"
"""Name of the actuator for a host list with other machines."""
ACTUATORS: Catalogue[type[Actuator]] = Catalogue(
    {
        LOCAL: "apples.launch.actuators.local:LocalActuator",
        SSH: "apples.launch.actuators.ssh:SshActuator",
        "slurm": "apples.launch.actuators.slurm:SlurmActuator",
        "recording": "apples.launch.actuators.recording:RecordingActuator",
    }
)
"""Values of ``--actuator``, besides a user's own class; each class is loaded on first use."""


def actuator_class(name: str) -> type[Actuator]:
    """Return the actuator of that name: an entry of `ACTUATORS`, or a user's ``module:name`` or ``file.py:name``.

    Raises
    ------
    UsageError
        The name is unknown, or the object is not a subclass of `Actuator`. Permanent.

    Examples
    --------
    >>> actuator_class("ssh").__name__
    'SshActuator'
    """
    found: object = resolve(name, ACTUATORS, "--actuator")
    if not (isinstance(found, type) and issubclass(found, Actuator)):
        raise UsageError(
            f"--actuator '{name}': must be a subclass of apples.Actuator",
            code="launcher-invalid",
            option="--actuator",
            value=name,
        )
    return found


__all__ = ["ACTUATORS", "LOCAL", "SSH", "actuator_class"]
