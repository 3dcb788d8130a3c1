"""`Application`: a template with its parameters set, reduced to the numbers that a model needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from hat.expression import Expression, ExpressionError
from hat.modules import Data, Interface, Parameter, Value
from hat.problem import DocumentError, InvalidValueError, Problem, nearest, shown


@dataclass(frozen=True, slots=True)
class Application:
    """One problem to be solved: `rows` x `columns` points, `iterations` times.

    Attributes
    ----------
    name
        The template's.
    model
        Model of the Model pool that predicts it.
    parameters
        Every parameter with its value.
    rows, columns, iterations
        At least 1.
    arrays
        Number of grid arrays; a host keeps its rows of each.
    element_bytes
        Bytes of one element of the widest grid array.
    point_bytes
        Bytes of a grid point over all grid arrays; `arrays * element_bytes` if they are alike.
    fixed_bytes
        Bytes of replicated data, which every host keeps.
    border_bytes
        Bytes per border, direction and iteration.
    messages
        Messages that carry the border bytes.
    """

    name: str
    model: str
    parameters: Mapping[str, Value]
    rows: int
    columns: int
    iterations: int
    arrays: int
    element_bytes: int
    point_bytes: float
    fixed_bytes: float
    border_bytes: float
    messages: int

    def strip_memory(self, rows: float) -> float:
        """Return the bytes a strip needs: its rows, a border row on each side, replicated data.

        The second filter of Berman et al. 1996, section 2.3.
        """
        return (rows + 2) * self.columns * self.point_bytes + self.fixed_bytes

    def rectangle_memory(self, rows: int, columns: int) -> float:
        """Return the bytes a rectangle needs: its points, a border of one point all around, replicated data."""
        return (rows + 2) * (columns + 2) * self.point_bytes + self.fixed_bytes


def bound_parameters(
    declared: Mapping[str, Parameter], given: Mapping[str, Value], source: str
) -> dict[str, Value]:
    """Return the value of every declared parameter; raise `DocumentError` with all problems of `given`.

    `source` is the file or the option that messages name.
    """
    problems = [
        Problem(
            source,
            None,
            name,
            "no such parameter",
            nearest(name, declared),
            code="parameter-unknown",
        )
        for name in given
        if name not in declared
    ]
    values: dict[str, Value] = {}
    for name, parameter in declared.items():
        value = given.get(name, parameter.default)
        if value is None:
            why = f"has no default: set {name}=VALUE"
            problems.append(Problem(source, None, name, why, code="parameter-missing"))
            continue
        try:
            values[name] = parameter.accept(value)
        except InvalidValueError as error:
            problems.append(Problem(source, None, name, str(error), code=error.code))
    if problems:
        raise DocumentError(problems)
    return values


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Evaluate the sizes of one template at given parameters; collect the problem of each size without a value."""

    values: Mapping[str, Value]
    source: str
    problems: list[Problem]

    def size(self, field: str, expression: Expression, least: int) -> int:
        """Return a whole number of at least `least`; after a problem, `least`."""
        value = self.number(field, expression, least)
        if float(value).is_integer():
            return int(value)
        self._refuse(field, f"{_said(expression, value)}: must be a whole number", "value-type")
        return least

    def number(self, field: str, expression: Expression, least: float) -> float:
        """Return a number of at least `least`; after a problem, `least`."""
        numbers = {k: v for k, v in self.values.items() if not isinstance(v, str)}
        try:
            value = expression.evaluate(numbers)
        except ExpressionError as error:
            self._refuse(field, str(error), error.code)
            return least
        if value < least:
            self._refuse(
                field, f"{_said(expression, value)}: must be at least {least}", "value-range"
            )
            return least
        return value

    def _refuse(self, field: str, message: str, code: str) -> None:
        self.problems.append(Problem(self.source, None, field, message, code=code))

    def present(self, data: Iterable[Data]) -> Iterator[tuple[int, Data]]:
        """Yield the index and the entry of each data structure that exists at these parameters."""
        for i, entry in enumerate(data):
            if entry.when is None or self.values.get(entry.when) not in {None, 0, ""}:
                yield i, entry

    def bytes_of(self, data: Iterable[Data], distribution: str, points: int) -> list[float]:
        """Return the bytes of each data structure of one distribution."""
        return [
            entry.element_bytes
            * (self.number(f"data[{i}].elements", entry.elements, 1) if entry.elements else points)
            for i, entry in self.present(data)
            if entry.distribution == distribution
        ]

    def border(self, interfaces: Iterable[Interface], row_bytes: float) -> float:
        """Return the bytes that all interfaces move over a border in one direction."""
        return sum(
            self.number(f"interface[{i}].bytes", one.size, 0) if one.size else row_bytes
            for i, one in enumerate(interfaces)
        )


def _said(expression: Expression, value: float) -> str:
    return f"{shown(expression.text)} is {shown(value)}"
