"""`Parameter`: what a user may set about an application (``--set grid=2000``)."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, StrictFloat, StrictInt, StrictStr, model_validator

from hat.fields import LARGEST_NUMBER, Entry, Number, Text
from hat.problem import shown

Value = int | float | str
Kind = Literal["integer", "number", "text"]


class Parameter(Entry):
    """One parameter: its default, its range and what it means.

    Examples
    --------
    >>> grid = Parameter(default=2000, minimum=3)
    >>> grid.kind, grid.accept("512")
    ('integer', 512)
    >>> grid.accept("0")
    Traceback (most recent call last):
    ValueError: must be at least 3 (is 0)
    """

    default: Annotated[StrictInt | StrictFloat | StrictStr | None, Field(union_mode="smart")] = (
        Field(None, description="Value when the user sets none; without one the user must set it.")
    )
    minimum: Number | None = Field(None, description="Smallest value allowed.")
    maximum: Number | None = Field(None, description="Largest value allowed.")
    declared_kind: Kind | None = Field(
        None, alias="kind", description="Kind of value; by the default's own when not given."
    )
    description: Text = Field("", description="What it means, with its unit.")

    @property
    def kind(self) -> Kind:
        """The kind of value: as declared, else that of the default, else an integer."""
        if self.declared_kind:
            return self.declared_kind
        if isinstance(self.default, str):
            return "text"
        return "number" if isinstance(self.default, float) else "integer"

    def accept(self, value: Value) -> Value:
        """Return a value, perhaps typed on a command line, as this parameter takes it.

        Raises
        ------
        ValueError
            What would be right, and what the value is.
        """
        if self.kind == "text":
            return _text(value)
        number = _number(value, self.kind)
        if self.minimum is not None and number < self.minimum:
            raise ValueError(f"must be at least {_short(self.minimum)} (is {shown(number)})")
        if self.maximum is not None and number > self.maximum:
            raise ValueError(f"must be at most {_short(self.maximum)} (is {shown(number)})")
        return number

    @model_validator(mode="after")
    def _consistent(self) -> Parameter:
        limits = [limit for limit in (self.minimum, self.maximum) if limit is not None]
        if limits and self.kind == "text":
            raise ValueError("text has no minimum and no maximum")
        if limits != sorted(limits):
            low, high = map(_short, limits)
            raise ValueError(f"minimum must be at most maximum (are {low} and {high})")
        if self.default is not None:
            try:
                self.accept(self.default)
            except ValueError as error:
                raise ValueError(f"default {error}") from None
        return self


def _text(value: Value) -> str:
    text = str(value)
    if not all(c.isprintable() for c in text) or len(text) > 4096:
        raise ValueError(f"must be text of one line, at most 4096 characters (is {shown(text)})")
    return text


def _number(value: Value, kind: Kind) -> int | float:
    what = "a whole number" if kind == "integer" else "a number"
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise ValueError(f"must be {what} (is {shown(value)})") from None
    if not math.isfinite(number):
        raise ValueError(f"must be a finite number (is {shown(value)})")
    if abs(number) > LARGEST_NUMBER:
        raise ValueError(f"must be at most 1e18 (is {shown(value)})")
    if kind == "number":
        return number
    if not number.is_integer():
        raise ValueError(f"must be a whole number (is {shown(value)})")
    try:
        return int(value)
    except ValueError:  # "2e3"
        return int(number)


def _short(limit: float) -> str:
    return str(int(limit)) if limit.is_integer() else str(limit)
