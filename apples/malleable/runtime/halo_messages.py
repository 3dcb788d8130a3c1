"""`HaloMessages`: the messages and bytes of halo exchanges between all ranks, reported by rank 0.

All ranks exchange equally often, and the bytes of an exchange follow from all tiles, which every rank has. So no
message is counted: an exchange increments one number, and rank 0 multiplies it for a report.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apples.launch.host_spec import HOSTS_LIMIT
from apples.malleable.control.strips import RowRange
from apples.malleable.runtime.agent_task import emit
from apples.malleable.runtime.declared import DistributedArray
from apples.malleable.runtime.tiles import Tile

LINE_BYTES = 60_000
"""Maximum length of an event: an agent rejects longer events than 64 KiB."""
MAX_RANKS = 2048
"""Maps with more ranks are not reported."""
PAIR_BYTES = 80
"""Maximum length of an entry of an event: two ranks, and the messages and bytes between them."""


class HaloMessages:
    """Reports the exchanges of declared arrays since the present map of hosts began; on rank 0.

    Parameters
    ----------
    arrays
        All declared arrays.
    layout
        The host of each rank, and its rows.
    epoch
        Number of the map; 0 for a rigid program.
    anew
        Whether all processes began with this map.
    together
        Whether all ranks share one ``MPI_COMM_WORLD``; else only the ranks of each host do.
    """

    def __init__(
        self,
        arrays: Sequence[DistributedArray],
        layout: Sequence[tuple[str, RowRange]],
        epoch: int,
        *,
        anew: bool,
        together: bool,
    ) -> None:
        hosts = [(host, len(list(ranks))) for host, ranks in groupby(host for host, _ in layout)]
        # The agent treats a report of more hosts than HOSTS_LIMIT as a fault of the program.
        few = len(layout) <= MAX_RANKS and len(hosts) <= HOSTS_LIMIT
        self._arrays = [one for one in arrays if few and any(one.halos)]
        self._before = [one.exchanges for one in self._arrays]
        self._map = {"epoch": epoch, "anew": anew, "together": together, "hosts": hosts}
        self._pairs: NDArray[np.int64] | None = None  # from rank, to rank
        self._each: list[
            NDArray[np.int64]
        ] = []  # bytes of an exchange of each array, by these pairs
        self._reported: list[int] = []

    def report(self, iteration: int) -> None:
        """Report the messages so far, if they differ from the last report."""
        counts = [
            one.exchanges - before for one, before in zip(self._arrays, self._before, strict=True)
        ]
        if not counts or counts == self._reported:
            return
        self._reported = counts
        entries = {**self._map, "iteration": iteration}
        room = (LINE_BYTES - len(json.dumps(entries))) // PAIR_BYTES
        sent = self._sent(counts)
        for first in range(0, max(1, len(sent)), max(1, room)) if room > 0 else ():
            emit("messages", **entries, sent=sent[first : first + room])

    def _sent(self, counts: Sequence[int]) -> list[list[int]]:
        """Return the pairs of ranks with messages: from, to, messages, bytes."""
        if not any(counts):
            return []
        if self._pairs is None:
            self._pairs, self._each = _by_pair([exchanged_bytes(one) for one in self._arrays])
        messages, sent = (np.zeros(len(self._pairs), np.int64) for _ in range(2))
        for count, each in zip(counts, self._each, strict=True):
            messages += count * (each > 0)
            sent += count * each
        rows: list[list[int]] = np.column_stack((self._pairs, messages, sent))[sent > 0].tolist()
        return rows


def exchanged_bytes(array: DistributedArray) -> NDArray[np.int64]:
    """Return the bytes that one exchange of an array sends: rows of from rank, to rank, bytes.

    It loops over the ranks, because a matrix of all pairs is mostly zeros.
    """
    owned, needed = (
        _corners([of(tile) for tile in array.tiles]) for of in (array.owned, array.needed)
    )
    rows = []
    for rank, own in enumerate(owned):
        cells: Any = 1
        for axis in (0, 2):
            begin = np.maximum(own[axis], needed[:, axis])
            end = np.minimum(own[axis + 1], needed[:, axis + 1])
            cells = cells * np.maximum(end - begin, 0)
        cells[rank] = 0
        to = np.flatnonzero(cells)
        rows.append(np.column_stack((np.full_like(to, rank), to, cells[to] * array.cell_bytes)))
    return np.concatenate(rows)


def _by_pair(
    each: Sequence[NDArray[np.int64]],
) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
    """Return the pairs of ranks with messages of any array, and for each array the bytes of each pair."""
    pairs, places = np.unique(
        np.concatenate([one[:, :2] for one in each]), axis=0, return_inverse=True
    )
    places, sizes, first = places.reshape(-1), [], 0
    for one in each:
        sent = np.zeros(len(pairs), np.int64)
        sent[places[first : first + len(one)]] = one[:, 2]
        sizes.append(sent)
        first += len(one)
    return pairs, sizes


def _corners(tiles: Sequence[Tile]) -> NDArray[np.int64]:
    """Return the first row and the row after the last of each tile, then the same of its columns."""
    return np.array(
        [(t.rows.first, t.rows.stop, t.columns.first, t.columns.stop) for t in tiles], np.int64
    )
