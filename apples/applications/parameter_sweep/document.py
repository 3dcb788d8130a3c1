"""`ParameterSweepFile`: a parameter sweep as its author writes it, ``sweep.toml``, and the tasks it defines."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, Strict, model_validator

import hat
from apples.applications.parameter_sweep.on_hosts import PLACEHOLDER
from apples.errors import UsageError, coded
from apples.resources.host import Name, PositiveNumber, Text

MAX_TASKS = 10_000
MAX_PROGRAM_BYTES = 1 << 26
PARAMETER = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"
PLAIN = r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,254}$"
BUILT_IN = {"python"}

ParameterName = Annotated[str, Field(pattern=PARAMETER)]
PlainName = Annotated[str, Field(pattern=PLAIN)]
Whole = Annotated[int, Strict(), Field(ge=-(10**15), le=10**15)]
Number = Annotated[float, Strict(), Field(allow_inf_nan=False)]
Word = Annotated[str, Field(max_length=4096, pattern=r"^[^\x00-\x1f\x7f]*$")]
"""A word of a command, or a value in it; it may begin with a hyphen, as options do."""
Value = Whole | Number | Word


class ValueRange(hat.StrictTable):
    """Whole numbers from `from` to `to`, both included, in steps."""

    first: Whole = Field(alias="from", description="First value.", examples=[1])
    last: Whole = Field(alias="to", description="Last value.", examples=[10])
    step: Annotated[int, Strict()] = Field(
        1, ge=1, le=10**15, description="Distance between two values."
    )

    def values(self) -> range:
        """Return the numbers."""
        return range(self.first, self.last + 1, self.step)


class SweepInput(hat.StrictTable):
    """A file that each task reads."""

    file: str = Field(
        min_length=1,
        max_length=4096,
        pattern=r"^[^\x00-\x1f\x7f]+$",
        description="Path on the storage; {NAME} is a parameter. Relative to this file on this machine, else "
        "to the host's directory.",
        examples=["text-{part}.txt"],
    )
    storage: Name = Field(description="Host that has the file.", examples=["ada"])


class CacheEntry(hat.StrictTable):
    """The file cache of a site: a folder that all its hosts share."""

    site: Name = Field(description="Site; its hosts share the folder.", examples=["lab"])
    directory: Text = Field("", description="Path of the folder.", examples=["/scratch/cache"])
    capacity: hat.Size | None = Field(
        None,
        description="Bytes that the folder may hold; no limit if not given.",
        examples=["10 GB"],
        json_schema_extra={"unit": "bytes"},
    )


class ParameterSweepFile(hat.StrictTable):
    """A parameter sweep as written."""

    name: str = Field(
        pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$",
        description="Name of the sweep.",
        examples=["docking"],
    )
    command: list[Word] = Field(
        min_length=1,
        max_length=1000,
        description="Words of the command; {NAME} is a parameter, the path of an input, or the host's python.",
        examples=[["{python}", "program.py", "{shift}"]],
    )
    program: list[PlainName] = Field(
        [],
        description="Files in this file's folder that are sent to each cache; a word of the command with this "
        "name becomes the path there.",
        examples=[["program.py"]],
    )
    hosts: list[Name] = Field(
        [], description="Hosts that run tasks; empty: all of the list.", examples=[["ada", "bob"]]
    )
    parameters: dict[ParameterName, ValueRange | Annotated[list[Value], Field(min_length=1)]] = (
        Field(
            min_length=1,
            description="Parameters with their values; each combination of values is a task.",
            json_schema_extra={"entry": "parameter"},
        )
    )
    input: dict[ParameterName, SweepInput] = Field(
        {}, description="Files that tasks read; each is copied to a site once."
    )
    cache: list[CacheEntry] = Field([], description="Folders that the hosts of a site share.")
    work: hat.Expression | None = Field(
        None,
        description="Work of a task, as an expression of parameters; 1 if not given.",
        examples=["shift"],
        json_schema_extra={"unit": "seconds_per_point"},
    )
    outputs: list[PlainName] = Field(
        [],
        description="Files that a task leaves in its working folder, to be fetched.",
        examples=[["result.json"]],
    )
    timeout: PositiveNumber | None = Field(
        None,
        description="Time limit of a task; no limit if not given.",
        examples=[600],
        json_schema_extra={"unit": "s"},
    )
    attempts: Annotated[int, Strict()] = Field(
        2, ge=1, le=10, description="Number of times that a failing task is started."
    )
    every: PositiveNumber = Field(
        120.0, description="Time between two plans.", json_schema_extra={"unit": "s"}
    )

    @model_validator(mode="after")
    def _check_names(self) -> ParameterSweepFile:
        hat.refuse([*self._clashes(), *self._unknown(), *self._too_many()])
        return self

    def _clashes(self) -> Iterator[hat.Fault]:
        for name in {*self.parameters, *self.input} & BUILT_IN:
            table = "parameters" if name in self.parameters else "input"
            yield hat.Fault(
                (table, name),
                "must be another name: it stands for the interpreter",
                code="name-reserved",
            )
        for name in self.parameters.keys() & self.input.keys():
            yield hat.Fault(
                ("input", name), "must be another name: a parameter has it", code="name-repeated"
            )
        sites = [entry.site for entry in self.cache]
        for number, site in enumerate(sites):
            if site in sites[:number]:
                yield hat.Fault(
                    ("cache", number, "site"),
                    f"'{site}' has a cache already",
                    code="name-repeated",
                )

    def _unknown(self) -> Iterator[hat.Fault]:
        known = {*self.parameters, *self.input, *BUILT_IN}
        for number, word in enumerate(self.command):
            for name in PLACEHOLDER.findall(word):
                if name not in known:
                    message = f"names '{name}', which is neither a parameter nor an input"
                    yield hat.Fault(
                        ("command", number),
                        message,
                        hat.nearest(name, sorted(known)),
                        code="parameter-unknown",
                    )
        for key, entry in self.input.items():
            for name in PLACEHOLDER.findall(entry.file):
                if name not in self.parameters:
                    near = hat.nearest(name, sorted(self.parameters))
                    message = f"names '{name}', which is not a parameter"
                    yield hat.Fault(
                        ("input", key, "file"), message, near, code="parameter-unknown"
                    )
        numeric = {name for name in self.parameters if self._is_numeric(name)}
        for name in sorted(self.work.names - numeric if self.work else ()):
            message = f"names '{name}', which is not a numeric parameter"
            yield hat.Fault(
                ("work",), message, hat.nearest(name, sorted(numeric)), code="parameter-unknown"
            )

    def _too_many(self) -> Iterator[hat.Fault]:
        for name in self.parameters:
            if not self.values_of(name):
                yield hat.Fault(
                    ("parameters", name), "must have at least one value", code="value-missing"
                )
        count = prod(len(self.values_of(name)) for name in self.parameters)
        if count > MAX_TASKS:
            yield hat.Fault(
                ("parameters",),
                f"must make at most {MAX_TASKS} tasks (make {count})",
                code="value-range",
            )

    def _is_numeric(self, name: str) -> bool:
        entry = self.parameters[name]
        return isinstance(entry, ValueRange) or not any(isinstance(x, str) for x in entry)

    def values_of(self, name: str) -> list[Value] | range:
        """Return the values of a parameter, in their order."""
        entry = self.parameters[name]
        return entry.values() if isinstance(entry, ValueRange) else entry


@dataclass(frozen=True)
class TaskSetting:
    """One task of a document.

    Attributes
    ----------
    name
        Its number, from 1 on.
    parameters
        Value of each parameter.
    work
        Work of the task.
    inputs
        Path of each input's file on the storage.
    """

    name: str
    parameters: Mapping[str, Value]
    work: float
    inputs: Mapping[str, str]


def task_settings(document: ParameterSweepFile) -> tuple[TaskSetting, ...]:
    """Return the tasks of a sweep: every combination of values, the last parameter fastest.

    Raises
    ------
    UsageError
        The work of a task is not positive. Permanent.
    """
    names = list(document.parameters)
    combinations = list(itertools.product(*(document.values_of(name) for name in names)))
    width, found = len(str(len(combinations))), []
    for number, values in enumerate(combinations, 1):
        at = dict(zip(names, values, strict=True))
        name = f"{number:0{width}d}"
        work = 1.0
        if document.work is not None:
            numbers = {k: v for k, v in at.items() if not isinstance(v, str)}
            try:
                work = document.work.evaluate(numbers)
            except hat.ExpressionError as error:
                raise UsageError(
                    f"task {name} ({settings_text(at)}): work: {error}",
                    **{**coded(error), "task": name, "field": "work"},
                ) from None
        if not work > 0:
            raise UsageError(
                f"task {name} ({settings_text(at)}): work must be positive (is {work:g})",
                code="value-range",
                task=name,
                parameters=at,
                field="work",
                value=work,
                bound=0,
            )
        inputs = {key: filled(entry.file, at) for key, entry in document.input.items()}
        found.append(TaskSetting(name, at, work, inputs))
    return tuple(found)


def filled(text: str, values: Mapping[str, Value]) -> str:
    """Return a text with parameter names replaced by their values."""
    return PLACEHOLDER.sub(lambda hole: str(values.get(hole[1], hole[0])), text)


def settings_text(values: Mapping[str, Value]) -> str:
    """Return parameters as one line.

    Examples
    --------
    >>> settings_text({"power": 2, "part": "a"})
    'power=2, part=a'
    """
    return ", ".join(f"{name}={value}" for name, value in values.items())


def program_files(document: ParameterSweepFile, folder: Path) -> dict[str, Path]:
    """Return the files to send to each cache.

    Raises
    ------
    UsageError
        A file is missing or too large. Permanent.
    """
    found = {name: folder / name for name in document.program}
    for name, path in found.items():
        if not path.is_file():
            raise UsageError(
                f"program: no such file: {path}",
                code="file-missing",
                field="program",
                file=path,
            )
        if path.stat().st_size > MAX_PROGRAM_BYTES:
            raise UsageError(
                f"program: {name} has more than {MAX_PROGRAM_BYTES} bytes; make it an input",
                code="file-too-large",
                field="program",
                file=path,
                bound=MAX_PROGRAM_BYTES,
            )
    return found


def digest(
    document: ParameterSweepFile,
    program: Mapping[str, Path],
    inputs: Mapping[str, tuple[float, str]],
) -> str:
    """Return a digest of command, parameters, inputs and programs; sweeps with equal digests share results.

    An input file counts by its size and its name in a cache, which changes when the file is rewritten.
    """
    kept: dict[str, Any] = document.model_dump(
        mode="json", include={"name", "command", "program", "parameters", "input", "outputs"}
    )
    kept["inputs"] = inputs
    kept["files"] = {n: hashlib.sha256(p.read_bytes()).hexdigest() for n, p in program.items()}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
