"""`HaloMessages`: what the exchanges of declared arrays have sent from each rank to each, as rank 0 tells it.

Every rank exchanges as often as the others, and what one exchange sends follows from all tiles, which every rank
knows. So nothing is counted for a message: an exchange adds one to a number, and rank 0 multiplies now and then.
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
"""Of an event, at most: an agent takes no longer ones than 64 KiB."""
MOST_RANKS = 2048
"""Of a map of which something is told."""
PAIR_BYTES = 80
"""Of two ranks, and messages and bytes between them, in an event, at most."""


class HaloMessages:
    """Tells what declared arrays have exchanged since this map of the hosts began. On rank 0.

    Parameters
    ----------
    arrays
        All declared arrays.
    layout
        The host of each rank, and its rows.
    epoch
        Number of the map; 0 of a program whose hosts do not change.
    anew
        Whether all processes began with this map.
    together
        Whether all ranks are of one ``MPI_COMM_WORLD``; else the ranks of each host are.
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
        # What is told of more hosts than a job has is taken for a fault of the program.
        few = len(layout) <= MOST_RANKS and len(hosts) <= HOSTS_LIMIT
        self._arrays = [one for one in arrays if few and any(one.halos)]
        self._before = [one.exchanges for one in self._arrays]
        self._map = {"epoch": epoch, "anew": anew, "together": together, "hosts": hosts}
        self._pairs: NDArray[np.int64] | None = None  # from rank, to rank
        self._each: list[
            NDArray[np.int64]
        ] = []  # bytes of an exchange of each array, by these pairs
        self._told: list[int] = []

    def tell(self, iteration: int) -> None:
        """Say what was sent by now, if it is other than was said last."""
        counts = [
            one.exchanges - before for one, before in zip(self._arrays, self._before, strict=True)
        ]
        if not counts or counts == self._told:
            return
        self._told = counts
        told = {**self._map, "iteration": iteration}
        room = (LINE_BYTES - len(json.dumps(told))) // PAIR_BYTES
        sent = self._sent(counts)
        for first in range(0, max(1, len(sent)), max(1, room)) if room > 0 else ():
            emit("messages", **told, sent=sent[first : first + room])

    def _sent(self, counts: Sequence[int]) -> list[list[int]]:
        """Return the pairs of ranks of which one has sent the other something: from, to, messages, bytes."""
        if not any(counts):
            return []
        if self._pairs is None:
            self._pairs, self._each = _by_pair([exchanged_bytes(one) for one in self._arrays])
        messages, sent = (np.zeros(len(self._pairs), np.int64) for _ in range(2))
        for count, each in zip(counts, self._each, strict=True):
            messages += count * (each > 0)
            sent += count * each
        found: list[list[int]] = np.column_stack((self._pairs, messages, sent))[sent > 0].tolist()
        return found


def exchanged_bytes(array: DistributedArray) -> NDArray[np.int64]:
    """Return what one exchange of an array sends: rows of from which rank, to which, and how many bytes.

    One rank after the other is asked, because a matrix of all pairs is much larger than what is in it.
    """
    owned, needed = (
        _corners([of(tile) for tile in array.tiles]) for of in (array.owned, array.needed)
    )
    found = []
    for rank, own in enumerate(owned):
        cells: Any = 1
        for axis in (0, 2):
            begin = np.maximum(own[axis], needed[:, axis])
            end = np.minimum(own[axis + 1], needed[:, axis + 1])
            cells = cells * np.maximum(end - begin, 0)
        cells[rank] = 0
        to = np.flatnonzero(cells)
        found.append(np.column_stack((np.full_like(to, rank), to, cells[to] * array.cell_bytes)))
    return np.concatenate(found)


def _by_pair(
    each: Sequence[NDArray[np.int64]],
) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
    """Return the pairs of ranks between which any array sends something, and by pair the bytes of each array."""
    pairs, places = np.unique(
        np.concatenate([one[:, :2] for one in each]), axis=0, return_inverse=True
    )
    places, found, first = places.reshape(-1), [], 0
    for one in each:
        sent = np.zeros(len(pairs), np.int64)
        sent[places[first : first + len(one)]] = one[:, 2]
        found.append(sent)
        first += len(one)
    return pairs, found


def _corners(tiles: Sequence[Tile]) -> NDArray[np.int64]:
    """Return of each tile the first row and the one after the last, then of the columns."""
    return np.array(
        [(t.rows.first, t.rows.stop, t.columns.first, t.columns.stop) for t in tiles], np.int64
    )
