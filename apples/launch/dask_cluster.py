"""`DaskCluster`: a connection to the scheduler of an existing Dask cluster, for sweeps of either kind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from threading import Thread
from typing import Any, TypeVar

from apples.errors import LaunchError, UsageError

# Dask's client (2026.8) has no deadline for its requests. The kernel of a stopped scheduler
# (SIGSTOP, a paused virtual machine) still acknowledges packets, so no connection ends.
ANSWER_SECONDS = 10
SILENT_SECONDS = 30.0
"""Timeout of a request; after it the scheduler counts as stopped. A busy scheduler may answer late."""
LOOK_SECONDS = 1.0
"""Interval between two checks of the scheduler while a result is awaited."""

Found = TypeVar("Found")


class DaskCluster:
    """A connected Dask cluster.

    Attributes
    ----------
    client
        A `distributed.Client`.
    address
        Address of the scheduler.
    """

    def __init__(self, client: Any, address: str) -> None:
        self.client, self.address = client, address

    def workers(self) -> set[str]:
        """Return the addresses of the current workers.

        Raises
        ------
        LaunchError
            The scheduler is gone or does not answer.
        """
        found: set[str] = self.client.sync(self._workers)
        return found

    def await_answer(self, asked: Callable[[], Awaitable[Found]]) -> Found:
        """Return the result of a request that has no time limit, as long as the scheduler answers checks.

        Parameters
        ----------
        asked
            Starts the request. It is called on the client's event loop and may await the client's methods.

        Raises
        ------
        LaunchError
            The scheduler is gone or does not answer.
        """

        async def come() -> Found:
            coming = asyncio.ensure_future(asked())
            try:
                while not (await asyncio.wait([coming], timeout=LOOK_SECONDS))[0]:
                    await self._workers()
                return await coming
            finally:
                coming.cancel()

        found: Found = self.client.sync(come)
        return found

    async def _workers(self) -> set[str]:
        try:
            return set(await asyncio.wait_for(self.client.nthreads(), SILENT_SECONDS))
        except Exception as error:
            raise LaunchError(
                f"the Dask scheduler at {self.address} does not answer",
                code="dask-unreachable",
                address=self.address,
            ) from error


@contextmanager
def dask_cluster(address: str) -> Iterator[DaskCluster]:
    """Connect to the Dask scheduler at `address`; yield the cluster.

    Raises
    ------
    UsageError
        Dask is not installed. Permanent.
    LaunchError
        No process answers at the address within ten seconds, or the answer is not from a Dask scheduler.
    """
    try:
        distributed = import_module("distributed")
    except ImportError as error:
        raise UsageError(
            "--dask needs: pip install 'apples[dask]'",
            code="package-missing", option="--dask", packages=["distributed"],
        ) from error  # fmt: skip
    # Dask logs the end of a connection in many lines; the caller that needed it raises an error of one line.
    for name in ("distributed", "distributed.client", "distributed.core"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        client = _connect(partial(distributed.Client, address, timeout=ANSWER_SECONDS))
    except (OSError, ValueError, TypeError) as error:
        words = str(error).splitlines() or ["does not answer"]
        raise LaunchError(
            f"no Dask scheduler at {address}: {words[0]}",
            code="dask-unreachable", address=address, reason=words[0],
        ) from error  # fmt: skip
    try:
        yield DaskCluster(client, address)
    finally:
        with suppress(TimeoutError):  # the scheduler does not answer
            client.close(ANSWER_SECONDS)


def _connect(client: Callable[[], Any]) -> Any:
    """Return a client, created in a thread: Dask has no timeout for the first message of a scheduler."""
    made: Future[Any] = Future()

    def make() -> None:
        try:
            found = client()
        except Exception as error:  # noqa: BLE001 - raised to the waiting thread
            with suppress(InvalidStateError):
                made.set_exception(error)
            return
        try:
            made.set_result(found)
        except InvalidStateError:
            found.close()

    Thread(target=make, daemon=True).start()
    try:
        return made.result(ANSWER_SECONDS + 1)
    finally:
        made.cancel()
