"""Size expressions of a template: ``"grid*grid"``, ``"8*grid"``, ``"max(grid, 2)//3"``.

An expression comes from a file and never runs as Python. The module checks its syntax tree against a short list
of allowed nodes and bounds every step, so that it rejects ``10**10**10`` at once.
"""

from __future__ import annotations

import ast
import math
import operator
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from keyword import iskeyword

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from hat.fields import LARGEST_NUMBER
from hat.problem import HatError, shown

Value = int | float

LONGEST = 200
DEEPEST = 24
LARGEST_EXPONENT = 64
ALPHABET = re.compile(r"[A-Za-z0-9_+\-*/%(),. \t]*")
TOO_LARGE = "is larger than 1e18"


class ExpressionError(HatError, ValueError):
    """A text is not a size expression, or the expression has no value at these parameters."""

    code = "expression-invalid"


def _power(base: Value, exponent: Value) -> Value:
    if abs(exponent) > LARGEST_EXPONENT:
        raise OverflowError
    result: Value | complex = base**exponent
    if isinstance(result, complex):
        raise ValueError
    return result


OPERATORS: Mapping[type[ast.AST], Callable[..., Value]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}

FUNCTIONS: Mapping[str, Callable[..., Value]] = {
    "min": min,
    "max": max,
    "ceil": math.ceil,
    "floor": math.floor,
    "sqrt": math.sqrt,
    "log2": math.log2,
}
"""`min` and `max` take two values or more, the other functions take one."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A size as a function of an application's parameters.

    Operators ``+ - * / // % **``, parentheses, functions `min max ceil floor sqrt log2`, names of parameters.
    At most 200 characters; no intermediate value may exceed 1e18.

    Attributes
    ----------
    text
        Text in the document.

    Examples
    --------
    >>> half = Expression("max(grid, 2)//2")
    >>> half.evaluate({"grid": 9}), sorted(half.names), str(half)
    (4, ['grid'], 'max(grid, 2)//2')
    >>> Expression("10**10**10").evaluate({})
    Traceback (most recent call last):
    hat.expression.ExpressionError: '10**10**10' is larger than 1e18
    """

    text: str
    _tree: ast.expr = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_tree", _parsed(self.text))

    def __str__(self) -> str:
        return self.text

    @property
    def names(self) -> frozenset[str]:
        """Names of the parameters that it uses."""
        used = {node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name)}
        return frozenset(used - FUNCTIONS.keys())

    def evaluate(self, parameters: Mapping[str, Value]) -> float:
        """Return the value at `parameters`; a whole number stays an exact `int`.

        Raises
        ------
        ExpressionError
            A parameter is missing, or the value does not exist or is larger than 1e18.
        """
        try:
            return _evaluated(self._tree, parameters)
        except OverflowError:
            error = self._error(TOO_LARGE, parameters, code="value-range")
        except ZeroDivisionError:
            error = self._error("divides by zero", parameters, code="expression-undefined")
        except KeyError as missing:
            why = f"needs a value of '{missing.args[0]}'"
            error = self._error(why, parameters, code="parameter-missing")
        except ValueError:
            error = self._error("is no real number", parameters, code="expression-undefined")
        raise error

    def _error(self, why: str, parameters: Mapping[str, Value], *, code: str) -> ExpressionError:
        used = {name: parameters[name] for name in sorted(self.names & parameters.keys())}
        text = f"{shown(self.text)} {why}{_at(used)}"
        return ExpressionError(text, code=code, value=self.text, parameters=used)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Accept text or a number in a document; write text."""
        del source, handler
        written = core_schema.union_schema(
            [core_schema.str_schema(), core_schema.float_schema(strict=True)]
        )
        return core_schema.no_info_before_validator_function(
            _from_document,
            core_schema.is_instance_schema(cls),
            json_schema_input_schema=written,
            serialization=core_schema.to_string_ser_schema(when_used="always"),
        )


def _from_document(value: object) -> Expression:
    if isinstance(value, Expression):
        return value
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ExpressionError(
            f'must be a size expression such as "8*grid" (is {shown(value)})',
            code="value-type",
            value=shown(value),
        )
    if not isinstance(value, str) and not abs(value) <= LARGEST_NUMBER:
        raise ExpressionError(
            f"must be a finite number of at most 1e18 (is {shown(value)})",
            code="value-range",
            value=shown(value),
            bound=LARGEST_NUMBER,
        )
    expression = Expression(str(value))
    if not expression.names:
        expression.evaluate({})
    return expression


def _parsed(text: str) -> ast.expr:
    """Return the checked syntax tree of `text`."""
    if len(text) > LONGEST:
        raise ExpressionError(
            f"an expression has at most {LONGEST} characters (has {len(text)})",
            code="expression-too-long",
            value=len(text),
            bound=LONGEST,
        )
    if not ALPHABET.fullmatch(text):
        raise _invalid(text, "is not a size expression")
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise _invalid(text, "is not a size expression") from None
    _check(tree, text, DEEPEST)
    return tree


def _invalid(text: str, why: str) -> ExpressionError:
    return ExpressionError(f"{shown(text)} {why}", code="expression-invalid", value=shown(text))


def _check(node: ast.expr, text: str, depth: int) -> None:
    """Reject a node that is not on the list of allowed nodes."""
    if depth == 0:
        raise _invalid(text, "is nested too deeply")
    match node:
        case ast.BinOp(left, op, right) if type(op) in OPERATORS:
            parts = [left, right]
        case ast.UnaryOp(op, operand) if type(op) in OPERATORS:
            parts = [operand]
        case ast.Call(ast.Name(name), arguments, []) if name in FUNCTIONS:
            several = name in {"min", "max"}
            if len(arguments) < 2 if several else len(arguments) != 1:
                count = "two values or more" if several else "one value"
                raise _invalid(
                    text, f"calls {name}() with {len(arguments)} values; it takes {count}"
                )
            parts = arguments
        case ast.Name(name) if name not in FUNCTIONS and not iskeyword(name):
            parts = []
        case ast.Constant(int() | float() as value) if not isinstance(value, bool):
            parts = []
        case _:
            raise _invalid(
                text,
                "is not a size expression: only numbers, parameters, "
                f"+ - * / // % ** and {' '.join(FUNCTIONS)}",
            )
    for part in parts:
        _check(part, text, depth - 1)


def _evaluated(node: ast.expr, parameters: Mapping[str, Value]) -> Value:
    match node:
        case ast.BinOp(left, op, right):
            operands = (_evaluated(left, parameters), _evaluated(right, parameters))
            value = OPERATORS[type(op)](*operands)
        case ast.UnaryOp(op, operand):
            value = OPERATORS[type(op)](_evaluated(operand, parameters))
        case ast.Call(ast.Name(name), arguments):
            value = FUNCTIONS[name](*(_evaluated(part, parameters) for part in arguments))
        case ast.Name(name):
            value = parameters[name]
        case ast.Constant(int() | float() as value):
            pass
        case _:
            raise AssertionError(node)
    if not abs(value) <= LARGEST_NUMBER:
        raise OverflowError
    return value


def _at(parameters: Mapping[str, Value]) -> str:
    known = [f"{name} = {shown(value)}" for name, value in parameters.items()]
    return f" at {', '.join(known)}" if known else ""
