"""The state that a rank saves when a change is aborted. The process that replaces the rank resumes with it.

After a failed change the MPI library of its ranks cannot be trusted, but their data can: each rank still has the
data that it had at the safe point, until the job manager orders to commit the new map (`UndecidedChange`). So
the rank packs its image without MPI into memory that its node supervisor keeps. A new process on the same host
with the same strip takes it from there. No iteration is computed again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence

from mpi4py import MPI

from apples.errors import ApplicationError
from apples.malleable.control.strips import RowRange
from apples.malleable.runtime import rank_image
from apples.malleable.runtime.channel import RankChannel, SupervisorGoneError
from apples.malleable.runtime.checkpoint import CheckpointPolicy
from apples.malleable.runtime.collectives import total
from apples.malleable.runtime.membership import Declared
from apples.malleable.runtime.packing import Image

STATE = "the state saved when the change was aborted"


def resume(
    comm: MPI.Intracomm,
    channel: RankChannel,
    rank: int,
    declared: Declared,
    strips: Sequence[RowRange],
    commits: CheckpointPolicy,
) -> None:
    """Load the state that the predecessor of each rank saved, with the numbers of its commits. Collective.

    Parameters
    ----------
    rank
        Rank within its host.
    strips
        Strips of all ranks, equal to those of the predecessors.

    Raises
    ------
    ApplicationError
        The state of at least one rank is missing, or belongs to another program or strip. All ranks raise the
        error. Permanent.
    """
    images, fault = [], ""
    try:
        images.append(_saved(channel, rank, declared, strips[comm.Get_rank()]))
    except ApplicationError as error:
        fault = str(error)
    if missing := total(comm, bool(fault)):
        raise ApplicationError(
            fault or f"{STATE} is missing on {missing} ranks",
            code="saved-state-unusable",
            ranks=missing,
        )
    senders = range(comm.Get_size())
    rank_image.restore(comm, declared, strips, lambda _: images[0], strips, senders, stay=True)
    # The number of a commit is never used twice.
    commits.number = int(images[0].header["commit"])
    commits.constants = tuple(images[0].header["constants"])


def _saved(channel: RankChannel, rank: int, declared: Declared, strip: RowRange) -> Image:
    """Return the image that a rank saved."""
    memories = channel.memories(saved=rank)
    if len(memories) != 1:
        raise ApplicationError(f"{STATE} is missing", code="saved-state-unusable", rank=rank)
    _, handle = memories[0]
    try:
        image = Image.mapped(handle)
    finally:
        os.close(handle)
    saved = [image.header.get(name) for name in ("strip", "declared")]
    if saved != [[strip.first, strip.stop], declared.summary()]:
        raise ApplicationError(
            f"{STATE} is of another strip or program", code="saved-state-unusable", rank=rank
        )
    return image


class UndecidedChange:
    """A change that this rank carries out and that the job manager has not decided yet.

    A thread reads the manager's orders meanwhile, because the main thread may wait in an MPI call that never
    returns. The order is either to commit the change, or to save the state and wait for the end.

    Parameters
    ----------
    state
        Returns the image to save. None for a rank that joins: it is ended if the change is aborted.
    rank
        Rank within its host.
    """

    def __init__(self, channel: RankChannel, state: Callable[[], Image] | None, rank: int) -> None:
        self._channel, self._state, self._rank = channel, state, rank
        self._gone: SupervisorGoneError | None = None
        self._listener = threading.Thread(target=self._listen, daemon=True)
        if state is not None:
            self._listener.start()

    def wait(self) -> None:
        """Wait until the change is committed; raise `SupervisorGoneError` if the job is being ended."""
        if self._state is None:
            self._listen()
        else:
            self._listener.join()
        if self._gone is not None:
            raise self._gone

    def _listen(self) -> None:
        try:
            while (order := self._channel.wait()["order"]) != "commit":
                if order == "save" and self._state is not None:
                    self._save(self._state)
        except SupervisorGoneError as error:
            self._gone = error

    def _save(self, state: Callable[[], Image]) -> None:
        try:
            # No MPI here: this rank may be blocked in MPI_Comm_accept, and collectives over a dead
            # rank hang.
            handle = state().in_memory()
            try:
                self._channel.keep(handle, saved=self._rank)
            finally:
                os.close(handle)
        except SupervisorGoneError:
            raise
        except Exception as error:  # noqa: BLE001 - a full memory, or an error in the program's own pack function
            self._channel.send("unsaved", reason=f"{type(error).__name__}: {error}"[:2000])
        else:
            self._channel.send("saved")
