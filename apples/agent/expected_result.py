"""Compare a result with that of a function from the template, which computes independently of the program.

The function is a user's code that may never return, so it runs in a child process: ``python -m
apples.agent.expected_result FILE.py:NAME FOLDER``. The child reads the parameters from standard input and
writes ``expected.npy`` or ``failure.json`` to the folder.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from apples.errors import DeadlineError, Failure, VerificationError, failure_of
from apples.ui.units import duration

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    import hat
    from apples.agent.documents import DifferingCell, ExpectedResultCheck

STANDARD_ERROR = 2
RESULT, EXPECTED, FAILURE = "result.npy", "expected.npy", "failure.json"
CELLS_AT_ONCE = 1 << 20
"""Cells of each result that are in memory at the same time."""


@dataclass(frozen=True, slots=True)
class ResultComparison:
    """Comparison of a result with that of the template's function.

    Attributes
    ----------
    function, tolerance
        Function and tolerance in the template.
    largest_difference
        Largest difference of a cell, divided by max(1, absolute expected value); None: a difference is not
        finite.
    differs_at
        The first cell, in the order of the indices, that differs by more than the tolerance.
    """

    function: str
    tolerance: float
    largest_difference: float | None
    differs_at: DifferingCell | None

    def document(self) -> ExpectedResultCheck:
        """Return the comparison as the key ``verification.expected_result`` of ``apples.run/1``."""
        return {
            "function": self.function,
            "tolerance": self.tolerance,
            "largest_difference": self.largest_difference,
            "differs_at": self.differs_at,
        }


def compare_result(
    wanted: hat.ExpectedResult,
    folder: Path,
    parameters: Mapping[str, Any],
    result: Path,
    seconds: float | None = None,
) -> ResultComparison:
    """Evaluate the function of a template and compare it with the result of the program.

    Parameters
    ----------
    folder
        The template's.
    parameters
        Argument of the function.
    result
        Folder with the program's ``result.npy``; the function's own result is written there.
    seconds
        Time limit of the function; None: no limit.

    Raises
    ------
    DeadlineError
        The function did not return within the time limit.
    ApplesError
        The function is missing or fails, with file and line.
    VerificationError
        The result is missing, or the two results cannot be compared.
    """
    import numpy as np  # noqa: PLC0415 - a plan loads this module and needs no NumPy

    _evaluate(wanted.function, folder, parameters, result, seconds)
    if not (result / RESULT).is_file():
        raise _incomparable(f"the program saved no {RESULT}")
    found = np.load(result / RESULT, mmap_mode="r", allow_pickle=False)
    expected = np.load(result / EXPECTED, mmap_mode="r", allow_pickle=False)
    if found.shape != expected.shape:
        raise _incomparable(
            f"{wanted.function} returned shape {expected.shape}, the result has {found.shape}"
        )
    largest, cell = _compared(found, expected, wanted.tolerance)
    return ResultComparison(wanted.function, wanted.tolerance, largest, cell)


def _incomparable(why: str) -> VerificationError:
    return VerificationError(why, code="result-unverified", reason=why)


def _evaluate(
    function: str,
    folder: Path,
    parameters: Mapping[str, Any],
    result: Path,
    seconds: float | None,
) -> None:
    """Run the function in a child process and wait; its result is then in a file."""
    command = [sys.executable, "-P", "-m", __name__, function, str(result)]
    try:
        done = subprocess.run(
            command, cwd=folder, input=json.dumps(dict(parameters)), stdout=STANDARD_ERROR,
            text=True, timeout=seconds, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise DeadlineError(
            f"{function}: no answer in {duration(seconds or 0.0)}; --verify full waits for it",
            code="expected-result-timeout",
            value=function,
            seconds=seconds,
        ) from None
    if (result / FAILURE).is_file():
        raise Failure.of_document(json.loads((result / FAILURE).read_text("utf-8"))).error()
    if done.returncode:
        raise _incomparable(f"{function} ended with exit code {done.returncode}")


def _compared(
    found: NDArray[Any], expected: NDArray[Any], tolerance: float
) -> tuple[float | None, DifferingCell | None]:
    """Return the largest difference of two results, and the first cell beyond the tolerance."""
    import numpy as np  # noqa: PLC0415 - as in `compare_result`

    largest, first = 0.0, None
    rows = max(1, CELLS_AT_ONCE // max(1, int(np.prod(found.shape[1:]))))
    for start in range(0, len(found), rows):
        a, b = np.asarray(found[start : start + rows]), np.asarray(expected[start : start + rows])
        differences = _differences(a, b)
        largest = max(largest, float(differences.max(initial=0.0)))
        beyond = differences > tolerance
        if first is None and beyond.any():
            index = tuple(int(i) for i in np.unravel_index(int(beyond.argmax()), beyond.shape))
            first = _cell((start + index[0], *index[1:]), a[index], b[index])
    return (largest if np.isfinite(largest) else None), first


def _differences(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """Return each cell's difference over max(1, abs(b)): 0 if equal or both NaN, infinite if only one is NaN."""
    import numpy as np  # noqa: PLC0415 - as in `compare_result`

    same = a == b
    if a.dtype.kind == "f" and b.dtype.kind == "f":
        same |= np.isnan(a) & np.isnan(b)
    with np.errstate(all="ignore"):
        wide = b.astype(np.float64)
        apart = np.abs(a.astype(np.float64) - wide) / np.maximum(1.0, np.abs(wide))
    apart[np.isnan(apart)] = np.inf
    # Two integers that differ may be equal as floats.
    return np.where(same, 0.0, np.maximum(apart, np.finfo(np.float64).tiny))


def _cell(index: tuple[int, ...], value: object, expected: object) -> DifferingCell:
    return {"index": list(index), "value": str(value), "expected": str(expected)}


def main() -> int:
    """Evaluate a function in the working directory, as the child process."""
    import numpy as np  # noqa: PLC0415 - as in `compare_result`

    from apples.io.plugins import resolve  # noqa: PLC0415 - only the child loads the user's code

    function, folder = sys.argv[1], Path(sys.argv[2])
    try:
        evaluate: Any = resolve(function, {}, "expected_result", ("parameters",))
        returned = np.asarray(evaluate(json.load(sys.stdin)))
        if returned.dtype.kind not in "biuf" or not returned.ndim:
            raise _incomparable(f"{function} must return an array of real numbers")  # noqa: TRY301
        np.save(folder / EXPECTED, returned)
    except Exception as error:  # noqa: BLE001 - the parent raises any error
        (folder / FAILURE).write_text(json.dumps(failure_of(error).document()), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
