"""Finds the performance cores of a hybrid machine from the properties that hwloc or the kernel gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from apples.topology.parts import CoreKind

INTEL: Final = {"IntelCore": 1, "IntelAtom": 0}
"""Type of core -> rank; types that are not listed rank lowest."""
NEARLY: Final = 0.9
"""Least part of the largest capacity for cores of the same kind, because some cores have higher clocks."""


def kinds_by_rank(ranked: Sequence[tuple[float, int]]) -> Mapping[CoreKind, int]:
    """Return the CPUs of each kind from (rank, mask): the highest rank is performance, the others are efficiency.

    Empty if all cores are of one kind.
    """
    best = max((rank for rank, _ in ranked), default=0.0)
    masks = {CoreKind.PERFORMANCE: 0, CoreKind.EFFICIENCY: 0}
    for rank, mask in ranked:
        masks[CoreKind.PERFORMANCE if rank >= NEARLY * best else CoreKind.EFFICIENCY] |= mask
    return masks if all(masks.values()) else {}


def kinds_of_infos(kinds: Sequence[tuple[int, Mapping[str, str]]]) -> Mapping[CoreKind, int]:
    """Return the CPUs of each kind from (mask, infos): by the type of core, else by capacity, else by rank."""
    if all("CoreType" in infos for _, infos in kinds):
        return kinds_by_rank([(INTEL.get(infos["CoreType"], 0), mask) for mask, infos in kinds])
    for key in ("LinuxCapacity", "forced_efficiency"):
        values = [infos.get(key, "") for _, infos in kinds]
        if all(value.isascii() and value.isdigit() and len(value) < 10 for value in values):
            ranks = [(float(value), mask) for value, (mask, _) in zip(values, kinds, strict=True)]
            return kinds_by_rank(ranks)
    return {}
