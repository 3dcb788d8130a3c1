"""Checkpoints: commits on disk, and the policy that chooses among commits on disk and in memory.

A commit on disk is a file for each rank, with its image, and a manifest with their sizes and checksums. Any number
of ranks can read it. The manifest is written last (`apples.malleable.control.commits`). The two newest commits are
kept, so that the job can use the older if the newest is damaged. Constant arrays are written twice in the life of
a job, with its first two commits. Successive commits refer to different copies, so that damage to one copy costs
one commit.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Sequence
from pathlib import Path

from mpi4py import MPI

from apples.io.naming import naming
from apples.malleable.control.command import ChangePlan
from apples.malleable.control.commits import (
    ATTEMPT_COMMITS,
    KEPT_COMMITS,
    Kind,
    Manifest,
    constant_manifest,
    data_path,
    highest_commit,
    prune,
    publish,
    remove,
    whole_manifests,
)
from apples.malleable.control.strips import RowRange, rank_ranges
from apples.malleable.runtime import memory_checkpoint, rank_image
from apples.malleable.runtime.channel import RankChannel
from apples.malleable.runtime.collectives import broadcast_document, gather_documents, total
from apples.malleable.runtime.membership import Declared
from apples.malleable.runtime.packing import Image
from apples.malleable.runtime.row_memory import PIECE_BYTES


def write_commit(
    comm: MPI.Intracomm,
    directory: Path,
    number: int,
    declared: Declared,
    strips: Sequence[RowRange],
    constant: int = 0,
) -> str:
    """Commit the state to disk; return the reason of a failure, or an empty text. Collective.

    A failed commit leaves the commit before it unchanged and removes its own files; the job continues.

    Parameters
    ----------
    strips
        Rows of every rank.
    constant
        Number of the commit with which the constant arrays were written; 0 or `number`: write them now.
    """
    fault, refers, rank = "", {}, comm.Get_rank()
    if declared.constant.arrays:
        refers["constant"] = constant or number
        if refers["constant"] == number:
            image = rank_image.snapshot(declared.constant, strips, rank)()
            fault = _write(comm, directory, number, "constant", image, {})
    if not fault:
        image = rank_image.snapshot(declared.changing, strips, rank)()
        fault = _write(comm, directory, number, "commit", image, refers)
    if rank == 0:
        with contextlib.suppress(OSError):
            (remove if fault else prune)(directory, number)
    return fault


def _write(
    comm: MPI.Intracomm, directory: Path, number: int, kind: Kind, image: Image, refers: Manifest
) -> str:
    """Write the files of one kind of a commit, then the manifest; return the reason of a failure. Collective.

    Each rank writes alone: a rank that cannot write must not keep the others waiting in a collective call.
    """
    path = data_path(directory, number, comm.Get_rank(), kind)
    size = check = 0
    fault = ""
    try:
        with naming(path), path.open("wb") as stream:
            for chunk in image.chunks():
                stream.write(chunk)
                size, check = size + chunk.nbytes, zlib.crc32(chunk, check)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        fault = f"{directory}: {error.strerror}"
    written = gather_documents(comm, [fault, [*image.header["strip"], size, check]])
    fault = next((reason for reason, _ in written if reason), "")
    if not fault and comm.Get_rank() == 0:
        entries = {name: image.header[name] for name in ("declared", "values")}
        entries["images"] = [entry for _, entry in written]
        try:
            publish(directory, number, {**refers, **entries}, kind)
        except OSError as error:
            fault = f"{error.filename or directory}: {error.strerror}"
    return str(broadcast_document(comm, fault))


def restore_commit(
    comm: MPI.Intracomm, plan: ChangePlan, declared: Declared, strips: Sequence[RowRange]
) -> tuple[int, int]:
    """Load the newest intact commit into these strips; return its number, 0 without a commit. Collective.

    In an intact commit every checksum is right. To verify that, the ranks read all files, each rank a part of
    them. The second result is the number of the commit's copy of constant arrays.
    """
    directory = Path(plan.commits)
    manifests: list[tuple[Manifest, Manifest]] = []
    if comm.Get_rank() == 0 and plan.commits:
        manifests = [(it, constant_manifest(directory, it)) for it in whole_manifests(directory)]
    for commit, copy in broadcast_document(comm, manifests):
        kinds: list[tuple[Kind, Declared, Manifest]] = [("commit", declared.changing, commit)]
        if declared.constant.arrays:
            kinds.append(("constant", declared.constant, copy))
        if all(_is_whole(comm, directory, *kind) for kind in kinds):
            for kind in kinds:
                _take(comm, directory, *kind, strips)
            return commit["commit"], commit.get("constant", 0)
    return 0, 0


def _is_whole(
    comm: MPI.Intracomm, directory: Path, kind: Kind, declared: Declared, manifest: Manifest
) -> bool:
    """Whether the files match the program's declarations, each rank sees them, and all checksums are right."""
    if manifest.get("declared") != declared.summary():
        return False
    number, rank, size = manifest["commit"], comm.Get_rank(), comm.Get_size()
    good = True
    for of, (_, _, length, check) in enumerate(manifest["images"]):
        path = data_path(directory, number, of, kind)
        good = good and _has(path, length, check if of % size == rank else None)
    return not total(comm, not good)


def _has(path: Path, length: int, check: int | None) -> bool:
    """Whether this rank can open a file that has this length and, if one is given, this CRC-32."""
    actual = 0
    try:
        with path.open("rb", buffering=0) as stream:
            if check is None or os.fstat(stream.fileno()).st_size != length:
                return os.fstat(stream.fileno()).st_size == length
            while piece := stream.read(PIECE_BYTES):
                actual = zlib.crc32(piece, actual)
    except OSError:
        return False
    return actual == check


def _take(
    comm: MPI.Intracomm,
    directory: Path,
    kind: Kind,
    declared: Declared,
    manifest: Manifest,
    strips: Sequence[RowRange],
) -> None:
    """Load the files of one kind of a commit into these strips. Collective."""

    def image(of: int) -> Image:
        with data_path(directory, manifest["commit"], of, kind).open("rb") as stream:
            return Image.mapped(stream.fileno())

    before = [RowRange(first, stop) for first, stop, *_ in manifest["images"]]
    senders = [of % comm.Get_size() for of in range(len(before))]
    rank_image.restore(comm, declared, strips, image, before, senders, shared=True)


class CheckpointPolicy:
    """Makes the commits of a job, and chooses the commit from which it continues. Every rank takes part.

    Attributes
    ----------
    number
        Number of the last commit that any rank began. No number is used twice.
    constants
        Numbers of the copies of the constant arrays on disk; the last belongs to the last commit.
    """

    def __init__(self, channel: RankChannel) -> None:
        self._channel = channel
        self.number = 0
        self.constants: tuple[int, ...] = ()

    def make(
        self,
        comm: MPI.Intracomm,
        plan: ChangePlan,
        declared: Declared,
        *,
        opportunistic: bool = False,
    ) -> str:
        """Commit the state on disk, if the plan has a directory, and in memory; return the reason of a failure.

        Collective.

        Parameters
        ----------
        opportunistic
            Whether to commit in memory alone, and only if there is memory to spare: neither the program nor the
            user asked for this commit.
        """
        self.number += 1
        fault = ""
        strips = [rows for _, rows in rank_ranges(plan.new, plan.slots)]
        if plan.commits and not opportunistic:
            fault = self.commit_on_disk(comm, Path(plan.commits), declared, strips)
        image = rank_image.snapshot(declared, strips, comm.Get_rank())()
        no_memory = memory_checkpoint.commit_in_memory(
            comm, self._channel, self.number, plan, image, opportunistic=opportunistic
        )
        return fault or no_memory

    def commit_on_disk(
        self,
        comm: MPI.Intracomm,
        directory: Path,
        declared: Declared,
        strips: Sequence[RowRange],
    ) -> str:
        """Commit on disk, with a copy of the constant arrays while there are too few. Collective."""
        constant = self.number if len(self.constants) < KEPT_COMMITS else self.constants[0]
        fault = write_commit(comm, directory, self.number, declared, strips, constant)
        if not fault and declared.constant.arrays:
            self.constants = (*(copy for copy in self.constants if copy != constant), constant)
        return fault

    def restore(
        self,
        comm: MPI.Intracomm,
        plan: ChangePlan,
        declared: Declared,
        strips: Sequence[RowRange],
        first: bool,
    ) -> int:
        """Load the newest intact commit into these strips; return its number, 0 without a commit. Collective.

        Parameters
        ----------
        first
            Whether this rank requests the images that its node supervisor keeps. One rank of each host does.
        """
        directory = Path(plan.commits)
        here = comm.Get_rank() == 0 and bool(plan.commits)
        newest = next((m["commit"] for m in whole_manifests(directory)), 0) if here else 0
        highest = highest_commit(directory) if here else 0
        oldest = int(broadcast_document(comm, newest))
        asks = first and plan.origin == "commit"
        kept = memory_checkpoint.kept_images(self._channel) if asks else {}
        numbers = gather_documents(comm, max([highest, *kept]))
        self.number = max(plan.commit, (plan.attempt - 1) * ATTEMPT_COMMITS, *numbers)
        commit = memory_checkpoint.restore_from_memory(comm, kept, oldest, declared, strips)
        if commit:
            self._channel.send("whole", epoch=commit)
        else:
            commit, constant = restore_commit(comm, plan, declared, strips)
            self.constants = (constant,) if constant else ()
        return commit
