"""The state that a rank saves when a change is taken back, and resumes with in the process that follows it.

A change that cannot be completed leaves the MPI library of those who took part in it in a state nobody can trust,
but not their data: what a rank had at the safe point it still has, until the job manager says that the new map
holds (`UndecidedChange`). So it packs that into memory which its node supervisor keeps, without MPI, and its
successor, started on the same host with the same strip, takes it from there. No iteration is computed again.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from apples.errors import ApplicationError
from apples.malleable.control.strips import RowRange
from apples.malleable.runtime.channel import RankChannel, SupervisorGoneError
from apples.malleable.runtime.checkpoint import CheckpointPolicy
from apples.malleable.runtime.collectives import total
from apples.malleable.runtime.membership import Declared
from apples.malleable.runtime.packing import Packed

SENTENCE = "the state that was saved when the change was taken back"


@dataclass(frozen=True, slots=True)
class RankState:
    """What one rank has at a safe point: views and references, nothing is copied before `pack`."""

    header: dict[str, Any]
    pieces: tuple[Callable[[], Sequence[NDArray[Any]]], ...]

    @classmethod
    def of(cls, declared: Declared, strip: RowRange, commits: CheckpointPolicy) -> RankState:
        """Return the state of a rank with this strip, and which commits there are."""
        pieces: list[Callable[[], Sequence[NDArray[Any]]]] = [
            lambda: [one.local for one in declared.arrays],
            lambda: [one.array for one in declared.replicated],
        ]
        blocks = []
        for one in declared.blocks:
            held = one.held()
            blocks.append({"numbers": list(held), **one.document()})
            pieces.append(lambda held=held: [pack() for pack in held.values()])  # type: ignore[misc]
        header = {
            "strip": [strip.first, strip.stop],
            "commit": commits.number,
            "constants": commits.constants,
            "declared": declared.summary(),
            "values": declared.state.dump(),
            "blocks": blocks,
        }
        return cls(header, tuple(pieces))

    def save(self, channel: RankChannel, rank: int) -> None:
        """Give it to the node supervisor, as that of this rank of the host."""
        parts = [_bytes(part) for piece in self.pieces for part in piece()]
        text = json.dumps({**self.header, "sizes": [len(part) for part in parts]}).encode()
        # No MPI here: after a failed change this rank may be blocked in MPI_Comm_accept, and
        # collectives over a dead rank hang.
        handle = os.memfd_create("apples-saved")
        try:
            _write(handle, np.frombuffer(len(text).to_bytes(8, "little") + text, np.uint8))
            for part in parts:
                _write(handle, part)
            channel.keep(handle, saved=rank)
        finally:
            os.close(handle)


def resume(
    comm: MPI.Intracomm,
    channel: RankChannel,
    rank: int,
    declared: Declared,
    strips: Sequence[RowRange],
    commits: CheckpointPolicy,
) -> None:
    """Take on every rank what its predecessor saved, and which commits there are. Collective.

    Parameters
    ----------
    rank
        Of its host.
    strips
        Every rank's, which are the predecessors'.

    Raises
    ------
    ApplicationError
        On some rank there is none, or it is of another program or strip; then on every rank. Permanent.
    """
    handle, fault = -1, ""
    header: dict[str, Any] = {}
    try:
        handle, header = _saved(channel, rank, declared, strips[comm.Get_rank()])
    except ApplicationError as error:
        fault = str(error)
    try:
        if missing := total(comm, bool(fault)):
            raise ApplicationError(
                fault or f"{SENTENCE} is missing on {missing} ranks",
                code="saved-state-unusable",
                ranks=missing,
            )
        left: Iterator[tuple[int, int]] = iter(header["parts"])
        for array in declared.arrays:
            array.locate(comm, strips)
            array.hold(array.parts(strips), comm.Get_rank())
            _fill(handle, *next(left), array.contents())
        for one in declared.replicated:
            _fill(handle, *next(left), one.array)
        declared.state.load(header["values"])
        for blocks, entry in zip(declared.blocks, header["blocks"], strict=True):
            own: dict[int, Packed] = {n: _read(handle, *next(left)) for n in entry["numbers"]}
            blocks.resume(entry, own)
            blocks.locate()
    finally:
        if handle >= 0:
            os.close(handle)
    # A commit's number is never used twice.
    commits.number, commits.constants = int(header["commit"]), tuple(header["constants"])


def _saved(
    channel: RankChannel, rank: int, declared: Declared, strip: RowRange
) -> tuple[int, dict[str, Any]]:
    """Return the memory with what a rank saved, and what is in it: `parts` are place and size of each."""
    found = channel.memories(saved=rank)
    if len(found) != 1:
        raise ApplicationError(f"{SENTENCE} is missing", code="saved-state-unusable")
    _, handle = found[0]
    length = int.from_bytes(_read(handle, 0, 8).tobytes(), "little")
    header: dict[str, Any] = json.loads(_read(handle, 8, length).tobytes())
    mine = [[strip.first, strip.stop], json.loads(json.dumps(declared.summary()))]
    if [header["strip"], header["declared"]] != mine:
        os.close(handle)
        raise ApplicationError(
            f"{SENTENCE} is that of another strip", code="saved-state-unusable", rank=rank
        )
    places = accumulate(header["sizes"], initial=8 + length)
    header["parts"] = list(zip(places, header["sizes"], strict=False))
    return handle, header


class UndecidedChange:
    """A change that this rank carries out and the job manager has not decided yet.

    A thread listens meanwhile, because the rank's own may stand in a call of MPI that never returns: what the
    manager says is that the change holds, or that the rank is to save what it had and wait for its end.

    Parameters
    ----------
    state
        What it would save; None for a rank that joins, which is ended where the change does not hold.
    rank
        Of its host.
    """

    def __init__(self, channel: RankChannel, state: RankState | None, rank: int) -> None:
        self._channel, self._state, self._rank = channel, state, rank
        self._gone: SupervisorGoneError | None = None
        self._listener = threading.Thread(target=self._listen, daemon=True)
        if state is not None:
            self._listener.start()

    def wait(self) -> None:
        """Return when the change holds; raises `SupervisorGoneError` where the job is being ended."""
        if self._state is None:
            self._listen()
        else:
            self._listener.join()
        if self._gone is not None:
            raise self._gone

    def _listen(self) -> None:
        try:
            while (order := self._channel.wait()["order"]) != "hold":
                if order == "save":  # after which nothing comes but this process's end
                    self._save()
        except SupervisorGoneError as error:
            self._gone = error

    def _save(self) -> None:
        try:
            if self._state is not None:
                self._state.save(self._channel, self._rank)
        except SupervisorGoneError:
            raise
        except Exception as error:  # noqa: BLE001 - a full memory, or the program's own way to pack a block
            self._channel.send("unsaved", reason=f"{type(error).__name__}: {error}"[:2000])
        else:
            self._channel.send("saved")


def _bytes(part: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(part).reshape(-1).view(np.uint8)


def _write(handle: int, data: NDArray[np.uint8]) -> None:
    view = data.data
    while view:
        view = view[os.write(handle, view[: 1 << 30]) :]


def _read(handle: int, place: int, size: int) -> NDArray[np.uint8]:
    data = np.empty(size, np.uint8)
    _fill(handle, place, size, data)
    return data


def _fill(handle: int, place: int, size: int, into: NDArray[Any]) -> None:
    view = into.reshape(-1).view(np.uint8).data
    if len(view) != size:
        raise ApplicationError(
            f"{SENTENCE} has {size} bytes where {len(view)} are expected",
            code="saved-state-unusable",
            value=size,
            bound=len(view),
        )
    while view:
        count = os.preadv(handle, [view[: 1 << 30]], place)
        if not count:
            raise ApplicationError(f"{SENTENCE} is cut off", code="saved-state-unusable")
        view, place = view[count:], place + count
