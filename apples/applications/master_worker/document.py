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

MAX_UNITS = 1_000_000

Amount = hat.Expression
DEFAULT_COSTS = {"work": 1.0, "service": 0.0, "bytes": 100.0, "result_bytes": 100.0}
"""Default costs of a unit."""
PythonFile = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}\.py$")]


class MasterWorkerFile(hat.StrictTable):
    """A master/worker program as written."""

    name: str = Field(
        pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$",
        description="Name of the application.",
        examples=["integral"],
    )
    program: PythonFile = Field(
        "program.py",
        description="Python file beside this one with the functions units, work and combine, and perhaps check.",
    )
    files: list[PlainName] = Field(
        [],
        description="Files in this file's folder that are sent with the program.",
        examples=[["table.csv"]],
    )
    parameters: dict[ParameterName, Value] = Field(
        {},
        description="Values that the program receives; a run can set others.",
        json_schema_extra={"entry": "parameter"},
    )
    units: Amount = Field(
        description="Number of units, as an expression of parameters.", examples=["cells*cells"]
    )
    work: Amount | None = Field(
        None,
        description="Work of a worker for one unit; 1 if not given.",
        examples=["1"],
        json_schema_extra={"unit": "seconds_per_point"},
    )
    service: Amount | None = Field(
        None,
        description="Work of the master for one unit; 0 if not given.",
        examples=["0.01"],
        json_schema_extra={"unit": "seconds_per_point"},
    )
    bytes: Amount | None = Field(
        None,
        description="Size of a unit on the network; 100 if not given.",
        examples=["30"],
        json_schema_extra={"unit": "bytes"},
    )
    result_bytes: Amount | None = Field(
        None,
        description="Size of a result on the network; 100 if not given.",
        examples=["10"],
        json_schema_extra={"unit": "bytes"},
    )
    hosts: list[Name] = Field(
        [], description="Hosts that may work; empty: all of the list.", examples=[["ada", "bob"]]
    )
    masters: list[Name] = Field(
        [],
        description="Hosts that may be the master; empty: all that may work.",
        examples=[["ada"]],
    )
    attempts: Annotated[int, Strict()] = Field(
        2, ge=1, le=10, description="Number of times that a failing unit is tried."
    )
    every: PositiveNumber = Field(
        5.0,
        description="Time between two checks whether other workers would be better.",
        json_schema_extra={"unit": "s"},
    )

    @model_validator(mode="after")
    def _check_names(self) -> MasterWorkerFile:
        hat.refuse(list(self._unknown()))
        return self

    def _unknown(self) -> Iterator[hat.Fault]:
        numeric = [name for name, value in self.parameters.items() if not isinstance(value, str)]
        for field in ("units", "work", "service", "bytes", "result_bytes"):
            said: hat.Expression | None = getattr(self, field)
            for name in sorted(said.names - set(numeric) if said else ()):
                message = f"names '{name}', which is not a numeric parameter"
                yield hat.Fault(
                    (field,), message, hat.nearest(name, sorted(numeric)), code="parameter-unknown"
                )

    def settings(self, given: Mapping[str, str]) -> dict[str, Value]:
        """Return the parameters with the user's settings, each of the type that it has in the file."""
        declared = {name: hat.Parameter(default=value) for name, value in self.parameters.items()}
        return hat.bound_parameters(declared, given, "--set")

    def count(self, parameters: Mapping[str, Value]) -> int:
        """Return the number of units.

        Raises
        ------
        UsageError
            It is not an integer between 1 and a million. Permanent.
        """
        value = self._value("units", parameters)
        if value != int(value) or not 1 <= value <= MAX_UNITS:
            raise UsageError(
                f"units: must be a whole number from 1 to {MAX_UNITS} (is {value:g})",
                code="value-range",
                field="units",
                value=value,
                bound=MAX_UNITS,
            )
        return int(value)

    def costs(self, parameters: Mapping[str, Value]) -> UnitCosts:
        """Return the costs of a unit.

        Raises
        ------
        UsageError
            An amount is negative, or the work is 0. Permanent.
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
            return DEFAULT_COSTS[field]
        try:
            return float(said.evaluate(numbers))
        except hat.ExpressionError as error:
            raise UsageError(f"{field}: {error}", **{**coded(error), "field": field}) from None


@dataclass(frozen=True)
class MasterWorkerProgram:
    """A program from a file under a user's settings, independent of hosts.

    Attributes
    ----------
    files
        The files to send by name, the program first.
    count
        Number of units.
    """

    document: MasterWorkerFile
    parameters: Mapping[str, Value]
    files: Mapping[str, Path]
    costs: UnitCosts
    count: int

    @classmethod
    def read(
        cls, file: Path, settings: Mapping[str, str], content: str | None = None
    ) -> MasterWorkerProgram:
        """Return the program of a file, or of `content`, an earlier text of it.

        Raises
        ------
        hat.DocumentError, UsageError
            The file or the settings are invalid, or a file beside it is missing. Permanent.
        """
        document = hat.Document.of(file, content).validate(MasterWorkerFile)
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
                f"{field}: no such file: {path}", code="file-missing", field=field, file=path
            )
    return found
