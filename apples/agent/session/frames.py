"""`frame_of`: rows as a pandas data frame. pandas is optional; only `to_frame` of a result needs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from apples.errors import UsageError


def frame_of(rows: Sequence[Mapping[str, Any]], index: str) -> Any:
    """Return a `pandas.DataFrame` with a row for each of `rows`, and `index` as its index.

    Raises
    ------
    UsageError
        pandas is not installed. Permanent.
    """
    try:
        pandas = import_module("pandas")
    except ImportError:
        raise UsageError(
            "to_frame needs pandas, which is not installed: pip install pandas; without it use document()",
            code="package-missing",
            packages=["pandas"],
        ) from None
    return pandas.DataFrame.from_records(list(rows), index=index)
