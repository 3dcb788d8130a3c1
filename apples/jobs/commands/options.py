"""Options of the commands that run something."""

from __future__ import annotations

from collections.abc import Sequence

from apples.errors import UsageError
from apples.ui.parameters import option
from apples.ui.settings import setting

actuator_name_option = option(
    "--actuator",
    metavar="NAME",
    default=lambda: setting("actuator"),
    show_default=False,
    help="local, ssh, slurm, or your own as module:name; default: apples.toml's, else ssh if the list has other "
    "machines.",
)
slurm_settings_option = option(
    "--slurm",
    metavar="NAME=VALUE",
    multiple=True,
    help="Setting of the Slurm job: partition=NAME, minutes=N, ..",
)
no_verify_option = option("--no-verify", is_flag=True, help="The same as --verify none.")


def how_verified(
    word: str | None, no_verify: bool, known: Sequence[str] = ("full", "sample", "none")
) -> str:
    """Return how a result is verified, or an empty text if no option names it. Two options must agree.

    Raises
    ------
    UsageError
        The options contradict each other, or `word` is not in `known`.
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
            f"--verify '{word}': unknown; known: {', '.join(known)}",
            code="value-unknown",
            option="--verify",
            value=word,
            known=list(known),
        )
    return "none" if no_verify else "" if word in {None, "auto"} else str(word)


def listed(names: str) -> tuple[str, ...]:
    """Return the names of a list with commas."""
    return tuple(name.strip() for name in names.split(",") if name.strip())
