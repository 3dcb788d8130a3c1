"""`dask_client`: the connection to the scheduler of an existing Dask cluster, for sweeps of either kind."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Any

from apples.errors import LaunchError, UsageError

ANSWER_SECONDS = 10


def dask_client(address: str) -> Any:
    """Return a `distributed.Client` of the scheduler at `address`: a context manager, its end is the connection's.

    Raises
    ------
    UsageError
        Dask is not installed. Permanent.
    LaunchError
        Nobody answers there within ten seconds, or what answers is no scheduler.
    """
    try:
        distributed = import_module("distributed")
    except ImportError as error:
        raise UsageError("--dask needs: pip install 'apples[dask]'") from error
    # What it logs about a connection that ends is said by whoever needed it, in one line.
    for name in ("distributed", "distributed.client", "distributed.core"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        return distributed.Client(address, timeout=ANSWER_SECONDS)
    except (OSError, ValueError, TypeError) as error:
        words = str(error).splitlines() or [type(error).__name__]
        raise LaunchError(f"no Dask scheduler at {address}: {words[0]}") from error
