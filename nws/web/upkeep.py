"""What goes on beside the requests: forecasters catch up, states are saved, old things let go."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine
from typing import Any, Final

from nws.journal import BusyError, LogError
from nws.web.desk import Desk

SLICE_SECONDS: Final = 0.002
PAUSE_SECONDS: Final = 0.002
BUSY_PAUSE_SECONDS: Final = 0.01
IDLE_SECONDS: Final = 0.05
SAVE_SECONDS: Final = 300.0

_log = logging.getLogger(__name__)


def upkeep(desk: Desk) -> list[Coroutine[Any, Any, None]]:
    """Return what is to run as long as the service does."""
    return [_catch_up(desk), _save_and_tidy(desk)]


async def _catch_up(desk: Desk) -> None:
    """Let the forecasters take in what waits, in slices that no request notices.

    While measurements come in they get a sixth of the time, else half.
    """
    before = -1
    while True:
        more = desk.station.forecasting.catch_up(SLICE_SECONDS)
        storing, before = desk.asked_to_store != before, desk.asked_to_store
        pause = BUSY_PAUSE_SECONDS if storing else PAUSE_SECONDS
        await asyncio.sleep(pause if more else IDLE_SECONDS)


async def _save_and_tidy(desk: Desk) -> None:
    while True:
        await asyncio.sleep(SAVE_SECONDS)
        try:
            await save(desk)
            await asyncio.to_thread(desk.station.tidy)
        except (OSError, LogError, BusyError, TimeoutError) as error:
            _log.warning("states are not saved: %s", error)


async def save(desk: Desk) -> None:
    """Save the states of all forecasters, a few at a time, so that requests go on."""
    states = []
    stop = time.perf_counter() + SLICE_SECONDS
    for entry in desk.station.forecasting.states():
        states.append(entry)
        if time.perf_counter() > stop:
            await asyncio.sleep(PAUSE_SECONDS)
            stop = time.perf_counter() + SLICE_SECONDS
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.to_thread(desk.station.write_states, states)
