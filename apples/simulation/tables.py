"""Tables a user gives beside a log: CSV files of numbers, one line an entry."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from apples.errors import UsageError

MOST = 1e15
"""Of a number a user gives."""


def rows_of(words: Mapping[str, str], name: str, columns: int) -> list[list[float]]:
    """Return the rows of the CSV file that option `name` names, none without the option."""
    if name not in words:
        return []
    path = Path(words[name])
    try:
        with path.open(encoding="utf-8", newline="") as file:
            lines = list(csv.reader(file))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from error
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = [float(word) for word in line]
        except ValueError:
            if number == 1:
                continue
            raise UsageError(f"{path}:{number}: {','.join(line)!r} are not numbers") from None
        if not all(abs(value) <= MOST for value in row):
            raise UsageError(f"{path}:{number}: a number beyond {MOST:g}")
        if len(row) != columns:
            raise UsageError(f"{path}:{number}: {len(row)} columns where {name} have {columns}")
        rows.append(row)
    return rows


def demands_of(words: Mapping[str, str]) -> dict[int, tuple[tuple[float, int], ...]]:
    """Return what each evolving job asks for: (part of its work done, processors), in order."""
    demands: dict[int, tuple[tuple[float, int], ...]] = {}
    for job, part, processors in sorted(rows_of(words, "demands", 3)):
        if not 0 <= part < 1 or processors < 1:
            raise UsageError(
                f"option demands: job {job:g}: part {part:g}, {processors:g} asked for"
            )
        demands[int(job)] = (*demands.get(int(job), ()), (part, int(processors)))
    return demands
