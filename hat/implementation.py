"""The Implementation module: how a task was written (Berman et al. 1996, Figure 13)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from hat.fields import Entry, Line, Name, Positive, Text

ANY = "any"
PLACEHOLDER = re.compile(r"\{(\w*)\}")


def _argument(text: str) -> str:
    """Refuse braces that are no placeholder: a mistake would reach the program."""
    if re.search(r"[{}]", PLACEHOLDER.sub("", text)) or "{}" in text:
        raise ValueError("braces must enclose a name, as in {python}")
    return text


Argument = Annotated[Line, AfterValidator(_argument)]
Program = Annotated[tuple[Argument, ...], Field(min_length=1, max_length=1000)]
"""A command as a list, never a shell's line: ``["{python}", "solver.py"]``."""


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


Platforms = Annotated[
    tuple[Line, ...],
    Field(min_length=1),
    BeforeValidator(_as_list, json_schema_input_type=str | tuple[Line, ...]),
]


class Requirements(Entry):
    """What a host must have before an implementation can run there."""

    modules: tuple[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$")], ...] = Field(
        (), description="Python modules that must be importable."
    )
    commands: tuple[Name, ...] = Field((), description="Commands that must be on the path.")


class Implementation(Entry):
    """One way to run a task.

    Examples
    --------
    >>> fast = Implementation(name="fast", platforms=("x86_64*",), measured={"x86_64": 1e-9})
    >>> fast.runs_on("x86_64"), fast.runs_on("arm64"), fast.cost("x86_64"), fast.cost("x86_64-v3")
    (True, False, 1e-09, None)
    """

    name: Name = Field(description="What the program and the active set call it.")
    task: Name | None = Field(
        None, description="Task it implements; the first one when not given."
    )
    language: Line = Field("", description="Language or library it is written in.")
    platforms: Platforms = Field(
        (ANY,), description='Platforms it runs on, as patterns such as "x86_64*"; "any" for all.'
    )
    requires: Requirements = Field(
        Requirements(), description="What a host must have before it can run there."
    )
    program: Program | None = Field(
        None, description="Command that starts it, as a list; the template's when not given."
    )
    seconds_per_point: Positive | None = Field(
        None, description="Measured processor seconds per grid point on any platform."
    )
    measured: dict[Line, Positive] = Field(
        {}, description="Measured processor seconds per grid point by platform pattern."
    )
    description: Text = Field("", description="What is special about it.")

    def runs_on(self, platform: str) -> bool:
        """Return whether a host of this platform can run it; an unknown one is an empty text."""
        return any(p == ANY or (platform and fnmatchcase(platform, p)) for p in self.platforms)

    def cost(self, platform: str) -> float | None:
        """Return the measured seconds per point on a platform, None where nobody measured.

        An exact entry wins over a pattern, the first pattern over later ones and over the general
        figure.
        """
        if platform in self.measured:
            return self.measured[platform]
        matching = (
            cost for p, cost in self.measured.items() if p == ANY or fnmatchcase(platform, p)
        )
        return next(matching, self.seconds_per_point)


def command(program: Program, values: Mapping[str, object]) -> tuple[str, ...]:
    """Return a program's argument list with the placeholders replaced.

    Examples
    --------
    >>> command(("{python}", "solver.py", "--n={grid}"), {"python": "python3", "grid": 9})
    ('python3', 'solver.py', '--n=9')
    """
    return tuple(PLACEHOLDER.sub(lambda m: str(values[m[1]]), part) for part in program)
