"""The modules of an application template: parameters, data, tasks and implementations.

The paper's template has a Structure module (`Structure`, `Data`, `Task`; Berman et al. 1996, Figure 12), an
Implementation module (`Implementation`; Figure 13) and an Interface module (`Interface`; Figure 14).
`Parameter` is not in the paper: its template describes one problem size.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StrictFloat,
    StrictInt,
    StrictStr,
    model_validator,
)

from hat.expression import Expression
from hat.fields import (
    LARGEST_NUMBER,
    AtLeastZero,
    Choice,
    Count,
    Line,
    Name,
    Number,
    Positive,
    StrictTable,
    Text,
    Word,
)
from hat.problem import InvalidValueError, shown


class Structure(StrictTable):
    """The class of application, the grid it works on and how often."""

    kind: Literal["regular_grid"] = Field(
        "regular_grid", description="Class of application: data parallel over a regular grid."
    )
    model: Choice = Field(
        "strip", description="Model of the Model pool that predicts it, or your own module:name."
    )
    rows: Expression | None = Field(
        None, description="Rows of the grid; the parameter grid when not given.", examples=["grid"]
    )
    columns: Expression | None = Field(
        None, description="Points in a row; as many as rows when not given.", examples=["grid"]
    )
    iterations: Expression | None = Field(
        None,
        description="Iterations; the parameter iterations, or 1, when not given.",
        examples=["iterations"],
    )


class Data(StrictTable):
    """One data structure: how large it is and how hosts share it."""

    name: Name = Field(description="Name of the array, for tasks.", examples=["old"])
    element_bytes: Count = Field(
        8, description="Bytes of one element.", json_schema_extra={"unit": "bytes"}
    )
    elements: Expression | None = Field(
        None,
        description="Elements in all; rows times columns when not given.",
        examples=["grid*grid"],
    )
    distribution: Literal["strip", "replicated"] = Field(
        "strip",
        description="strip: a host keeps its own rows and a border row on each side; "
        "replicated: every host keeps all of it.",
    )
    when: Word | None = Field(
        None,
        description="Parameter that brings it: counted only if that is set, not 0, not empty.",
        examples=["source"],
    )
    description: Text = Field("", description="Content of the array.")


class Task(StrictTable):
    """One task, with the data that it uses."""

    name: Name = Field(
        description="Name of the task, for implementations and interfaces.", examples=["sweep"]
    )
    description: Text = Field("", description="Purpose of the task.")
    data: tuple[Name, ...] = Field(
        (), description="Data structures it touches.", examples=[["old", "new"]]
    )
    communication: Literal["none", "neighbours", "all"] = Field(
        "neighbours",
        description="Parts with which a part of the task exchanges data in an iteration.",
    )


class Interface(StrictTable):
    """Data that moves between two tasks on distinct hosts (Berman et al. 1996, Figure 14)."""

    sender: Name = Field(alias="from", description="Task that sends.", examples=["sweep"])
    receiver: Name = Field(alias="to", description="Task that receives.", examples=["sweep"])
    pattern: Literal["strip_neighbours"] = Field(
        "strip_neighbours",
        description="Direction of messages: each strip sends to the strips above and below.",
    )
    size: Expression | None = Field(
        None,
        alias="bytes",
        description="Bytes per border, direction and iteration; a row of elements when not given.",
        examples=["8*grid"],
        json_schema_extra={"unit": "bytes"},
    )
    messages: Count = Field(
        1, description="Messages per border, direction and iteration that carry these bytes."
    )
    description: Text = Field("", description="Content of the messages.")


Value = int | float | str
ParameterKind = Literal["integer", "number", "text"]


class Parameter(StrictTable):
    """One parameter: its default, its range and its meaning.

    Examples
    --------
    >>> grid = Parameter(default=2000, minimum=3)
    >>> grid.kind, grid.accept("512")
    ('integer', 512)
    >>> grid.accept("0")
    Traceback (most recent call last):
    hat.problem.InvalidValueError: must be at least 3 (is 0)
    """

    default: Annotated[StrictInt | StrictFloat | StrictStr | None, Field(union_mode="smart")] = (
        Field(
            None,
            description="Value when the user sets none; without one the user must set it.",
            examples=[1000],
        )
    )
    minimum: Number | None = Field(None, description="Smallest value allowed.", examples=[1])
    maximum: Number | None = Field(None, description="Largest value allowed.", examples=[10000])
    declared_kind: ParameterKind | None = Field(
        None, alias="kind", description="Kind of value; by the default's own when not given."
    )
    description: Text = Field("", description="Meaning of the parameter, with its unit.")

    @property
    def kind(self) -> ParameterKind:
        """The kind of value: the declared kind, else the kind of the default, else an integer."""
        if self.declared_kind:
            return self.declared_kind
        if isinstance(self.default, str):
            return "text"
        return "number" if isinstance(self.default, float) else "integer"

    def accept(self, value: Value) -> Value:
        """Convert a value, for example text from a command line, to the kind of this parameter.

        Raises
        ------
        InvalidValueError
            The value has another type or is out of range.
        """
        if self.kind == "text":
            return _text(value)
        number = _number(value, self.kind)
        if self.minimum is not None and number < self.minimum:
            raise _out_of_range(f"at least {_short(self.minimum)}", number, self.minimum)
        if self.maximum is not None and number > self.maximum:
            raise _out_of_range(f"at most {_short(self.maximum)}", number, self.maximum)
        return number

    @model_validator(mode="after")
    def _consistent(self) -> Parameter:
        limits = [limit for limit in (self.minimum, self.maximum) if limit is not None]
        if limits and self.kind == "text":
            raise InvalidValueError("text has no minimum and no maximum", code="field-conflict")
        if limits != sorted(limits):
            low, high = map(_short, limits)
            raise InvalidValueError(
                f"minimum must be at most maximum (are {low} and {high})",
                code="value-range",
                value=self.minimum,
                bound=self.maximum,
            )
        if self.default is not None:
            try:
                self.accept(self.default)
            except InvalidValueError as error:
                raise InvalidValueError(
                    f"default {error}", code=error.code, field="default", value=self.default
                ) from None
        return self


def _text(value: Value) -> str:
    text = str(value)
    if not all(c.isprintable() for c in text) or len(text) > 4096:
        raise InvalidValueError(
            f"must be text of one line, at most 4096 characters (is {shown(text)})",
            code="value-invalid",
            value=shown(text),
        )
    return text


def _number(value: Value, kind: ParameterKind) -> int | float:
    what = "a whole number" if kind == "integer" else "a number"
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise InvalidValueError(
            f"must be {what} (is {shown(value)})", code="value-type", value=shown(value)
        ) from None
    if not math.isfinite(number):
        raise _out_of_range("a finite number", value, LARGEST_NUMBER)
    if abs(number) > LARGEST_NUMBER:
        raise _out_of_range("at most 1e18", value, LARGEST_NUMBER)
    if kind == "number":
        return number
    if not number.is_integer():
        raise InvalidValueError(
            f"must be a whole number (is {shown(value)})", code="value-type", value=shown(value)
        )
    try:
        return int(value)
    except ValueError:  # "2e3"
        return int(number)


def _out_of_range(rule: str, value: Value, bound: float) -> InvalidValueError:
    return InvalidValueError(
        f"must be {rule} (is {shown(value)})", code="value-range", value=shown(value), bound=bound
    )


def _short(limit: float) -> str:
    return str(int(limit)) if limit.is_integer() else str(limit)


ANY = "any"
PLACEHOLDER = re.compile(r"\{(\w*)\}")


def _argument(text: str) -> str:
    """Reject braces that are not a placeholder: the mistake would reach the program."""
    if re.search(r"[{}]", PLACEHOLDER.sub("", text)) or "{}" in text:
        raise InvalidValueError(
            "braces must enclose a name, as in {python}", code="placeholder-invalid"
        )
    return text


Argument = Annotated[Line, AfterValidator(_argument)]
Program = Annotated[tuple[Argument, ...], Field(min_length=1, max_length=1000)]
"""A command as a list of arguments, never a shell command line: ``["{python}", "solver.py"]``."""

LAUNCHER = re.compile(
    r"(?:mpiexec|mpirun)(?:\.(?:hydra|gforker|mpich|openmpi|slurm|lam))?|mpiexec_mpt|orterun|prterun|prun|aprun|"
    r"palsrun|srun|yhrun|jsrun|lrun|ibrun"
)
"""Names of commands that start the ranks of a program."""
WRAPPERS = re.compile(
    "bash|chrt|dash|env|exec|ionice|ksh|nice|nohup|numactl|setsid|sh|stdbuf|taskset|time|timeout|zsh"
)
"""Names of commands that run the command in their arguments."""


def nested_launcher(program: Program) -> tuple[int, str] | None:
    """Return index and name of the rank launcher that a program would run; None if it runs no launcher.

    Examples
    --------
    >>> nested_launcher(("/usr/bin/mpiexec", "-n", "2", "./heat"))
    (0, 'mpiexec')
    >>> nested_launcher(("sh", "-c", "exec srun ./heat")), nested_launcher(("./heat", "srun"))
    ((2, 'srun'), None)
    """
    for index, word in enumerate(program):
        command = next((part for part in word.split() if part != "exec"), "")
        name = command.rpartition("/")[2]
        if LAUNCHER.fullmatch(name):
            return index, name
        if not WRAPPERS.fullmatch(name) and (index == 0 or "/" in command or "{" in command):
            return None
    return None


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


Platforms = Annotated[
    tuple[Line, ...],
    Field(min_length=1),
    BeforeValidator(_as_list, json_schema_input_type=str | tuple[Line, ...]),
]


class Requirements(StrictTable):
    """Python modules and commands that a host must have to run an implementation."""

    modules: tuple[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$")], ...] = Field(
        (), description="Python modules that must be importable.", examples=[["numpy"]]
    )
    commands: tuple[Name, ...] = Field(
        (), description="Commands that must be on the path.", examples=[["mpicc"]]
    )


class ExpectedResult(StrictTable):
    """A function that computes the result independently of the program; verification compares the two."""

    function: Choice = Field(
        description="The function, as file.py:name in the template's folder or module:name. It is called with "
        "the parameters and returns the whole result as an array.",
        examples=["reference.py:solve"],
    )
    tolerance: AtLeastZero = Field(
        0.0,
        description="Largest difference of a cell from the function's value v, as a share of max(1, |v|).",
    )


class Implementation(StrictTable):
    """One way to run a task.

    Examples
    --------
    >>> fast = Implementation(name="fast", platforms=("x86_64*",), measured={"x86_64": 1e-9})
    >>> fast.runs_on("x86_64"), fast.runs_on("arm64"), fast.cost("x86_64"), fast.cost("x86_64-v3")
    (True, False, 1e-09, None)
    """

    name: Name = Field(
        description="Name of the implementation, for the program and the active set.",
        examples=["numpy"],
    )
    task: Name | None = Field(
        None, description="Task it implements; the first one when not given.", examples=["sweep"]
    )
    language: Line = Field("", description="Language or library it is written in.", examples=["C"])
    platforms: Platforms = Field(
        (ANY,), description='Platforms it runs on, as patterns such as "x86_64*"; "any" for all.'
    )
    requires: Requirements = Field(
        Requirements.model_construct(),
        description="Requirements that a host must meet to run it.",
    )
    program: Program | None = Field(
        None,
        description="Command that starts it, as a list; the template's when not given.",
        examples=[["{python}", "solver.py"]],
    )
    seconds_per_point: Positive | None = Field(
        None,
        description="Measured processor seconds per grid point on any platform.",
        examples=[4e-9],
        json_schema_extra={"unit": "s"},
    )
    measured: dict[Line, Positive] = Field(
        {},
        description="Measured processor seconds per grid point by platform pattern.",
        json_schema_extra={"entry": "platform"},
    )
    sweeps: Count = Field(
        1,
        description="Iterations it makes between two exchanges of borders; more than 1 only where all hosts do.",
    )
    rectangles: bool = Field(
        False,
        description="Whether it takes rectangles of rows and columns, not only strips; one of a single sweep.",
    )
    threads: bool = Field(
        False,
        description="Whether it is one process with threads, in place of ranks: for a set of one "
        "host.",
    )
    description: Text = Field("", description="Note on the implementation.")

    def runs_on(self, platform: str) -> bool:
        """Return whether a host of this platform can run it; an empty text is an unknown platform."""
        return any(p == ANY or (platform and fnmatchcase(platform, p)) for p in self.platforms)

    def cost(self, platform: str) -> float | None:
        """Return the measured seconds per point on a platform; None without a measurement.

        An exact entry wins over a pattern, the first pattern over later patterns and over the general figure.
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
