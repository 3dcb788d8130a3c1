"""`SlurmOptions`: the user's options for a Slurm job; checks of node names, and time limits of jobs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from apples.errors import LaunchError, UsageError

SCRIPT = "job.sh"
"""The script of a job, among its files."""
NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:+,=&|*-]*")
"""A valid value of an option: without characters that a shell or Slurm's own parser would interpret."""
MIN_MINUTES, MAX_MINUTES = 2, 60 * 24 * 365
START_UP_SECONDS = 60.0
"""Seconds in the time limit for everything besides the iterations: interpreters, data, the result."""
GENEROUS = 3.0
"""Factor from the predicted seconds to the default time limit, before `MIN_MINUTES` are added."""


@dataclass(frozen=True, slots=True)
class SlurmOptions:
    """The user's options for a Slurm job.

    Attributes
    ----------
    minutes
        Time limit of the job; None: derived from the prediction.
    mpi
        The interface between srun and the MPI library (``srun --mpi``).
    """

    partition: str = ""
    account: str = ""
    qos: str = ""
    reservation: str = ""
    constraint: str = ""
    mpi: str = "pmi2"
    minutes: int | None = None

    def __post_init__(self) -> None:
        for name in ("partition", "account", "qos", "reservation", "constraint", "mpi"):
            value = getattr(self, name)
            if value and not WORD.fullmatch(value):
                raise UsageError(
                    f"Slurm's {name} cannot be {value!r}",
                    code="value-invalid",
                    field=name,
                    value=value,
                )
        if self.minutes is not None and not 1 <= self.minutes <= MAX_MINUTES:
            raise UsageError(
                f"Slurm's time limit cannot be {self.minutes} minutes",
                code="value-range",
                field="minutes",
                value=self.minutes,
                bound=MAX_MINUTES,
            )

    @classmethod
    def of(cls, pairs: Mapping[str, str]) -> SlurmOptions:
        """Return the options from names and values of a command line.

        Raises
        ------
        UsageError
            An option is unknown, or its value is invalid for Slurm.

        Examples
        --------
        >>> SlurmOptions.of({"partition": "debug", "minutes": "10"}).minutes
        10
        """
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(pairs) - known)
        if unknown:
            raise UsageError(
                f"Slurm option '{unknown[0]}': unknown; known: {', '.join(sorted(known))}",
                code="field-unknown",
                field=unknown[0],
                known=sorted(known),
            )
        given: dict[str, Any] = dict(pairs)
        if "minutes" in given:
            if not given["minutes"].isdecimal() or len(given["minutes"]) > 9:
                raise UsageError(
                    f"Slurm option 'minutes': {given['minutes']!r} is not a whole number",
                    code="value-type",
                    field="minutes",
                    value=given["minutes"],
                )
            given["minutes"] = int(given["minutes"])
        return cls(**given)

    def written(self) -> list[tuple[str, str]]:
        """Return names and values of the script's non-empty options."""
        names = ("partition", "account", "qos", "reservation", "constraint")
        return [(name, getattr(self, name)) for name in names if getattr(self, name)]


def check_node(host: str) -> None:
    """Raise LaunchError if the name of a host is invalid as a node name."""
    if not NODE.fullmatch(host):
        raise LaunchError(f"no node can be called {host!r}", code="node-name-invalid", host=host)


def minutes(seconds: float, options: SlurmOptions) -> int:
    """Return the time limit of a job in minutes: the user's, else derived from the predicted `seconds`.

    Examples
    --------
    >>> minutes(30.0, SlurmOptions()), minutes(3600.0, SlurmOptions()), minutes(1.0, SlurmOptions(minutes=1))
    (4, 182, 1)
    """
    if options.minutes is not None:
        return options.minutes
    wanted = math.ceil(seconds * GENEROUS / 60) + MIN_MINUTES
    return min(MAX_MINUTES, max(MIN_MINUTES, wanted))
