"""Recorded series from files: arrays of values on a regular grid, NaN where one is missing."""

import csv
import math
import zipfile
import zlib
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nws.grid import Grid
from nws.measurement import checked_value

Numbers = NDArray[np.float64]
MOST_SAMPLES: Final = 50_000_000


def read_recording(path: Path) -> dict[str, Numbers]:
    """Return the series of a file by name: of ``.npz`` its arrays, else of a CSV the one series.

    A CSV has lines ``timestamp,value``, times in seconds since the epoch or ISO 8601, ascending; a
    heading and lines that start with ``#`` are passed over. What is missing from a regular series
    is NaN in the result.

    Raises
    ------
    ValueError
        Permanent: it cannot be read so; the message names the line or the array.
    OSError
        The file cannot be opened.
    """
    if path.suffix == ".npz":
        return _read_arrays(path)
    return {path.stem: _read_lines(path)}


def _read_arrays(path: Path) -> dict[str, Numbers]:
    with path.open("rb") as file:
        if not zipfile.is_zipfile(file):
            raise ValueError(f"{path}: not an npz file")
    found = {}
    with np.load(path, allow_pickle=False) as arrays:
        for name in arrays.files:
            try:
                array = arrays[name]
            except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
                raise ValueError(f"{path}: {name}: not an array of numbers: {error}") from error
            found[name] = _series(array, f"{path}: {name}")
    if not found:
        raise ValueError(f"{path}: there is no array in it")
    return found


def _series(array: NDArray[Any], where: str) -> Numbers:
    if array.ndim != 1 or array.dtype.kind not in "fiu":
        raise ValueError(f"{where}: one row of numbers is wanted, not {array.dtype} {array.shape}")
    if not len(array):
        raise ValueError(f"{where}: there is nothing in it")
    if len(array) > MOST_SAMPLES:
        raise ValueError(f"{where}: {len(array)} samples are more than {MOST_SAMPLES}")
    values = array.astype(np.float64)
    known = values[~np.isnan(values)]
    if (np.abs(known) > 1e300).any():
        raise ValueError(f"{where}: a value is infinite or larger than 1e300")
    return values


def _read_lines(path: Path) -> Numbers:
    values: list[float] = []
    grid, before = Grid(), -math.inf
    with path.open(newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        try:
            for row in rows:
                where = f"{path}:{rows.line_num}"
                if not row or row[0].startswith("#") or (not values and _is_heading(row)):
                    continue
                time, value = _sample(row, where)
                if not time > before:
                    raise ValueError(f"{where}: the time is not later than the one before")
                if values:
                    values += [math.nan] * grid.missing(time - before)
                    grid.update(time - before)
                values.append(value)
                before = time
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"{path}:{rows.line_num}: {error}") from error
    if not values:
        raise ValueError(f"{path}: there is no 'timestamp,value' in it")
    return np.array(values)


def _is_heading(row: list[str]) -> bool:
    try:
        float(row[-1])
    except ValueError:
        return True
    return False


def _sample(row: list[str], where: str) -> tuple[float, float]:
    try:
        time, value = row
        return _seconds(time), checked_value(float(value))
    except ValueError as error:
        wanted = f"{where}: 'timestamp,value' is wanted, not {','.join(row)!r:.80}"
        raise ValueError(wanted) from error


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        return datetime.fromisoformat(text.strip()).timestamp()
    return checked_value(seconds)
