"""`SlurmOptions`: what a site is told of a job of ours, and what a job may be called and last."""

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
"""What an option's value may be made of: nothing that a shell or Slurm's own parser would take apart."""
MIN_MINUTES, MAX_MINUTES = 2, 60 * 24 * 365
START_UP_SECONDS = 60.0
"""Part of the time limit beside the iterations: interpreters, data, the result."""
GENEROUS = 3.0
"""Unless the user says otherwise, the time limit is so many times the prediction, and start-up."""


@dataclass(frozen=True, slots=True)
class SlurmOptions:
    """What a site may want to be told.

    Attributes
    ----------
    minutes
        The job's time limit; made from the prediction when None.
    mpi
        The interface between srun and the MPI library.
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
        """Return the options that a user gave as words.

        Raises
        ------
        UsageError
            An unknown one, or a value Slurm cannot take.

        Examples
        --------
        >>> SlurmOptions.of({"partition": "debug", "minutes": "10"}).minutes
        10
        """
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(pairs) - known)
        if unknown:
            raise UsageError(
                f"Slurm option '{unknown[0]}': known are {', '.join(sorted(known))}",
                code="field-unknown",
                field=unknown[0],
                known=sorted(known),
            )
        given: dict[str, Any] = dict(pairs)
        if "minutes" in given:
            if not given["minutes"].isdecimal() or len(given["minutes"]) > 9:
                raise UsageError(
                    f"Slurm option 'minutes': {given['minutes']!r} is no whole number",
                    code="value-type",
                    field="minutes",
                    value=given["minutes"],
                )
            given["minutes"] = int(given["minutes"])
        return cls(**given)

    def written(self) -> list[tuple[str, str]]:
        """Return the options of the script that are not empty."""
        names = ("partition", "account", "qos", "reservation", "constraint")
        return [(name, getattr(self, name)) for name in names if getattr(self, name)]


def check_node(host: str) -> None:
    """Refuse a host whose name no node can have."""
    if not NODE.fullmatch(host):
        raise LaunchError(f"no node can be called {host!r}", code="node-name-invalid", host=host)


def minutes(seconds: float, options: SlurmOptions) -> int:
    """Return a job's time limit.

    Examples
    --------
    >>> minutes(30.0, SlurmOptions()), minutes(3600.0, SlurmOptions()), minutes(1.0, SlurmOptions(minutes=1))
    (4, 182, 1)
    """
    if options.minutes is not None:
        return options.minutes
    wanted = math.ceil(seconds * GENEROUS / 60) + MIN_MINUTES
    return min(MAX_MINUTES, max(MIN_MINUTES, wanted))
