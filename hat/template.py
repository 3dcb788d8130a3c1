"""`ApplicationTemplate`: the Heterogeneous Application Template (Berman et al. 1996, 4.3.2).

A template describes the application independently of machines and users: Structure (Figure 12), Implementation
(Figure 13) and Interface (Figure 14). Only the name and the program are required; other fields have defaults,
and `ApplicationTemplate.missing` lists the defaults in use.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path

from pydantic import Field, model_validator

from hat.application import Application, Evaluator, bound_parameters
from hat.document import Document, Fault, refuse
from hat.expression import FUNCTIONS, Expression
from hat.fields import Line, Name, StrictTable, Text, Word
from hat.modules import (
    PLACEHOLDER,
    Data,
    ExpectedResult,
    Implementation,
    Interface,
    Parameter,
    Program,
    Structure,
    Task,
    Value,
    command,
    nested_launcher,
)
from hat.problem import DocumentError, Loc, Problem, nearest, shown


@dataclass(frozen=True, slots=True)
class Assumption:
    """A field that a template leaves out, and the value assumed for it."""

    field: str
    value: str

    def __str__(self) -> str:
        return f"{self.field}: {self.value}"


# The defaults are constructed without validation. Validation would build a validator of each class while the
# module loads, and a command that reads one file needs none of them.
PARAMETERS = {
    "grid": Parameter.model_construct(
        default=1000, minimum=1.0, description="Points on a side of the grid."
    ),
    "iterations": Parameter.model_construct(
        default=100, minimum=1.0, description="Sweeps over the grid."
    ),
}
DATA = (Data.model_construct(name="old"), Data.model_construct(name="new"))
TASKS = (Task.model_construct(name="sweep", data=("old", "new")),)
IMPLEMENTATIONS = (Implementation.model_construct(name="default"),)
INTERFACES = (Interface.model_construct(sender="sweep", receiver="sweep"),)

ASSUMED: Mapping[str, str] = {
    "parameters": "grid (1000) and iterations (100)",
    "data": "two grid arrays of 8 bytes a point",
    "tasks": "one task, sweep, that talks to neighbours",
    "implementations": "one, default, for any platform",
    "interfaces": "one row of elements per border, in one message",
}


class ApplicationTemplate(StrictTable):
    r"""The facts about an application that an agent needs to schedule it.

    Examples
    --------
    >>> from hat import parse
    >>> template = parse('name = "heat"\nprogram = ["{python}", "heat.py"]', ApplicationTemplate)
    >>> template.bind({"grid": "500"}).strip_memory(100)
    816000.0
    """

    name: Name = Field(description="Name of the application.", examples=["heat"])
    version: Line = Field("", description="Its version.", examples=["1"])
    description: Text = Field(
        "",
        description="Purpose of the application.",
        examples=["Jacobi sweeps over a square grid."],
    )
    program: Program | None = Field(
        None,
        description="Command that starts it, as a list; paths from the template's folder. "
        "May be left out if every implementation has its own.",
        examples=[["{python}", "program.py"]],
    )
    malleable: bool = Field(
        False,
        description="Whether it can shrink, grow and migrate while it runs (apples.malleable).",
    )
    partitions: bool = Field(
        False,
        description="Whether it cuts its data into as many partitions as the user wants.",
    )
    expected_result: ExpectedResult | None = Field(
        None,
        title="Expected Result",
        description="Function with which a verification compares the result.",
    )
    parameters: dict[Word, Parameter] = Field(
        PARAMETERS,
        description="Parameters that a user may set, with defaults and ranges.",
        json_schema_extra={"entry": "parameter"},
    )
    structure: Structure = Field(
        Structure.model_construct(), description="The grid and how often it is worked on."
    )
    data: tuple[Data, ...] = Field(
        DATA,
        min_length=1,
        description="Data structures.",
        json_schema_extra={"entry": "data array"},
    )
    tasks: tuple[Task, ...] = Field(TASKS, alias="task", min_length=1, description="Tasks.")
    implementations: tuple[Implementation, ...] = Field(
        IMPLEMENTATIONS, alias="implementation", min_length=1, description="Ways to run the tasks."
    )
    interfaces: tuple[Interface, ...] = Field(
        INTERFACES, alias="interface", description="Data that moves between hosts."
    )
    active_set: dict[Name, Name] = Field(
        {},
        description="Implementation to run on a host, for hosts where you want to choose.",
        json_schema_extra={"entry": "host"},
    )

    @property
    def rows(self) -> Expression:
        """Rows of the grid; by default the parameter ``grid``."""
        return self.structure.rows or Expression("grid")

    @property
    def columns(self) -> Expression:
        """Points in a row; by default as many as rows."""
        return self.structure.columns or self.rows

    @property
    def iterations(self) -> Expression:
        """Iterations; by default the parameter ``iterations``, or 1 if the template has none."""
        assumed = "iterations" if "iterations" in self.parameters else "1"
        return self.structure.iterations or Expression(assumed)

    def missing(self) -> tuple[Assumption, ...]:
        """Return each field that the template leaves out, with the value assumed for it.

        Examples
        --------
        >>> template = ApplicationTemplate(name="heat", program=("heat",))
        >>> print(template.missing()[0])
        parameters: grid (1000) and iterations (100)
        """
        return tuple(self._missing())

    def _missing(self) -> Iterator[Assumption]:
        for attribute, assumed in ASSUMED.items():
            if attribute not in self.model_fields_set:
                field = type(self).model_fields[attribute]
                yield Assumption(field.alias or attribute, assumed)
        sizes = {"rows": self.rows, "columns": self.columns, "iterations": self.iterations}
        for name, size in sizes.items():
            if getattr(self.structure, name) is None:
                yield Assumption(f"structure.{name}", str(size))
        if "model" not in self.structure.model_fields_set:
            yield Assumption("structure.model", self.structure.model)
        for i, one in enumerate(self.implementations):
            if one.seconds_per_point is None and not one.measured:
                field_ = f"implementation[{i}].seconds_per_point"
                yield Assumption(field_, "the host list's, or a calibration")

    def bind(
        self,
        parameters: Mapping[str, Value] | None = None,
        *,
        source: str = "--set",
        document: Document | None = None,
    ) -> Application:
        """Return the application at `parameters`, numbers or the text of numbers.

        Raises
        ------
        DocumentError
            With every parameter that is unknown, missing or out of range, and every size that has no value; the
            problems name `source` as the origin of the parameters. If sizes have no value at the default
            parameters either, the problems name `document`, the template's document.

        Examples
        --------
        >>> template = ApplicationTemplate(name="heat", program=("heat",))
        >>> template.bind({"grid": "0"})
        Traceback (most recent call last):
        hat.problem.DocumentError: --set: grid: must be at least 1 (is 0)
        """
        values = bound_parameters(self.parameters, parameters or {}, source)
        problems: list[Problem] = []
        sizes = Evaluator(values, source, problems)
        rows = sizes.size("structure.rows", self.rows, 1)
        columns = sizes.size("structure.columns", self.columns, 1)
        iterations = sizes.size("structure.iterations", self.iterations, 1)
        strips = sizes.bytes_of(self.data, "strip", rows * columns)
        widths = [
            d.element_bytes for _, d in sizes.present(self.data) if d.distribution == "strip"
        ]
        width = max(widths, default=0)
        if not widths:
            problems.append(
                Problem(
                    source,
                    None,
                    "data",
                    "no grid array is left at these parameters",
                    code="data-missing",
                )
            )
        application = Application(
            name=self.name,
            model=self.structure.model,
            parameters=values,
            rows=rows,
            columns=columns,
            iterations=iterations,
            arrays=len(widths),
            element_bytes=width,
            point_bytes=sum(strips) / (rows * columns),
            fixed_bytes=sum(sizes.bytes_of(self.data, "replicated", rows * columns)),
            border_bytes=sizes.border(self.interfaces, float(columns * width)),
            messages=sum(one.messages for one in self.interfaces),
        )
        if problems:
            own = document is not None and self._fails_at_defaults(parameters)
            raise DocumentError(document.located(problems) if document and own else problems)
        return application

    def _fails_at_defaults(self, parameters: Mapping[str, Value] | None) -> bool:
        """Return whether sizes have no value at the default parameters either."""
        if not parameters:
            return True
        try:
            self.bind()
        except DocumentError:
            return True
        return False

    def implementation(self, name: str) -> Implementation:
        """Return the implementation of that name; KeyError if there is none."""
        return {one.name: one for one in self.implementations}[name]

    def command(
        self,
        implementation: str,
        folder: Path,
        *,
        python: str,
        parameters: Mapping[str, Value] | None = None,
    ) -> tuple[str, ...]:
        """Return the argument list that starts an implementation.

        ``{python}`` and ``{parameter}`` are replaced; an argument that names a file in `folder`, the template's
        own, becomes that file's path. The list is never a shell command line.
        """
        program = self.implementation(implementation).program or self.program or ()
        values = {**(parameters or {}), "python": python}
        return tuple(
            str(folder / written) if (folder / written).is_file() else argument
            for written, argument in zip(program, command(program, values), strict=True)
        )

    @model_validator(mode="after")
    def _consistent(self) -> ApplicationTemplate:
        refuse(
            [
                *self._unusable(),
                *self._launchers(),
                *self._threads(),
                *self._unknown_names(),
                *self._unknown_parameters(),
            ]
        )
        return self

    def _unusable(self) -> Iterator[Fault]:
        if self.program is None and not all(one.program for one in self.implementations):
            yield Fault(("program",), "is missing", code="field-missing")
        for name in self.parameters:
            if name in FUNCTIONS or name == "python" or iskeyword(name):
                why = f"'{name}' is reserved; use another name"
                yield Fault(("parameters", name), why, code="name-reserved")
        if all(entry.distribution != "strip" for entry in self.data):
            why = 'must have an entry with distribution = "strip"'
            yield Fault(("data",), why, code="data-missing")
        for table, entries in (
            ("data", self.data),
            ("task", self.tasks),
            ("implementation", self.implementations),
        ):
            names = [entry.name for entry in entries]
            for i, name in enumerate(names):
                if name in names[:i]:
                    why = f"the name {shown(name)} is used twice"
                    yield Fault((table, i, "name"), why, code="name-repeated")

        for i, one in enumerate(self.implementations):
            if one.rectangles and one.sweeps > 1:
                why = f"needs sweeps = 1 (is {one.sweeps}): rows of several sweeps go to strips alone"
                yield Fault(("implementation", i, "rectangles"), why, code="field-conflict")

    def _launchers(self) -> Iterator[Fault]:
        for loc, program in self._programs():
            if nested := nested_launcher(program):
                index, name = nested
                why = f"the agent starts the ranks: leave {name} out"
                yield Fault((*loc, index), why, code="launcher-nested")

    def _threads(self) -> Iterator[Fault]:
        """Yield the fields that contradict an implementation by threads."""
        by_threads = {one.name for one in self.implementations if one.threads}
        if len(by_threads) == len(self.implementations):
            why = "is for a set of one host: an implementation by ranks, for several, is missing"
            yield Fault(("implementation", 0, "threads"), why, code="implementation-missing")
        for host, name in self.active_set.items():
            if name in by_threads:
                why = f"{shown(name)} is by threads, for a set of one host: name one by ranks"
                yield Fault(("active_set", host), why, code="implementation-unsuitable")
        for i, one in enumerate(self.implementations):
            if one.threads and (one.rectangles or one.sweeps > 1):
                said = "rectangles" if one.rectangles else "sweeps"
                why = f"is for a set of one host, which has no borders: {said} does not apply"
                yield Fault(("implementation", i, "threads"), why, code="field-conflict")

    def _unknown_names(self) -> Iterator[Fault]:
        """Yield each name that refers to a missing entry; assumed entries match any name."""
        tasks, data = [task.name for task in self.tasks], [entry.name for entry in self.data]
        given = self.model_fields_set
        if {"data", "tasks"} <= given:
            for i, task in enumerate(self.tasks):
                yield from _unknown(("task", i, "data"), task.data, data, code="data-unknown")
        if {"tasks", "implementations"} <= given:
            for i, one in enumerate(self.implementations):
                named = [one.task] if one.task else []
                yield from _unknown(
                    ("implementation", i, "task"), named, tasks, code="task-unknown"
                )
        if {"tasks", "interfaces"} <= given:
            for i, interface in enumerate(self.interfaces):
                yield from _unknown(
                    ("interface", i, "from"), [interface.sender], tasks, code="task-unknown"
                )
                yield from _unknown(
                    ("interface", i, "to"), [interface.receiver], tasks, code="task-unknown"
                )
        implementations = [one.name for one in self.implementations]
        for host, name in self.active_set.items():
            yield from _unknown(
                ("active_set", host), [name], implementations, code="implementation-unknown"
            )

    def _unknown_parameters(self) -> Iterator[Fault]:
        legal = list(self.parameters)
        for loc, expression in self._expressions():
            yield from _unknown(loc, sorted(expression.names), legal, code="parameter-unknown")
        for i, entry in enumerate(self.data):
            yield from _unknown(
                ("data", i, "when"), filter(None, [entry.when]), legal, code="parameter-unknown"
            )
        for loc, program in self._programs():
            names = PLACEHOLDER.findall(" ".join(program))
            yield from _unknown(loc, names, ["python", *legal], code="parameter-unknown")

    def _programs(self) -> Iterator[tuple[Loc, Program]]:
        if self.program:
            yield ("program",), self.program
        for i, one in enumerate(self.implementations):
            if one.program:
                yield ("implementation", i, "program"), one.program

    def _expressions(self) -> Iterator[tuple[Loc, Expression]]:
        yield ("structure", "rows"), self.rows
        if self.structure.columns:
            yield ("structure", "columns"), self.structure.columns
        yield ("structure", "iterations"), self.iterations
        for i, entry in enumerate(self.data):
            if entry.elements:
                yield ("data", i, "elements"), entry.elements
        for i, interface in enumerate(self.interfaces):
            if interface.size:
                yield ("interface", i, "bytes"), interface.size


def _unknown(
    loc: Loc, names: Iterable[str], legal: Collection[str], *, code: str
) -> Iterator[Fault]:
    what = code.removesuffix("-unknown")
    for name in names:
        if name not in legal:
            yield Fault(loc, f"unknown {what} {shown(name)}", nearest(name, legal), code=code)
