"""Commit points of a job: on disk and in memory, and which of them to go on from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mpi4py import MPI

from apples.malleable import checkpoint, commits, peer_copy
from apples.malleable.assembly import collect, share
from apples.malleable.channel import Channel
from apples.malleable.membership import Declared, Plan
from apples.malleable.strips import Range


class Keeping:
    """The commits one rank takes part in.

    Attributes
    ----------
    number
        Of the last commit that was made or tried, by whomever: no number is used twice.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.number = 0

    def make(self, comm: MPI.Intracomm, plan: Plan, declared: Declared, strip: Range) -> str:
        """Commit the state on disk, if there is a directory, and in memory; return what went wrong. Collective.

        Blocks are committed on disk alone: their sizes change, and a copy in memory goes by rows.
        """
        self.number += 1
        fault = ""
        if plan.commits:
            fault = checkpoint.write(comm, Path(plan.commits), self.number, declared, strip)
        if not declared.blocks:
            peer_copy.keep(comm, self._channel, self.number, plan, declared)
        elif not plan.commits:
            fault = "blocks are committed on disk, and the job has no directory for it"
        return fault

    def restore(
        self,
        comm: MPI.Intracomm,
        plan: Plan,
        declared: Declared,
        strips: Sequence[Range],
        first: bool,
    ) -> int:
        """Take the newest whole commit into these strips; return its number, 0 if there is none. Collective.

        Parameters
        ----------
        first
            Whether this rank asks the guard of its host; one rank a host does.
        """
        directory = Path(plan.commits)
        here = comm.Get_rank() == 0 and bool(plan.commits)
        newest = next((m["commit"] for m in commits.manifests(directory)), 0) if here else 0
        highest = commits.highest(directory) if here else 0
        least = int(share(comm, newest))
        asks = first and plan.origin == "commit" and not declared.blocks
        have = peer_copy.pieces(self._channel) if asks else []
        seen = collect(comm, max([highest, *(piece.number for piece in have)]))
        self.number = max(plan.commit, *seen)
        found = peer_copy.restore(comm, have, least, declared, strips)
        return found or checkpoint.restore(comm, plan, declared, strips[comm.Get_rank()])
