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
MOST_ITEMS = 10_000_000
MOST_ROWS = 1_000_000_000


class PipelineTask(hat.StrictTable):
    """One task.

    Attributes
    ----------
    work
        What it computes for one item, in units of the hosts' `seconds_per_point`.
    rows
        In how many parts an item can be split among its hosts.
    exchange
        Bytes that two of its hosts exchange for an item; 0: none.
    overhead
        Seconds that it takes for each unit, whatever its size.
    """

    name: TaskName
    work: hat.Expression
    rows: hat.Expression
    exchange: hat.Expression | None = None
    overhead: hat.Expression | None = None


class PipelineImplementation(hat.StrictTable):
    """A way to run a task on some platforms: `factor` times its work."""

    task: TaskName
    name: TaskName
    platforms: Annotated[list[Word], Field(min_length=1)] = Field(["*"])
    factor: PositiveNumber = 1.0


class PipelineInterface(hat.StrictTable):
    """What one task hands another for an item: `bytes`, and the work of the second to `convert` it."""

    sender: TaskName = Field(alias="from")
    receiver: TaskName = Field(alias="to")
    bytes: hat.Expression
    convert: hat.Expression | None = None


class PipelineFile(hat.StrictTable):
    """An application of several tasks as written.

    Attributes
    ----------
    program
        The command that runs it, an MPI program, as a list; needed for a run alone.
    items
        How many there are: each task does each of them, in their order.
    unit
        How many pass between two tasks at a time; not given: the best.
    """

    name: TaskName
    program: list[Word] = Field([])
    items: hat.Expression
    unit: Annotated[int, Strict(), Field(ge=1, le=MOST_ITEMS)] | None = None
    hosts: list[Name] = Field([])
    parameters: dict[ParameterName, Number] = Field({})
    task: Annotated[list[PipelineTask], Field(min_length=2, max_length=16)]
    implementation: list[PipelineImplementation] = Field([])
    interface: Annotated[list[PipelineInterface], Field(min_length=1)]

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
                    message = f"names '{name}', which is no parameter"
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
        """Return the parameters with those that a user has set, each of the kind that it is in the file."""
        declared = {name: hat.Parameter(default=value) for name, value in self.parameters.items()}
        numbers = hat.bound_parameters(declared, given, "--set")
        return cast("dict[str, float]", numbers)  # text is no parameter of a pipeline

    def implementation_on(self, task: str, host: Host) -> tuple[str, float] | None:
        """Return the name and factor of the quickest implementation of a task on a host; None: it has none.

        A task of which the file names no implementation runs anywhere as it is.
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
    """Return what an expression comes to, 0 without one.

    Raises
    ------
    UsageError
        It has no value there, or a negative one. Permanent.
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
