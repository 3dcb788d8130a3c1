"""The inputs of a live scheduler in its log, from which a replay repeats every decision (`replay`).

The records of the log hold each change of the state. They suffice for a recovery, but not to explain a decision,
which also depends on the times of passes, reported speeds and answers of hosts. An *input* is a request, a report
or a tick with its time. The log keeps it if it had an effect or entered a decision. Inputs are written with the
next record, so they need no sync of their own.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields
from math import isfinite
from typing import Any, Final

from apples.cluster.orders import (
    HostAnswer,
    HostLease,
    HostLeft,
    JobReport,
    JobRunnerAnswer,
    Report,
    RunTimeEstimate,
)
from apples.cluster.state import Record

Input = list[Any]
"""``[time, verb, subject ..]``."""
BEGUN: Final = "begun"
"""Kind of the record after which the inputs of a start of the scheduler begin."""
HEAR: Final = "hear"
"""Kind of a record with inputs alone."""
MAX_INPUTS: Final = 200
"""Number of inputs above which they are written even without another record."""
MAX_BYTES: Final = 1 << 16
"""Limit of the inputs of one record, in bytes of JSON."""

REPORTS: Final[Mapping[str, type[Report]]] = {
    "job": JobReport, "left": HostLeft, "run_time": RunTimeEstimate,
    "answer": HostAnswer, "term": HostLease,
    "shepherd": JobRunnerAnswer,  # the name in the logs of earlier versions
}  # fmt: skip


def _default(one: Field[Any]) -> Any:
    return one.default if one.default_factory is MISSING else one.default_factory()


_VERBS = {kind: verb for verb, kind in REPORTS.items()}
_MEASURED = {"iteration", "iterations", "speeds", "messages", "anchor", "verifying_until"}
"""Frequently reported fields, absent from a report's input; separate inputs hold them if they enter a decision."""


REQUIRED: Final = {
    verb: tuple(one.name for one in fields(kind) if _default(one) is MISSING)
    for verb, kind in REPORTS.items()
}
_OTHERS: Final = {
    verb: tuple(
        (one.name, _default(one))
        for one in fields(kind)
        if one.name not in {*REQUIRED[verb], *_MEASURED}
    )
    for verb, kind in REPORTS.items()
}


def report_input(report: Report) -> list[Any]:
    """Return a report as the items of an input: its required fields, then a mapping of non-default fields.

    Examples
    --------
    >>> report_input(HostLeft(1, 2, "ada", 3))
    ['left', 1, 2, 'ada', 3]
    >>> report_input(HostAnswer("ada", "no route"))
    ['answer', 'ada', {'reason': 'no route'}]
    """
    verb = _VERBS[type(report)]
    words = [verb, *(getattr(report, name) for name in REQUIRED[verb])]
    more = {
        name: value
        for name, default in _OTHERS[verb]
        if (value := getattr(report, name)) != default
    }
    return [*words, more] if more else words


def written(value: Any) -> Any:
    """Return a value in the form that the log can hold: JSON has no infinity.

    Examples
    --------
    >>> written({"seconds": float("inf"), "hosts": ("ada",)})
    {'seconds': 'inf', 'hosts': ['ada']}
    """
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {key: written(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [written(each) for each in value]
    return value


class InputLog:
    """The inputs since the last `take`."""

    def __init__(self) -> None:
        self._kept: list[Input] = []
        self._told: defaultdict[str, dict[Any, tuple[Any, ...]]] = defaultdict(dict)

    def __len__(self) -> int:
        """Return the number of inputs."""
        return len(self._kept)

    def note(self, at: float, verb: str, *words: Any) -> None:
        """Keep an input."""
        self._kept.append([at, verb, *written(words)])

    def tell(self, at: float, verb: str, about: int | str, *words: Any) -> None:
        """Keep a fact that enters a decision if it differs from the last on its subject, initially empty."""
        before = self._told[verb].get(about)
        if before == words or (before is None and not any(words)):
            return
        self._told[verb][about] = words
        self.note(at, verb, about, *words)

    def forget(self, verb: str, about: int | str | None = None) -> None:
        """Forget the last input on a subject, or on all subjects of a verb."""
        if about is None:
            self._told[verb].clear()
        else:
            self._told[verb].pop(about, None)

    def take(self) -> list[Input]:
        """Return the inputs and remove them."""
        found, self._kept = self._kept, []
        return found


def with_inputs(records: Sequence[Record], inputs: Sequence[Input]) -> Sequence[Record]:
    """Return records that include the inputs.

    The last record takes the inputs; those beyond `MAX_BYTES` get records of their own before it. A single
    input above that limit is left out.

    Examples
    --------
    >>> with_inputs([{"do": "drain"}], [[1.0, "drain", "ada"]])
    [{'do': 'drain', 'inputs': [[1.0, 'drain', 'ada']]}]
    """
    parts: list[list[Input]] = [[]]
    if len(json.dumps(inputs)) <= MAX_BYTES:
        parts = [[*inputs]]
    else:
        size = 0
        for one in inputs:
            length = len(json.dumps(one))
            if length > MAX_BYTES:
                continue
            size += length
            if size > MAX_BYTES:
                parts.append([])
                size = length
            parts[-1].append(one)
    if records and parts[-1]:
        last = {**records[-1], "inputs": parts.pop()}
        records = [*records[:-1], last]
    return [*({"do": HEAR, "inputs": part} for part in parts if part), *records]
