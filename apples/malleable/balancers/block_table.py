"""The block table as plain data: which processor owns each block, and into how many blocks a program is split.

Task decomposition of van Albada et al. 1999 ("Job preparation"). Tight: one partition for each processor, in
proportion to its capacity. Redundant: several for each processor, so that load can move, at a cost in
communication. Sparse: fewer partitions than processors, so that any processor can be vacated, at a cost in speed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from apples.errors import UsageError
from apples.malleable.balancers.contract import Measured, Processor
from apples.malleable.balancers.strategies import contiguous

Kind = Literal["tight", "redundant", "sparse"]
FACTOR = 4
SPARE = 1
MAX_BLOCKS = 1 << 20


@dataclass(frozen=True, slots=True)
class Decomposition:
    """The number of blocks for a number of processors, and the size of each.

    Attributes
    ----------
    kind
        ``tight``, ``redundant`` or ``sparse``.
    number
        Blocks on each processor (redundant), or idle processors (sparse); 1 for a tight fit.

    Examples
    --------
    >>> Decomposition.read("redundant:8").blocks(3), Decomposition.read("sparse").blocks(3)
    (24, 2)
    """

    kind: Kind
    number: int = 1

    def __str__(self) -> str:
        """Return the decomposition as a user writes it."""
        return self.kind if self.kind == "tight" else f"{self.kind}:{self.number}"

    @classmethod
    def read(cls, text: str) -> Decomposition:
        """Return the decomposition a user wrote: ``tight``, ``redundant[:FACTOR]`` or ``sparse[:SPARE]``.

        Raises
        ------
        UsageError
            The text has another form. Permanent.
        """
        found = re.fullmatch(r"(redundant|sparse)(?::([1-9][0-9]{0,4}))?", text)
        if text == "tight":
            return cls("tight")
        if found is None:
            raise UsageError(
                f"decomposition '{text}': must be tight, redundant[:FACTOR] or sparse[:SPARE]",
                code="value-invalid",
                field="decomposition",
                value=text,
            )
        if found[1] == "redundant":
            return cls("redundant", int(found[2] or FACTOR))
        return cls("sparse", int(found[2] or SPARE))

    def blocks(self, processors: int) -> int:
        """Return the number of blocks for this number of processors at the start.

        Raises
        ------
        UsageError
            A sparse decomposition leaves no block, or there are too many blocks. Permanent.
        """
        count = {
            "tight": processors,
            "redundant": processors * self.number,
            "sparse": processors - self.number,
        }[self.kind]
        if count < 1:
            raise UsageError(
                f"decomposition sparse:{self.number} leaves no block on {processors} processors: "
                f"at least {self.number + 1} are needed",
                code="value-range",
                field="processors",
                value=processors,
                bound=self.number + 1,
            )
        return demand_blocks(count)

    def shares(self, processors: Sequence[Processor]) -> tuple[float, ...]:
        """Return the share of the data for each block; the shares add up to 1.

        The shares are in proportion to capacity if each processor has one block, and equal if it has several.

        Examples
        --------
        >>> Decomposition("tight").shares([Processor("ada"), Processor("bob", speed=3.0)])
        (0.25, 0.75)
        """
        count = self.blocks(len(processors))
        if self.kind == "redundant":
            return (1 / count,) * count
        capacities = [processors[place].capacity for place in _fastest(processors, count)]
        return tuple(one / sum(capacities) for one in capacities)

    def begin(self, processors: Sequence[Processor]) -> BlockTable:
        """Return the first owner of each block."""
        count = self.blocks(len(processors))
        if self.kind == "redundant":
            return runs(count, processors)
        return BlockTable(_fastest(processors, count))


@dataclass(frozen=True, slots=True)
class BlockTable:
    """Which processor (rank) owns each block; blocks are numbered from 0.

    Examples
    --------
    >>> table = BlockTable((0, 0, 1, 2))
    >>> table.of(0), table.moves(BlockTable((0, 1, 1, 1)))
    ((0, 1), {1: (0, 1), 3: (2, 1)})
    """

    owners: tuple[int, ...]

    def __len__(self) -> int:
        """Return the number of blocks."""
        return len(self.owners)

    def of(self, rank: int) -> tuple[int, ...]:
        """Return the blocks of a rank, ascending."""
        return tuple(block for block, owner in enumerate(self.owners) if owner == rank)

    def moves(self, new: BlockTable) -> dict[int, tuple[int, int]]:
        """Return the blocks that change owner, each with its old and its new owner."""
        pairs = enumerate(zip(self.owners, new.owners, strict=True))
        return {block: pair for block, pair in pairs if pair[0] != pair[1]}


def runs(count: int, processors: Sequence[Processor]) -> BlockTable:
    """Return a table of `count` blocks of equal work: each processor has a run in proportion to its capacity.

    Examples
    --------
    >>> runs(4, [Processor("ada"), Processor("bob", speed=3.0)]).owners
    (0, 1, 1, 1)
    """
    demand_blocks(count)
    return BlockTable(contiguous(Measured((1.0,) * count, (0,) * count, tuple(processors))))


def demand_blocks(count: int) -> int:
    """Return the number of blocks; reject a number outside 1 to `MAX_BLOCKS`."""
    if not 1 <= count <= MAX_BLOCKS:
        raise UsageError(
            f"{count} blocks: must be between 1 and {MAX_BLOCKS}",
            code="value-range",
            field="blocks",
            value=count,
            bound=MAX_BLOCKS,
        )
    return count


def _fastest(processors: Sequence[Processor], count: int) -> tuple[int, ...]:
    """Return the `count` processors with the largest capacity, in rank order."""
    by_capacity = sorted(range(len(processors)), key=lambda p: (-processors[p].capacity, p))
    return tuple(sorted(by_capacity[:count]))
