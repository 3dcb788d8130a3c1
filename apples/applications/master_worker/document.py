"""`MasterWorkerFile`: a master/worker program as its author describes it, ``master-worker.toml``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, Strict, model_validator

import hat
from apples.applications.master_worker.rates import UnitCosts
from apples.applications.parameter_sweep.document import ParameterName, PlainName, Value
from apples.errors import UsageError, coded, within
from apples.resources.host import Name, PositiveNumber

MOST_UNITS_OF_ALL = 1_000_000

Amount = hat.Expression
ASSUMED = {"work": 1.0, "service": 0.0, "bytes": 100.0, "result_bytes": 100.0}
"""What is not said."""
PythonFile = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}\.py$")]


class MasterWorkerFile(hat.StrictTable):
    """A master/worker program as written.

    Attributes
    ----------
    program
        A Python file beside this one with the functions `units`, `work` and `combine`, and `check` if it likes.
    files
        Others beside it that travel with it.
    units
        How many units there are.
    work, service
        What a worker computes for a unit, and what the master does, in units of the hosts' `seconds_per_point`.
    bytes, result_bytes
        Of a unit and of its result, on the wire.
    hosts, masters
        Those that may work, and that may be the master; empty: all of the list, and all that may work.
    attempts
        How often a unit that fails is tried.
    every
        Seconds between two looks at whether other workers would be better.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
    program: PythonFile = "program.py"
    files: list[PlainName] = Field([])
    parameters: dict[ParameterName, Value] = Field({})
    units: Amount
    work: Amount | None = None
    service: Amount | None = None
    bytes: Amount | None = None
    result_bytes: Amount | None = None
    hosts: list[Name] = Field([])
    masters: list[Name] = Field([])
    attempts: Annotated[int, Strict(), Field(ge=1, le=10)] = 2
    every: PositiveNumber = 5.0

    @model_validator(mode="after")
    def _names_are_known(self) -> MasterWorkerFile:
        hat.refuse(list(self._unknown()))
        return self

    def _unknown(self) -> Iterator[hat.Fault]:
        numeric = [name for name, value in self.parameters.items() if not isinstance(value, str)]
        for field in ("units", "work", "service", "bytes", "result_bytes"):
            said: hat.Expression | None = getattr(self, field)
            for name in sorted(said.names - set(numeric) if said else ()):
                message = f"names '{name}', which is no parameter that is a number"
                yield hat.Fault(
                    (field,), message, hat.nearest(name, sorted(numeric)), code="parameter-unknown"
                )

    def settings(self, given: Mapping[str, str]) -> dict[str, Value]:
        """Return the parameters with those that a user has set, each of the kind that it is in the file."""
        declared = {name: hat.Parameter(default=value) for name, value in self.parameters.items()}
        return hat.bound_parameters(declared, given, "--set")

    def count(self, parameters: Mapping[str, Value]) -> int:
        """Return how many units there are.

        Raises
        ------
        UsageError
            No whole number between 1 and a million. Permanent.
        """
        value = self._value("units", parameters)
        if value != int(value) or not 1 <= value <= MOST_UNITS_OF_ALL:
            raise UsageError(
                f"units: must be a whole number from 1 to {MOST_UNITS_OF_ALL} (is {value:g})",
                code="value-range",
                field="units",
                value=value,
                bound=MOST_UNITS_OF_ALL,
            )
        return int(value)

    def costs(self, parameters: Mapping[str, Value]) -> UnitCosts:
        """Return what a unit costs.

        Raises
        ------
        UsageError
            An amount is negative, or the work is nothing. Permanent.
        """
        names = ("work", "service", "bytes", "result_bytes")
        amounts = [self._value(name, parameters) for name in names]
        for name, amount in zip(names, amounts, strict=True):
            if amount < 0 or (name == "work" and amount == 0):
                raise UsageError(
                    f"{name}: must be positive (is {amount:g})",
                    code="value-range",
                    field=name,
                    value=amount,
                    bound=0,
                )
        return UnitCosts(*amounts)

    def _value(self, field: str, parameters: Mapping[str, Value]) -> float:
        numbers = {name: value for name, value in parameters.items() if not isinstance(value, str)}
        said: hat.Expression | None = getattr(self, field)
        if said is None:
            return ASSUMED[field]
        try:
            return float(said.evaluate(numbers))
        except hat.ExpressionError as error:
            raise UsageError(f"{field}: {error}", **{**coded(error), "field": field}) from None


@dataclass(frozen=True)
class MasterWorkerProgram:
    """What a file says of a program under a user's settings, whatever hosts there are.

    Attributes
    ----------
    files
        Those that travel by their names, the program first.
    count
        How many units there are.
    """

    document: MasterWorkerFile
    parameters: Mapping[str, Value]
    files: Mapping[str, Path]
    costs: UnitCosts
    count: int

    @classmethod
    def read(cls, file: Path, settings: Mapping[str, str]) -> MasterWorkerProgram:
        """Return the program of a file.

        Raises
        ------
        hat.DocumentError, UsageError
            What is wrong in the file or the settings, or a file beside it is not there. Permanent.
        """
        document = hat.read(file, MasterWorkerFile)
        parameters = document.settings(settings)
        with within(file):
            files = _beside(document, file.absolute().parent)
            return cls(
                document, parameters, files, document.costs(parameters), document.count(parameters)
            )


def _beside(document: MasterWorkerFile, folder: Path) -> dict[str, Path]:
    found = {name: folder / name for name in dict.fromkeys([document.program, *document.files])}
    for name, path in found.items():
        if not path.is_file():
            field = "program" if name == document.program else "files"
            raise UsageError(
                f"{field}: there is no file {path}", code="file-missing", field=field, file=path
            )
    return found
