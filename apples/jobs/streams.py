"""Server-sent events for the page of a run or job: its texts, and that its drawings grow."""

from __future__ import annotations

import asyncio
import json
import math
import time
from typing import Final

from apples.errors import ApplesError
from apples.jobs import store
from apples.jobs.text.job import live_texts
from apples.ui.web.streams import AGAIN_SECONDS, LiveStream

TAIL_BYTES: Final = 4 << 10
REDRAWN_SECONDS, REDRAWN_SHARE = 10.0, 0.02
"""A run that goes on is drawn anew after so long, or after so much of the time that it has taken: a column."""


def drawing_number(seconds: float) -> int:
    """Return which drawing of a run is to be shown so many seconds after its start.

    Examples
    --------
    >>> [drawing_number(after) for after in (0.0, 9.9, 10.0, 500.0, 509.0, 510.0, 3600.0)]
    [0, 0, 1, 50, 50, 51, 149]
    """
    steady = REDRAWN_SECONDS / REDRAWN_SHARE
    if seconds < steady:
        return max(0, int(seconds / REDRAWN_SECONDS))
    return int(1 / REDRAWN_SHARE + math.log(seconds / steady) / math.log1p(REDRAWN_SHARE))


class RecordStream(LiveStream):
    """What changes in the record of a run or job; its drawings grow while it goes on.

    Parameters
    ----------
    identifier
        Of the record.
    """

    def __init__(self, identifier: str) -> None:
        super().__init__()
        self._identifier = identifier
        self._shape = ""
        self._shown: dict[str, str] = {}

    async def look(self) -> None:
        """Look at the record every second."""
        while True:
            shape, texts = await asyncio.to_thread(self._found)
            for key, text in texts.items():
                if self._shown.get(key) != text:
                    self.text(key, text)
            if shape != self._shape:
                self.change()
            self._shape, self._shown = shape, texts
            await asyncio.sleep(AGAIN_SECONDS)

    def _found(self) -> tuple[str, dict[str, str]]:
        """Return what of the record is no text, and its texts; why it cannot be read where it was removed."""
        try:
            one = store.record(self._identifier)
            record = one.record()
        except (OSError, ApplesError) as error:
            return str(error), {}
        keys = ("state", "attempt", "epoch", "hosts", "rows", "last_resize", "last_change")
        going = record.get("state") not in store.OVER and record.get("submitted")
        drawn = drawing_number(time.time() - record["submitted"]) if going else 0
        shape = json.dumps([drawn, *(record.get(key) for key in keys)])
        return shape, live_texts(one.summary(record), log_end(one, TAIL_BYTES), time.time())


def log_end(one: store.StoredJob, most: int) -> str:
    """Return the end of a record's log; empty where there is none."""
    try:
        with one.log.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - most))
            return stream.read(most).decode("utf-8", "replace")
    except OSError:
        return ""
