"""The machine file: the partitions of a cluster in TOML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field, Strict, model_validator

import hat
from apples.simulation.config import Partition

MAX_PARTITIONS = 100
"""Each partition has its own queue and its own copy of the policy."""

PartitionName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=253)]
NodeMemory = Annotated[hat.Size, Field(ge=1, lt=2**63)]
Nodes = Annotated[int, Strict(), Field(ge=1, le=10_000_000)]
Speed = Annotated[float, Strict(), Field(ge=1e-3, le=1e3, allow_inf_nan=False)]


class PartitionEntry(hat.StrictTable):
    """``[[partition]]``: equal nodes with their own queue.

    Attributes
    ----------
    number
        Its number in logs without names; default: its place in the file, from 1.
    default
        Whether it gets the jobs that name no partition; without a default the first partition gets them.
    """

    name: PartitionName
    number: Annotated[int, Strict(), Field(ge=0, le=1_000_000)] | None = None
    nodes: Nodes
    cores: Annotated[int, Strict(), Field(ge=1, le=100_000)] = 1
    memory: NodeMemory | None = None
    gpus: Annotated[int, Strict(), Field(ge=0, le=1000)] | None = None
    speed: Speed = 1.0
    default: Annotated[bool, Strict()] = False


class MachineDocument(hat.StrictTable):
    """A machine file as written."""

    partition: Annotated[list[PartitionEntry], Field(min_length=1, max_length=MAX_PARTITIONS)]

    @property
    def numbers(self) -> list[int]:
        """The numbers of the partitions in logs without names."""
        return [
            place if one.number is None else one.number
            for place, one in enumerate(self.partition, 1)
        ]

    @model_validator(mode="after")
    def _check_partition_names(self) -> MachineDocument:
        hat.refuse([*self._repeated(), *self._defaults()])
        return self

    def _repeated(self) -> Iterator[hat.Fault]:
        called: dict[str, Sequence[str | int]] = {
            "name": [one.name for one in self.partition],
            "number": self.numbers,
        }
        for field, values in called.items():
            count = Counter(values)
            for place, value in enumerate(values):
                if count[value] > 1:
                    message = f"must be unique ('{value}' is there {count[value]} times)"
                    yield hat.Fault(("partition", place, field), message, code="name-repeated")

    def _defaults(self) -> Iterator[hat.Fault]:
        places = [place for place, one in enumerate(self.partition) if one.default]
        for place in places[1:]:
            first = self.partition[places[0]].name
            yield hat.Fault(
                ("partition", place, "default"),
                f"must be true for one partition only ('{first}' is the default one already)",
                code="field-conflict",
            )


def read_machine(path: str | Path) -> tuple[Partition, ...]:
    """Return the partitions of a machine file, in its order.

    If one partition states the GPUs of its nodes, the simulation counts GPUs, and the other partitions have none.

    Raises
    ------
    hat.DocumentError
        The file cannot be read or is invalid; the error has file, line and field. Permanent.
    """
    document = hat.read(path, MachineDocument)
    counted = any(one.gpus is not None for one in document.partition)
    default = next((k for k, one in enumerate(document.partition) if one.default), 0)
    return tuple(
        Partition(
            one.name, number, one.nodes, one.cores,
            memory=one.memory, gpus=(one.gpus or 0) if counted else None, speed=one.speed,
            default=place == default,
        )
        for place, (one, number) in enumerate(
            zip(document.partition, document.numbers, strict=True)
        )
    )  # fmt: skip
