"""Options of the commands that run something."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from apples.errors import UsageError

ActuatorName = Annotated[
    str | None,
    typer.Option(
        "--actuator",
        help="local, ssh, slurm, or your own as module:name; default: ssh if the list has other machines.",
    ),
]
SlurmSettings = Annotated[
    list[str] | None,
    typer.Option("--slurm", help="What the site wants to be told: partition=NAME, minutes=N, .."),
]
NoVerify = Annotated[bool, typer.Option("--no-verify", help="The same as --verify none.")]


def how_verified(
    word: str | None, no_verify: bool, known: Sequence[str] = ("full", "sample", "none")
) -> str:
    """Return how a result is verified, or an empty text if no option names it. Two options must agree.

    Raises
    ------
    UsageError
        Two words that contradict each other, or none of those known.
    """
    if no_verify and word not in {None, "none"}:
        raise UsageError(
            f"--verify {word}: contradicts --no-verify",
            code="option-conflict",
            options=["--verify", "--no-verify"],
            value=word,
        )
    if word not in {None, "auto", *known}:
        raise UsageError(
            f"--verify '{word}': known are {', '.join(known)}",
            code="value-unknown",
            option="--verify",
            value=word,
            known=list(known),
        )
    return "none" if no_verify else "" if word in {None, "auto"} else str(word)
