"""`PipelineFile`: an application of several tasks as its author describes it, ``pipeline.toml``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, cast

from pydantic import Field, Strict, model_validator

import hat
from apples.errors import UsageError, coded
from apples.resources import Host
from apples.resources.host import Name, PositiveNumber

ParameterName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
TaskName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
Number = (
    Annotated[int, Strict(), Field(ge=-(10**15), le=10**15)]
    | Annotated[float, Strict(), Field(allow_inf_nan=False)]
)
Word = Annotated[str, Field(max_length=4096, pattern=r"^[^\x00-\x1f\x7f]*$")]
MAX_ITEMS = 10_000_000
MAX_ROWS = 1_000_000_000


class PipelineTask(hat.StrictTable):
    """One task."""

    name: TaskName = Field(description="Name of the task.", examples=["make"])
    work: hat.Expression = Field(
        description="Work for one item, as an expression of parameters.",
        examples=["size*size"],
        json_schema_extra={"unit": "seconds_per_point"},
    )
    rows: hat.Expression = Field(
        description="Number of parts into which hosts can split an item.", examples=["size"]
    )
    exchange: hat.Expression | None = Field(
        None,
        description="Bytes that two hosts of the task exchange for an item; 0 if not given.",
        examples=["8*size"],
        json_schema_extra={"unit": "bytes"},
    )
    overhead: hat.Expression | None = Field(
        None,
        description="Time for each unit, independent of its size; 0 if not given.",
        examples=["1/1000"],
        json_schema_extra={"unit": "s"},
    )


class PipelineImplementation(hat.StrictTable):
    """An implementation of a task for some platforms; its work is `factor` times the task's."""

    task: TaskName = Field(description="Task that it implements.", examples=["make"])
    name: TaskName = Field(description="Name of the implementation.", examples=["gpu"])
    platforms: list[Word] = Field(
        ["*"],
        min_length=1,
        description="Platforms that it runs on, as patterns.",
        examples=[["x86_64*"]],
    )
    factor: PositiveNumber = Field(1.0, description="Factor on the work of the task.")


class PipelineInterface(hat.StrictTable):
    """The data from one task to another for an item: `bytes`, and the receiver's work to `convert` them."""

    sender: TaskName = Field(alias="from", description="Task that sends.", examples=["make"])
    receiver: TaskName = Field(alias="to", description="Task that receives.", examples=["use"])
    bytes: hat.Expression = Field(
        description="Size of an item between the two tasks.",
        examples=["8*size*size"],
        json_schema_extra={"unit": "bytes"},
    )
    convert: hat.Expression | None = Field(
        None,
        description="Work of the receiver to convert an item; 0 if not given.",
        examples=["size"],
        json_schema_extra={"unit": "seconds_per_point"},
    )


class PipelineFile(hat.StrictTable):
    """An application of several tasks as written."""

    name: TaskName = Field(description="Name of the application.", examples=["heat"])
    program: list[Word] = Field(
        [],
        description="Command that runs it, an MPI program; a plan alone needs none.",
        examples=[["{python}", "program.py"]],
    )
    items: hat.Expression = Field(
        description="Number of items; each task processes each item, in order.", examples=["steps"]
    )
    unit: Annotated[int, Strict()] | None = Field(
        None,
        ge=1,
        le=MAX_ITEMS,
        description="Items that pass between two tasks at a time; the best number if not given.",
        examples=[4],
        json_schema_extra={"unit": "items"},
    )
    hosts: list[Name] = Field(
        [], description="Hosts that it may use; empty: all of the list.", examples=[["ada", "bob"]]
    )
    parameters: dict[ParameterName, Number] = Field(
        {},
        description="Numbers that the expressions use; a run can set others.",
        json_schema_extra={"entry": "parameter"},
    )
    task: list[PipelineTask] = Field(min_length=2, max_length=16, description="Tasks, 2 to 16.")
    implementation: list[PipelineImplementation] = Field(
        [], description="Ways to run a task on some platforms."
    )
    interface: list[PipelineInterface] = Field(
        min_length=1, description="Items that one task passes to another."
    )

    @model_validator(mode="after")
    def _consistent(self) -> PipelineFile:
        hat.refuse([*self._names(), *self._expressions(), *self._order()])
        return self

    def _names(self) -> Iterator[hat.Fault]:
        tasks = [task.name for task in self.task]
        for number, name in enumerate(tasks):
            if name in tasks[:number]:
                yield hat.Fault(
                    ("task", number, "name"), f"'{name}' is there twice", code="name-repeated"
                )
        for number, one in enumerate(self.implementation):
            if one.task not in tasks:
                near = hat.nearest(one.task, tasks)
                yield hat.Fault(
                    ("implementation", number, "task"),
                    f"'{one.task}' is no task",
                    near,
                    code="task-unknown",
                )
        pairs: list[tuple[str, str]] = []
        for number, each in enumerate(self.interface):
            for field, name in (("from", each.sender), ("to", each.receiver)):
                if name not in tasks:
                    near = hat.nearest(name, tasks)
                    yield hat.Fault(
                        ("interface", number, field),
                        f"'{name}' is no task",
                        near,
                        code="task-unknown",
                    )
            if (each.sender, each.receiver) in pairs:
                message = f"from {each.sender} to {each.receiver} there is one already"
                yield hat.Fault(("interface", number), message, code="interface-repeated")
            pairs.append((each.sender, each.receiver))

    def _expressions(self) -> Iterator[hat.Fault]:
        known = sorted(self.parameters)
        said: list[tuple[tuple[str | int, ...], hat.Expression | None]] = [
            (("items",), self.items)
        ]
        for number, task in enumerate(self.task):
            for field in ("work", "rows", "exchange", "overhead"):
                said += [(("task", number, field), getattr(task, field))]
        for number, between in enumerate(self.interface):
            for field in ("bytes", "convert"):
                said += [(("interface", number, field), getattr(between, field))]
        for place, expression in said:
            for name in sorted(expression.names if expression is not None else ()):
                if name not in self.parameters:
                    message = f"names '{name}', which is not a parameter"
                    yield hat.Fault(
                        place, message, hat.nearest(name, known), code="parameter-unknown"
                    )

    def _order(self) -> Iterator[hat.Fault]:
        before: dict[str, set[str]] = {task.name: set() for task in self.task}
        for each in self.interface:
            before.setdefault(each.receiver, set()).add(each.sender)
        try:
            tuple(TopologicalSorter(before).static_order())
        except CycleError as error:
            circle = " -> ".join(reversed(error.args[1]))
            yield hat.Fault(
                ("interface",), f"must not lead back to a task: {circle}", code="interface-cyclic"
            )
            return
        alone = [
            task.name
            for task in self.task
            if not before[task.name] and all(e.sender != task.name for e in self.interface)
        ]
        for name in alone:
            number = [task.name for task in self.task].index(name)
            message = f"'{name}' is at no interface: it is an application of its own"
            yield hat.Fault(("task", number), message, code="task-unconnected")

    def settings(self, given: Mapping[str, str]) -> dict[str, float]:
        """Return the parameters with the user's settings, each of the type that it has in the file."""
        declared = {name: hat.Parameter(default=value) for name, value in self.parameters.items()}
        numbers = hat.bound_parameters(declared, given, "--set")
        return cast("dict[str, float]", numbers)  # a pipeline has only numeric parameters

    def implementation_on(self, task: str, host: Host) -> tuple[str, float] | None:
        """Return the name and factor of the fastest implementation of a task on a host; None without one.

        If the file lists no implementation of a task, the task runs on every host with factor 1.
        """
        mine = [one for one in self.implementation if one.task == task]
        if not mine:
            return "", 1.0
        fit = [
            one for one in mine if any(fnmatchcase(host.platform, each) for each in one.platforms)
        ]
        best = min(fit, key=lambda one: one.factor, default=None)
        return None if best is None else (best.name, best.factor)


def evaluated(where: str, expression: hat.Expression | None, values: Mapping[str, float]) -> float:
    """Return the value of an expression; 0 without one.

    Raises
    ------
    UsageError
        The value is undefined or negative. Permanent.
    """
    if expression is None:
        return 0.0
    try:
        found = float(expression.evaluate(values))
    except hat.ExpressionError as error:
        raise UsageError(f"{where}: {error}", **{**coded(error), "field": where}) from None
    if found < 0:
        raise UsageError(
            f"{where}: must not be negative (is {found:g})",
            code="value-range",
            field=where,
            value=found,
            bound=0,
        )
    return found
